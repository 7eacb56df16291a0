"""Layers of every operator, drawn by hypothesis: shapes, attributes, quantisation and constants."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import assume, reject
from hypothesis import strategies as st

from crtgen.network.ir import Array, DType, Op, Quant, Rescaling, Signature, Value
from crtgen.network.ops import (
    Activation,
    Add,
    AveragePool2d,
    Case,
    Concat,
    Conv2d,
    DepthwiseConv2d,
    Dequantize,
    FullyConnected,
    Identity,
    Logistic,
    MaxPool2d,
    Mean,
    Mul,
    Pad,
    Padding,
    Quantize,
    Relu,
    ResizeLinear,
    ResizeNearest,
    Softmax,
    StridedSlice,
    Sub,
    Tanh,
    Transpose,
)
from crtgen.network.ops.accumulate import Accumulate
from crtgen.network.ops.activation import LeakyRelu
from crtgen.network.ops.case import in_eight_bits, in_four_bits, make, of_few_values
from crtgen.network.ops.detection import DetectionPostProcess
from crtgen.network.ops.fft import Irfft, Rfft
from crtgen.network.ops.grid import GridSample
from crtgen.network.ops.logsoftmax import LogSoftmax
from crtgen.network.ops.lookup import Lookup
from crtgen.network.ops.lookup_softmax import LookupSoftmax
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.recurrent import Recurrent
from crtgen.network.ops.suppression import NonMaxSuppression
from crtgen.network.ops.trees import Trees
from tests.compiler.kernels import (
    binary_layers,
    element_layers,
    index_layers,
    onnx_layers,
    picture_layers,
    recurrent_layers,
    reduce_layers,
    spectral_layers,
)

__all__ = ["KINDS", "Kind"]

_MACS = 60_000  # of a layer, so that it is fast on QEMU
_BYTES = 10_000  # of a tensor, so that a few fit into the smallest machine's memory
_LONGEST = 700  # inputs of a pixel or a row

_seeds = st.integers(0, 1 << 16)
_zeros = st.one_of(st.sampled_from([0, -128, 127]), st.integers(-128, 127))
_scales = st.integers(-400, 100).map(lambda n: 2.0 ** (n / 64))
_activations = st.sampled_from(Activation)
_quants = st.builds(Quant.tensor, _scales, _zeros)
_batches = st.sampled_from([1, 1, 1, 2, 3])
_ones = st.just((1, 1))
_pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))
_strides = st.one_of(_ones, st.sampled_from([(1, 1), (2, 2)]), _pairs)
_dilations = st.one_of(_ones, _ones, _pairs)
_channels = st.one_of(st.sampled_from([1, 3, 4, 8, 16, 32, 64]), st.integers(1, 40))
_more = st.one_of(st.just(0), st.integers(0, 8), st.integers(0, 8))
_windows = st.one_of(
    st.just((3, 3)),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 10), st.just(1)),
    st.tuples(st.just(1), st.integers(1, 10)),
    st.tuples(st.integers(1, 10), st.integers(1, 10)),
)


@dataclass(frozen=True)
class Kind:
    """Layers of these operators, most of them int8, some float32; or all of the type ``only``.

    ``int4``: with weights of four bits.
    """

    operators: tuple[type[Op], ...]
    layers: st.SearchStrategy[Case]
    only: DType | None = None
    int4: bool = False


def _case(op: Op, inputs: Sequence[Value], quant: Quant | None = None) -> Case:
    """The layer, unless its quantisation is beyond what TFLite computes in 32 bits."""
    try:
        case = make("drawn", op, inputs, quant)
        if hasattr(op, "parameters") and {DType.INT8, DType.INT16} & {case.sig.x.dtype, case.sig.y.dtype}:
            op.parameters(case.sig)
    except ValueError:
        reject()
    assume(max(v.nbytes for v in (*case.sig.inputs, case.sig.y)) <= _BYTES)
    return case


def _tensor(draw: st.DrawFn, shape: tuple[int, ...], dtype: DType, name: str = "x") -> Value:
    if dtype is DType.INT16:
        return Value(name, shape, dtype, Quant.tensor(draw(_scales) / 256))
    return Value(name, shape, dtype, draw(_quants) if dtype is DType.INT8 else None)


def _quant(draw: st.DrawFn, scale: float, zero_point: int) -> Quant:
    """The quantisation of an output, now and then by a float32 product."""
    rescaling = draw(st.sampled_from([*[Rescaling.FIXED_POINT] * 3, Rescaling.FLOAT32]))
    return replace(Quant.tensor(scale, zero_point), rescaling=rescaling)


def _shape(draw: st.DrawFn, least: int = 1, most: int = 4) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(1, 9), min_size=least, max_size=most)))


@st.composite
def _data(draw: st.DrawFn, shape: tuple[int, ...]) -> Array:
    """int8 weights: of all values, all alike, of few values, or mostly zeros."""
    random = np.random.default_rng(draw(_seeds))
    fill = draw(
        st.sampled_from(["all", "all", "all", "least", "greatest", "zero", "small", "sparse", "ends"])
    )
    whole = random.integers(-127, 128, shape)
    made = {
        "all": whole,
        "least": np.full(shape, -128),
        "greatest": np.full(shape, 127),
        "zero": np.zeros(shape),
        "small": random.integers(-1, 2, shape),
        "sparse": whole * (random.integers(0, 8, shape) == 0),
        "ends": random.choice([-128, 127], shape),
    }
    data: Array = made[fill].astype(np.int8)
    return data


@st.composite
def _constants(
    draw: st.DrawFn, shape: tuple[int, ...], axis: int, dtype: DType
) -> tuple[Value, Value, float]:
    """Weights with outputs on ``axis``, per channel or as a whole; a bias; the root of the squares' mean."""
    outputs = shape[axis]
    random = np.random.default_rng(draw(_seeds))
    if dtype is DType.FLOAT32:
        limit = float(outputs / np.prod(shape)) ** 0.5  # so that nothing large cancels out
        real = random.uniform(-limit, limit, shape).astype(np.float32)
        bias = random.uniform(-1, 1, outputs).astype(np.float32)
        return Value.constant("w", real), Value.constant("b", bias), 1.0
    data = draw(_data(shape))
    per_axis, spread = draw(st.booleans()), draw(st.sampled_from([0.0, 1.0, 1.0, 4.0]))
    exponents = random.uniform(-spread, spread, outputs if per_axis else 1)
    scales = tuple(float(s) for s in (2.0**exponents * draw(_scales)).astype(np.float32))
    weights = Value.constant("w", data, Quant(scales, (0,) * len(scales), axis if per_axis else None))
    most = draw(st.sampled_from([0, 3000, 3000, 1 << 20, 1 << 30]))
    wide = dtype is DType.INT16 and draw(st.sampled_from([True, True, False]))
    bias = random.integers(-most, most + 1, outputs).astype(np.int64 if wide else np.int32)
    size = float(np.sqrt(np.mean(data.astype(np.float64) ** 2)))
    return weights, Value.constant("b", bias), max(size, 1.0) * float(np.median(scales))


