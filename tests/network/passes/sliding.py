"""Random networks that windows slide over, and the windows of a signal."""

from collections.abc import Iterator, Sequence
from random import Random

import numpy as np

from crtgen.network.ir import Array, Graph, Quant
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
    Relu,
    Reshape,
    Softmax,
    Transpose,
)
from crtgen.network.passes import Sliding, start_of_signal
from tests.network.passes.networks import Network, draw

__all__ = ["random_network", "signal", "windows"]


class _Builder:
    """Draws layers one after another; ``y`` is the last one's output."""

    def __init__(self, random: Random) -> None:
        self.random, self.net = random, Network()
        shape = (random.randint(14, 30), random.randint(1, 6), random.randint(1, 3))
        turned = random.random() < 0.3
        self.axis = 2 if turned else 1
        shape = (shape[1], shape[0], shape[2]) if turned else shape
        self.y = self.net.input("x", 1, *shape, zero_point=random.choice((-128, -7, 83)))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.net.values[self.y].shape

    def name(self) -> str:
        return f"n{len(self.net.nodes)}"

    def window(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int], Padding]:
        """Taps, strides, dilations and padding that fit."""
        size = (self.shape[1], self.shape[2])
        taps = tuple(min(self.random.choice((1, 2, 3, 3, 5)), length) for length in size)
        stride = tuple(self.random.choice((1, 1, 2)) for _ in size)
        spread = tuple(
            2 if n > 2 * (t - 1) and self.random.random() < 0.2 else 1
            for n, t in zip(size, taps, strict=True)
        )
        (a, b), (c, d), (e, f) = taps, stride, spread
        extents = [(t - 1) * s for t, s in zip(taps, spread, strict=True)]
        kind = self.random.random()
        if kind < 0.5:
            padding = Padding.same(size, (a, b), (c, d), (e, f))
        elif kind < 0.8:
            padding = Padding()
        else:
            padding = Padding(*(self.random.randint(0, extents[i // 2]) for i in range(4)))
        return (a, b), (c, d), (e, f), padding

    def conv(self) -> str:
        taps, stride, spread, padding = self.window()
        op = Conv2d(stride, padding, spread, self.random.choice(list(Activation)))
        return self.net.layer(self.name(), op, self.y, (self.random.randint(1, 5), *taps, self.shape[3]))

    def depthwise(self) -> str:
        taps, stride, spread, padding = self.window()
        op = DepthwiseConv2d(stride, padding, spread, 1)
        return self.net.layer(self.name(), op, self.y, (1, *taps, self.shape[3]), 3)

    def residual(self) -> str:
        same = Padding.same((self.shape[1], self.shape[2]), (3, 3), (1, 1))
        other = self.net.layer(
            self.name(), Conv2d(padding=same), self.y, (self.shape[3], 3, 3, self.shape[3])
        )
        return self.net.node(self.name(), Add(), self.y, other, quant=Quant.tensor(0.3, -9))

    def pool(self) -> str:
        taps = tuple(min(2, length) for length in self.shape[1:3])
        stride = (self.random.randint(1, 2), self.random.randint(1, 2))
        padding = Padding.same((self.shape[1], self.shape[2]), (taps[0], taps[1]), stride)
        kind = self.random.choice((MaxPool2d, AveragePool2d))
        return self.net.node(self.name(), kind((taps[0], taps[1]), stride, padding), self.y)

    def plain(self) -> str:
        ops = (Relu(), Pad((0, 1, 1, 0), (0, 0, 1, 0)), Concat(3))
        op = self.random.choice(ops)
        return self.net.node(self.name(), op, *([self.y, self.y] if isinstance(op, Concat) else [self.y]))

    def frames(self) -> str:
        """A fully connected layer and a softmax for each position."""
        batch, height, width, depth = self.shape
        if self.axis == 2:
            self.y = self.net.node(self.name(), Transpose((0, 2, 1, 3)), self.y)
            height, width = width, height
        rows = self.net.node(self.name(), Reshape((batch, height, width * depth)), self.y)
        made = self.net.layer(self.name(), FullyConnected(keep_dims=True), rows, (4, width * depth))
        return self.net.node(self.name(), Softmax(), made, quant=Quant.tensor(1 / 256, -128))

    def end(self) -> str:
        kind = self.random.randint(0, 3)
        if kind == 0:
            return self.frames()
        if kind == 1:
            return self.y
        if kind == 2:
            flat = self.net.node(self.name(), Reshape((1, int(np.prod(self.shape)))), self.y)
        else:
            flat = self.net.node(self.name(), Mean((1, 2)), self.y)
        shape = self.net.values[flat].shape
        return self.net.layer(self.name(), FullyConnected(), flat, (4, shape[-1]))


def random_network(seed: int) -> tuple[Graph, int]:
    """A network of some layers, and the axis of its input that is time."""
    builder = _Builder(Random(seed))
    steps = (builder.conv, builder.conv, builder.depthwise, builder.residual, builder.pool, builder.plain)
    for _ in range(builder.random.randint(1, 5)):
        builder.y = builder.random.choice(steps)()
    last = builder.y
    end = builder.end()
    outputs = [end]
    if end != last and last in builder.net.values and builder.random.random() < 0.3:
        outputs.append(last)
    return builder.net.graph(*outputs), builder.axis


def signal(graph: Graph, sliding: Sliding, runs: int) -> list[tuple[Array]]:
    """What is new in each run, random."""
    value = graph.values[graph.inputs[0]]
    return [(np.take(draw(value, seed), range(sliding.step), sliding.axis),) for seed in range(runs)]


def windows(graph: Graph, sliding: Sliding, news: Sequence[tuple[Array]]) -> Iterator[tuple[Array]]:
    """The whole window of each run; before the first one the signal is zero."""
    value = graph.values[graph.inputs[0]]
    window = np.full(value.shape, start_of_signal(value), value.dtype.numpy)
    for (new,) in news:
        both = np.concatenate([window, new], sliding.axis)
        window = np.take(both, range(sliding.step, both.shape[sliding.axis]), sliding.axis)
        yield (window,)
