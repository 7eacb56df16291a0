"""Random layers for the kernels with Helium, drawn from a seed."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from crtgen.ir import DType, Quant, Value
from crtgen.ops.activation import Logistic, Relu, Softmax, Tanh
from crtgen.ops.attrs import Activation, Padding
from crtgen.ops.binary import Add, Mul, Sub
from crtgen.ops.case import Case, floats, int8s, make
from crtgen.ops.conv import Conv2d, DepthwiseConv2d
from crtgen.ops.dense import FullyConnected
from crtgen.ops.pool import AveragePool2d, MaxPool2d
from crtgen.ops.quant import Dequantize, Quantize
from crtgen.ops.reduce import Mean
from crtgen.ops.shape import Concat, Pad, StridedSlice, Transpose
from tests.kernels.dsp.random_cases import Draw as Plain


class Draw(Plain):
    """Random attributes and tensors."""

    def stride(self) -> tuple[int, int]:
        both = self.pick(1, 1, 2)
        return (both, both) if self.int(0, 2) else (self.pick(1, 2, 3), self.pick(1, 2, 3))


def pointwise(draw: Draw, name: str) -> Case:
    """A pointwise convolution, now and then with a stride."""
    depth, outputs = draw.pick(1, 3, 8, 13, 16, 20, 32, 40, 64, 100, 160, 620), draw.int(1, 37)
    stride = (1, 1) if draw.int(0, 3) else draw.stride()
    activation = draw.activation()
    x = int8s("x", (draw.pick(1, 1, 2), draw.int(1, 7), draw.int(1, 7), depth), 0.05, draw.zero_point())
    w, b = draw.weights((outputs, 1, 1, depth), 0)
    return make(name, Conv2d(stride, activation=activation), [x, w, b], draw.output(depth, activation))


def convolution(draw: Draw, name: str) -> Case:
    """A convolution with one to about 1,600 inputs per output."""
    kind = draw.int(0, 3)
    window = (3, 3) if kind < 2 else (draw.int(1, 6), draw.int(1, 6))
    channels = draw.pick(1, 2, 3, 4, 7, 8, 16, 16, 31, 32, 48)
    outputs = draw.int(1, 19)
    stride = draw.stride()
    dilation = (draw.pick(1, 1, 2), draw.pick(1, 1, 2)) if kind == 3 else (1, 1)
    padding = draw.padding(window)
    extent = [(t - 1) * d + 1 for t, d in zip(window, dilation, strict=True)]
    shape = (draw.pick(1, 1, 2), extent[0] + draw.int(0, 6), extent[1] + draw.int(0, 7), channels)
    if draw.int(0, 9) == 0:  # one column
        window, shape, padding = (
            (window[0], 1),
            (*shape[:2], 1, channels),
            Padding(padding.top, padding.bottom),
        )
    activation = draw.activation()
    x = int8s("x", shape, 0.05, draw.zero_point())
    w, b = draw.weights((outputs, *window, channels), 0)
    quant = draw.output(channels * window[0] * window[1], activation)
    return make(name, Conv2d(stride, padding, dilation, activation), [x, w, b], quant)


def depthwise(draw: Draw, name: str) -> Case:
    """A depthwise convolution, mostly of 3x3."""
    window: tuple[int, int] = (3, 3) if draw.int(0, 2) else (draw.int(1, 8), draw.int(1, 8))
    padding = draw.padding(window)
    channels, multiplier = draw.pick(1, 2, 3, 4, 8, 12, 13, 16, 33, 64), draw.pick(1, 1, 1, 2, 3)
    dilation = [(1, 1), (1, 1), (2, 2), (1, 2), (2, 1)][draw.int(0, 4)]
    extent = [(t - 1) * d + 1 for t, d in zip(window, dilation, strict=True)]
    shape = (draw.pick(1, 1, 2), extent[0] + draw.int(0, 8), extent[1] + draw.int(0, 16), channels)
    if draw.int(0, 7) == 0:  # one column
        window, shape = (window[0], 1), (*shape[:2], 1, channels)
        padding = Padding(padding.top, padding.bottom)
    activation = draw.activation()
    x = int8s("x", shape, 0.05, draw.zero_point())
    w, b = draw.weights((1, *window, int(channels) * int(multiplier)), 3)
    op = DepthwiseConv2d(draw.stride(), padding, dilation, multiplier, activation)
    return make(name, op, [x, w, b], draw.output(window[0] * window[1], activation))


def dense(draw: Draw, name: str) -> Case:
    """A fully connected layer."""
    rows, depth, outputs = draw.pick(1, 1, 1, 2, 5), draw.pick(draw.int(1, 90), 128, 640), draw.int(1, 40)
    activation = draw.activation()
    x = int8s("x", (rows, depth), 0.05, draw.zero_point())
    w, b = draw.weights((outputs, depth), 0)
    return make(name, FullyConnected(activation), [x, w, b], draw.output(depth, activation))


def binary(draw: Draw, name: str) -> Case:
    """A sum, a difference or a product, half of them with an operand that is repeated or constant.

    A quarter are float32.
    """
    shape = [draw.pick(1, 2), draw.int(1, 5), draw.int(1, 6), draw.int(1, 70)]
    scales = draw.random.uniform(0.01, 0.2, 3)
    op = (Add, Sub, Mul)[draw.int(0, 2)](draw.activation())
    operands = [int8s(f"x{i}", tuple(shape), float(scales[i]), draw.zero_point()) for i in range(2)]
    if draw.int(0, 1):
        which, axes = draw.int(0, 1), draw.random.integers(0, 2, 4)
        other = tuple(1 if repeated else n for n, repeated in zip(shape, axes, strict=True))
        operands[which] = replace(operands[which], shape=other[draw.int(0, 4) :])
    if draw.int(0, 3) == 0:
        which = draw.int(0, 1)
        data = draw.random.integers(-128, 128, operands[which].shape).astype(np.int8)
        operands[which] = Value.constant(f"x{which}", data, operands[which].quant)
    if draw.int(0, 3) == 0:
        operands = [_in_float(x) for x in operands]
    return make(name, op, operands, Quant.tensor(float(scales[2]), draw.zero_point()))


def _in_float(x: Value) -> Value:
    data = None if x.data is None else x.array().astype(np.float32)
    return replace(x, dtype=DType.FLOAT32, quant=None, data=data)


def pool(draw: Draw, name: str) -> Case:
    """A pooling without padding, or with some."""
    size = (draw.int(1, 9), draw.int(1, 9))
    window = (draw.int(1, size[0]), draw.int(1, size[1]))
    kind = (AveragePool2d, MaxPool2d)[draw.int(0, 1)]
    padding = draw.padding(window) if draw.int(0, 1) else Padding()
    channels = draw.pick(1, 4, 5, 8, 11, 16, 24, 37, 64)
    x = int8s("x", (draw.pick(1, 2), *size, channels), 0.05, draw.zero_point())
    return make(name, kind(window, draw.stride(), padding, draw.activation()), [x])


def unary(draw: Draw, name: str) -> Case:
    """A mean over the image, a clamp that stands alone, a requantisation, or a function by table."""
    shape = (draw.pick(1, 2), draw.int(1, 9), draw.int(1, 9), draw.pick(1, 4, 8, 11, 16, 37, 64))
    scales = draw.random.uniform(0.01, 0.2, 2)
    x = int8s("x", shape, float(scales[0]), draw.zero_point())
    quant = Quant.tensor(float(scales[1]), draw.zero_point())
    kind = draw.int(0, 5)
    if kind == 0:
        return make(name, Quantize(), [x if draw.int(0, 1) else floats("x", shape)], quant)
    if kind == 5:
        return make(name, Dequantize(), [x])
    if kind == 4:
        function = (Logistic, Tanh)[draw.int(0, 1)]
        return make(name, function(), [x], function.output)
    if kind == 1:
        clamp = (Activation.RELU, Activation.RELU6, Activation.RELU_N1_1)[draw.int(0, 2)]
        x = x if draw.int(0, 3) else floats("x", shape)
        return make(name, Relu(clamp), [x], quant if draw.int(0, 1) else x.quant)
    if draw.int(0, 3) == 0:
        x = replace(x, shape=(1, draw.int(1, 40), draw.int(10, 40), draw.pick(1, 3, 16, 25)))
    axes = ((1, 2), (1, 2), (1, 2), (2,), (0, 1, 2), (1,))[draw.int(0, 5)]
    return make(name, Mean(axes, bool(draw.int(0, 1))), [x], quant)


def softmax(draw: Draw, name: str) -> Case:
    """Rows of a few elements or of many, with differences from far below the output's steps to far above."""
    depth = draw.pick(1, 2, 3, draw.int(4, 40), draw.int(41, 300), 1100)
    shape = (64 // depth + draw.int(1, 4), depth)
    x = int8s("x", shape, float(np.exp(draw.random.uniform(-8, 2))), draw.zero_point())
    return make(name, Softmax(draw.pick(1, 1, 2)), [x], Quant.tensor(1 / 256, -128))


def move(draw: Draw, name: str) -> Case:
    """Elements in another order or place, int8 or float32, with runs from a few bytes to a few hundred."""
    shape = tuple(draw.pick(1, 5, 9, draw.int(10, 24)) for _ in range(draw.int(2, 4)))
    x = int8s("x", shape, 0.05, draw.zero_point()) if draw.int(0, 3) else floats("x", shape)
    kind, rank = draw.int(0, 3), len(shape)
    if kind == 0:
        return make(name, Transpose(tuple(map(int, draw.random.permutation(rank)))), [x])
    if kind == 1:
        before, after = draw.random.integers(0, 3, (2, rank)).tolist()
        return make(name, Pad(tuple(before), tuple(after), draw.pick(-7, 0) if draw.int(0, 1) else None), [x])
    if kind == 2:
        axis = draw.int(0, rank - 1)
        others = [replace(x, name=f"x{i}", shape=_longer(draw, shape, axis)) for i in range(draw.int(1, 2))]
        if x.dtype is DType.INT8 and draw.int(0, 3) == 0:
            data = draw.random.integers(-128, 128, others[0].shape).astype(np.int8)
            others[0] = Value.constant(others[0].name, data, x.quant)
        return make(name, Concat(axis), [x, *others])
    begin = tuple(draw.int(0, n // 3) for n in shape)
    end = tuple(draw.int(max(b + 1, n - 2), n) for b, n in zip(begin, shape, strict=True))
    return make(name, StridedSlice(begin, end, tuple(draw.pick(1, 1, 1, 1, 2) for _ in shape)), [x])


def _longer(draw: Draw, shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], draw.int(1, 20), *shape[axis + 1 :])


MAKERS = {
    "pointwise": pointwise,
    "convolution": convolution,
    "depthwise": depthwise,
    "dense": dense,
    "binary": binary,
    "pool": pool,
    "unary": unary,
    "softmax": softmax,
    "move": move,
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
        yield case
