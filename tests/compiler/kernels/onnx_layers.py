"""Layers that only ONNX has, drawn by hypothesis; see ``layers.py``."""

from dataclasses import replace

from hypothesis import strategies as st

from crtgen.network.ir import DType, Op, Signature, Value
from crtgen.network.ops import Activation, Case
from crtgen.network.ops.accumulate import Accumulate
from crtgen.network.ops.affine import WIDTHS, DequantizeBy, QuantizeBy
from crtgen.network.ops.arithmetic import Pow
from crtgen.network.ops.bits import BitAnd, BitCast, BitNot, BitOr, BitXor, Shift
from crtgen.network.ops.case import floats, make, plain
from crtgen.network.ops.conv import Conv2d, DepthwiseConv2d
from crtgen.network.ops.dense import FullyConnected
from crtgen.network.ops.function import Atan, Erf
from crtgen.network.ops.grid import MODES, PADDINGS, GridSample
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.narrow import FORMATS, RoundTo
from crtgen.network.ops.recurrent import CURVES, Cell, Curve, Recurrent, recurrent_case
from crtgen.network.ops.scatter import REDUCTIONS, ScatterElements, ScatterNd
from crtgen.network.ops.topk import TopK, topk_case
from crtgen.network.ops.trees import Trees, TreeTest, grown

__all__ = [
    "AFFINE",
    "BITS",
    "CURVED",
    "ELEMENTS",
    "WRITTEN",
    "affine",
    "bits",
    "curved",
    "elements",
    "of_sums",
    "sampled",
    "sequences",
    "trees",
    "written",
]

BITS: tuple[type[Op], ...] = (BitAnd, BitOr, BitXor, BitNot, Shift)
AFFINE: tuple[type[Op], ...] = (QuantizeBy, DequantizeBy)
CURVED: tuple[type[Op], ...] = (Erf, Atan, RoundTo)
ELEMENTS: tuple[type[Op], ...] = (Pow, BitCast)
WRITTEN: tuple[type[Op], ...] = (ScatterNd, ScatterElements, TopK)
_types = st.sampled_from([DType.INT8, DType.FLOAT32, DType.INT16, DType.INT64])
_few = st.integers(1, 6)
_some = st.one_of(_few, _few, st.integers(1, 40))


def _shape(draw: st.DrawFn, least: int = 1, most: int = 4) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(1, 7), min_size=least, max_size=most)))


@st.composite
def elements(draw: st.DrawFn) -> Case:
    """Powers, and bits taken as another type."""
    shape = _shape(draw)
    if draw(st.booleans()):
        limits = {"a": (0.1, 4.0), "b": (-3.0, 3.0)}
        return make("drawn", Pow(), [floats("a", shape), floats("b", shape)], limits=limits)
    dtype, to = draw(st.sampled_from([(DType.FLOAT32, DType.INT32), (DType.INT8, DType.UINT8)]))
    return make("drawn", BitCast(to), [Value("x", shape, dtype)])


@st.composite
def affine(draw: st.DrawFn) -> Case:
    """Quantisation by tensors: one scale, one per channel, or one per element."""
    shape, dtype = _shape(draw), draw(st.sampled_from(WIDTHS))
    other = draw(st.sampled_from([(), shape[-1:], (shape[0], *(1,) * (len(shape) - 1)), shape]))
    scale, zero = floats("s", other), plain("z", other, dtype)
    limits = {"s": (0.001, 0.2), "z": (0.0, 100.0)}
    if draw(st.booleans()):
        return make("drawn", QuantizeBy(), [floats("x", shape), scale, zero], limits=limits)
    return make("drawn", DequantizeBy(), [plain("x", shape, dtype), scale, zero], limits=limits)


def of_sums(case: Case, short: bool) -> Case:
    """The sums of an int8 layer; matrices that are computed both have 16 bits if ``short``."""
    op, (x, *others) = case.op, case.sig.inputs
    assert isinstance(op, Conv2d | DepthwiseConv2d | FullyConnected | BatchMatMul)
    plain_op = op if isinstance(op, BatchMatMul) else replace(op, activation=Activation.NONE)
    inputs = [x, *others]
    short = short and isinstance(op, BatchMatMul) and not others[0].is_constant
    if short:
        inputs = [plain(v.name, v.shape, DType.INT16) for v in inputs]
    limits = {v.name: (-255.0, 255.0) for v in inputs} if short else {}
    y = Value("y", case.sig.y.shape, DType.INT32)
    return Case("accumulate_drawn", Accumulate(plain_op), Signature(tuple(inputs), (y,)), limits)


@st.composite
def curved(draw: st.DrawFn) -> Case:
    """Functions of real numbers; finite ones, unless they saturate."""
    formats = st.builds(RoundTo, st.sampled_from(list(FORMATS)), st.booleans())
    op: Op = draw(st.one_of(st.sampled_from([Erf(), Atan()]), formats))
    most = draw(st.sampled_from([4.0, 1e-4, 1e5]))
    if isinstance(op, RoundTo) and not op.saturate:
        most = min(most, op.format.most)
    return make("drawn", op, [floats("x", _shape(draw))], limits={"x": (-most, most)})


