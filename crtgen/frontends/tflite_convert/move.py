"""Operators that move elements."""

from collections.abc import Mapping
from math import prod

from crtgen.frontends.builder import Converted, Refused
from crtgen.frontends.tflite_convert.layer import Converter, Layer
from crtgen.ir import shape_text
from crtgen.ops import Activation, Concat, Pad, Reshape, ResizeNearest, StridedSlice, Transpose

__all__ = ["CONVERTERS"]


def _reshape(layer: Layer) -> Converted:
    """Also squeeze and expand_dims: the file has the resulting shape."""
    if prod(layer.x.shape) != prod(layer.y.shape):
        raise ValueError(f"{shape_text(layer.x.shape)} does not become {shape_text(layer.y.shape)}")
    return Converted(Reshape(layer.y.shape), (layer.x,))


def _pad(layer: Layer) -> Converted:
    amounts = layer.integers(1, "paddings")
    if len(amounts) != 2 * len(layer.x.shape):
        raise ValueError(f"{len(amounts)} paddings for {len(layer.x.shape)} axes")
    return Converted(Pad(tuple(amounts[::2]), tuple(amounts[1::2])), (layer.x,))


def _pad_v2(layer: Layer) -> Converted:
    op = _pad(layer).op
    assert isinstance(op, Pad)
    value, tensor = layer.constant(2, "padding values"), layer.tensor(2)
    if value.size != 1 or tensor.dtype is not layer.x.dtype:
        raise ValueError(f"a padding value of {shape_text(tensor.shape)} {tensor.type_name}")
    if tensor.quant != layer.x.quant:
        raise Refused("a padding value that is quantised unlike the input")
    return Converted(Pad(op.before, op.after, value.reshape(-1)[0].item()), (layer.x,))


def _transpose(layer: Layer) -> Converted:
    rank = len(layer.x.shape)
    perm = tuple(p + rank if p < 0 else p for p in layer.integers(1, "permutations"))
    return Converted(Transpose(perm), (layer.x,))


def _strided_slice(layer: Layer) -> Converted:
    for name in ("EllipsisMask", "NewAxisMask", "Offset"):
        if layer.option(name):
            raise Refused(f"{name}; supported: BeginMask, EndMask, ShrinkAxisMask")
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


def _concat(layer: Layer) -> Converted:
    if layer.activation() is not Activation.NONE:
        raise Refused("a fused activation in a concatenation; supported: NONE")
    axis = int(layer.option("Axis"))
    operands = tuple(layer.tensor(i) for i in range(len(layer.inputs)))
    return Converted(
        Concat(axis + len(layer.x.shape) if axis < 0 else axis),
        operands,
        tuple(f"part{i}" for i in range(1, len(operands))),
    )


def _resize_nearest(layer: Layer) -> Converted:
    size = layer.integers(1, "sizes")
    if len(size) != 2 or min(size) < 1:
        raise ValueError(f"a size of {size}")
    corners, centres = bool(layer.option("AlignCorners")), bool(layer.option("HalfPixelCenters"))
    return Converted(ResizeNearest((size[0], size[1]), corners, centres), (layer.x,))


_JOIN = ("Axis", "FusedActivationFunction")
_SLICE = ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask", "Offset")
_RESIZE = ("AlignCorners", "HalfPixelCenters")

CONVERTERS: Mapping[str, Converter] = {
    "CONCATENATION": Converter(_concat, ("concat",), "ConcatenationOptions", _JOIN),
    "EXPAND_DIMS": Converter(_reshape, ("expand_dims",)),
    "PAD": Converter(_pad, ("pad", "zero_padding2d")),
    "PADV2": Converter(_pad_v2, ("pad",)),
    "RESHAPE": Converter(_reshape, ("reshape", "flatten")),
    "RESIZE_NEAREST_NEIGHBOR": Converter(
        _resize_nearest,
        ("resize_nearest", "up_sampling2d"),
        "ResizeNearestNeighborOptions",
        _RESIZE,
    ),
    "SQUEEZE": Converter(_reshape, ("squeeze",)),
    "STRIDED_SLICE": Converter(
        _strided_slice,
        ("strided_slice",),
        "StridedSliceOptions",
        _SLICE,
    ),
    "TRANSPOSE": Converter(_transpose, ("transpose",)),
}
