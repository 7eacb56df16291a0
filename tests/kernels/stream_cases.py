"""Pairs of convolutions by rows: strides, paddings, odd sizes, and blocks that do not divide the height."""

from collections.abc import Iterator

import numpy as np

from crtgen.ir import DType, Quant, Value
from crtgen.ops import Activation, Case, Conv2d, DepthwiseConv2d, Padding, RowStream
from crtgen.ops.case import floats, int8s, make, weights_and_bias

__all__ = ["pair", "random_case", "stream_cases"]

RELU = Activation.RELU
SAME = Padding(1, 1, 1, 1)
CLAMPED = Conv2d(activation=RELU)


def pair(
    name: str,
    x: Value,
    channels: int,
    second: Conv2d | DepthwiseConv2d,
    kernel: tuple[int, ...],
    rows: int,
    first: Conv2d = CLAMPED,
    taps: int = 1,
) -> Case:
    """``first`` to so many channels with a window of ``1 x taps``, then ``second`` with its ``kernel``."""
    w1, b1 = weights_and_bias(name, x, (channels, 1, taps, x.shape[3]), 0, True)
    ((shape, dtype),) = first.infer([x, w1, b1])
    quant = None if dtype is DType.FLOAT32 else Quant.tensor(0.06, -17)
    middle = Value("middle", shape, dtype, quant)
    w2, b2 = weights_and_bias(name, middle, kernel, 0 if isinstance(second, Conv2d) else 3, True)
    constants = [
        Value(f"{v.name}{i}", v.shape, v.dtype, v.quant, v.data)
        for i, v in enumerate((w1, b1, w2, b2), start=1)
    ]
    return make(name, RowStream(first, second, middle, rows), [x, *constants], Quant.tensor(0.2, 9))


def stream_cases() -> Iterator[Case]:
    """int8 and float32."""
    x = int8s("x", (1, 11, 9, 8), 0.05, -11)
    half = Padding.same((11, 9), (3, 3), (2, 2))
    three = (1, 3, 3, 16)
    for rows in (1, 2, 4, 5, 11):
        yield pair(f"s1_by_{rows}", x, 16, DepthwiseConv2d((1, 1), SAME, activation=RELU), three, rows)
    for rows in (1, 2, 4, 6):
        yield pair(f"s2_by_{rows}", x, 16, DepthwiseConv2d((2, 2), half, activation=RELU), three, rows)
    yield pair("valid", x, 16, DepthwiseConv2d((1, 2)), three, 2)
    even = int8s("x", (1, 8, 10, 4), 0.05, 127)
    bottom = Padding(0, 1, 0, 1)
    yield pair("s2_bottom", even, 12, DepthwiseConv2d((2, 2), bottom), (1, 3, 3, 12), 2)
    yield pair("skew", even, 4, DepthwiseConv2d((2, 1), Padding(2, 3, 0, 2), (1, 1)), (1, 5, 4, 4), 2)
    yield pair("dilated", even, 8, DepthwiseConv2d((1, 1), Padding(2, 2, 2, 2), (2, 2)), (1, 3, 3, 8), 3)
    yield pair("multiplier", even, 4, DepthwiseConv2d((1, 1), SAME, multiplier=2), (1, 3, 3, 8), 3)
    yield pair("conv", x, 12, Conv2d((1, 1), SAME, activation=RELU), (8, 3, 3, 12), 2)
    yield pair("conv_s2", x, 8, Conv2d((2, 2), half), (20, 3, 3, 8), 4)
    yield pair("pointwise", x, 16, Conv2d(), (4, 1, 1, 16), 3)
    yield pair("unread", even, 8, DepthwiseConv2d((3, 1)), (1, 3, 3, 8), 1)
    wide = Conv2d((1, 2), Padding(0, 0, 2, 1), activation=Activation.RELU6)
    yield pair("first_1x4", x, 8, DepthwiseConv2d((1, 1), SAME), (1, 3, 3, 8), 2, wide, 4)
    real = floats("x", (1, 7, 5, 3))
    yield pair("float", real, 6, DepthwiseConv2d((1, 1), SAME, activation=RELU), (1, 3, 3, 6), 2)
    yield pair("float_conv", real, 5, Conv2d((2, 1), SAME), (4, 3, 3, 5), 3)


def random_case(number: int) -> Case:
    """A pair of any strides, paddings, dilations and blocks whose rows are whole words."""
    random = np.random.default_rng([7, number])
    depthwise = bool(random.integers(2))
    height, width, c, middle, out = (int(n) for n in random.integers(1, [14, 14, 5, 9, 6]))
    x = int8s("x", (1, height, width, 4 * c), 0.05, int(random.integers(-128, 128)))
    taps, stride, dilation = random.integers(1, 5, 2), random.integers(1, 4, 2), random.integers(1, 3, 2)
    stride[0] = min(stride[0], (taps[0] - 1) * dilation[0] + 1)
    before = random.integers(0, taps)
    extent = (taps - 1) * dilation + 1
    after = np.maximum(random.integers(0, taps), extent - before - (height, width))
    sides = (before[0], after[0], before[1], after[1])
    padding = Padding(*map(int, sides))
    steps, spread = (int(stride[0]), int(stride[1])), (int(dilation[0]), int(dilation[1]))
    kind = DepthwiseConv2d if depthwise else Conv2d
    second = kind(steps, padding, spread, activation=list(Activation)[random.integers(4)])
    outputs = padding.output_size((height, width), (int(taps[0]), int(taps[1])), steps, spread)[0]
    rows = int(random.integers(1, outputs + 1))
    weights = (int(taps[0]), int(taps[1]))
    kernel = (1, *weights, 4 * middle) if depthwise else (4 * out, *weights, 4 * middle)
    return pair(f"random{number}", x, 4 * middle, second, kernel, rows)
