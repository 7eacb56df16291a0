"""The node tests of the onnx package, and its models, as generated C on the host."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from crtgen.compiler.kernels import Target
from crtgen.compiler.plan import plan_model
from crtgen.network.ir import Array, Graph
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.compiler.kernels.program import Run, run_plans_on_host
from tests.network.frontends.onnx.nodes import NodeTest, as_held, found_by_name

PASSED = 1850
"""At least so many."""

NOT_A_NUMBER = ("causal_boolmask_nan_robustness",)
"""Of these, numbers that are none go through operators whose C takes the greater of two otherwise."""


def outputs_of(graph: Graph, data: bytes) -> Iterator[Array]:
    offset = 0
    for value in (graph.values[name] for name in graph.outputs):
        yield np.frombuffer(data, value.dtype.numpy, value.elements, offset).reshape(value.shape)
        offset += value.nbytes


@pytest.mark.cc
@pytest.mark.nightly
def test_each_that_passes_by_reference_passes_as_c(tmp_path: Path) -> None:
    tests = [one.test for one in found_by_name().values() if one.kind == "passed"]
    found: list[tuple[NodeTest, Graph]] = [(t, run_passes(t.graph(), DEFAULT_PASSES)[0]) for t in tests]
    failed, passed = [], 0
    for start in range(0, len(found), 60):
        part, folder = found[start : start + 60], tmp_path / str(start)
        folder.mkdir()
        runs = [
            Run(test.name, graph, dict(zip(graph.inputs, map(as_held, test.inputs), strict=True)))
            for test, graph in part
        ]
        plans = [(run, plan_model(run.graph, Target())[0]) for run in runs]
        for (test, graph), data in zip(part, run_plans_on_host(folder, plans), strict=True):
            difference = test.difference(tuple(outputs_of(graph, data)))
            passed += not difference
            if difference and not any(word in test.name for word in NOT_A_NUMBER):
                failed.append(f"{test.name}: {difference}")
    assert failed == []
    assert passed >= PASSED
