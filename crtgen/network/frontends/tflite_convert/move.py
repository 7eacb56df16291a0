"""Operators that move elements."""

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from crtgen.network.frontends.builder import Converted, KnownOutput, RefusedOperator
from crtgen.network.frontends.refusals import NotConstant
from crtgen.network.frontends.tflite_convert.layer import (
    PLAIN,
    TfliteConverter,
    TfliteLayer,
    pairs,
    same,
)
from crtgen.network.frontends.tflite_file import FileTensor
from crtgen.network.ir import DType, shape_text
from crtgen.network.ops import INT8, Activation, Concat, Pad, Reshape, ResizeNearest, StridedSlice, Transpose
from crtgen.network.ops.compare import Maximum
from crtgen.network.ops.gather import DynamicSlice, DynamicUpdateSlice
from crtgen.network.ops.lookup import Lookup
from crtgen.network.ops.resize import ResizeBilinear, ResizeBytes
from crtgen.network.ops.spread import BroadcastTo, MirrorPad

__all__ = ["CONVERTERS"]


def _reshape(layer: TfliteLayer) -> Converted:
    # The shape that the file has, or the one that is known by now.
    shape = layer.y.shape
    if prod(layer.x.shape) != prod(shape) and len(layer.inputs) > 1:
        shape = tuple(layer.integers(1, "lengths"))
    elements = prod(layer.x.shape)
    if shape.count(-1) == 1 and elements % prod(shape) == 0:
        shape = tuple(-elements // prod(shape) if d == -1 else d for d in shape)
    return _to_shape(layer, shape)


def _to_shape(layer: TfliteLayer, shape: tuple[int, ...]) -> Converted:
    if prod(layer.x.shape) != prod(shape):
        raise ValueError(f"{shape_text(layer.x.shape)} does not become {shape_text(shape)}")
    return Converted(Reshape(shape), (layer.x,))


def _squeeze(layer: TfliteLayer) -> Converted:
    # Without some axes of length 1, or without all of them.
    shape, rank = layer.x.shape, len(layer.x.shape)
    given = layer.option("SqueezeDimsAsNumpy")
    listed = [] if isinstance(given, int) else given.tolist()
    gone = {layer.axis(a, rank) for a in listed} or {a for a, d in enumerate(shape) if d == 1}
    return _to_shape(layer, tuple(d for a, d in enumerate(shape) if a not in gone))


def _expand_dims(layer: TfliteLayer) -> Converted:
    (number,) = layer.integers(1, "axes")
    shape = list(layer.x.shape)
    shape.insert(layer.axis(number, len(shape) + 1), 1)
    return _to_shape(layer, tuple(shape))


def _broadcast_to(layer: TfliteLayer) -> Converted:
    return Converted(BroadcastTo(tuple(layer.integers(1, "lengths"))), (layer.x,))


def _fill(layer: TfliteLayer) -> Converted:
    return Converted(BroadcastTo(tuple(layer.integers(0, "lengths"))), (layer.tensor(1),))


def _zeros_like(layer: TfliteLayer) -> KnownOutput:
    assert layer.y.dtype is not None
    return KnownOutput(np.zeros(layer.x.shape, layer.y.dtype.numpy))


def _shape(layer: TfliteLayer) -> KnownOutput:
    assert layer.y.dtype is not None
    return KnownOutput(np.array(layer.x.shape, layer.y.dtype.numpy))


def _broadcast_args(layer: TfliteLayer) -> Converted:
    # The greater of two lengths, since one of them is 1 where they differ.
    rank = max(t.shape[0] for t in layer.operands)
    shapes = [Converted(Pad((rank - t.shape[0],), (0,), 1), (t,)) for t in layer.operands]
    return Converted(Maximum(), tuple(shapes), ("other",))


def _pad(layer: TfliteLayer) -> Converted:
    amounts = layer.integers(1, "paddings")
    if len(amounts) != 2 * len(layer.x.shape):
        raise ValueError(f"{len(amounts)} paddings for {len(layer.x.shape)} axes")
    return Converted(Pad(tuple(amounts[::2]), tuple(amounts[1::2])), (layer.x,))


def _pad_v2(layer: TfliteLayer) -> Converted:
    op = _pad(layer).op
    assert isinstance(op, Pad)
    value, tensor = layer.constant(2, "padding values"), layer.tensor(2)
    if value.size != 1 or tensor.dtype is not layer.x.dtype:
        raise ValueError(f"a padding value of {shape_text(tensor.shape)} {tensor.type_name}")
    layer.require_alike([tensor], "padding value")
    return Converted(Pad(op.before, op.after, value.reshape(-1)[0].item()), (layer.x,))


def _mirror_pad(layer: TfliteLayer) -> Converted:
    op = _pad(layer).op
    assert isinstance(op, Pad)
    return Converted(MirrorPad(op.before, op.after, bool(layer.option("Mode"))), (layer.x,))


def _transpose(layer: TfliteLayer) -> Converted:
    rank = len(layer.x.shape)
    perm = tuple(p + rank if p < 0 else p for p in layer.integers(1, "permutations"))
    return Converted(Transpose(perm), (layer.x,))


def _strided_slice(layer: TfliteLayer) -> Converted:
    for name in ("EllipsisMask", "NewAxisMask", "Offset"):
        if layer.option(name):
            raise RefusedOperator(f"{name}; supported: BeginMask, EndMask, ShrinkAxisMask")
    begins, ends, strides = (layer.integers(i, n) for i, n in enumerate(("begins", "ends", "strides"), 1))
    if not len(begins) == len(ends) == len(strides) <= len(layer.x.shape):
        raise ValueError(f"slices {begins}, {ends}, {strides} of {shape_text(layer.x.shape)}")
    if 0 in strides:
        raise ValueError("the stride is zero")
    ranges, shrink = [], []
    for axis, length in enumerate(layer.x.shape):
        bit = 1 << axis
        if axis >= len(begins):
            ranges.append((0, length, 1))
        elif layer.option("ShrinkAxisMask") & bit:
            at = begins[axis] + length if begins[axis] < 0 else begins[axis]
            ranges.append((at, at + 1, 1))
            shrink.append(axis)
        else:
            first = None if layer.option("BeginMask") & bit else begins[axis]
            last = None if layer.option("EndMask") & bit else ends[axis]
            ranges.append(slice(first, last, strides[axis]).indices(length))
    begin, end, stride = (tuple(r[part] for r in ranges) for part in range(3))
    return Converted(StridedSlice(begin, end, stride, tuple(shrink)), (layer.x,))


def _slice(layer: TfliteLayer) -> Converted:
    # A part that begins at a constant, or at a place computed at run time.
    shape, sizes = layer.x.shape, layer.integers(2, "sizes")
    if len(sizes) != len(shape):
        raise ValueError(f"a slice of {len(sizes)} axes on {len(shape)}")
    if layer.tensor(1).data is None:
        size = tuple(have if n == -1 else n for n, have in zip(sizes, layer.y.shape, strict=True))
        if -1 in size:
            raise NotConstant("lengths that are computed at run time; supported: constants")
        return Converted(DynamicSlice(size), (layer.x, layer.tensor(1)), ("begin",))
    begins = tuple(layer.integers(1, "begins"))
    ends = tuple(d if n == -1 else b + n for b, n, d in zip(begins, sizes, shape, strict=True))
    return Converted(StridedSlice(begins, ends, (1,) * len(shape)), (layer.x,))


def _update_slice(layer: TfliteLayer) -> Converted:
    operands = (layer.tensor(0), layer.tensor(1), layer.tensor(2))
    return Converted(DynamicUpdateSlice(), operands, ("update", "begin"))


def _reverse(layer: TfliteLayer) -> Converted:
    shape, rank = layer.x.shape, len(layer.x.shape)
    turned = {layer.axis(a, rank) for a in layer.integers(1, "axes")}
    begin = tuple(d - 1 if a in turned else 0 for a, d in enumerate(shape))
    end = tuple(-1 if a in turned else d for a, d in enumerate(shape))
    stride = tuple(-1 if a in turned else 1 for a in range(rank))
    return Converted(StridedSlice(begin, end, stride), (layer.x,))


def _concat(layer: TfliteLayer) -> Converted:
    if layer.activation() is not Activation.NONE:
        raise RefusedOperator("a fused activation in a concatenation; supported: NONE")
    axis = layer.axis(int(layer.option("Axis")), len(layer.x.shape))
    roles = tuple(f"part{i}" for i in range(1, len(layer.operands)))
    if layer.x.is_unsigned and layer.x.dtype is DType.INT8:
        return Converted(Concat(axis), tuple(_rescaled(x, layer.y) for x in layer.operands), roles)
    layer.require_alike(layer.operands)
    return Converted(Concat(axis), layer.operands, roles)


def _rescaled(x: FileTensor, y: FileTensor) -> FileTensor | Converted:
    # Bytes in the output's scale, rounded as in ConcatenationWithScaling of TensorFlow Lite's
    # reference_ops.h. TFLite Micro refuses them, and TensorFlow Lite those of int8.
    if x.quant == y.quant or x.quant is None or y.quant is None:
        return x
    scale = np.float32(x.quant.scale) * (np.float32(1) / np.float32(y.quant.scale))
    bias = np.float32(-(x.quant.zero_point - INT8.low)) * scale
    exact = (np.arange(256, dtype=np.float32) * scale + bias).astype(np.float64)
    rounded = np.copysign(np.floor(np.abs(exact) + 0.5), exact)
    table = np.clip(rounded + y.quant.zero_point, INT8.low, INT8.high)
    return Converted(Lookup.of(table, "rescaled"), (x,), quant=y.quant)


def _densify(layer: TfliteLayer) -> KnownOutput:
    return KnownOutput(layer.constant(0, "sparse numbers"))


def _bilinear(layer: TfliteLayer) -> Converted:
    return _resize(ResizeBytes if layer.x.is_unsigned else ResizeBilinear)(layer)


def _resize(
    kind: type[ResizeNearest] | type[ResizeBilinear] | type[ResizeBytes],
) -> Callable[[TfliteLayer], Converted]:
    def convert(layer: TfliteLayer) -> Converted:
        size = layer.integers(1, "sizes")
        if len(size) != 2 or min(size) < 1:
            raise ValueError(f"a size of {size}")
        corners, centres = bool(layer.option("AlignCorners")), bool(layer.option("HalfPixelCenters"))
        return Converted(kind((size[0], size[1]), corners, centres), (layer.x,))

    return convert


_JOIN = ("Axis", "FusedActivationFunction")
_SHORT = same(DType.FLOAT32, DType.INT8, DType.INT16)
_SLICE = ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask", "Offset")
_RESIZE = ("AlignCorners", "HalfPixelCenters")

_INDICES = (DType.INT32, DType.INT64)

CONVERTERS: Mapping[str, TfliteConverter] = {
    "BROADCAST_ARGS": TfliteConverter(_broadcast_args, ("broadcast_args",), types=same(*_INDICES)),
    "BROADCAST_TO": TfliteConverter(_broadcast_to, ("broadcast_to",), types=PLAIN),
    "CONCATENATION": TfliteConverter(_concat, ("concat",), "ConcatenationOptions", _JOIN, PLAIN),
    "DENSIFY": TfliteConverter(_densify, ("densify",), types=PLAIN),
    "DYNAMIC_UPDATE_SLICE": TfliteConverter(_update_slice, ("update_slice",), types=PLAIN),
    "EXPAND_DIMS": TfliteConverter(_expand_dims, ("expand_dims",), types=PLAIN),
    "FILL": TfliteConverter(_fill, ("fill",), types=pairs(_INDICES, DType)),
    "MIRROR_PAD": TfliteConverter(_mirror_pad, ("mirror_pad",), "MirrorPadOptions", ("Mode",), PLAIN),
    "PAD": TfliteConverter(_pad, ("pad", "zero_padding2d"), types=PLAIN),
    "PADV2": TfliteConverter(_pad_v2, ("pad",), types=PLAIN),
    "RESHAPE": TfliteConverter(_reshape, ("reshape", "flatten"), types=PLAIN),
    "RESIZE_BILINEAR": TfliteConverter(
        _bilinear, ("resize_bilinear", "up_sampling2d"), "ResizeBilinearOptions", _RESIZE, _SHORT
    ),
    "RESIZE_NEAREST_NEIGHBOR": TfliteConverter(
        _resize(ResizeNearest),
        ("resize_nearest", "up_sampling2d"),
        "ResizeNearestNeighborOptions",
        _RESIZE,
        PLAIN,
    ),
    "REVERSE_V2": TfliteConverter(_reverse, ("reverse",), types=PLAIN),
    "SHAPE": TfliteConverter(_shape, ("shape",), types=pairs(DType, _INDICES)),
    "SLICE": TfliteConverter(_slice, ("slice",), types=PLAIN),
    "SQUEEZE": TfliteConverter(_squeeze, ("squeeze",), "SqueezeOptions", ("SqueezeDimsAsNumpy",), PLAIN),
    "STRIDED_SLICE": TfliteConverter(
        _strided_slice, ("strided_slice",), "StridedSliceOptions", _SLICE, PLAIN
    ),
    "TRANSPOSE": TfliteConverter(_transpose, ("transpose",), types=PLAIN),
    "ZEROS_LIKE": TfliteConverter(_zeros_like, ("zeros_like",), types=PLAIN),
}
