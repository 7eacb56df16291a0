"""Every case of every operator, computed by generated C, against the operator's definition in numpy."""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.codegen.generate import generate_c
from crtgen.ir import Array, DType, Value
from crtgen.kernels import Target
from crtgen.ops import Case, all_cases
from crtgen.plan import Plan
from tests.kernels.program import (
    Run,
    check_outputs,
    plan_runs,
    run_on_host,
    run_on_qemu,
    run_plans_on_qemu,
)
from tests.support import nightly


def _constant_inputs(case: Case, value: Value, number: int) -> Array:
    """All at one end of the range, or alternating between both ends."""
    low, high = case.range_of(value)
    if value.dtype is DType.FLOAT32 and value.name not in case.limits:
        low, high = -100.0, 100.0
    patterns = ([low], [high], [low, high])
    return np.resize(np.array(patterns[number], value.dtype.numpy), value.shape)


def _runs(extremes: bool = True) -> list[Run]:
    runs = []
    for case in all_cases():
        graph = case.graph()
        inputs = case.inputs(1)
        runs.append(Run(case.name, graph, {name: inputs[name] for name in graph.inputs}))
        for number in range(3 if extremes else 0):
            inputs = {n: _constant_inputs(case, graph.values[n], number) for n in graph.inputs}
            runs.append(Run(f"{case.name} extreme {number}", graph, inputs))
    return runs


def _check(runs: list[Run], outputs: list[bytes]) -> None:
    wrong = [text for run, out in zip(runs, outputs, strict=True) if (text := check_outputs(run, out))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.cc
def test_host(tmp_path: Path) -> None:
    runs = _runs()
    _check(runs, run_on_host(tmp_path, runs))


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("machine", "core"),
    [
        nightly("mps2-an385", "cortex-m3"),
        ("mps2-an386", "cortex-m4"),
        nightly("mps3-an547", "cortex-m55"),
    ],
)
def test_qemu(tmp_path: Path, machine: str, core: str) -> None:
    runs = _runs(extremes=machine == "mps2-an386")
    _check(runs, run_on_qemu(tmp_path, runs, machine, find_core(core)))


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("machine", "name", "other", "least"),
    [
        ("mps2-an385", "cortex-m0plus", "cortex-m3", 50),
        ("mps2-an385", "cortex-m3", "cortex-m4", 50),
        ("mps3-an547", "cortex-m55", "cortex-m4", 100),
    ],
)
def test_what_another_core_has_not(tmp_path: Path, machine: str, name: str, other: str, least: int) -> None:
    """Code of which another core runs not the same; a Cortex-M3 has the M0+'s instructions, too."""
    both = zip(_planned(name), _planned(other), strict=True)
    own = [(run, plan) for (run, plan, code), (_, _, plain) in both if code != plain]
    assert len(own) >= least
    _check([run for run, _ in own], run_plans_on_qemu(tmp_path, own, machine, find_core(name)))


@cache
def _planned(core: str) -> list[tuple[Run, Plan, bytes]]:
    """The runs on a core with a digest of their code."""
    plans = plan_runs(_runs(extremes=False), Target(core=find_core(core)))
    return [(run, plan, _digest(generate_c(plan, "model").files)) for run, plan in plans]


def _digest(sources: Mapping[str, str]) -> bytes:
    return sha256(repr(sorted(sources.items())).encode()).digest()
