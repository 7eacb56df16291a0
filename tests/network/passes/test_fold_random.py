"""Folding of random networks with planted constant channels, and of the reference model that has some."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtgen.api import Model
from crtgen.network import frontends
from crtgen.network.ir import Array, Graph, Quant, Value
from crtgen.network.ops import (
    Activation,
    Add,
    AveragePool2d,
    Concat,
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    MaxPool2d,
    Mean,
    Pad,
    Padding,
    Quantize,
    Relu,
    Reshape,
)
from crtgen.network.passes import DEFAULT_PASSES, WITHOUT_FOLDING, FoldChannels, FoldedLayer, run_passes
from tests.network.passes.networks import Network
from tests.support import model_path

PLANTED = (-1_000_000, 1_000_000, -900, 0, 700)
"""Accumulators of channels without weights: the least output, the greatest, and some between."""


class Builder:
    """Draws layers, one after another; ``y`` is the last one's output."""

    def __init__(self, draw: Callable[..., int], net: Network, y: str) -> None:
        self.draw, self.net, self.y = draw, net, y
        self.made = [y]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.net.values[self.y].shape

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def of(self, choices: Sequence[int]) -> int:
        return self.draw(st.sampled_from(choices))

    def layer(
        self, op: Conv2d | DepthwiseConv2d | FullyConnected, weights: tuple[int, ...], axis: int
    ) -> str:
        sums = {c: self.of(PLANTED) for c in range(weights[axis]) if self.number(0, 2) == 0}
        return self.net.planted(self.name(), op, self.y, weights, sums, axis)

    def name(self) -> str:
        return f"n{len(self.net.nodes)}"

    def padding(self, window: int) -> Padding:
        return Padding(*(self.number(0, window - 1) for _ in range(4)))

    def activation(self) -> Activation:
        return list(Activation)[self.number(0, len(Activation) - 1)]

    def conv(self) -> str:
        window = self.of((1, 1, 2, 3))
        steps = (self.number(1, 2), self.number(1, 2))
        op = Conv2d(steps, self.padding(window), activation=self.activation())
        window = window if min(self.shape[1:3]) >= window else 1
        op = Conv2d(steps, self.padding(window), activation=op.activation)
        return self.layer(op, (self.number(1, 6), window, window, self.shape[3]), 0)

    def depthwise(self) -> str:
        window = 3 if min(self.shape[1:3]) >= 3 else 1
        each = self.number(1, 2)
        op = DepthwiseConv2d(padding=self.padding(window), multiplier=each, activation=self.activation())
        return self.layer(op, (1, window, window, self.shape[3] * each), 3)

    def add(self) -> str:
        other = self.layer(Conv2d(activation=self.activation()), (self.shape[3], 1, 1, self.shape[3]), 0)
        return self.net.node(self.name(), Add(self.activation()), self.y, other, quant=Quant.tensor(0.6, -9))

    def join(self) -> str:
        other = self.layer(Conv2d(), (self.number(1, 3), 1, 1, self.shape[3]), 0)
        same = self.net.node(self.name(), Quantize(), self.y, quant=self.net.values[other].quant)
        return self.net.node(self.name(), Concat(3), other, same)

    def plain(self) -> str:
        window = (min(2, self.shape[1]), min(2, self.shape[2]))
        op = (
            MaxPool2d(window, (1, 1), activation=self.activation()),
            AveragePool2d(window, (2, 2)),
            Relu(self.activation()),
            Pad((0, 1, 0, 0), (0, 0, 1, 0)),
        )[self.number(0, 3)]
        return self.net.node(self.name(), op, self.y)

    def end(self) -> str:
        kind = self.number(0, 2)
        if kind == 0:
            return self.layer(Conv2d(), (3, 1, 1, self.shape[3]), 0)
        if kind == 1:
            self.y = self.net.node(self.name(), Reshape((1, int(np.prod(self.shape)))), self.y)
        else:
            self.y = self.net.node(self.name(), Mean((1, 2)), self.y)
        return self.layer(FullyConnected(self.activation()), (4, self.shape[-1]), 0)


@st.composite
def graphs(draw: Callable[..., int]) -> Graph:
    net = Network()
    shape = (draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 4)))
    builder = Builder(draw, net, net.input("x", 1, *shape, zero_point=draw(st.sampled_from((-128, -7, 127)))))
    steps = (builder.conv, builder.conv, builder.depthwise, builder.add, builder.join, builder.plain)
    for _ in range(builder.number(1, 6)):
        builder.y = steps[builder.number(0, len(steps) - 1)]()
        builder.made.append(builder.y)
    extra = builder.made[builder.number(1, len(builder.made) - 1)]
    last = builder.end()
    return net.graph(*((last, extra) if builder.number(0, 3) == 0 else (last,)))


