"""Functions of one int8 value in float32 that become tables."""

import numpy as np
import pytest

from crtgen.network.ir import DType, Graph, Node, Op, Quant, Value
from crtgen.network.ops import Add, Dequantize, Exp, Log, Maximum, Mul, Quantize, Relu, Square, Sub, Transpose
from crtgen.network.passes import DEFAULT_PASSES, RemoveDead, TabulateFloats, run_passes
from tests.network.passes.networks import Network, assert_same_results

_PASSES = (TabulateFloats(), RemoveDead())
_COARSE = Quant.tensor(0.3, -40)


def _real(net: Network, name: str, op: Op, *inputs: str) -> str:
    ((shape, dtype),) = op.infer([net.values[i] for i in inputs])
    net.nodes.append(Node(name, op, inputs, (f"{name}_out",)))
    return net.add_value(Value(f"{name}_out", shape, dtype))


def _ended(net: Network, name: str, x: str) -> str:
    y = Value(f"{name}_out", net.values[x].shape, DType.INT8, _COARSE)
    net.nodes.append(Node(name, Quantize(), (x,), (y.name,)))
    return net.add_value(y)


def _one(net: Network, name: str, number: float) -> str:
    return net.add_value(Value.constant(name, np.full((1, 1, 1), number, np.float32)))


def _begun() -> tuple[Network, str]:
    net = Network()
    return net, _real(net, "begin", Dequantize(), net.input("x", 1, 5, 6, 4))


def _operators(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def test_a_function_of_many_operators() -> None:
    """ELU as converters write it: the source is read on two ways."""
    net, x = _begun()
    low = _real(
        net, "low", Mul(), _real(net, "turned", Sub(), _real(net, "high", Relu(), x), x), _one(net, "n", -1)
    )
    less = _real(net, "less", Sub(), _real(net, "power", Exp(), low), _one(net, "one", 1))
    y = _ended(net, "end", _real(net, "both", Add(), less, _real(net, "relu", Relu(), x)))
    graph, rewrites = assert_same_results(net.graph(y), _PASSES)
    assert _operators(graph) == ["lookup"]
    assert [r.text for r in rewrites if r.rule == "tabulate floats"] == [
        "relu, sub, mul, exp, sub, relu, add in float32 of int8 is a table"
    ]


def test_values_that_are_none() -> None:
    """Logarithms of negative values: what their reference makes of them, without a warning."""
    net, x = _begun()
    graph, _ = assert_same_results(net.graph(_ended(net, "end", _real(net, "log", Log(), x))), _PASSES)
    assert _operators(graph) == ["lookup"]


def test_what_others_read_stays() -> None:
    net, x = _begun()
    square = _real(net, "square", Square(), x)
    last = _ended(net, "end", _real(net, "relu", Relu(), square))
    graph, _ = assert_same_results(net.graph(last, square), _PASSES)
    assert sorted(_operators(graph)) == ["dequantize", "lookup", "square"]


@pytest.mark.parametrize("is_output", [True, False])
def test_a_last_float_that_others_read_is_quantised(is_output: bool) -> None:
    """It is in memory anyway; a table would keep its source beside it."""
    net, x = _begun()
    square = _real(net, "square", Square(), x)
    other = square if is_output else _real(net, "log", Log(), square)
    graph, _ = assert_same_results(net.graph(_ended(net, "end", square), other), _PASSES)
    assert "lookup" not in _operators(graph)


@pytest.mark.parametrize(
    "kind", ["two sources", "constants by channel", "moved", "nothing between", "broadcast"]
)
def test_what_is_no_function_of_one_value(kind: str) -> None:
    net, x = _begun()
    if kind == "two sources":
        x = _real(net, "greater", Maximum(), x, _real(net, "other", Dequantize(), net.input("z", 1, 5, 6, 4)))
    elif kind == "constants by channel":
        x = _real(net, "scaled", Mul(), x, net.add_value(Value.constant("c", np.ones(4, np.float32))))
    elif kind == "moved":
        x = _real(net, "moved", Transpose((0, 2, 1, 3)), _real(net, "square", Square(), x))
    elif kind == "broadcast":
        row = _real(net, "row", Dequantize(), net.input("z", 1, 1, 1, 4))
        x = _real(net, "sum", Add(), x, row)
    graph, _ = run_passes(net.graph(_ended(net, "end", x)), _PASSES)
    assert "lookup" not in _operators(graph)


def test_it_is_one_of_the_passes() -> None:
    net, x = _begun()
    graph, _ = run_passes(net.graph(_ended(net, "end", _real(net, "square", Square(), x))), DEFAULT_PASSES)
    assert _operators(graph) == ["lookup"]
