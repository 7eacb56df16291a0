"""Chains of layers by rows: strides, paddings, odd sizes, one row, additions, pools."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crtgen.network.ir import DType, Quant, Value
from crtgen.network.ops import (
    Activation,
    Add,
    AveragePool2d,
    Case,
    Conv2d,
    DepthwiseConv2d,
    MaxPool2d,
    Padding,
    ResizeBilinear,
    ResizeBytes,
    ResizeNearest,
)
from crtgen.network.ops.case import floats, int8s, make, weights_and_bias
from tests.compiler.kernels.chains import Chain, Joined, Resize, Stage, SumBeside, Windowed

__all__ = ["SAME", "Beside", "Layer", "chain", "random_case", "row_loop_cases"]

RELU = Activation.RELU
SAME = Padding(1, 1, 1, 1)
CLAMPED = Conv2d(activation=RELU)

Constants = tuple[Windowed, tuple[int, int, int]]
"""A convolution with its taps and its output channels."""


@dataclass(frozen=True)
class Beside:
    """An addition whose other operand ``layer`` makes of the image that the chain begins with."""

    add: Add
    layer: Constants | Windowed


Layer = Constants | Stage | Beside


def chain(name: str, x: Value, layers: Sequence[Layer], rows: int) -> Case:
    """The layers on ``x``; an addition's other operand is ``x`` where that has the shape, else an input."""
    inputs, between, stages, image = [x], [], [], x
    for number, layer in enumerate(layers):
        stage, others = _stage(f"{name}{number}", layer, x, image)
        stages.append(stage)
        inputs += others
        image = _made(f"middle{number}", stage, [image, *others], Quant.tensor(0.06, -17))
        between.append(image)
    return make(name, Chain(tuple(stages), tuple(between[:-1]), rows), inputs, image.quant)


def _made(name: str, stage: Stage, inputs: Sequence[Value], quant: Quant) -> Value:
    """The image after a stage; a pooling or a move keeps the quantisation."""
    ((shape, dtype),) = stage.infer(inputs)
    keeps = isinstance(stage, AveragePool2d | MaxPool2d | Joined | Resize)
    kept = inputs[0].quant if keeps else quant
    return Value(name, shape, dtype, None if dtype is DType.FLOAT32 else kept)


def _stage(name: str, layer: Layer, x: Value, image: Value) -> tuple[Stage, list[Value]]:
    """A stage on ``image``, and what it takes beside that."""
    if isinstance(layer, Beside):
        beside, others = _stage(f"{name}_beside", layer.layer, x, x)
        assert isinstance(beside, Windowed)
        projected = _made(f"projected_{name}", beside, [x, *others], Quant.tensor(0.07, 11))
        return SumBeside(beside, projected, layer.add), [x, *others]
    if isinstance(layer, tuple):
        return layer[0], _constants(name, layer, image)
    if isinstance(layer, Joined):
        return layer, [Value(f"other_{name}", (*image.shape[:3], 4), image.dtype, image.quant)]
    if not isinstance(layer, Add):
        return layer, []
    other = int8s(f"other_{name}", image.shape, 0.08, 5) if x.quant else floats(f"other_{name}", image.shape)
    return layer, [x if x.shape == image.shape else other]


def _constants(name: str, layer: Constants, image: Value) -> list[Value]:
    """Weights and bias of a convolution."""
    stage, (height, width, channels) = layer
    deep = isinstance(stage, DepthwiseConv2d)
    kernel = (1, height, width, channels) if deep else (channels, height, width, image.shape[3])
    constants = weights_and_bias(name, image, kernel, 3 if deep else 0, True)
    return [Value(f"{v.name}_{name}", v.shape, v.dtype, v.quant, v.data) for v in constants]


def row_loop_cases() -> Iterator[Case]:
    """int8 and float32."""
    yield from _pairs()
    yield from _chains()
    yield from _projections()
    yield from _joined()


