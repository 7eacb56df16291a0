"""Random networks, divided at random: the division changes no result, and the generated code agrees."""

import numpy as np
import pytest

from crtgen.compiler.byoc import CCompiler, ExampleJson, External, Generator, partition
from crtgen.network.ir import DType, Graph, Op
from crtgen.network.ops import Add, Mul, Sub
from tests.compiler.byoc.graphs import OPS, arithmetic, inputs_of, numpy_result
from tests.compiler.byoc.test_run import run

_SHAPES = ((4,), (3, 4), (1, 4), (3, 1), ())


class Sums(CCompiler):
    name = "sums"
    patterns = ((Add,),)


class Differences(ExampleJson):
    name = "differences"
    patterns = ((Sub,),)


class Pairs(CCompiler):
    name = "pairs"
    patterns = ((Mul, Add), (Add, Mul))


class Rest(CCompiler):
    name = "rest"


_GENERATORS: tuple[Generator, ...] = (Sums(), Differences(), Pairs(), Rest())


def network(seed: int) -> Graph:
    random = np.random.default_rng(seed)
    dtype = (DType.FLOAT32, DType.INT8, DType.INT16, DType.INT32)[seed % 4]
    shapes = {name: _SHAPES[random.integers(len(_SHAPES))] for name in ("a", "b", "c")}
    known, calls = list(shapes), list[tuple[Op, str, str]]()
    for i in range(12):
        a, b = (known[max(0, len(known) - 1 - int(random.integers(5)))] for _ in range(2))
        calls.append((OPS[random.integers(3)], a, b))
        known.append(f"v{i}")
    read = {name for _, *names in calls for name in names}
    outputs = [f"v{i}" for i in range(12) if f"v{i}" not in read or random.random() < 0.15]
    return arithmetic(f"random{seed}", dtype, calls, shapes, outputs, ["c"])


@pytest.mark.parametrize("seed", range(60))
def test_division(seed: int) -> None:
    graph = network(seed)
    random = np.random.default_rng(seed)
    chosen = [g for g in _GENERATORS if random.random() < 0.7]
    after, rewrites = partition(graph, chosen, fallback=True)
    inputs = inputs_of(graph, seed)
    values = after.evaluate(dict(zip(after.inputs, inputs, strict=True)))
    for name, expected in zip(graph.outputs, numpy_result(graph, inputs), strict=True):
        assert values[name].tobytes() == expected.tobytes(), name
    ops = [node.op for node in after.nodes]
    subgraphs = [op.subgraph for op in ops if isinstance(op, External)]
    assert len(rewrites) == len(subgraphs)
    inside = sum(len(g.nodes) for g in subgraphs)
    assert inside + len(ops) - len(subgraphs) == len(graph.nodes)


@pytest.mark.cc
@pytest.mark.parametrize("start", [0, 6])
def test_code(start: int) -> None:
    graphs = [network(seed) for seed in range(start, start + 6)]
    run(graphs, "host", _GENERATORS)
