"""Reductions, norms, products of matrices and Fourier transforms, drawn by hypothesis; see ``layers.py``."""

from dataclasses import replace

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from crtgen.network.ir import DType, Op, Quant, Rescaling, Value
from crtgen.network.ops import Activation, Case, Padding, Softmax
from crtgen.network.ops.case import make
from crtgen.network.ops.fft import Irfft, Rfft
from crtgen.network.ops.logsoftmax import LogSoftmax
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.normalize import CumSum, L2Normalization, L2Pool2d
from crtgen.network.ops.reduce import All, ArgMax, ArgMin, Mean, ReduceMax, ReduceMin, Sum

__all__ = ["NORMS", "REDUCED", "norms", "products", "reduced", "softmaxes", "transforms"]

REDUCED: tuple[type[Op], ...] = (Sum, ReduceMax, ReduceMin, All, ArgMax, ArgMin)
NORMS: tuple[type[Op], ...] = (CumSum, L2Normalization, L2Pool2d)
_F32, _I8, _I16 = DType.FLOAT32, DType.INT8, DType.INT16
_WHOLE = DType.INT32, DType.INT64, DType.UINT8
_zeros = st.sampled_from([0, -128, 127, 5, -60])
_scales = st.integers(-300, -1).map(lambda n: 2.0 ** (n / 64))


def _value(draw: st.DrawFn, shape: tuple[int, ...], dtype: DType) -> Value:
    quant = None
    if dtype is _I8:
        quant = Quant.tensor(draw(_scales), draw(_zeros))
    if dtype is _I16:
        quant = Quant.tensor(draw(_scales) / 128)
    return Value("x", shape, dtype, quant)


def _shape(draw: st.DrawFn, least: int = 1) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(1, 9), min_size=least, max_size=4)))


def _case(op: Op, x: Value, quant: Quant | None) -> Case:
    try:
        case = make("drawn", op, [x], quant)
        op.reference(case.sig, [case.inputs(1)["x"]])
    except ValueError:
        reject()
    return case


@st.composite
def reduced(draw: st.DrawFn) -> Case:
    """Over any axes, in each type."""
    shape = _shape(draw)
    axes = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    kind, kept = draw(st.sampled_from([*REDUCED, Sum, Mean])), draw(st.booleans())
    if kind is ArgMax or kind is ArgMin:
        x = _value(draw, shape, draw(st.sampled_from([_I8, _F32])))
        return _case(ArgMax(axes[0]) if kind is ArgMax else ArgMin(axes[0]), x, None)
    if kind is All:
        return _case(All(axes, kept), Value("x", shape, DType.BOOL), None)
    if kind is Sum or kind is Mean:
        whole = _WHOLE if kind is Sum else ()
        x = _value(draw, shape, draw(st.sampled_from([_I8, _I16, _I16, _F32, *whole])))
        scale = x.quant.scale * 2.0 ** draw(st.floats(-2, 5)) if x.quant else 1.0
        quant = x.quant and Quant.tensor(scale, draw(_zeros) if x.dtype is _I8 else 0)
        return _case(Sum(axes, kept) if kind is Sum else Mean(axes, kept), x, quant)
    x = _value(draw, shape, draw(st.sampled_from([_I8, _F32, *_WHOLE])))
    return _case(ReduceMax(axes, kept) if kind is ReduceMax else ReduceMin(axes, kept), x, None)


@st.composite
def norms(draw: st.DrawFn) -> Case:
    """Along any axis, in both types; running sums of whole numbers, too."""
    kind, dtype = draw(st.sampled_from(NORMS)), draw(st.sampled_from([_I8, _F32]))
    if kind is L2Pool2d:
        x = _value(draw, _shape(draw, 4), _F32)
        window, stride = (draw(st.tuples(st.integers(1, 3), st.integers(1, 3))) for _ in range(2))
        size = (x.shape[1], x.shape[2])
        fits = window[0] <= size[0] and window[1] <= size[1] and draw(st.booleans())
        padding = Padding() if fits else Padding.same(size, window, stride)
        return _case(L2Pool2d(window, stride, padding, draw(st.sampled_from(Activation))), x, None)
    x = _value(draw, _shape(draw), dtype)
    if kind is L2Normalization:
        return _case(L2Normalization(), x, Quant.tensor(1 / 128))
    if draw(st.booleans()):
        x = Value("x", x.shape, draw(st.sampled_from(_WHOLE)), None)
    axis = draw(st.integers(0, len(x.shape) - 1))
    quant = x.quant and Quant.tensor(x.quant.scale * 2.0 ** draw(st.floats(-1, 3)), draw(_zeros))
    return _case(CumSum(axis, draw(st.booleans()), draw(st.booleans())), x, quant)


@st.composite
def softmaxes(draw: st.DrawFn) -> Case:
    """Of int16, and logarithms."""
    shape = (*_shape(draw), draw(st.integers(1, 70)))[-3:]
    dtype = draw(st.sampled_from([_I16, _I16, _I8, _F32]))
    x = _value(draw, shape, dtype)
    if dtype is _I16:
        return _case(Softmax(draw(st.sampled_from([1.0, 0.5]))), x, Quant.tensor(1 / 32768))
    return _case(LogSoftmax(), x, Quant.tensor(1 / 16, 127))


@st.composite
def products(draw: st.DrawFn) -> Case:
    """Matrices either way round, of which one may be repeated along the axes before."""
    rows, columns = (draw(st.integers(1, 12)) for _ in range(2))
    depth = draw(st.one_of(st.integers(1, 12), st.integers(13, 40)))
    adj_x, adj_y = draw(st.booleans()), draw(st.booleans())
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    first = tuple(1 if draw(st.booleans()) else n for n in batch)
    dtype = draw(st.sampled_from([_I8, _I8, _I16, _F32]))
    a = _value(draw, (*first, *((depth, rows) if adj_x else (rows, depth))), dtype)
    b = _value(draw, (*batch, *((columns, depth) if adj_y else (depth, columns))), dtype)
    if first == batch == () and draw(st.booleans()) and dtype is not _I16:
        random = np.random.default_rng(draw(st.integers(0, 99)))
        data = random.integers(-128, 128, b.shape)
        b = Value.constant("b", data.astype(dtype.numpy), b.quant and Quant.tensor(b.quant.scale))
    quant = None
    if a.quant and b.quant:
        scale = a.quant.scale * b.quant.scale * depth**0.5 * 2.0 ** draw(st.floats(4, 8))
        quant = Quant.tensor(scale * (128 if dtype is _I16 else 1), draw(_zeros) if dtype is _I8 else 0)
        if dtype is _I8 and draw(st.booleans()):
            quant = replace(quant, rescaling=Rescaling.FLOAT32)
    try:
        case = make("drawn", BatchMatMul(adj_x, adj_y), [a, replace(b, name="b")], quant)
        arrays = [v.array() if v.is_constant else case.inputs(1)[v.name] for v in case.sig.inputs]
        case.op.reference(case.sig, arrays)
    except ValueError:
        reject()
    return case


@st.composite
def transforms(draw: st.DrawFn) -> Case:
    """Of some rows, either way."""
    length, dtype = 1 << draw(st.integers(2, 10)), draw(st.sampled_from([_I16, DType.INT32, _F32]))
    rows = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    if draw(st.booleans()):
        return make("drawn", Irfft(length), [Value("x", (*rows, length + 2), dtype)])
    short = draw(st.just(length) | st.integers(1, length))
    return make("drawn", Rfft(length), [Value("x", (*rows, short), dtype)])