@st.composite
def _weighted(
    draw: st.DrawFn, op: Op, x: Value, shape: tuple[int, ...], axis: int, activation: Activation
) -> Case:
    """``op`` with weights of ``shape``; outputs mostly use their range, else are coarse, fine or constant."""
    weights, bias, size = draw(_constants(shape, axis, x.dtype))
    if x.quant is None:
        return _case(op, [x, weights, bias])
    depth = weights.elements / shape[axis]
    if x.dtype is DType.INT16:
        assume(bias.dtype is DType.INT64 or not isinstance(op, DepthwiseConv2d))
        scale = x.quant.scale * size * 19_000 * depth**0.5 * 2.0 ** draw(st.floats(-17, -9))
        return _case(op, [x, weights, bias], Quant.tensor(scale))
    step = st.one_of(st.integers(-7, -3), st.integers(-7, -3), st.integers(-5, -4), st.integers(-14, 20))
    scale = x.quant.scale * size * 74 * depth**0.5 * 2.0 ** draw(step)
    zero = draw(st.just(-128) if activation is Activation.RELU and draw(st.booleans()) else _zeros)
    return _case(op, [x, weights, bias], _quant(draw, scale * 2.0 ** draw(st.floats(-0.5, 0.5)), zero))


@st.composite
def _paddings(
    draw: st.DrawFn, taps: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[Padding, tuple[int, int]]:
    """VALID, SAME or any numbers of rows and columns, and the size of an image that the window fits into."""
    extent = [(t - 1) * d + 1 for t, d in zip(taps, dilation, strict=True)]
    kind = draw(st.sampled_from(["valid", "same", "explicit"]))
    if kind == "same":
        size = draw(st.integers(1, 14)), draw(st.integers(1, 14))
        return Padding.same(size, taps, stride, dilation), size
    sides = [draw(st.integers(0, extent[i // 2])) for i in range(4)] if kind == "explicit" else [0] * 4
    padding = Padding(*sides)
    around = (sides[0] + sides[1], sides[2] + sides[3])
    height, width = (max(1, extent[i] - around[i]) + draw(_more) for i in range(2))
    return padding, (height, width)


@st.composite
def _images(
    draw: st.DrawFn, taps: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int], dtype: DType
) -> tuple[Padding, Value]:
    """An image for the window, and its padding."""
    padding, size = draw(_paddings(taps, stride, dilation))
    channels = min(draw(st.one_of(st.just(1), *[_channels] * 6)), max(1, _LONGEST // (taps[0] * taps[1])))
    x = _tensor(draw, (draw(_batches), *size, channels), dtype)
    return padding, x


def _outputs(draw: st.DrawFn, x: Value, size: tuple[int, int], taps: int) -> int:
    """Output channels, few enough."""
    products = x.shape[0] * size[0] * size[1] * taps * x.shape[3]
    assume(products <= _MACS)
    return min(draw(_channels), max(1, _MACS // products))


@st.composite
def _convolution(draw: st.DrawFn, dtype: DType) -> Case:
    taps, stride, dilation, activation = draw(_windows), draw(_strides), draw(_dilations), draw(_activations)
    padding, x = draw(_images(taps, stride, dilation, dtype))
    size = padding.output_size((x.shape[1], x.shape[2]), taps, stride, dilation)
    filters = _outputs(draw, x, size, taps[0] * taps[1])
    op = Conv2d(stride, padding, dilation, activation)
    return draw(_weighted(op, x, (filters, *taps, x.shape[3]), 0, activation))


@st.composite
def _tiles(draw: st.DrawFn) -> Case:
    """Windows of 3x3 with outputs of an even size, as Winograd's tiles take them."""
    before, after = draw(st.sampled_from([(1, 1), (1, 1), (0, 0), (2, 0)])), draw(st.sampled_from([0, 1]))
    padding = Padding(before[0], before[1], after, after)
    size = (2 * draw(st.integers(1, 4)), 2 * draw(st.integers(1, 5)))
    rows, columns = size[0] + 2 - before[0] - before[1], size[1] + 2 - 2 * after
    x = _tensor(draw, (draw(_batches), rows, columns, 4 * draw(st.integers(1, 12))), DType.INT8)
    filters, activation = 2 * draw(st.integers(1, 6)), draw(_activations)
    assume(filters * x.elements * 9 <= 4 * _MACS)
    op = Conv2d((1, 1), padding, activation=activation)
    return draw(_weighted(op, x, (filters, 3, 3, x.shape[3]), 0, activation))


@st.composite
def _whole(draw: st.DrawFn, dtype: DType) -> Case:
    """The only window is the whole image."""
    taps, activation = draw(_windows), draw(_activations)
    channels = min(draw(_channels), max(1, _LONGEST // (taps[0] * taps[1])))
    x = _tensor(draw, (1, *taps, channels), dtype)
    filters = _outputs(draw, x, (1, 1), taps[0] * taps[1])
    return draw(_weighted(Conv2d(activation=activation), x, (filters, *taps, channels), 0, activation))


@st.composite
def _pointwise(draw: st.DrawFn) -> Case:
    """Windows of 1x1 without padding, now and then with a stride, of many inputs."""
    stride = draw(st.sampled_from([(1, 1), (1, 1), (1, 1), (2, 2), (3, 1)]))
    depth = draw(st.one_of(st.integers(1, 16), _channels, st.integers(1, _LONGEST)))
    activation = draw(st.just(Activation.NONE) | _activations)
    most = draw(st.sampled_from([1] + [9] * 7))
    x = _tensor(draw, (draw(_batches), *(draw(st.integers(1, most)) for _ in "hw"), depth), DType.INT8)
    size = Padding().output_size((x.shape[1], x.shape[2]), (1, 1), stride)
    filters = _outputs(draw, x, size, 1)
    return draw(_weighted(Conv2d(stride, activation=activation), x, (filters, 1, 1, depth), 0, activation))


@st.composite
def _depthwise(draw: st.DrawFn, dtype: DType) -> Case:
    taps, stride = draw(st.just((3, 3)) | _windows), draw(_strides)
    dilation, activation = draw(_dilations), draw(_activations)
    padding, x = draw(_images(taps, stride, dilation, dtype))
    size = padding.output_size((x.shape[1], x.shape[2]), taps, stride, dilation)
    multiplier = draw(st.sampled_from([1, 1, 1, 2, 3, 8]))
    assume(x.shape[0] * size[0] * size[1] * taps[0] * taps[1] * x.shape[3] * multiplier <= _MACS)
    op = DepthwiseConv2d(stride, padding, dilation, multiplier, activation)
    return draw(_weighted(op, x, (1, *taps, x.shape[3] * multiplier), 3, activation))


@st.composite
def _line(draw: st.DrawFn, dtype: DType) -> Case:
    """Depthwise along one axis, of which the image has nothing but one line, or several apart."""
    taps, stride = draw(st.integers(1, 16)), draw(st.sampled_from([1, 1, 1, 2, 3]))
    before, after = (draw(st.just(0) | st.integers(0, taps - 1)) for _ in "ab")
    length = max(1, taps - before - after) + draw(st.just(0) | st.integers(0, 8) | st.integers(0, 60))
    channels = draw(_channels | st.sampled_from([128, 130]))
    across = draw(st.sampled_from([1, 1, 2, 3]))
    assume(length * taps * channels * across <= _MACS)
    image, window, padding = (length, across), (taps, 1), Padding(before, after, 0, 0)
    step = (stride, 1)
    if across > 1 or draw(st.booleans()):
        image, window, step, padding = image[::-1], window[::-1], step[::-1], Padding(0, 0, before, after)
    activation = draw(_activations)
    x = _tensor(draw, (draw(_batches), *image, channels), dtype)
    op = DepthwiseConv2d(step, padding, activation=activation)
    return draw(_weighted(op, x, (1, *window, channels), 3, activation))


@st.composite
def _dense(draw: st.DrawFn, dtype: DType) -> Case:
    rows = draw(st.sampled_from([(1,), (1,), (1,), (2,), (5,), (2, 3)]))
    depth = draw(st.one_of(st.integers(1, 90), st.sampled_from([64, 128, 640])))
    outputs, activation = draw(st.integers(1, 40)), draw(_activations)
    x = _tensor(draw, (*rows, depth), dtype)
    op = FullyConnected(activation, keep_dims=draw(st.booleans()))
    return draw(_weighted(op, x, (outputs, depth), 0, activation))


@st.composite
def _pool(draw: st.DrawFn, dtype: DType) -> Case:
    large = st.tuples(st.integers(1, 20), st.integers(1, 20))
    taps, stride = draw(st.one_of(_windows, _windows, large)), draw(_strides)
    padding, x = draw(_images(taps, stride, (1, 1), dtype))
    kind = draw(st.sampled_from([AveragePool2d, MaxPool2d]))
    return _case(kind(taps, stride, padding, draw(_activations)), [x])


@st.composite
def _binary(draw: st.DrawFn, dtype: DType) -> Case:
    """Operands of one shape, or with axes that are repeated; now and then one is constant."""
    shape = (*_shape(draw, 0, 3), draw(st.integers(1, 70)))
    shapes = [list(shape), list(shape)]
    if draw(st.booleans()):
        for number, axis in draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), max_size=4)):
            shapes[number][axis % len(shape)] = 1
        shapes[draw(st.integers(0, 1))][: draw(st.integers(0, len(shape)))] = []
    values = [_tensor(draw, tuple(s), dtype, name) for s, name in zip(shapes, "ab", strict=True)]
    fixed = draw(st.sampled_from([None, None, 0, 1]))
    if fixed is not None:
        v = values[fixed]
        data = (
            draw(_data(v.shape)) if dtype is DType.INT8 else np.linspace(-2, 2, v.elements, dtype=np.float32)
        )
        values[fixed] = Value.constant(v.name, data.reshape(v.shape), v.quant)
    kind = draw(st.sampled_from([Add, Sub, Mul]))
    real = max(v.quant.scale for v in values if v.quant) if dtype is DType.INT8 else 1.0
    quant = _quant(draw, real * 2.0 ** draw(st.floats(-3, 4)), draw(_zeros))
    return _case(kind(draw(_activations)), values, quant)


@st.composite
def _unary(draw: st.DrawFn, dtype: DType) -> Case:
    x = _tensor(draw, (*_shape(draw, 0, 2), draw(st.integers(1, 70))), dtype)
    kinds: list[Op] = [Quantize(), Logistic(), Tanh()]
    kinds += [LeakyRelu(alpha) for alpha in (0.0, 0.125, -0.5, 1.25)]
    kinds += [Relu(a) for a in Activation if a is not Activation.NONE]
    kinds += [Lookup.of(draw(_data((256,))), "drawn")] if dtype is DType.INT8 else []
    op = draw(st.sampled_from([*kinds, Dequantize()] if dtype is DType.INT8 else kinds))
    quant = x.quant if isinstance(op, Relu) and draw(st.booleans()) else draw(_quants)
    if isinstance(op, Logistic | Tanh):
        quant = op.output
    return _case(op, [x], quant)


@st.composite
def _softmax(draw: st.DrawFn, dtype: DType) -> Case:
    """Rows of a few elements or of many."""
    depth = draw(st.one_of(st.integers(1, 4), st.integers(1, 40), st.integers(1, 1100)))
    x = _tensor(draw, (*_shape(draw, 0, 1), depth), dtype)
    beta = draw(st.sampled_from([1.0, 1.0, 0.5, 2.0]))
    if dtype is DType.INT8 and draw(st.integers(0, 3)) == 0:
        return _case(LookupSoftmax(), [x], draw(_quants))
    if dtype is DType.INT8 and draw(st.integers(0, 3)) == 0:
        return _case(Softmax(beta, DType.INT16), [x], Quant.tensor(1 / 65536, -(1 << 15)))
    return _case(Softmax(beta), [x], Quant.tensor(1 / 256, -128))


@st.composite
def _mean(draw: st.DrawFn, dtype: DType) -> Case:
    """Over the image mostly."""
    image = draw(st.booleans())
    most = draw(st.sampled_from([4, 17, 40]))
    size = draw(st.integers(1, most)), draw(st.integers(1, most))
    shape = (draw(_batches), *size, draw(_channels)) if image else _shape(draw)
    axes = (
        draw(st.sampled_from([(1, 2), (1, 2), (2,), (1,), (0, 1, 2)]))
        if image
        else tuple(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    )
    x = _tensor(draw, shape, dtype)
    near = (
        None if x.quant is None else _quant(draw, x.quant.scale * 2.0 ** draw(st.floats(-3, 2)), draw(_zeros))
    )
    return _case(Mean(tuple(sorted(axes)), draw(st.booleans())), [x], near)


@st.composite
def _transposed(draw: st.DrawFn, x: Value) -> Case:
    """Axes in any order; or an image whose planes become pixels, or the other way round."""
    rank = len(x.shape)
    if draw(st.booleans()):
        return _case(Transpose(tuple(draw(st.permutations(range(rank))))), [x])
    sides = draw(st.integers(1, 6)), draw(st.integers(1, 40)), draw(st.integers(1, 12))
    planes = draw(st.booleans())
    shape = (1, *sides) if planes else (1, *sides[1:], sides[0])
    return _case(Transpose((0, 2, 3, 1) if planes else (0, 3, 1, 2)), [replace(x, shape=shape)])


@st.composite
def _movement(draw: st.DrawFn, dtype: DType) -> Case:
    x = _tensor(draw, (*_shape(draw, 0, 3), draw(st.integers(1, 9) | st.integers(1, 50))), dtype)
    rank = len(x.shape)
    kind = draw(st.sampled_from([Identity, Transpose, Pad, Concat, StridedSlice, ResizeNearest]))
    if kind is Identity:
        return _case(Identity(), [x])
    if kind is Transpose:
        return draw(_transposed(x))
    if kind is Pad:
        around = st.lists(st.integers(0, 3), min_size=rank, max_size=rank).map(tuple)
        value = (
            draw(st.none() | st.just(1.5))
            if dtype is DType.FLOAT32
            else draw(st.sampled_from([None, -128, 5]))
        )
        return _case(Pad(draw(around), draw(around), value), [x])
    if kind is Concat:
        axis = draw(st.integers(0, rank - 1))
        values = []
        for i in range(draw(st.integers(1, 4))):
            shape = (*x.shape[:axis], draw(st.integers(1, 20)), *x.shape[axis + 1 :])
            values.append(Value(f"x{i}", shape, x.dtype, x.quant))
        if dtype is DType.INT8 and len(values) > 1 and draw(st.booleans()):
            last = values[-1]
            values[-1] = Value.constant(last.name, draw(_data(last.shape)), last.quant)
        return _case(Concat(axis), values)
    if kind is ResizeNearest:
        x = Value("x", (*x.shape, 1, 1, 1)[:4], x.dtype, x.quant)
        rule = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
        return _case(ResizeNearest((draw(st.integers(1, 12)), draw(st.integers(1, 12))), *rule), [x])
    return _slice(draw, x)


def _slice(draw: st.DrawFn, x: Value) -> Case:
    begin, end, stride = [], [], []
    for length in x.shape:
        first = draw(st.just(0) | st.integers(0, length - 1))
        last = draw(st.just(length - 1) | st.integers(first, length - 1))
        forward = draw(st.sampled_from([True, True, True, False]))
        begin.append(first if forward else last)
        end.append(last + 1 if forward else first - 1)
        stride.append(draw(st.sampled_from([1, 1, 1, 2, 3])) * (1 if forward else -1))
    return _case(StridedSlice(tuple(begin), tuple(end), tuple(stride)), [x])


def _kind(
    drawn: Callable[[DType], st.SearchStrategy[Case]],
    *operators: type[Op],
    other: st.SearchStrategy[Case] | None = None,
) -> Kind:
    """int8 twice as often as float32, and ``other`` types."""
    strategies = [drawn(DType.INT8), drawn(DType.INT8), drawn(DType.FLOAT32)]
    return Kind(operators, st.one_of(*strategies, *([other, other] if other is not None else [])))


def _real(drawn: Callable[[DType], st.SearchStrategy[Case]]) -> st.SearchStrategy[Case]:
    """Layers of float32, some of them with weights of int8, by one scale or several."""
    scales = st.sampled_from([None, None, 0, 1])
    return st.builds(lambda c, n: c if n is None else in_eight_bits(c, n), drawn(DType.FLOAT32), scales)


def _in_four_bits(case: Case) -> Case:
    """The layer with weights of four bits, which only TFLite has."""
    assert case.sig.y.quant is not None
    quant = replace(case.sig.y.quant, rescaling=Rescaling.FIXED_POINT)
    return in_four_bits(replace(case, sig=Signature(case.sig.inputs, (replace(case.sig.y, quant=quant),))))


def _is_computed(case: Case) -> bool:
    """Whether TFLite computes its quantisation in 32 bits."""
    assert isinstance(case.op, Conv2d | DepthwiseConv2d | FullyConnected)
    try:
        case.op.parameters(case.sig)
    except ValueError:
        return False
    return True


KINDS = {
    "convolution": Kind(
        (Conv2d,),
        st.one_of(_pointwise(), _pointwise(), _convolution(DType.INT8), _tiles(), _real(_convolution)),
    ),
    "depthwise": Kind(
        (DepthwiseConv2d,),
        st.one_of(_depthwise(DType.INT8), _depthwise(DType.INT8), _line(DType.INT8), _real(_depthwise)),
    ),
    "dense": Kind((FullyConnected,), st.one_of(_dense(DType.INT8), _dense(DType.INT8), _real(_dense))),
    "pool": _kind(_pool, AveragePool2d, MaxPool2d),
    "binary": _kind(_binary, Add, Sub, Mul, other=element_layers.pairs()),
    "unary": _kind(
        _unary, Relu, Quantize, Dequantize, Logistic, Tanh, LeakyRelu, Lookup, other=element_layers.units()
    ),
    "functions": Kind(element_layers.FUNCTIONS, element_layers.functions()),
    "comparisons": Kind(element_layers.COMPARISONS, element_layers.comparisons()),
    "quotients": Kind(element_layers.QUOTIENTS, element_layers.quotients()),
    "indexed": Kind(index_layers.INDEXED, index_layers.indexed()),
    "repeated": Kind(index_layers.REPEATED, index_layers.repeated()),
    "resized": Kind((ResizeLinear,), index_layers.resized()),
    "trees": Kind((Trees,), onnx_layers.trees()),
    "written": Kind(onnx_layers.WRITTEN, onnx_layers.written()),
    "reduced": Kind(reduce_layers.REDUCED, reduce_layers.reduced()),
    "norms": Kind(reduce_layers.NORMS, reduce_layers.norms()),
    "int16": Kind(
        (Conv2d, DepthwiseConv2d, FullyConnected, AveragePool2d, MaxPool2d),
        st.one_of(
            *(
                made(DType.INT16)
                for made in (_convolution, _depthwise, _depthwise, _depthwise, _line, _dense, _pool, _whole)
            )
        ),
        DType.INT16,
    ),
    "int4": Kind(
        (Conv2d, DepthwiseConv2d, FullyConnected),
        st.one_of(
            _pointwise(),
            *(made(DType.INT8) for made in (_convolution, _depthwise, _depthwise, _line, _dense)),
        )
        .map(_in_four_bits)
        .filter(_is_computed),
        int4=True,
    ),
    "softmax": _kind(_softmax, Softmax, LogSoftmax, LookupSoftmax, other=reduce_layers.softmaxes()),
    "products": Kind((BatchMatMul,), reduce_layers.products()),
    "pictures": Kind(picture_layers.PICTURES, picture_layers.pictures()),
    "spectral": Kind(spectral_layers.SPECTRAL, spectral_layers.spectral()),
    "transforms": Kind((Rfft, Irfft), reduce_layers.transforms()),
    "mean": _kind(_mean, Mean),
    "recurrent": Kind(recurrent_layers.RECURRENT, recurrent_layers.recurrent()),
    "sequences": Kind((Recurrent,), onnx_layers.sequences()),
    "signs": Kind(binary_layers.BINARIZED, binary_layers.binarized()),
    "sampled": Kind((GridSample,), onnx_layers.sampled()),
    "affine": Kind(onnx_layers.AFFINE, onnx_layers.affine()),
    "sums": Kind(
        (Accumulate,),
        st.builds(
            onnx_layers.of_sums,
            st.one_of(
                *(made(DType.INT8) for made in (_convolution, _depthwise, _dense)), reduce_layers.products()
            ).filter(lambda case: case.sig.x.dtype is DType.INT8),
            st.booleans(),
        ),
    ),
    "bits": Kind(onnx_layers.BITS, onnx_layers.bits()),
    "curved": Kind(onnx_layers.CURVED, onnx_layers.curved(), DType.FLOAT32),
    "powers": Kind(onnx_layers.ELEMENTS, onnx_layers.elements()),
    "streams": Kind(recurrent_layers.STREAMS, recurrent_layers.streams()),
    "detections": Kind((DetectionPostProcess, NonMaxSuppression), recurrent_layers.detections()),
    "movement": _kind(
        _movement,
        *(Identity, Transpose, Pad, Concat, StridedSlice, ResizeNearest),
        other=st.one_of(_movement(DType.INT16), _movement(DType.INT64)),
    ),
    "reals": Kind(
        (Conv2d, DepthwiseConv2d, FullyConnected),
        st.one_of(*(_real(made) for made in (_convolution, _convolution, _depthwise, _dense))),
        DType.FLOAT32,
    ),
    "few": Kind(
        (Conv2d, FullyConnected),
        st.one_of(
            *(made(kind) for kind in (DType.INT8, DType.INT16) for made in (_convolution, _dense, _whole)),
            _pointwise(),
        ).map(of_few_values),
    ),
}
