"""Operators that move elements, or split and join tensors."""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from crtgen.network.frontends.builder import Converted, KnownOutput, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    ANY,
    OnnxConverter,
    OnnxLayer,
    Operand,
    ask_for_room,
    number,
    reshaped,
    same,
    transposed,
)
from crtgen.network.ir import shape_text
from crtgen.network.ops import Concat, Pad, StridedSlice
from crtgen.network.ops.compare import Select
from crtgen.network.ops.gather import Gather
from crtgen.network.ops.spread import BroadcastTo, MirrorPad, PadWith

__all__ = ["CONVERTERS"]


def _to_shape(layer: OnnxLayer, shape: Sequence[int]) -> Converted:
    if prod(layer.x.shape) != prod(shape):
        raise ValueError(f"{shape_text(layer.x.shape)} does not become {shape_text(shape)}")
    return reshaped(layer.x, shape)


def _reshape(layer: OnnxLayer) -> Converted:
    # 0 is the length of the input's axis, unless ``allowzero``; -1 is what is left.
    shape, keep = layer.integers(1, "lengths"), not layer.whole("allowzero")
    if keep and any(d == 0 and axis >= layer.rank for axis, d in enumerate(shape)):
        raise ValueError(f"{shape} keeps lengths that {shape_text(layer.x.shape)} does not have")
    lengths = [layer.x.shape[axis] if d == 0 and keep else d for axis, d in enumerate(shape)]
    rest = abs(prod(lengths))
    if lengths.count(-1) == 1 and rest:
        lengths = [prod(layer.x.shape) // rest if d == -1 else d for d in lengths]
    return _to_shape(layer, lengths)


def _flatten(layer: OnnxLayer) -> Converted:
    # Two dimensions: the axes before ``axis``, and those from it on.
    axis = layer.whole("axis", 1)
    axis += layer.rank if axis < 0 else 0
    return _to_shape(layer, (prod(layer.x.shape[:axis]), prod(layer.x.shape[axis:])))


def _squeeze(layer: OnnxLayer) -> Converted:
    # Without some axes of length 1, or without all of them.
    shape, axes = layer.x.shape, layer.listed("axes", 1)
    ones = {a for a, d in enumerate(shape) if d == 1}
    gone = ones if axes is None else {layer.axis(a, layer.rank) for a in axes}
    return _to_shape(layer, tuple(d for a, d in enumerate(shape) if a not in gone))


def _unsqueeze(layer: OnnxLayer) -> Converted:
    axes = layer.listed("axes", 1) or []
    rank = layer.rank + len(axes)
    new = {layer.axis(a, rank) for a in axes}
    if len(new) != len(axes):
        raise ValueError(f"axes {axes} name one twice")
    rest = iter(layer.x.shape)
    return _to_shape(layer, tuple(1 if a in new else next(rest) for a in range(rank)))


def _transpose(layer: OnnxLayer) -> Converted:
    perm = layer.attribute("perm") or list(range(layer.rank))[::-1]
    return transposed(layer.x, [layer.axis(int(p), layer.rank) for p in perm])


def _concat(layer: OnnxLayer) -> Converted:
    parts = [part for part in layer.operands if 0 not in part.shape]
    if len(parts) < 2:
        return same(parts[0])
    roles = tuple(f"part{i}" for i in range(1, len(parts)))
    return Converted(Concat(layer.own_axis(1)), tuple(parts), roles)


def _split(layer: OnnxLayer) -> tuple[Converted | KnownOutput, ...]:
    # Along an axis, into parts of given lengths or equal ones, of which the last may be shorter.
    axis, count = layer.own_axis(0), len(layer.outputs)
    length, lengths = layer.x.shape[axis], layer.listed("split", 1)
    if lengths is None:
        each = -(-length // count)
        lengths = [min(each, length - i * each) for i in range(count)]
    if sum(lengths) != length or len(lengths) != count:
        raise ValueError(f"{count} parts of {lengths} out of {length}")
    ends = np.cumsum(lengths).tolist()
    return tuple(_part(layer, axis, end - n, end) for end, n in zip(ends, lengths, strict=True))


def _part(layer: OnnxLayer, axis: int, first: int, last: int) -> Converted | KnownOutput:
    if first == last:
        return _empty(layer, tuple(0 if a == axis else d for a, d in enumerate(layer.x.shape)))
    begin = tuple(first if a == axis else 0 for a in range(layer.rank))
    end = tuple(last if a == axis else d for a, d in enumerate(layer.x.shape))
    return Converted(StridedSlice(begin, end, (1,) * layer.rank), (layer.x,))


def _empty(layer: OnnxLayer, shape: Sequence[int]) -> KnownOutput:
    # A constant without elements, which only a concatenation takes.
    assert layer.x.dtype is not None
    ask_for_room(shape)
    return KnownOutput(np.zeros(shape, layer.x.dtype.numpy))


def _slice(layer: OnnxLayer) -> Converted | KnownOutput:
    starts, ends = layer.listed("starts", 1), layer.listed("ends", 2)
    if starts is None or ends is None:
        raise ValueError("starts or ends are missing")
    axes = layer.listed("axes", 3) or list(range(len(starts)))
    steps = layer.integers(4, "steps") if layer.has(4) else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ValueError(f"slices from {starts} to {ends} of axes {axes} in steps of {steps}")
    ranges = [(0, d, 1) for d in layer.x.shape]
    for first, last, axis, step in zip(starts, ends, axes, steps, strict=True):
        at = layer.axis(axis, layer.rank)
        ranges[at] = slice(first, last, step).indices(layer.x.shape[at])
    if not all(len(range(*r)) for r in ranges):
        return _empty(layer, [len(range(*r)) for r in ranges])
    begin, end, stride = (tuple(r[part] for r in ranges) for part in range(3))
    return Converted(StridedSlice(begin, end, stride), (layer.x,))


def _pad(layer: OnnxLayer) -> Converted:
    # Elements around each axis; negative padding cuts them off.
    pads = layer.listed("pads", 1) or []
    axes = layer.integers(3, "axes") if layer.has(3) else list(range(layer.rank))
    if len(pads) != 2 * len(axes):
        raise ValueError(f"{len(pads)} paddings for {len(axes)} axes")
    before, after = [0] * layer.rank, [0] * layer.rank
    for position, axis in enumerate(axes):
        at = layer.axis(axis, layer.rank)
        before[at], after[at] = pads[position], pads[position + len(axes)]
    x = _cut(layer, before, after)
    first, last = (tuple(max(p, 0) for p in part) for part in (before, after))
    mode = layer.text("mode", "constant")
    if mode == "constant" and layer.has(2) and layer.tensor(2).data is None:
        return Converted(PadWith(first, last), (x, layer.tensor(2)), ("value",))
    if mode == "constant":
        return Converted(Pad(first, last, _pad_value(layer)), (x,))
    if mode == "reflect":
        return Converted(MirrorPad(first, last, False), (x,))
    return _taken_around(layer, x, first, last, mode)


def _pad_value(layer: OnnxLayer) -> float | int | None:
    if "value" in layer.node.attributes:
        return layer.real("value", 0.0)
    value = layer.constant(2, "padding values").reshape(-1).tolist() if layer.has(2) else []
    return value[0] if value else None


def _cut(layer: OnnxLayer, before: Sequence[int], after: Sequence[int]) -> Operand:
    if min(*before, *after, 0) == 0:
        return layer.x
    begin = tuple(max(-p, 0) for p in before)
    end = tuple(d - max(-p, 0) for p, d in zip(after, layer.x.shape, strict=True))
    return Converted(StridedSlice(begin, end, (1,) * layer.rank), (layer.x,))


def _taken_around(
    layer: OnnxLayer, x: Operand, before: Sequence[int], after: Sequence[int], mode: str
) -> Converted:
    # Padding that repeats elements of the tensor, axis by axis.
    if mode not in ("edge", "wrap"):
        raise RefusedOperator(f"mode {mode}; supported: constant, reflect, edge, wrap")
    if x is not layer.x:
        raise RefusedOperator(f"negative padding in the mode {mode}; supported: with constant and reflect")
    made: Operand = x
    for axis, (first, last) in enumerate(zip(before, after, strict=True)):
        if first or last:
            ask_for_room((2, first + layer.x.shape[axis] + last))
            places = np.arange(-first, layer.x.shape[axis] + last, dtype=np.int32)
            length = layer.x.shape[axis]
            places = places % length if mode == "wrap" else np.clip(places, 0, length - 1)
            made = Converted(Gather(axis), (made, places), ("places",))
    return made if isinstance(made, Converted) else reshaped(made, layer.x.shape)


def _expand(layer: OnnxLayer) -> Converted:
    shape = np.broadcast_shapes(layer.x.shape, tuple(layer.integers(1, "lengths")))
    return Converted(BroadcastTo(shape), (layer.x,))


def _tile(layer: OnnxLayer) -> Converted:
    # Each axis as one of two, of which the first is repeated.
    repeats = layer.integers(1, "repeats")
    if len(repeats) != layer.rank or min(repeats, default=1) < 0:
        raise ValueError(f"repeats {repeats} of {shape_text(layer.x.shape)}")
    if 0 in repeats:
        raise RefusedOperator("no repeats; supported: one or more")
    apart = tuple(n for d in layer.x.shape for n in (1, d))
    spread = tuple(n for r, d in zip(repeats, layer.x.shape, strict=True) for n in (r, d))
    repeated = Converted(BroadcastTo(spread), (reshaped(layer.x, apart),))
    return reshaped(repeated, tuple(r * d for r, d in zip(repeats, layer.x.shape, strict=True)))


def _depth_to_space(layer: OnnxLayer) -> Converted:
    n, c, h, w = _image(layer)
    block = layer.whole("blocksize")
    depth = c // block**2
    if layer.text("mode", "DCR") == "DCR":
        apart = transposed(reshaped(layer.x, (n, block, block, depth, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        apart = transposed(reshaped(layer.x, (n, depth, block, block, h, w)), (0, 1, 4, 2, 5, 3))
    return reshaped(apart, (n, depth, h * block, w * block))


def _space_to_depth(layer: OnnxLayer) -> Converted:
    n, c, h, w = _image(layer)
    block = layer.whole("blocksize")
    apart = reshaped(layer.x, (n, c, h // block, block, w // block, block))
    perm = (0, 3, 5, 1, 2, 4) if layer.text("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return reshaped(transposed(apart, perm), (n, c * block**2, h // block, w // block))


def _image(layer: OnnxLayer) -> tuple[int, int, int, int]:
    if layer.rank != 4:
        raise ValueError(f"input 0 has shape {shape_text(layer.x.shape)} instead of four dimensions")
    n, c, h, w = layer.x.shape
    return n, c, h, w


def _shape(layer: OnnxLayer) -> KnownOutput:
    start, end = layer.whole("start"), layer.whole("end", layer.rank)
    return KnownOutput(np.array(layer.x.shape[start:end], np.int64))


def _size(layer: OnnxLayer) -> KnownOutput:
    return KnownOutput(np.array(prod(layer.x.shape), np.int64))


def _trilu(layer: OnnxLayer) -> Converted:
    # The upper or lower triangle; the rest is zero.
    shift = int(layer.constant(1, "diagonals").reshape(-1)[0].item()) if layer.has(1) else 0
    if layer.rank < 2:
        raise ValueError(f"an input of {shape_text(layer.x.shape)} instead of two dimensions or more")
    ask_for_room(layer.x.shape[-2:])
    ones = np.ones(layer.x.shape[-2:], np.bool_)
    kept = np.triu(ones, shift) if layer.whole("upper", 1) else np.tril(ones, shift)
    assert layer.x.dtype is not None
    return Converted(Select(), (kept, layer.x, number(0, layer.x.dtype)), ("x", "zero"))


CONVERTERS: Mapping[str, OnnxConverter] = {
    "Concat": OnnxConverter(_concat, ("concat",), ANY),
    "DepthToSpace": OnnxConverter(_depth_to_space, ("depth_to_space",), ANY),
    "Expand": OnnxConverter(_expand, ("expand",), ANY),
    "Flatten": OnnxConverter(_flatten, ("flatten",), ANY),
    "Pad": OnnxConverter(_pad, ("pad",), ANY),
    "Reshape": OnnxConverter(_reshape, ("reshape",), ANY),
    "Shape": OnnxConverter(_shape, ("shape",), ANY),
    "Size": OnnxConverter(_size, ("size",), ANY),
    "Slice": OnnxConverter(_slice, ("slice",), ANY),
    "SpaceToDepth": OnnxConverter(_space_to_depth, ("space_to_depth",), ANY),
    "Split": OnnxConverter(_split, ("split",), ANY),
    "Squeeze": OnnxConverter(_squeeze, ("squeeze",), ANY),
    "Tile": OnnxConverter(_tile, ("tile",), ANY),
    "Transpose": OnnxConverter(_transpose, ("transpose",), ANY),
    "Trilu": OnnxConverter(_trilu, ("trilu",), ANY),
    "Unsqueeze": OnnxConverter(_unsqueeze, ("unsqueeze",), ANY),
}
