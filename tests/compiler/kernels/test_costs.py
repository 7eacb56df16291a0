"""What kernels are estimated to cost, against what is counted; see ``benchmarks/fit_costs.py``."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import numpy as np
import pytest

from crtgen.boards.core import CORES, HOST, find_core
from crtgen.compiler.kernels.asm import Function
from crtgen.compiler.kernels.engine.cost import (
    CALL,
    UNKNOWN,
    BlockCount,
    Cost,
    Work,
    estimate,
    figures,
    words,
)
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.network.ops import Case, all_cases
from tests.compiler.kernels.fit import Sample, fitted
from tests.compiler.kernels.measured import TARGETS, chains, is_measured, kernels_of, layers, measured
from tests.support import nightly

_BIG, _LONG = 5_000, 32  # instructions and bytes that are compared: of less, much is around the loops
_NEAR, _NEAR_CODE, _IN_C = 0.05, 0.06, 0.4
_WITHIN = {
    "row_loop": 0.2,
    "row_stream": 0.2,
    "softmax_table": _NEAR,
    "softmax_float": 0.15,
    "gemm": 0.25,
    "depthwise": 0.5,
    "pool": 0.6,
    "reduce": 0.6,
    "move": 0.8,
    "detection": 0.7,
    "dsp/depthwise": 0.07,
    "dsp/extreme": _IN_C,
    "dsp/pool": 0.2,
    "dsp/svdf": 0.3,
    "mve/conv": 0.12,
    "mve/floats": 0.35,
    "mve/mean": 0.15,
    "mve/pool": 0.2,
    "mve/matmul": 0.2,
}
"""Within what nine of ten layers of a kernel are, where that is not ``_NEAR`` for kernels with inner loops in
assembly and ``_IN_C`` for portable ones."""


def _limit(family: str) -> float:
    assembly = family.startswith(("dsp/", "mve/"))
    return _WITHIN.get(family, _NEAR if assembly else _IN_C)


def _errors(samples: Iterable[Sample]) -> Mapping[str, Sequence[float]]:
    errors = defaultdict[str, list[float]](list)
    for sample in samples:
        if sample.instructions > _BIG:
            errors[sample.kernel.family].append(
                abs(sample.kernel.cost.instructions / sample.instructions - 1)
            )
    return errors


def _wrong(errors: Mapping[str, Sequence[float]], least: int) -> list[str]:
    """Kernels of which so many layers were measured, and that are further off than they may be."""
    nine = {family: float(np.quantile(e, 0.9)) for family, e in errors.items() if len(e) >= least}
    assert nine
    return [f"{family}: {100 * e:.1f} %" for family, e in nine.items() if e > _limit(family)]


@cache
def _cases() -> list[Case]:
    return [case for case in all_cases() if is_measured(case)]


_ON_A_PUSH = (("cortex-m0plus", "-Os"), ("cortex-m4", "-O2"), ("cortex-m55", "-O2"))


@pytest.mark.parametrize(("core", "flag"), [t if t in _ON_A_PUSH else nightly(*t) for t in TARGETS])
def test_kernels_have_figures(core: str, flag: str) -> None:
    """If this fails: ``python -m benchmarks.fit_costs`` with the names that it says.

    A tenth of a kernel's blocks may be new: words of expressions that nobody had before.
    """
    known = figures(core, flag)
    kernels = [kernel for case in _cases() for kernel in kernels_of(case, core, flag)]
    assert len(kernels) > 100
    blocks = {(kernel.family, name) for kernel in kernels for name in (CALL, *kernel.work.blocks)}
    number = Counter(family for family, _ in blocks)
    missing = Counter(family for family, _ in blocks - known.keys())
    assert [f"{family}: {n} blocks" for family, n in missing.items() if n > number[family] / 10] == []


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("core", "flag", "part"),
    [("cortex-m4", "-O2", 4), nightly("cortex-m4", "-O2", 1), nightly("cortex-m55", "-Os", 1)],
)
def test_a_few_layers(core: str, flag: str, part: int) -> None:
    """Half of all are within 5 %, code within 6 %, and nine of ten of each kernel of which there are some."""
    cases = list(layers(6, "few"))
    samples = [sample for _, sample in measured(cases[::part], core, flag)]
    errors = _errors(samples)
    assert np.median(np.concatenate(list(map(np.array, errors.values())))) < _NEAR
    assert not _wrong(errors, least=20 // part)
    code = [s.kernel.cost.code / s.code - 1 for s in samples if s.code > _LONG]
    assert np.median(np.abs(code)) < _NEAR_CODE
    assert abs(sum(s.kernel.cost.code for s in samples) / sum(s.code for s in samples) - 1) < _NEAR


@pytest.mark.qemu
@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("core", "flag"), TARGETS)
def test_many_layers(core: str, flag: str) -> None:
    """Others than those that the figures were fitted to."""
    cases = [*layers(150, "many"), *chains(20)]
    assert not _wrong(_errors(sample for _, sample in measured(cases, core, flag)), least=10)


def test_a_new_operator_of_known_words_has_figures() -> None:
    """A function of elements that nobody measured."""
    assert words("crt_int8(crt_maxf(v * 3.5f, -v) + 2 - 0, -128, 6)") == {
        "clamp 1": 1,
        "crt_maxf": 1,
        "*": 1,
        "+": 1,
    }
    work = Work().words("float32", 1000, "crt_maxf(v, v * 3.0f)")
    known = figures("cortex-m4", "-O2")
    assert all(("elements", name) in known for name in work.blocks)


def test_what_was_not_measured_has_plain_figures() -> None:
    work = Work().block("a block", 7, 2)
    found = estimate("no such kernel", work, find_core("cortex-m4"), "-O2")
    assert found.instructions == 8 * UNKNOWN.instructions
    assert found.code == 3 * UNKNOWN.code


def test_every_core_has_figures() -> None:
    for core in (*CORES.values(), HOST):
        assert len(figures(core.measured, "-O2")) > 100


def test_soft_floats_take_longer() -> None:
    work = Work().words("float32", 1000, "v * 2.5f")
    soft, hard = (estimate("elements", work, find_core(c), "-O2") for c in ("cortex-m3", "cortex-m4"))
    assert soft.instructions > 4 * hard.instructions


def test_a_cost_is_of_all_that_a_kernel_is() -> None:
    kernel = Kernel(
        "k", "elements.c.j2", None, scratch=12, work=Work().words("int8", 100, "table[(uint8_t)v]")
    )
    cost = kernel.priced(Target(find_core("cortex-m4"), "speed")).cost
    assert cost == Cost(cost.instructions, cost.code, 0, 12, cost.instructions)
    assert 100 < cost.instructions < 1000
    assert cost.code >= 8


def test_a_fit_finds_the_figures() -> None:
    """Of blocks that are exact but for one layer in five, which is an outlier."""
    random, called = np.random.default_rng(1), Function("return", "int x").done()
    samples = []
    for number in range(50):
        rows, elements = (int(n) for n in random.integers(10, 1000, 2))
        work = Work(50 * called.runs()).block("row", rows).block("element", elements, number % 3)
        instructions = 50 + 20 + 30 * rows + 7 * elements
        kernel = Kernel("k", "k.c.j2", None, work=work)
        samples.append(
            Sample(kernel, instructions * (3 if number % 5 == 0 else 1), 40 + 10 + 8 * (number % 3))
        )
    found = fitted(samples)
    assert found["k", "element"].instructions == pytest.approx(7, rel=0.02)
    assert found["k", "row"].instructions == pytest.approx(30, rel=0.02)
    assert found["k", "element"].code == pytest.approx(8, abs=0.5)
    assert Work().block("row", 2).block("row", 3).blocks["row"] == BlockCount(5, 2)
