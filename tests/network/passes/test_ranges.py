"""Intervals against what the networks compute: nothing outside, and nothing unreached in one layer."""

from itertools import product

import numpy as np
import pytest

from crtgen.base.errors import UsageError
from crtgen.network.ir import Array, DType, Graph, Node, Op, Quant, Value
from crtgen.network.ops import (
    Activation,
    Add,
    AveragePool2d,
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    Logistic,
    Mul,
    Padding,
    Softmax,
    Sub,
    all_cases,
)
from crtgen.network.ops.case import Case
from crtgen.network.passes.ranges import intervals, is_affordable
from tests.network.passes.networks import Network

INT8_CASES = [c for c in all_cases() if all(v.dtype is not DType.FLOAT32 for v in c.sig.inputs)]


@pytest.mark.parametrize("case", INT8_CASES, ids=lambda c: c.name)
def test_no_result_is_outside(case: Case) -> None:
    graph = case.graph()
    known = intervals(graph)
    for seed in range(8):
        for name, array in graph.evaluate(case.inputs(seed)).items():
            if name in known:
                bounds = known[name].low, known[name].high
                assert np.array_equal(np.clip(array, *bounds), array)


def every_input(graph: Graph, low: int, high: int) -> list[dict[str, Array]]:
    """All inputs there are with elements in low..high."""
    sizes = [graph.values[n].elements for n in graph.inputs]
    found: list[dict[str, Array]] = []
    for elements in product(range(low, high + 1), repeat=sum(sizes)):
        parts = np.split(np.array(elements, np.int8), np.cumsum(sizes)[:-1])
        arrays = (p.reshape(graph.values[n].shape) for n, p in zip(graph.inputs, parts, strict=True))
        found.append(dict(zip(graph.inputs, arrays, strict=True)))
    return found


def assert_reached(graph: Graph, low: int, high: int) -> None:
    """The bounds of the output are the least and greatest results over every input."""
    (y,) = graph.outputs
    bounds = {name: (low, high) for name in graph.inputs}
    results = np.array([graph.evaluate(inputs)[y] for inputs in every_input(graph, low, high)])
    interval = intervals(graph, bounds)[y]
    assert np.array_equal(interval.low, results.min(axis=0))
    assert np.array_equal(interval.high, results.max(axis=0))


AROUND = Padding(1, 1, 1, 0)
LAYERS: tuple[tuple[Op, tuple[int, ...], int], ...] = (
    (Conv2d(padding=AROUND), (3, 2, 2, 2), 0),
    (Conv2d(padding=AROUND, activation=Activation.RELU), (3, 3, 2, 2), 0),
    (DepthwiseConv2d(padding=AROUND, multiplier=2, activation=Activation.RELU6), (1, 3, 2, 4), 3),
    (FullyConnected(), (5, 6), 0),
)


@pytest.mark.parametrize(("low", "high"), [(-128, -126), (-8, -6), (126, 127)])
@pytest.mark.parametrize(("op", "weights", "axis"), LAYERS)
def test_bounds_of_a_layer_are_reached(
    op: Op, weights: tuple[int, ...], axis: int, low: int, high: int
) -> None:
    net = Network()
    assert_reached(net.graph(net.layer("layer", op, net.input("x", 1, 1, 3, 2), weights, axis)), low, high)


@pytest.mark.parametrize("kind", [Add, Sub, Mul])
@pytest.mark.parametrize(("low", "high"), [(-12, 3), (60, 70), (-128, -125)])
def test_bounds_of_two_operands_are_reached(kind: type[Op], low: int, high: int) -> None:
    net = Network()
    a, b = net.input("a", 1, zero_point=-5), net.input("b", 1, zero_point=0)
    assert_reached(net.graph(net.node("sum", kind(), a, b, quant=Quant.tensor(0.1, 3))), low, high)


def test_bounds_of_a_function_and_a_mean_are_reached() -> None:
    net = Network()
    assert_reached(net.graph(net.node("f", Logistic(), net.input("x", 2), quant=Logistic.output)), -20, 10)
    net = Network()
    pool = AveragePool2d((2, 2), (1, 1), Padding(1, 0, 1, 0))
    assert_reached(net.graph(net.node("pool", pool, net.input("x", 1, 2, 2, 1))), -3, 2)


def test_padding_is_exact() -> None:
    """Ones over inputs of 10..20 around zero point 0: the sums count the taps on the image."""
    net = Network()
    x = net.input("x", 1, 3, 3, 1, zero_point=0)
    w = Value.constant("w", np.ones((1, 3, 3, 1), np.int8), Quant.tensor(1.0))
    b = Value.constant("b", np.zeros(1, np.int32), Quant.tensor(0.05))
    quant = Quant.tensor(0.05, -100)
    y = net.node(
        "conv", Conv2d(padding=Padding(1, 1, 1, 1)), x, net.add_value(w), net.add_value(b), quant=quant
    )
    interval = intervals(net.graph(y), {"x": (10, 20)})[y]
    taps = np.array([[4, 6, 4], [6, 9, 6], [4, 6, 4]])
    assert interval.low[0, :, :, 0].tolist() == (10 * taps - 100).tolist()
    assert interval.high[0, :, :, 0].tolist() == np.minimum(20 * taps - 100, 127).tolist()


def test_an_operator_without_a_rule_can_give_anything() -> None:
    net = Network()
    y = net.node("softmax", Softmax(), net.input("x", 1, 4), quant=Quant.tensor(1 / 256, -128))
    interval = intervals(net.graph(y), {"x": (3, 3)})[y]
    assert (interval.low.tolist(), interval.high.tolist()) == ([[-128] * 4], [[127] * 4])


def test_plain_integers_wrap_and_have_no_interval() -> None:
    x, y = Value("x", (3,), DType.INT8), Value("y", (3,), DType.INT8)
    graph = Graph.build("wrapping", [x, y], [Node("add", Add(), ("x", "x"), ("y",))], ["x"], ["y"])
    assert intervals(graph) == {}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"z": (0, 1)}, "z is not an int8 input of the network"),
        ({"x": (3, 2)}, "3..2 is not a range within int8"),
        ({"x": (-129, 2)}, "-129..2 is not a range within int8"),
    ],
)
def test_refused_ranges(inputs: dict[str, tuple[int, int]], message: str) -> None:
    net = Network()
    graph = net.graph(net.node("pool", AveragePool2d((1, 1), (1, 1)), net.input("x", 1, 2, 2, 1)))
    with pytest.raises(UsageError, match=message):
        intervals(graph, inputs)


def test_neither_memory_nor_time_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Network()
    graph = net.graph(net.layer("conv", Conv2d(), net.input("x", 1, 4, 4, 3), (8, 3, 3, 3)))
    assert is_affordable(graph)
    with monkeypatch.context() as patch:
        patch.setattr("crtgen.network.passes.ranges.memory_limit", lambda: 1000)
        assert not is_affordable(graph)
    monkeypatch.setattr("crtgen.network.passes.ranges._MOST_MACS", 100)
    assert not is_affordable(graph)