def inputs_of(value: Value, count: int, seed: int = 0) -> list[Array]:
    """Both extremes, both chequered, random extremes, smooth images, noise: each like each other's turn."""
    random = np.random.default_rng(seed)
    checks = np.indices(value.shape).sum(axis=0) % 2
    found = [np.full(value.shape, e) for e in (-128, 127)] + [
        np.where(checks == e, -128, 127) for e in (0, 1)
    ]
    ramps = np.indices(value.shape) / np.array(value.shape).reshape(-1, *[1] * len(value.shape))
    while len(found) < count:
        slopes = random.uniform(-300, 300, len(value.shape))
        found.append(random.choice((-128, 127), value.shape))
        found.append(np.clip(random.integers(-128, 128) + np.tensordot(slopes, ramps, 1), -128, 127))
        found.append(random.integers(-128, 128, value.shape))
    return [array.astype(np.int8) for array in found[:count]]


def assert_equal_channels(graph: Graph, multiple: int, count: int, seed: int = 0) -> tuple[FoldedLayer, ...]:
    """Values of the folded network are the channels that stayed of the other's; what went is as certified."""
    folded, rewrites = FoldChannels(multiple).rewrite(graph)
    certificates = {h.node: h for h in rewrites if isinstance(h, FoldedLayer)}
    (name,) = graph.inputs
    for array in inputs_of(graph.values[name], count, seed):
        old, new = graph.evaluate({name: array}), folded.evaluate({name: array})
        for output in graph.outputs:
            assert old[output].tobytes() == new[output].tobytes()
        for node in graph.nodes:
            if node.name in certificates:
                removed = certificates[node.name].removed
                before, after = old[node.outputs[0]], new[node.outputs[0]]
                gone = [r.channel for r in removed]
                assert np.array_equal(np.delete(before, gone, axis=-1), after)
                assert all((before[..., r.channel] == r.value).all() for r in removed if r.value is not None)
    return tuple(certificates.values())


@settings(max_examples=50, deadline=None)
@given(graphs(), st.integers(1, 4))
def test_random_networks(graph: Graph, multiple: int) -> None:
    assert_equal_channels(graph, multiple, 8)


def vww() -> Graph:
    return run_passes(frontends.load(model_path("vww_int8")), WITHOUT_FOLDING)[0]


def live(graph: Graph) -> tuple[int, int]:
    """MACs, and bytes of the weights of convolutions."""
    macs = sum(n.op.macs(graph.signature(n)) for n in graph.nodes)
    layers = [n for n in graph.nodes if isinstance(n.op, Conv2d | DepthwiseConv2d)]
    return macs, sum(graph.values[n.inputs[1]].nbytes for n in layers)


@pytest.mark.models
def test_half_of_vww_is_dead() -> None:
    graph = vww()
    assert live(graph) == (7_489_664, 207_600)
    rewrites = assert_equal_channels(graph, 1, 40)
    assert sum(r.value is not None for h in rewrites for r in h.removed) == 1715
    assert sum(bool(h.removed) for h in rewrites) == 17
    assert live(FoldChannels(1).run(graph)) == (3_727_313, 29_022)
    assert live(FoldChannels().run(graph)) == (3_737_870, 29_388)


@pytest.mark.models
@pytest.mark.parametrize("name", ["kws_int8", "ic01_int8", "ad01_int8"])
def test_the_other_models_have_no_such_channels(name: str) -> None:
    graph, _ = run_passes(frontends.load(model_path(name)), WITHOUT_FOLDING)
    assert FoldChannels(1).rewrite(graph) == (graph, ())


@pytest.mark.cc
@pytest.mark.models
@pytest.mark.nightly
def test_vww_on_the_host_gives_the_same_bytes() -> None:
    """2,000 inputs on the host, with and without."""
    model = Model(frontends.load(model_path("vww_int8")))
    images = [
        model.compile("host", passes=passes).generate().build()
        for passes in (DEFAULT_PASSES, WITHOUT_FOLDING)
    ]
    assert images[0].size.sizes.flash < images[1].size.sizes.flash
    with images[0].run() as one, images[1].run() as two:
        for array in inputs_of(model.graph.values[model.graph.inputs[0]], 2000, seed=1):
            (a,), (b,) = one.infer(array), two.infer(array)
            assert a.tobytes() == b.tobytes()
