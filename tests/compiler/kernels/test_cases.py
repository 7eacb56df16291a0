"""Every case of every operator, computed by generated C, against the operator's definition in numpy."""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.codegen.generate import generate_c
from crtgen.compiler.kernels import Target
from crtgen.compiler.plan import Plan
from crtgen.network.ir import Array, DType, Graph, Value
from crtgen.network.ops import Case, all_cases
from tests.compiler.kernels.program import (
    Run,
    check_outputs,
    plan_runs,
    run_on_qemu,
    run_plans_on_host,
    run_plans_on_qemu,
)
from tests.support import few, nightly


def _constant_inputs(case: Case, value: Value, number: int) -> Array:
    """All at one end of the range, or alternating between both ends."""
    low, high = case.range_of(value)
    if value.dtype is DType.FLOAT32 and value.name not in case.limits:
        low, high = -100.0, 100.0
    patterns = ([low], [high], [low, high])
    return np.resize(np.array(patterns[number], value.dtype.numpy), value.shape)


_Planned = tuple[tuple[Case, Graph], tuple[Plan, bytes]]
_PUSH = 1
"""Cases of each design and type that a push runs; by night all are. Random layers run more of each."""


def _designs(item: _Planned) -> set[tuple[str, str, str]]:
    (case, graph), (plan, _) = item
    y = graph.signature(graph.nodes[0]).y.dtype
    return {(type(case.op).__name__, step.kernel.design, y.value) for step in plan.steps}


@cache
def _cases() -> list[tuple[Case, Graph]]:
    return [(case, case.graph()) for case in all_cases()]


def _of(case: Case, graph: Graph, extremes: bool) -> list[Run]:
    inputs = case.inputs(1)
    runs = [Run(case.name, graph, {name: inputs[name] for name in graph.inputs})]
    for number in range(3 if extremes else 0):
        inputs = {n: _constant_inputs(case, graph.values[n], number) for n in graph.inputs}
        runs.append(Run(f"{case.name} extreme {number}", graph, inputs))
    return runs


def _runs(extremes: bool) -> list[Run]:
    return [run for case, graph in _cases() for run in _of(case, graph, extremes)]


def _check(runs: list[Run], outputs: list[bytes]) -> None:
    wrong = [text for run, out in zip(runs, outputs, strict=True) if (text := check_outputs(run, out))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.cc
@pytest.mark.parametrize("each", [_PUSH, nightly(10_000)], ids=["some", "all"])
def test_host(tmp_path: Path, each: int) -> None:
    items = few(zip(_cases(), _planned("host"), strict=True), _designs, each)
    pairs = [(run, plan) for own, (plan, _) in items for run in _of(*own, extremes=True)]
    assert len(pairs) > 1000
    _check([run for run, _ in pairs], run_plans_on_host(tmp_path, pairs))


@pytest.mark.qemu
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("machine", "core"),
    [("mps2-an385", "cortex-m3"), ("mps2-an386", "cortex-m4"), ("mps3-an547", "cortex-m55")],
)
def test_qemu(tmp_path: Path, machine: str, core: str) -> None:
    runs = _runs(extremes=machine == "mps2-an386")
    _check(runs, run_on_qemu(tmp_path, runs, machine, find_core(core)))


@pytest.mark.qemu
@pytest.mark.parametrize("each", [_PUSH, nightly(10_000)], ids=["some", "all"])
@pytest.mark.parametrize(
    ("machine", "name", "other", "least"),
    [
        nightly("mps2-an385", "cortex-m0plus", "cortex-m3", 30),
        nightly("mps2-an385", "cortex-m3", "host", 25),
        ("mps2-an386", "cortex-m4", "host", 200),
        ("mps3-an547", "cortex-m55", "cortex-m4", 100),
    ],
)
def test_what_another_core_has_not(
    tmp_path: Path, machine: str, name: str, other: str, least: int, each: int
) -> None:
    """Code of which another core, or the host, runs not the same; all that an M0+ has an M3 has, too.

    On a push ``test_random.py`` runs layers on M0+ and M3.
    """
    both = zip(_cases(), _planned(name), _planned(other), strict=True)
    items = [(case, planned) for case, planned, (_, plain) in both if planned[1] != plain]
    own = [
        (run, plan)
        for pair, (plan, _) in few(items, _designs, each)
        for run in _of(*pair, extremes=name == "cortex-m4")
    ]
    assert len(own) >= least
    _check([run for run, _ in own], run_plans_on_qemu(tmp_path, own, machine, find_core(name)))


@cache
def _planned(core: str) -> list[tuple[Plan, bytes]]:
    """The plan of each case on a core with a digest of its code."""
    plans = plan_runs(_runs(extremes=False), Target() if core == "host" else Target(core=find_core(core)))
    return [(plan, _digest(generate_c(plan, "model").files)) for _, plan in plans]


def _digest(sources: Mapping[str, str]) -> bytes:
    return sha256(repr(sorted(sources.items())).encode()).digest()
