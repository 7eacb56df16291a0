"""Activations and paddings that move into another operator."""

import pytest

from crtgen.network.ir import Op, Quant
from crtgen.network.ops import (
    Activation,
    Add,
    AveragePool2d,
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    Pad,
    Padding,
    Relu,
)
from crtgen.network.passes import DEFAULT_PASSES, FoldPadding, FuseActivations
from tests.network.passes.networks import Network, assert_same_results

KINDS = (Activation.RELU, Activation.RELU6, Activation.RELU_N1_1)
LAYERS: tuple[tuple[Op, tuple[int, ...], int], ...] = (
    (Conv2d(), (5, 3, 3, 4), 0),
    (DepthwiseConv2d(multiplier=2), (1, 3, 3, 8), 3),
    (FullyConnected(keep_dims=True), (6, 4), 0),
)


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("op", "weights", "axis"), LAYERS)
def test_a_relu_after_a_layer(
    op: Op, weights: tuple[int, ...], axis: int, kind: Activation, real: bool
) -> None:
    net = Network(real)
    y = net.layer("layer", op, net.input("x", 1, 5, 6, 4), weights, axis)
    graph, rewrites = assert_same_results(net.graph(net.node("relu", Relu(kind), y)), (FuseActivations(),))
    (node,) = graph.nodes
    assert (node.name, node.outputs, node.op.activation) == ("layer", ("relu_out",), kind)  # type: ignore[attr-defined]
    assert [str(h) for h in rewrites] == ["fuse activations: relu: layer clamps by itself"]


@pytest.mark.parametrize("real", [False, True])
def test_a_relu_after_an_addition_and_after_a_pool(real: bool) -> None:
    net = Network(real)
    a = net.node(
        "add", Add(), net.input("x", 1, 4, 4, 2), net.input("z", 1, 4, 4, 2), quant=Quant.tensor(0.1, 2)
    )
    b = net.node("relu1", Relu(), a)
    c = net.node("pool", AveragePool2d((2, 2), (2, 2)), b)
    y = net.node("relu2", Relu(Activation.RELU6), c)
    graph, _ = assert_same_results(net.graph(y), (FuseActivations(),))
    assert [node.name for node in graph.nodes] == ["add", "pool"]


def test_two_clamps_become_one() -> None:
    net = Network()
    y = net.layer("layer", Conv2d(activation=Activation.RELU), net.input("x", 1, 5, 6, 4), (5, 3, 3, 4))
    y = net.node("relu6", Relu(Activation.RELU6), y)
    graph, _ = assert_same_results(net.graph(y), (FuseActivations(),))
    assert [node.op.activation for node in graph.nodes] == [Activation.RELU6]  # type: ignore[attr-defined]
    both = net.graph(net.node("relu_n1_1", Relu(Activation.RELU_N1_1), y))
    graph, _ = assert_same_results(both, (FuseActivations(),))
    assert [node.op.activation for node in graph.nodes] == [Activation.RELU_0_1]  # type: ignore[attr-defined]


def test_a_relu_that_requantises_stays() -> None:
    net = Network()
    y = net.layer("layer", Conv2d(), net.input("x", 1, 5, 6, 4), (5, 3, 3, 4))
    y = net.node("relu", Relu(), y, quant=Quant.tensor(0.2, 3))
    graph, rewrites = assert_same_results(net.graph(y), DEFAULT_PASSES)
    assert (len(graph.nodes), rewrites) == (2, ())


def test_a_value_that_is_read_elsewhere_is_not_clamped() -> None:
    net = Network()
    y = net.layer("layer", Conv2d(), net.input("x", 1, 5, 6, 4), (5, 3, 3, 4))
    relu = net.node("relu", Relu(), y)
    for graph in (net.graph(y, relu), net.graph(net.node("add", Add(), relu, y))):
        assert_same_results(graph, (FuseActivations(),))
        assert len(FuseActivations().run(graph).nodes) == len(graph.nodes)


ZERO_POINTS = (-128, -7, 0, 127)


@pytest.mark.parametrize("zero_point", ZERO_POINTS)
@pytest.mark.parametrize(
    ("op", "weights", "axis"),
    [
        (Conv2d((2, 1), Padding(0, 1, 1, 0)), (5, 3, 3, 4), 0),
        (DepthwiseConv2d((1, 2), Padding(0, 1, 1, 0)), (1, 3, 3, 4), 3),
        (Conv2d(dilation=(2, 1)), (3, 2, 3, 4), 0),
    ],
)
def test_a_pad_goes_into_the_convolution(
    op: Op, weights: tuple[int, ...], axis: int, zero_point: int
) -> None:
    net = Network()
    padded = net.node(
        "pad", Pad((0, 2, 1, 0), (0, 1, 2, 0)), net.input("x", 1, 5, 6, 4, zero_point=zero_point)
    )
    graph, rewrites = assert_same_results(
        net.graph(net.layer("conv", op, padded, weights, axis)), (FoldPadding(),)
    )
    own = op.padding  # type: ignore[attr-defined]
    (node,) = graph.nodes
    assert node.op.padding == Padding(own.top + 2, own.bottom + 1, own.left + 1, own.right + 2)  # type: ignore[attr-defined]
    assert [str(h) for h in rewrites] == ["fold padding: pad: conv pads by itself"]


def test_a_pad_of_floats_and_two_convolutions() -> None:
    net = Network(real=True)
    padded = net.node("pad", Pad((0, 1, 1, 0), (0, 1, 1, 0), 0.0), net.input("x", 1, 5, 6, 4))
    one = net.layer("one", Conv2d(), padded, (2, 3, 3, 4))
    two = net.layer("two", Conv2d(), padded, (2, 2, 2, 4))
    graph, _ = assert_same_results(net.graph(one, two), (FoldPadding(),))
    assert [node.name for node in graph.nodes] == ["one", "two"]


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (Pad((0, 1, 1, 0), (0, 1, 1, 0), 5), "not the zero point"),
        (Pad((0, 1, 1, 1), (0, 1, 1, 0)), "channels"),
        (Pad((0, 3, 1, 0), (0, 1, 1, 0)), "a window of padding only"),
    ],
)
def test_a_pad_that_stays(op: Pad, reason: str) -> None:
    net = Network()
    padded = net.node("pad", op, net.input("x", 1, 5, 6, 4))
    channels = net.values[padded].shape[3]
    graph, rewrites = assert_same_results(
        net.graph(net.layer("conv", Conv2d(), padded, (2, 3, 3, channels))), (FoldPadding(),)
    )
    assert (len(graph.nodes), rewrites) == (2, ()), reason


def test_a_pad_that_something_else_reads_stays() -> None:
    net = Network()
    padded = net.node("pad", Pad((0, 1, 1, 0), (0, 1, 1, 0)), net.input("x", 1, 5, 6, 4))
    conv = net.layer("conv", Conv2d(), padded, (2, 3, 3, 4))
    for graph in (net.graph(conv, padded), net.graph(conv, net.node("relu", Relu(), padded))):
        assert len(FoldPadding().run(graph).nodes) == len(graph.nodes)