def _joined() -> Iterator[Case]:
    """Concatenations of channels, and images that are enlarged: the way up in a U-Net."""
    x, same = int8s("x", (1, 6, 8, 8), 0.05, -11), (Conv2d((1, 1), SAME, activation=RELU), (3, 3, 8))
    for turned in (False, True):
        name, joined = ("before", Joined(True)) if turned else ("behind", Joined())
        for rows in (1, 3):
            yield chain(f"{name}_by_{rows}", x, [joined, same], rows)
        yield chain(f"{name}_within", x, [same, joined, same], 2)
        yield chain(f"{name}_last", x, [same, joined], 2)
        for rows in (1, 2, 6):
            yield chain(f"up_{name}_by_{rows}", x, [ResizeNearest((12, 16)), joined, same], rows)
        yield chain(f"up_{name}_float", floats("x", (1, 3, 2, 4)), [ResizeNearest((6, 4)), joined, same], 2)
        blend = ResizeBilinear((12, 16), half_pixel_centers=True)
        for rows in (1, 4):
            yield chain(f"blend_{name}_by_{rows}", x, [blend, joined, same], rows)
        real, aligned = floats("x", (1, 3, 2, 4)), ResizeBilinear((6, 4), align_corners=True)
        yield chain(f"blend_{name}_float", real, [aligned, joined, same], 2)
    yield chain("blend_bytes", x, [ResizeBytes((9, 5)), same], 3)
    yield chain("blend_smaller", x, [ResizeBilinear((4, 8)), (CLAMPED, (1, 1, 8))], 2)
    yield chain("blend_pointwise", x, [ResizeBilinear((15, 11)), (CLAMPED, (1, 1, 4))], 5)
    yield chain("up_pointwise", x, [ResizeNearest((12, 16)), (CLAMPED, (1, 1, 4))], 4)
    yield chain("up_three", x, [ResizeNearest((18, 8), half_pixel_centers=True), same], 3)
    yield chain("up_last", x, [same, Joined(), (Conv2d((2, 2), SAME), (3, 3, 4))], 1)


def _pairs() -> Iterator[Case]:
    """A pointwise layer, and another one."""
    x = int8s("x", (1, 12, 9, 8), 0.05, -11)
    half = Padding.same((12, 9), (3, 3), (2, 2))
    wide, even = (CLAMPED, (1, 1, 16)), int8s("x", (1, 8, 10, 4), 0.05, 127)
    for rows in (1, 2, 4, 12):
        same = DepthwiseConv2d((1, 1), SAME, activation=RELU)
        yield chain(f"s1_by_{rows}", x, [wide, (same, (3, 3, 16))], rows)
    for rows in (1, 2, 3, 6):
        halved = DepthwiseConv2d((2, 2), half, activation=RELU)
        yield chain(f"s2_by_{rows}", x, [wide, (halved, (3, 3, 16))], rows)
    yield chain("valid", x, [wide, (DepthwiseConv2d((1, 2)), (3, 3, 16))], 2)
    bottom = DepthwiseConv2d((2, 2), Padding(0, 1, 0, 1))
    yield chain("s2_bottom", even, [(CLAMPED, (1, 1, 12)), (bottom, (3, 3, 12))], 2)
    skew = DepthwiseConv2d((2, 1), Padding(2, 3, 0, 2), (1, 1))
    yield chain("skew", even, [(CLAMPED, (1, 1, 4)), (skew, (5, 4, 4))], 5)
    spread = DepthwiseConv2d((1, 1), Padding(2, 2, 2, 2), (2, 2))
    yield chain("dilated", even, [(CLAMPED, (1, 1, 8)), (spread, (3, 3, 8))], 4)
    twice = DepthwiseConv2d((1, 1), SAME, multiplier=2)
    yield chain("multiplier", even, [(CLAMPED, (1, 1, 4)), (twice, (3, 3, 8))], 4)
    yield chain("conv", x, [wide, (Conv2d((1, 1), SAME, activation=RELU), (3, 3, 8))], 2)
    yield chain("pointwise", x, [wide, (Conv2d(), (1, 1, 4))], 3)
    yield chain("unread", even, [(CLAMPED, (1, 1, 8)), (DepthwiseConv2d((3, 1)), (3, 3, 8))], 1)
    beside = Conv2d((1, 2), Padding(0, 0, 2, 1), activation=Activation.RELU6)
    yield chain("first_1x4", x, [(beside, (1, 4, 8)), (DepthwiseConv2d((1, 1), SAME), (3, 3, 8))], 2)


