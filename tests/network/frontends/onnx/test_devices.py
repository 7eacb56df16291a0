"""One node test of the onnx package for each operator that passes, as generated C on boards of QEMU."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target
from crtgen.compiler.plan import plan_model
from crtgen.network.ir import Graph
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.compiler.kernels.program import Run, run_plans_on_qemu
from tests.network.frontends.onnx.nodes import SETS, NodeTest, as_held, found_by_name
from tests.network.frontends.onnx.test_generated import outputs_of

LEAST, MOST_BYTES = 100, 20_000


def _chosen() -> Iterator[tuple[NodeTest, Graph]]:
    """The smallest test of each operator that computes anything."""
    smallest: dict[str, tuple[int, NodeTest, Graph]] = {}
    for one in found_by_name().values():
        test = one.test
        if one.kind != "passed" or test.operator in SETS or test.operator[0].islower():
            continue
        graph = run_passes(test.graph(), DEFAULT_PASSES)[0]
        size = sum(value.nbytes for value in graph.values.values())
        if graph.inputs and graph.nodes and size < smallest.get(test.operator, (MOST_BYTES,))[0]:
            smallest[test.operator] = size, test, graph
    for _, test, graph in smallest.values():
        yield test, graph


@pytest.mark.qemu
@pytest.mark.nightly
@pytest.mark.parametrize(("machine", "core"), [("mps2-an386", "cortex-m4"), ("mps3-an547", "cortex-m55")])
def test_a_test_of_each_operator(tmp_path: Path, machine: str, core: str) -> None:
    found = list(_chosen())
    assert len(found) >= LEAST
    runs = [
        Run(test.name, graph, dict(zip(graph.inputs, map(as_held, test.inputs), strict=True)))
        for test, graph in found
    ]
    target = Target(core=find_core(core))
    plans = [(run, plan_model(run.graph, target)[0]) for run in runs]
    printed = run_plans_on_qemu(tmp_path, plans, machine, find_core(core))
    failed = []
    for (test, graph), data in zip(found, printed, strict=True):
        difference = test.difference(tuple(outputs_of(graph, data)))
        if difference:
            failed.append(f"{test.name}: {difference}")
    assert failed == []
