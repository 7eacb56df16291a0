"""Random layers with a memory that holds anything, or of several outputs, on the host and in QEMU."""

from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target
from crtgen.compiler.kernels.engine.registry import applicable
from crtgen.network.ir import Graph, Value
from crtgen.network.ops import Case
from tests.compiler.kernels.drawn import draw
from tests.compiler.kernels.program import Run, check_outputs, run_on_host, run_on_qemu
from tests.compiler.kernels.recurrent_layers import detections, recurrent, streams
from tests.support import nightly

_FEW, _MANY = 20, 600
_LAYERS = recurrent() | streams() | detections()


def _run(case: Case, number: int) -> Run:
    """The layer with states as they are in the midst of a sequence, which are outputs, too, afterwards."""
    given, graph = case.inputs(number), case.graph()
    before = {name for name, _ in graph.states}
    values = [
        Value.state(v.name, given[v.name], v.quant) if v.name in before else v for v in graph.values.values()
    ]
    outputs = [*graph.outputs, *(after for _, after in graph.states)]
    full = Graph.build(graph.name, values, graph.nodes, graph.inputs, outputs, graph.states)
    return Run(f"{case.name} {number}", full, {name: given[name] for name in graph.inputs})


def _runs(count: int) -> list[Run]:
    drawn = (draw(_LAYERS, seed) for seed in range(count))
    return [_run(case, number) for number, case in enumerate(drawn) if case is not None]


def _check(runs: list[Run], outputs: list[bytes]) -> None:
    assert len(runs) >= _FEW // 2
    wrong = [text for run, out in zip(runs, outputs, strict=True) if (text := check_outputs(run, out))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.cc
@pytest.mark.parametrize("count", [_FEW, nightly(_MANY)])
def test_host(tmp_path: Path, count: int) -> None:
    runs = _runs(count)
    _check(runs, run_on_host(tmp_path, runs))


@pytest.mark.qemu
@pytest.mark.parametrize("count", [_FEW, nightly(_MANY // 4)])
@pytest.mark.parametrize(
    ("machine", "core"),
    [
        ("mps2-an385", "cortex-m0plus"),
        nightly("mps2-an385", "cortex-m3"),
        ("mps2-an386", "cortex-m4"),
        ("mps3-an547", "cortex-m55"),
    ],
)
def test_qemu(tmp_path: Path, machine: str, core: str, count: int) -> None:
    runs = _runs(count)
    _check(runs, run_on_qemu(tmp_path, runs, machine, find_core(core)))


def test_the_sequences_differ_from_runs_that_begin_anew() -> None:
    """What is drawn depends on its states: a kernel that ignored them would fail."""
    differing = 0
    for run in _runs(_FEW):
        inputs = [np.asarray(run.inputs[name]) for name in run.graph.inputs]
        first, second = run.graph.run([inputs, inputs])
        differing += any((a != b).any() for a, b in zip(first, second, strict=True))
    assert differing > _FEW // 2


@pytest.mark.parametrize(
    ("core", "expected"),
    [
        *((core, {"base lstm", "base svdf"}) for core in ("cortex-m0plus", "cortex-m23", "cortex-m3")),
        *(("cortex-m4", {"dsp lstm", "dsp svdf"}), ("cortex-m55", {"mve lstm", "mve svdf"})),
    ],
)
def test_designs_of_extensions_are_among_them(core: str, expected: set[str]) -> None:
    target = Target(find_core(core), "speed")
    cases = [case for case in (draw(recurrent(), seed) for seed in range(_FEW)) if case is not None]
    found = {applicable(case.op, case.sig, target)[0].design for case in cases}
    assert expected <= found