def _chains() -> Iterator[Case]:
    """First windows of several rows, additions, pools."""
    x, same = int8s("x", (1, 12, 9, 8), 0.05, -11), Conv2d((1, 1), SAME, activation=RELU)
    three = (3, 3, 8)
    for rows in (1, 3, 4, 12):
        yield chain(f"block_by_{rows}", x, [(same, three), (Conv2d((1, 1), SAME), three), Add(RELU)], rows)
    yield chain("two_3x3", x, [(same, (3, 3, 12)), (Conv2d((2, 1), Padding(1, 0, 0, 1)), three)], 3)
    yield chain("valid_3x3", x, [(Conv2d(), (3, 3, 12)), (Conv2d(), three)], 4)
    yield chain("strided", x, [(Conv2d((3, 2)), (2, 2, 8)), (same, three)], 2)
    deep = DepthwiseConv2d((1, 1), SAME, activation=RELU)
    inverted: list[Layer] = [(CLAMPED, (1, 1, 24)), (deep, (3, 3, 24)), (Conv2d(), (1, 1, 8)), Add()]
    yield chain("inverted", x, inverted, 2)
    yield chain("widened", x, [(same, three), (CLAMPED, (1, 1, 24))], 1)
    yield chain("add_of_others", x, [(same, (3, 3, 4)), Add()], 6)
    yield chain("add_within", x, [(same, (3, 3, 4)), Add(RELU), (Conv2d((2, 2), SAME), three)], 2)
    yield chain("add_first", x, [Add(), (deep, three)], 4)
    yield chain("max_pool", x, [(same, (3, 3, 16)), MaxPool2d((2, 2), (2, 2))], 2)
    yield chain("odd_pool", x, [(Conv2d(), (2, 2, 16)), MaxPool2d((2, 2), (2, 2))], 5)
    yield chain("max_pool_3x3", x, [(same, (3, 3, 16)), MaxPool2d((3, 3), (2, 2), SAME)], 3)
    yield chain("average_pool", x, [(same, (3, 3, 16)), AveragePool2d((3, 2), (3, 1))], 2)
    yield chain("pool_first", x, [MaxPool2d((3, 3), (1, 1), SAME), (same, three)], 3)
    yield chain("whole_pool", x, [(CLAMPED, (1, 1, 12)), AveragePool2d((12, 9), (12, 9))], 1)
    around: list[Layer] = [(same, (3, 3, 20)), (deep, (3, 3, 20)), (CLAMPED, (1, 1, 8))]
    yield chain("whole_pool_of_three", x, [*around, AveragePool2d((12, 9), (1, 1), activation=RELU)], 1)
    flat = int8s("x", (1, 1, 6, 4), 0.05, 9)
    yield chain("one_row", flat, [(same, (3, 3, 4)), (Conv2d((1, 1), SAME), (3, 3, 4)), Add()], 1)
    real = floats("x", (1, 6, 5, 3))
    yield chain("float", real, [(CLAMPED, (1, 1, 6)), (deep, (3, 3, 6))], 2)
    yield chain("float_block", real, [(same, (3, 3, 5)), (Conv2d((1, 1), SAME), (3, 3, 3)), Add()], 3)
    yield chain("float_pool", real, [(same, (3, 3, 5)), MaxPool2d((2, 2), (2, 2))], 1)


def _projections() -> Iterator[Case]:
    """Additions whose other operand is made on the way: strides, several rows, pools, anywhere in a chain."""
    x, same = int8s("x", (1, 12, 9, 8), 0.05, -11), Conv2d((1, 1), SAME, activation=RELU)
    three, wide = (3, 3, 8), (3, 3, 16)
    half = Conv2d((2, 2), Padding.same((12, 9), (3, 3), (2, 2)), activation=RELU)
    halving: list[Layer] = [(half, wide), (same, wide), Beside(Add(RELU), (Conv2d((2, 2)), (1, 1, 16)))]
    for rows in (1, 2, 3, 6):
        yield chain(f"halving_block_by_{rows}", x, halving, rows)
    widening = Beside(Add(), (CLAMPED, (1, 1, 32)))
    yield chain("widening_beside", x, [(same, three), (same, (3, 3, 32)), widening], 3)
    valid = Beside(Add(), (Conv2d(), wide))
    yield chain("valid_beside", x, [(Conv2d(), wide), (CLAMPED, (1, 1, 16)), valid], 5)
    deep = Beside(Add(), (DepthwiseConv2d((3, 2), Padding(0, 0, 1, 0)), (2, 2, 8)))
    yield chain("deep_beside", x, [(Conv2d((3, 2), Padding(0, 0, 1, 0)), (2, 2, 8)), deep], 2)
    pooled = Beside(Add(RELU), MaxPool2d((2, 2), (2, 2)))
    yield chain("pool_beside", x, [(Conv2d((2, 2)), (2, 2, 8)), pooled], 3)
    sheared = Beside(Add(), (Conv2d((2, 1), dilation=(3, 1)), (2, 1, 8)))
    yield chain("dilated_beside", x, [(Conv2d((2, 1), Padding(0, 0, 1, 1)), (4, 3, 8)), sheared], 1)
    within = Beside(Add(RELU), (Conv2d(), (1, 1, 8)))
    yield chain("beside_within", x, [(same, three), within, (half, wide)], 2)
    yield chain("beside_first", x, [within, (same, three)], 4)
    yield chain("beside_twice", x, [(same, three), within, (same, three), within], 3)
    real = floats("x", (1, 6, 5, 3))
    beside = Beside(Add(RELU), (Conv2d((2, 2)), (1, 1, 6)))
    halved = Conv2d((2, 2), Padding.same((6, 5), (3, 3), (2, 2)), activation=RELU)
    yield chain("float_halving_block", real, [(halved, (3, 3, 6)), (same, (3, 3, 6)), beside], 1)
    mean = Beside(Add(), AveragePool2d((2, 2), (2, 1)))
    yield chain("float_pool_beside", real, [(Conv2d((2, 1)), (2, 2, 3)), mean], 3)


