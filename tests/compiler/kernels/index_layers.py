"""Layers with indices computed at run time, and such that repeat elements; see ``layers.py``."""

import numpy as np
from hypothesis import strategies as st

from crtgen.network.ir import DType, Op, Quant, Value
from crtgen.network.ops import Case
from crtgen.network.ops.case import make
from crtgen.network.ops.gather import DynamicSlice, DynamicUpdateSlice, Gather, GatherNd
from crtgen.network.ops.resize import ResizeBilinear, ResizeBytes, ResizeLinear
from crtgen.network.ops.spread import BroadcastTo, MirrorPad

__all__ = ["INDEXED", "REPEATED", "indexed", "repeated", "resized"]

INDEXED: tuple[type[Op], ...] = (Gather, GatherNd, DynamicSlice, DynamicUpdateSlice)
REPEATED: tuple[type[Op], ...] = (BroadcastTo, MirrorPad, ResizeBilinear, ResizeBytes)
_types = st.sampled_from([DType.INT8, DType.FLOAT32, DType.INT16, DType.INT64])


def _value(name: str, shape: tuple[int, ...], dtype: DType) -> Value:
    quant = {DType.INT8: Quant.tensor(0.1, 4), DType.INT16: Quant.tensor(0.001)}.get(dtype)
    return Value(name, shape, dtype, quant)


def _shape(draw: st.DrawFn, least: int = 1, most: int = 4) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(1, 7), min_size=least, max_size=most)))


@st.composite
def indexed(draw: st.DrawFn) -> Case:
    """Indices within the tensors and beyond, of both types, now and then constant."""
    kind = draw(st.sampled_from(INDEXED))
    shape, limits = _shape(draw), {"i": (-2.0, 8.0)}
    x, dtype = _value("x", shape, draw(_types)), draw(st.sampled_from([DType.INT32, DType.INT64]))
    if kind is Gather:
        axis = draw(st.integers(0, len(shape) - 1))
        batch = draw(st.integers(0, axis))
        places = Value("i", (*shape[:batch], *_shape(draw, 0, 2)), dtype)
        if draw(st.booleans()):
            random = np.random.default_rng(draw(st.integers(0, 99)))
            places = Value.constant("i", random.integers(0, 7, places.shape).astype(dtype.numpy))
        return make("drawn", Gather(axis, batch), [x, places], limits=limits)
    if kind is GatherNd:
        places = Value("i", (*_shape(draw, 0, 2), draw(st.integers(1, len(shape)))), dtype)
        return make("drawn", GatherNd(), [x, places], limits=limits)
    size = tuple(draw(st.integers(1, d)) for d in shape)
    begin = Value("i", (len(shape),), dtype)
    if kind is DynamicSlice:
        return make("drawn", DynamicSlice(size), [x, begin], limits=limits)
    return make("drawn", DynamicUpdateSlice(), [x, _value("u", size, x.dtype), begin], limits=limits)


@st.composite
def repeated(draw: st.DrawFn) -> Case:
    """Elements that are broadcast, mirrored, or mixed with their neighbours."""
    kind = draw(st.sampled_from(REPEATED))
    if kind in (ResizeBilinear, ResizeBytes):
        types = [DType.INT8, DType.INT16, DType.FLOAT32] if kind is ResizeBilinear else [DType.INT8]
        x = _value("x", _shape(draw, 4), draw(st.sampled_from(types)))
        rule = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
        return make("drawn", kind((draw(st.integers(1, 12)), draw(st.integers(1, 12))), *rule), [x])
    shape, dtype = _shape(draw), draw(_types)
    if kind is BroadcastTo:
        to = (*_shape(draw, 0, 1), *shape)
        kept = tuple(1 if draw(st.booleans()) else d for d in shape)
        return make("drawn", BroadcastTo(to), [_value("x", kept, dtype)])
    repeats = draw(st.booleans())
    most = [d if repeats else d - 1 for d in shape]
    before, after = (tuple(draw(st.integers(0, m)) for m in most) for _ in range(2))
    return make("drawn", MirrorPad(before, after, repeats), [_value("x", shape, dtype)])


@st.composite
def resized(draw: st.DrawFn) -> Case:
    """Images of ONNX, between whose pixels there are lines."""
    x, size = (
        _value("x", _shape(draw, 4), DType.FLOAT32),
        (draw(st.integers(1, 12)), draw(st.integers(1, 12))),
    )
    scales = (size[0] / x.shape[1], size[1] / x.shape[2])
    rule = draw(st.sampled_from([(False, False), (True, False), (False, True)]))
    return make("drawn", ResizeLinear(size, scales, *rule), [x])
