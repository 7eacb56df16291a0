"""Kernels of random layers, measured in QEMU: what estimates are fitted to, and compared with."""

import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Kernel, Target
from crtgen.compiler.kernels.engine.registry import registered
from crtgen.compiler.level import LEVELS
from crtgen.network.ir import Array, Op
from crtgen.network.ops import Case, all_cases
from tests.compiler.kernels.chains import Chain, loop_kernels, stream_kernels
from tests.compiler.kernels.drawn import draw
from tests.compiler.kernels.fit import Sample
from tests.compiler.kernels.harness import Job, batches, measure_jobs
from tests.compiler.kernels.layers import KINDS
from tests.compiler.kernels.row_loop_cases import random_case, row_loop_cases

__all__ = ["TARGETS", "chains", "is_measured", "kernels_of", "layers", "measured", "operators_of"]

TARGETS = tuple(
    (core, flag)
    for core in ("cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55")
    for flag in ("-O2", "-Os")
)
"""The columns of ``costs.csv``: a core, and the option that its code is compiled with."""


def layers(count: int, seed: str, operators: Collection[type[Op]] | None = None) -> Iterator[Case]:
    """The operators' own cases, and ``count`` layers of each kind; of others than ``operators``, none.

    Those whose output is one constant are left out: compilers leave most of their code out, too.
    """
    own = (case for case in all_cases() if operators is None or type(case.op) in operators)
    yield from filter(is_measured, own)
    for kind, drawn in KINDS.items():
        if operators is not None and not set(operators) & set(drawn.operators):
            continue
        number, found = zlib.crc32(f"{seed} {kind}".encode()), 0
        while found < count:
            case = draw(drawn.layers, number)
            number += 1
            if case is not None:
                found += 1
                if is_measured(case):
                    yield case


def operators_of(families: Collection[str], core: str, flag: str) -> set[type[Op]]:
    """The operators that have a kernel of these templates."""
    return {
        type(case.op)
        for case in all_cases()
        if any(kernel.family in families for kernel in kernels_of(case, core, flag))
    }


def chains(count: int) -> Iterator[Case]:
    """Chains of layers by rows."""
    yield from filter(is_measured, (*row_loop_cases(), *map(random_case, range(count))))


def is_measured(case: Case) -> bool:
    """Whether its first output is no constant, and finite: the measuring program compares by a tolerance."""
    outputs = np.concatenate([_output(case, seed) for seed in (1, 2)])
    return bool(np.any(outputs != outputs[0]) and np.all(np.isfinite(outputs)))


def _output(case: Case, seed: int) -> Array:
    drawn = case.inputs(seed)
    arrays = [v.array() if v.is_constant else drawn[v.name] for v in case.sig.inputs]
    return case.op.reference(case.sig, arrays)[0].ravel()


def kernels_of(case: Case, core: str, flag: str) -> Iterator[Kernel]:
    """Every kernel in C or with C in it, for the levels whose code is compiled so; ``balanced`` has both."""
    levels = [name for name in ("speed", "size") if flag in (LEVELS[name].flag, LEVELS["balanced"].flag)]
    seen = set()
    for level in levels:
        target = Target(find_core(core), level, flag)
        if isinstance(case.op, Chain):
            found: list[Kernel | None] = [
                *loop_kernels(case.op, case.sig, target),
                *stream_kernels(case.op, case.sig, target),
            ]
        else:
            found = [entry.kernel(case.op, case.sig, target) for entry in registered(type(case.op))]
        for kernel in found:
            if kernel is not None and kernel.template and kernel.function not in seen:
                seen.add(kernel.function)
                yield kernel


def measured(
    cases: Sequence[Case], core: str, flag: str, families: Collection[str] = ()
) -> Iterator[tuple[Case, Sample]]:
    """The layers' kernels with what they take; only those of these templates, if any are named."""
    jobs = [
        Job(case, kernel)
        for case in cases
        for kernel in kernels_of(case, core, flag)
        if not families or kernel.family in families
    ]
    for batch in batches(jobs):
        with TemporaryDirectory() as folder:
            results = measure_jobs(batch, Path(folder), core, flag)
        for job, result in zip(batch, results, strict=True):
            if result.wrong:
                raise AssertionError(f"{job.case.op.name} {job.kernel.design}: {result.wrong}")
            yield job.case, Sample(job.kernel, result.instructions, result.code)
