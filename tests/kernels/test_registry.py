"""Which design a layer gets, and what is said where there is none."""

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.errors import UnsupportedError
from crtgen.ir import DType, Graph, Node, Quant, Value
from crtgen.kernels import Target, applicable, select
from crtgen.ops import Add, FullyConnected, Relu, all_cases


def test_cheapest_first() -> None:
    for case in all_cases():
        costs = [k.cost for k in applicable(case.op, case.sig, Target())]
        assert costs, case.name
        assert costs == sorted(costs)


@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m3", "host"])
def test_every_case_has_a_design(core: str) -> None:
    for case in all_cases():
        assert select(case.graph(), Target(core=find_core(core)))


def test_addition_is_linear_where_it_can_be() -> None:
    quants = Quant.tensor(0.1, 3), Quant.tensor(0.07, -5), Quant.tensor(0.15, 1)
    values = [Value(n, (1, 8), DType.INT8, q) for n, q in zip("aby", quants, strict=True)]
    graph = Graph.build("net", values, [Node("add", Add(), ("a", "b"), ("y",))], ["a", "b"], ["y"])
    assert select(graph, Target())["add"].design == "linear"


def test_no_design() -> None:
    values = [Value("x", (1, 2), DType.FLOAT32), Value("w", (3, 2), DType.FLOAT32)]
    values += [Value.constant("b", np.zeros(3, np.float32)), Value("y", (1, 3), DType.FLOAT32)]
    nodes = [Node("dense", FullyConnected(), ("x", "w", "b"), ("y",))]
    graph = Graph.build("net", values, nodes, ["x", "w"], ["y"])
    with pytest.raises(UnsupportedError, match="no kernel computes fully_connected of 1x2 float32") as caught:
        select(graph, Target())
    assert caught.value.where == "net: dense"


def test_parameters_out_of_range() -> None:
    values = [
        Value("x", (1, 2), DType.INT8, Quant.tensor(1e10)),
        Value("y", (1, 2), DType.INT8, Quant.tensor(1e-10)),
    ]
    graph = Graph.build("net", values, [Node("relu", Relu(), ("x",), ("y",))], ["x"], ["y"])
    with pytest.raises(UnsupportedError, match="relu: the ratio of its scales"):
        select(graph, Target())
