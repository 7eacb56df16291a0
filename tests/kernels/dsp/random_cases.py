"""Random layers for the kernels with the DSP extension, drawn from a seed."""

from collections.abc import Iterator

import numpy as np

from crtgen.ir import DType, Quant, Value
from crtgen.ops.activation import Relu
from crtgen.ops.attrs import Activation, Padding
from crtgen.ops.binary import Add, Mul, Sub
from crtgen.ops.case import Case, int8s, make
from crtgen.ops.conv import Conv2d, DepthwiseConv2d
from crtgen.ops.dense import FullyConnected
from crtgen.ops.pool import AveragePool2d, MaxPool2d
from crtgen.ops.reduce import Mean

_ACTIVATIONS = (Activation.NONE, Activation.RELU, Activation.RELU, Activation.RELU6, Activation.RELU_N1_1)


class Draw:
    """Random attributes and tensors."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def int(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        return int(self.random.integers(low, high + 1))

    def pick(self, *choices: int) -> int:
        return int(self.random.choice(choices))

    def zero_point(self) -> int:
        return self.pick(-128, -128, -3, 0, 17, 127)

    def activation(self) -> Activation:
        return _ACTIVATIONS[self.int(0, len(_ACTIVATIONS) - 1)]

    def padding(self, window: tuple[int, int]) -> Padding:
        if self.int(0, 2) == 0:
            return Padding()
        rows, columns = window
        return Padding(*(self.int(0, n - 1) for n in (rows, rows, columns, columns)))

    def weights(self, shape: tuple[int, ...], axis: int) -> tuple[Value, Value]:
        """Weights, at times with a -128, quantised per channel or as a whole, and a bias."""
        channels = shape[axis]
        data = self.random.integers(-128 if self.int(0, 5) == 0 else -127, 128, shape).astype(np.int8)
        per_axis = self.int(0, 3) > 0
        scales = self.random.uniform(0.002, 0.03, channels if per_axis else 1).astype(np.float32)
        quant = Quant(tuple(map(float, scales)), (0,) * len(scales), axis if per_axis else None)
        bias = self.random.integers(-3000, 3000, channels).astype(np.int32)
        return Value.constant("w", data, quant), Value.constant("b", bias)

    def output(self, depth: int, activation: Activation) -> Quant:
        """A scale that most outputs fall into, and at times one that they do not."""
        spread = 0.05 * 0.016 * 74 * 74 * depth**0.5
        scale = spread * float(self.random.choice([0.002, 0.02, 0.04, 0.04, 0.3]))
        zero = -128 if activation is Activation.RELU and self.int(0, 3) else self.zero_point()
        return Quant.tensor(scale, zero)


def convolution(draw: Draw, name: str) -> Case:
    """A convolution with one to about 600 inputs per output."""
    kind = draw.int(0, 3)
    window = (1, 1) if kind == 0 else (3, 3) if kind == 1 else (draw.int(1, 5), draw.int(1, 5))
    channels, outputs = draw.pick(1, 2, 3, 4, 7, 8, 16, 31), draw.int(2, 19)
    stride = (draw.pick(1, 1, 2, 3), draw.pick(1, 1, 2, 3))
    dilation = (draw.pick(1, 1, 2), draw.pick(1, 1, 2)) if kind == 3 else (1, 1)
    padding = draw.padding(window)
    extent = [(t - 1) * d + 1 for t, d in zip(window, dilation, strict=True)]
    shape = (draw.pick(1, 1, 2), extent[0] + draw.int(0, 6), extent[1] + draw.int(0, 7), channels)
    activation = draw.activation()
    x = int8s("x", shape, 0.05, draw.zero_point())
    w, b = draw.weights((outputs, *window, channels), 0)
    quant = draw.output(channels * window[0] * window[1], activation)
    return make(name, Conv2d(stride, padding, dilation, activation), [x, w, b], quant)


def depthwise(draw: Draw, name: str) -> Case:
    """A depthwise convolution with a window of 3x3 and four channels or more, or with one input channel."""
    if draw.int(0, 7) == 0:
        return _multiplied(draw, name)
    stride = (draw.pick(1, 1, 2), draw.pick(1, 1, 2))
    padding = draw.padding((3, 3))
    channels = draw.pick(4, 8, 12, 5, 7, 16)
    shape = (draw.pick(1, 1, 2), draw.int(3, 13), draw.int(3, 20), channels)
    activation = draw.activation()
    x = int8s("x", shape, 0.05, draw.zero_point())
    w, b = draw.weights((1, 3, 3, channels), 3)
    op = DepthwiseConv2d(stride, padding, (1, 1), 1, activation)
    return make(name, op, [x, w, b], draw.output(9, activation))


def windowed(draw: Draw, name: str) -> Case:
    """A depthwise convolution of any window, stride and dilation, four outputs or more."""
    window, dilation = (draw.int(1, 6), draw.int(1, 6)), (draw.pick(1, 1, 2), draw.pick(1, 1, 2))
    multiplier = draw.pick(1, 1, 1, 2, 3, 4)
    channels = draw.pick(4, 5, 8, 12, 14) if multiplier == 1 else draw.pick(2, 3, 5, 8)
    extent = [(t - 1) * d + 1 for t, d in zip(window, dilation, strict=True)]
    shape = (draw.pick(1, 1, 2), extent[0] + draw.int(0, 6), extent[1] + draw.int(0, 7), channels)
    activation = draw.activation()
    x = int8s("x", shape, 0.05, draw.zero_point())
    w, b = draw.weights((1, *window, channels * multiplier), 3)
    stride = (draw.int(1, 3), draw.int(1, 3))
    op = DepthwiseConv2d(stride, draw.padding(window), dilation, multiplier, activation)
    return make(name, op, [x, w, b], draw.output(window[0] * window[1], activation))


def _multiplied(draw: Draw, name: str) -> Case:
    window, multiplier = (draw.int(1, 4), draw.int(1, 4)), draw.int(2, 9)
    activation = draw.activation()
    x = int8s("x", (draw.pick(1, 2), draw.int(4, 9), draw.int(4, 9), 1), 0.05, draw.zero_point())
    w, b = draw.weights((1, *window, multiplier), 3)
    op = DepthwiseConv2d(
        (draw.int(1, 2), draw.int(1, 2)), draw.padding(window), (1, 1), multiplier, activation
    )
    return make(name, op, [x, w, b], draw.output(window[0] * window[1], activation))


def dense(draw: Draw, name: str) -> Case:
    """A fully connected layer with two outputs or more."""
    rows, depth, outputs = draw.pick(1, 1, 1, 2, 5), draw.int(1, 90), draw.int(2, 40)
    activation = draw.activation()
    x = int8s("x", (rows, depth), 0.05, draw.zero_point())
    w, b = draw.weights((outputs, depth), 0)
    return make(name, FullyConnected(activation), [x, w, b], draw.output(depth, activation))


def binary(draw: Draw, name: str) -> Case:
    """A sum, a difference or a product; some operands are repeated along axes or constant."""
    shape = (draw.pick(1, 2), draw.int(1, 3), draw.int(1, 5), draw.int(4, 19))
    scales = draw.random.uniform(0.01, 0.2, 3)
    kind = (Add, Sub, Mul)[draw.int(0, 2)]
    op = kind(draw.activation())
    product = float(scales[0] * scales[1]) * draw.pick(20, 100, 200)
    shapes = [shape, shape]
    if draw.int(0, 1):
        shapes[draw.int(0, 1)] = _repeated(draw, shape)
    operands = [int8s(f"x{i}", shapes[i], float(scales[i]), draw.zero_point()) for i in range(2)]
    if draw.int(0, 3) == 0:
        data = draw.random.integers(-128, 128, shapes[1]).astype(np.int8)
        operands[1] = Value.constant("x1", data, operands[1].quant)
    quant = Quant.tensor(product if kind is Mul else float(scales[2]), draw.zero_point())
    return make(name, op, operands, quant)


def _repeated(draw: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with some of the axes, and at times without the first ones."""
    kept = draw.random.integers(0, 2, len(shape))
    return tuple(n if keep else 1 for n, keep in zip(shape, kept.tolist(), strict=True))[draw.int(0, 4) :]