@st.composite
def bits(draw: st.DrawFn) -> Case:
    """What is done with bits of whole numbers."""
    shape = _shape(draw)
    dtype = draw(st.sampled_from([DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.INT64]))
    low = 0.0 if dtype is DType.UINT8 else -100.0
    limits = {"a": (low, 100.0), "b": (0.0, 40.0)}
    op = draw(st.sampled_from([BitAnd(), BitOr(), BitXor(), BitNot(), Shift(True), Shift(False)]))
    pair = [plain("a", shape, dtype), plain("b", shape, dtype)]
    return make("drawn", op, pair[:1] if isinstance(op, BitNot) else pair, limits=limits)


@st.composite
def sampled(draw: st.DrawFn) -> Case:
    """Images of one to three dimensions at points within and beyond."""
    mode, padding = draw(st.sampled_from(list(MODES))), draw(st.sampled_from(PADDINGS))
    batch, size = draw(st.integers(1, 2)), _shape(draw, 1, 3)
    x = floats("x", (batch, *size, draw(st.integers(1, 9))))
    grid = floats("g", (batch, *_shape(draw, 1, 2), len(size)))
    op = GridSample(mode, padding, draw(st.booleans()))
    return make("drawn", op, [x, grid], limits={"g": (-1.6, 1.6)})


@st.composite
def written(draw: st.DrawFn) -> Case:
    """What writes at indices, within the tensors and beyond, or puts numbers in order."""
    kind, shape, dtype = draw(st.sampled_from(WRITTEN)), _shape(draw), draw(_types)
    axis = draw(st.integers(0, len(shape) - 1))
    x = Value("x", shape, dtype)
    if kind is TopK:
        return topk_case("drawn", TopK(draw(st.integers(1, shape[axis])), axis, draw(st.booleans())), x)
    index, reduction = (
        draw(st.sampled_from([DType.INT32, DType.INT64])),
        draw(st.sampled_from(list(REDUCTIONS))),
    )
    if kind is ScatterNd:
        depth, places = draw(st.integers(1, len(shape))), _shape(draw, 1, 2)
        at, updates = Value("i", (*places, depth), index), Value("u", (*places, *shape[depth:]), dtype)
        return make("drawn", ScatterNd(reduction), [x, at, updates], limits={"i": (-2.0, 8.0)})
    size = tuple(draw(st.integers(1, d)) for d in shape)
    at, updates = Value("i", size, index), Value("u", size, dtype)
    return make("drawn", ScatterElements(axis, reduction), [x, at, updates], limits={"i": (-2.0, 8.0)})


@st.composite
def sequences(draw: st.DrawFn) -> Case:
    """RNN, GRU and LSTM of float32 as ONNX has them, with any activations."""
    kind, directions, order = draw(st.sampled_from(Cell)), draw(st.integers(1, 2)), draw(st.booleans())
    steps, batch = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    usual = [Curve("tanh" if n or kind is Cell.RNN else "sigmoid") for n in range(kind.curves)]
    other = [Curve(draw(st.sampled_from(sorted(CURVES))), 0.5, 0.25) for _ in range(kind.curves)]
    curves = tuple(draw(st.sampled_from([usual, usual, other])))
    op = Recurrent(
        kind,
        (curves,) * directions,
        draw(st.booleans()),
        order,
        draw(st.sampled_from([0.0, 2.0])),
        tuple(draw(st.lists(st.integers(0, steps), min_size=batch, max_size=batch))),
        kind.is_lstm and draw(st.booleans()),
        (draw(st.booleans()), kind.is_lstm and draw(st.booleans())),
        (True, draw(st.booleans()), kind.is_lstm and draw(st.booleans())),
    )
    shape = (batch, steps, draw(_some)) if order else (steps, batch, draw(_some))
    return recurrent_case("drawn", op, shape, draw(_some), draw(st.integers(0, 999)))


@st.composite
def trees(draw: st.DrawFn) -> Case:
    """Ensembles of few comparisons or all, whose leaves score one target or several."""
    features, targets = draw(st.integers(1, 9)), draw(st.integers(1, 4))
    kinds = draw(st.sampled_from([(TreeTest.LEQ,), (TreeTest.LT,), tuple(TreeTest)]))
    sizes = draw(st.integers(1, 20)), draw(st.integers(0, 7))
    aggregate = draw(st.sampled_from(["SUM", "SUM", "MIN", "MAX"]))
    few = aggregate == "SUM" and draw(st.booleans())
    forest = grown(draw(st.integers(0, 1 << 16)), *sizes, features, targets, kinds, few)
    op = Trees(forest, targets, aggregate)
    return make("drawn", op, [floats("x", (draw(st.integers(1, 3)), features))])
