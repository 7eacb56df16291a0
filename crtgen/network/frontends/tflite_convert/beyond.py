"""Operators of TFLite that TFLite Micro lacks."""

from collections.abc import Callable, Mapping

import numpy as np

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.tflite_convert.layer import (
    NUMBERS,
    PLAIN,
    TfliteConverter,
    TfliteLayer,
    pairs,
    same,
)
from crtgen.network.ir import DType, Value, shape_text
from crtgen.network.ops import Reshape
from crtgen.network.ops.arithmetic import Pow
from crtgen.network.ops.compare import Equal, Greater, GreaterEqual, Less, Maximum, Minimum, Select
from crtgen.network.ops.fft import Rfft
from crtgen.network.ops.function import Cast, Sqrt, Square
from crtgen.network.ops.reduce import Sum
from crtgen.network.ops.scatter import ScatterNd
from crtgen.network.ops.shape import StridedSlice
from crtgen.network.ops.spread import BroadcastTo
from crtgen.network.ops.topk import TopK

__all__ = ["CONVERTERS"]


def _tile(layer: TfliteLayer) -> Converted:
    # Each axis as one of two, of which the first is repeated.
    shape, repeats = layer.x.shape, layer.integers(1, "repeats")
    if len(repeats) != len(shape) or min(repeats, default=1) < 0:
        raise ValueError(f"repeats {repeats} of {shape_text(shape)}")
    if 0 in repeats:
        raise RefusedOperator("no repeats; supported: one or more")
    layer.require_alike([layer.x])
    apart = tuple(n for length in shape for n in (1, length))
    spread = tuple(n for pair in zip(repeats, shape, strict=True) for n in pair)
    repeated = Converted(BroadcastTo(spread), (Converted(Reshape(apart), (layer.x,)),))
    return Converted(Reshape(tuple(r * d for r, d in zip(repeats, shape, strict=True))), (repeated,))


def _sign(layer: TfliteLayer) -> Converted:
    if layer.x.dtype is DType.INT32:
        below = Converted(Minimum(), (layer.x, np.array(np.int32(1))), ("one",))
        return Converted(Maximum(), (below, np.array(np.int32(-1))), ("minus_one",))
    zero, one = np.float32(0), np.float32(1)
    above, below = (Converted(op, (layer.x, np.array(zero)), ("zero",)) for op in (Greater(), Less()))
    other = Converted(Select(), (below, np.array(-one), np.array(zero)))
    return Converted(Select(), (above, np.array(one), other))


def _pow(layer: TfliteLayer) -> Converted:
    return Converted(Pow(), (layer.tensor(0), layer.tensor(1)), ("exponent",))


def _top_k(layer: TfliteLayer) -> Converted:
    # Along the last axis; of equal values, the first one comes first.
    (count,) = layer.constant(1, "numbers of elements").reshape(-1).tolist()
    layer.require_alike([layer.x])
    return Converted(TopK(int(count), len(layer.x.shape) - 1, places=DType.INT32), (layer.x,))


def _scatter_nd(layer: TfliteLayer) -> Converted:
    # Zeros, to which the updates are added, also where several have one place.
    updates, shape = layer.tensor(1), layer.integers(2, "lengths of the output")
    assert updates.dtype is not None
    if not np.array_equal(shape, layer.y.shape):
        raise ValueError(f"the shape {shape_text(shape)} for an output of {shape_text(layer.y.shape)}")
    zeros = np.zeros(layer.y.shape, updates.dtype.numpy)
    return Converted(ScatterNd("add"), (zeros, layer.x, updates), ("zeros",))


def _one_hot(layer: TfliteLayer) -> Converted:
    # ``on`` where the place along the new axis is the index, elsewhere ``off``; no place is negative.
    depth = int(layer.constant(1, "depths").reshape(-1)[0].item())
    rank = len(layer.x.shape)
    axis = layer.axis(layer.number("Axis"), rank + 1)
    if not 0 < depth <= _MOST_PLACES:
        raise RefusedOperator(f"{depth} places; supported: 1 to {_MOST_PLACES}")
    assert layer.x.dtype is not None
    places = np.arange(depth).reshape([-1 if a == axis else 1 for a in range(rank + 1)])
    apart = Converted(Reshape((*layer.x.shape[:axis], 1, *layer.x.shape[axis:])), (layer.x,))
    hot = Converted(Equal(), (apart, places.astype(layer.x.dtype.numpy)), ("places",))
    values = (layer.constant(place, "values") for place in (2, 3))  # numbers of the output, as TFLite has it
    if layer.y.quant is None:
        return Converted(Select(), (hot, *values), ("on", "off"))
    quant = layer.y.quant
    return Converted(Select(), (hot, *(Value.constant("value", v, quant) for v in values)), ("on", "off"))