def random_case(number: int) -> Case:
    """A chain of two to four stages of any strides, paddings and dilations whose rows are whole words."""
    random = np.random.default_rng([7, number])
    height, width, channels = (int(n) for n in random.integers(1, [16, 12, 5]))
    shape = (height, width, 4 * channels)
    x = int8s("x", (1, *shape), 0.05, int(random.integers(-128, 128)))
    layers: list[Layer] = []
    for stage in range(random.integers(2, 5)):
        layer, shape = _random_layer(random, shape, x.shape[1:], first=stage == 0)
        layers.append(layer)
    rows = [rows for rows in range(1, shape[0] + 1) if shape[0] % rows == 0]
    return chain(f"random{number}", x, layers, int(random.choice(rows)))


_Shape = tuple[int, int, int]


def _random_layer(
    random: np.random.Generator, shape: _Shape, start: tuple[int, ...], first: bool
) -> tuple[Layer, _Shape]:
    """A stage on an image of this height, width and channels, and the shape of what it makes.

    ``start`` is the shape of the image that the chain begins with.
    """
    kind = random.integers(6)
    activation = list(Activation)[random.integers(4)]
    if kind in (0, 5):
        beside = _random_beside(random, start, shape) if kind == 5 else None
        return (Beside(Add(activation), beside) if beside else Add(activation)), shape
    taps, stride, spread = random.integers(1, 5, 2), random.integers(1, 4, 2), random.integers(1, 3, 2)
    if kind == 1:
        spread[:] = 1
    if not first:
        stride[0] = min(stride[0], (taps[0] - 1) * spread[0] + 1)
    before = random.integers(0, taps)
    fits = (taps - 1) * spread + 1 - before - np.array(shape[:2])
    after = np.maximum(random.integers(0, taps), fits)
    padding = Padding(*(int(n) for pair in zip(before, after, strict=True) for n in pair))
    window, steps, dilation = ((int(a), int(b)) for a, b in (taps, stride, spread))
    size = padding.output_size(shape[:2], window, steps, dilation)
    if kind == 1 and max(after - taps) < 0:
        pool = MaxPool2d if padding.top or padding.bottom else AveragePool2d
        return pool(window, steps, padding, activation), (*size, shape[2])
    if kind == 2:
        return (DepthwiseConv2d(steps, padding, dilation, 1, activation), (*window, shape[2])), (
            *size,
            shape[2],
        )
    channels = 4 * int(random.integers(1, 6))
    return (Conv2d(steps, padding, dilation, activation), (*window, channels)), (*size, channels)


def _random_beside(
    random: np.random.Generator, start: tuple[int, ...], shape: _Shape
) -> Constants | Windowed | None:
    """A layer that makes an image of ``shape`` from one of ``start`` without padding, if there is one."""
    fits = [
        [(t, s) for t in range(1, 5) for s in range(1, 4) if t <= n and (n - t) // s + 1 == wanted]
        for n, wanted in zip(start[:2], shape[:2], strict=True)
    ]
    if not all(fits):
        return None
    (tall, down), (broad, right) = (options[random.integers(len(options))] for options in fits)
    if start[2] == shape[2] and random.integers(2):
        return MaxPool2d((tall, broad), (down, right))
    return Conv2d((down, right)), (tall, broad, shape[2])