def clamp(draw: Draw, name: str) -> Case:
    """A clamp that stands alone."""
    kind = (Activation.RELU, Activation.RELU6, Activation.RELU_N1_1)[draw.int(0, 2)]
    return make(name, Relu(kind), [int8s("x", (1, draw.int(1, 99)), 0.05, draw.zero_point())])


def pool(draw: Draw, name: str) -> Case:
    """A pooling, some with padding and some of windows of over 255 pixels, or the mean of images."""
    most = draw.pick(9, 9, 9, 20)
    size = (draw.int(1, most), draw.int(1, most))
    x = int8s("x", (draw.pick(1, 2), *size, draw.pick(4, 5, 8, 11, 64)), 0.05, draw.zero_point())
    if draw.int(0, 3) == 0:
        quant = Quant.tensor(draw.pick(2, 5, 9) * 0.0071, draw.zero_point())
        axes = ((1, 2), (1, 2), (3,), (1, 2, 3))[draw.int(0, 3)] if x.shape[3] % 4 == 0 else (1, 2)
        return make(name, Mean(axes, bool(draw.int(0, 1))), [x], quant if draw.int(0, 2) else x.quant)
    window = (draw.int(1, size[0]), draw.int(1, size[1]))
    stride = (draw.int(1, 3), draw.int(1, 3))
    kind = (AveragePool2d, MaxPool2d)[draw.int(0, 1)]
    return make(name, kind(window, stride, draw.padding(window), draw.activation()), [x])


MAKERS = {
    "convolution": convolution,
    "depthwise": depthwise,
    "windowed": windowed,
    "dense": dense,
    "binary": binary,
    "pool": pool,
    "clamp": clamp,
}


def draw_cases(kind: str, count: int, seed: int) -> Iterator[Case]:
    """``count`` layers of a kind whose shapes are possible."""
    draw = Draw(seed)
    made = 0
    while made < count:
        try:
            case = MAKERS[kind](draw, f"{kind}_{seed}_{made}")
        except ValueError:
            continue
        made += 1
        assert case.sig.y.dtype is DType.INT8
        yield case