def _bucketize(layer: TfliteLayer) -> Converted:
    # The number of bounds that are not above a value.
    given = layer.option("BoundariesAsNumpy")
    bounds = np.asarray([] if isinstance(given, int) else given, np.float32).reshape(-1)
    if not 0 < bounds.size <= _MOST_PLACES:
        raise RefusedOperator(f"{bounds.size} bounds; supported: 1 to {_MOST_PLACES}")
    apart = Converted(Reshape((*layer.x.shape, 1)), (layer.x,))
    if layer.x.dtype is not DType.FLOAT32:
        apart = Converted(Cast(DType.FLOAT32), (apart,))
    above = Converted(GreaterEqual(), (apart, bounds), ("bounds",))
    return Converted(Sum((len(layer.x.shape),)), (Converted(Cast(DType.INT32), (above,)),))


def _transform(layer: TfliteLayer) -> Converted:
    # Each row by itself; a pair of values per frequency.
    rows, length = layer.integers(1, "lengths")
    if len(layer.x.shape) < 2:
        raise ValueError(f"a transform of {shape_text(layer.x.shape)}")
    if (most := max(rows, layer.x.shape[-2])) != 1:
        raise RefusedOperator(f"a transform of {most} rows; supported: one")
    return Converted(Reshape(layer.y.shape), (Converted(Rfft(length), (layer.x,)),))


def _magnitude(layer: TfliteLayer) -> Converted:
    squares = Converted(Square(), (layer.x,))
    total = Converted(Sum((len(layer.x.shape) - 1,)), (squares,))
    return Converted(Sqrt(), (total,))


def _part(index: int) -> Callable[[TfliteLayer], Converted]:
    # The real part of each pair, or the imaginary one.
    def convert(layer: TfliteLayer) -> Converted:
        lengths = layer.x.shape[:-1]
        begin, end = ((0,) * len(lengths) + (index,), (*lengths, index + 1))
        slice = StridedSlice(begin, end, (1,) * len(begin), (len(lengths),))
        return Converted(slice, (layer.x,))

    return convert


_REAL = same(DType.FLOAT32)
_MOST_PLACES = 4096
_WHOLE = (DType.INT32, DType.INT64)

CONVERTERS: Mapping[str, TfliteConverter] = {
    "BUCKETIZE": TfliteConverter(
        _bucketize,
        ("bucketize", "discretization"),
        "BucketizeOptions",
        ("BoundariesAsNumpy",),
        pairs((DType.FLOAT32, *_WHOLE), (DType.INT32,)),
    ),
    "ONE_HOT": TfliteConverter(
        _one_hot,
        ("one_hot",),
        "OneHotOptions",
        ("Axis",),
        pairs(_WHOLE, (DType.FLOAT32, DType.INT8, *_WHOLE, DType.BOOL)),
    ),
    "COMPLEX_ABS": TfliteConverter(_magnitude, ("abs",), types=_REAL),
    "IMAG": TfliteConverter(_part(1), ("imag",), types=_REAL),
    "REAL": TfliteConverter(_part(0), ("real",), types=_REAL),
    "RFFT2D": TfliteConverter(_transform, ("rfft",), types=_REAL),
    "POW": TfliteConverter(_pow, ("pow",), types=_REAL),
    "SCATTER_ND": TfliteConverter(
        _scatter_nd,
        ("scatter_nd",),
        types=frozenset((DType.INT32, d) for d in (DType.FLOAT32, DType.INT32)),
    ),
    "SIGN": TfliteConverter(_sign, ("sign",), types=_REAL | same(DType.INT32)),
    "TILE": TfliteConverter(_tile, ("tile",), types=PLAIN),
    "TOPK_V2": TfliteConverter(_top_k, ("top_k", "topk"), types=NUMBERS),
}
