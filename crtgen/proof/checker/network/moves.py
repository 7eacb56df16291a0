"""Layers that only copy: each output is an input byte or a constant."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tflite

from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.layer import Layer, Value
from crtgen.proof.checker.refusal import Refusal

__all__ = ["MOVES", "Move"]

_B = tflite.BuiltinOperator
Array = Any
"""An array of symbols and numbers."""


class Move(Layer):
    """Each output is an element of an input, or an integer. The outputs of several tensors are
    concatenated.
    """

    is_move = True

    def data_inputs(self) -> Sequence[int]:
        return [t for t in self.operator.inputs if t >= 0 and self.file.constant(t) is None] or [-1]

    def prepare(self) -> list[Value]:
        f, tensors = self.file, self.data_inputs()
        for x in tensors:
            moved = [y for y in self.operator.outputs if x >= 0 and f.has_scale(x) and f.has_scale(y)]
            if any((f.scale(x), f.zero_point(x)) != (f.scale(y), f.zero_point(y)) for y in moved):
                raise Refusal("a change of the scale is not followed yet")
        made = MOVES[self.operator.code](self)
        parts = made if isinstance(made, list) else [made]
        values: list[Value] = [
            v if isinstance(v, Symbol) else int(v) for part in parts for v in np.ravel(part)
        ]
        if len(values) != self.size:
            raise Refusal("the size of the output does not fit its shape")
        self.proven.update(range(self.size))
        return values

    def array(self, which: int) -> Array:
        return self.network.array(self.operator.inputs[which])

    def numbers(self, which: int) -> list[int]:
        found = self.array(which).ravel().tolist()
        if any(isinstance(v, Symbol) for v in found):
            raise Refusal("what it moves depends on an input")
        return [int(v) for v in found]

    def needs(self, outputs: set[int]) -> set[Symbol]:
        assert self.values is not None  # outputs that are asked for have symbols
        return {v for i in outputs if isinstance(v := self.values[i], Symbol)}


def _same(m: Move) -> Array:
    return m.array(0)


def _joined(m: Move) -> Array:
    o = m.operator.options(tflite.ConcatenationOptions)
    if o.FusedActivationFunction():
        raise Refusal("an activation of a concatenation")
    return np.concatenate([m.array(i) for i in range(len(m.operator.inputs))], o.Axis())


def _padded(m: Move) -> Array:
    pairs = np.array(m.numbers(1)).reshape(-1, 2)
    value = m.numbers(2)[0] if len(m.operator.inputs) > 2 else m.file.zero_point(m.operator.output)
    return np.pad(m.array(0), [(int(a), int(b)) for a, b in pairs], constant_values=value)


def _mirrored(m: Move) -> Array:
    mode = m.operator.options(tflite.MirrorPadOptions).Mode()
    pairs = np.array(m.numbers(1)).reshape(-1, 2)
    return np.pad(m.array(0), [(int(a), int(b)) for a, b in pairs], ("reflect", "symmetric")[mode])


def _slice(m: Move) -> Array:
    x, begin, size = m.array(0), m.numbers(1), m.numbers(2)
    ends = [b + s if s >= 0 else None for b, s in zip(begin, size, strict=True)]
    return x[tuple(slice(b, e) for b, e in zip(begin, ends, strict=True))]


def _strided_slice(m: Move) -> Array:
    o, x = m.operator.options(tflite.StridedSliceOptions), m.array(0)
    if o.EllipsisMask() or o.NewAxisMask():
        raise Refusal("a slice with new axes")
    places: list[Any] = []
    for i, (b, e, s) in enumerate(zip(m.numbers(1), m.numbers(2), m.numbers(3), strict=True)):
        if o.ShrinkAxisMask() >> i & 1:
            places.append(b)
        else:
            first = None if o.BeginMask() >> i & 1 else b
            places.append(slice(first, None if o.EndMask() >> i & 1 else e, s))
    return x[tuple(places)]


def _split(m: Move) -> list[Array]:
    axis, x = m.numbers(0)[0], m.array(1)
    return list(np.split(x, len(m.operator.outputs), axis))


def _split_by_sizes(m: Move) -> list[Array]:
    x, sizes, axis = m.array(0), m.numbers(1), m.numbers(2)[0]
    rest = x.shape[axis] - sum(s for s in sizes if s >= 0)
    sizes = [rest if s < 0 else s for s in sizes]
    return list(np.split(x, np.cumsum(sizes)[:-1], axis))


def _packed(m: Move) -> Array:
    axis = m.operator.options(tflite.PackOptions).Axis()
    return np.stack([m.array(i) for i in range(len(m.operator.inputs))], axis)


def _unpacked(m: Move) -> list[Array]:
    x, axis = m.array(0), m.operator.options(tflite.UnpackOptions).Axis()
    return list(np.moveaxis(x, axis, 0))


def _gathered(m: Move) -> Array:
    o = m.operator.options(tflite.GatherOptions)
    if o.BatchDims():
        raise Refusal("a gather in batches")
    x, axis = m.array(0), o.Axis()
    shape = m.file.shape(m.operator.inputs[1])
    return np.take(x, np.array(m.numbers(1), np.int64).reshape(shape), axis)


def _shape(m: Move) -> Array:
    return np.array(m.file.shape(m.operator.inputs[0]), object)


def _nearest(m: Move) -> Array:
    o, x = m.operator.options(tflite.ResizeNearestNeighborOptions), m.array(0)
    for axis, size in enumerate(m.numbers(1), 1):
        x = np.take(x, _places(x.shape[axis], size, o.AlignCorners(), o.HalfPixelCenters()), axis)
    return x


def _places(size: int, out: int, corners: bool, centers: bool) -> Any:
    one = int(corners and out > 1)
    scale = np.float32(size - one) / np.float32(out - one)
    at = (np.arange(out, dtype=np.float32) + np.float32(0.5 if centers else 0)) * scale
    rounded = np.floor(at + np.float32(0.5)) if corners else np.floor(at)
    return np.clip(rounded.astype(np.int64), 0, size - 1)


def _depth_to_space(m: Move) -> Array:
    n, x = m.operator.options(tflite.DepthToSpaceOptions).BlockSize(), m.array(0)
    b, h, w, c = x.shape
    return x.reshape(b, h, w, n, n, c // (n * n)).transpose(0, 1, 3, 2, 4, 5)


def _space_to_depth(m: Move) -> Array:
    n, x = m.operator.options(tflite.SpaceToDepthOptions).BlockSize(), m.array(0)
    b, h, w, c = x.shape
    return x.reshape(b, h // n, n, w // n, n, c).transpose(0, 1, 3, 2, 4, 5)


MOVES: dict[int, Callable[[Move], Any]] = {
    _B.RESHAPE: _same,
    _B.SQUEEZE: _same,
    _B.EXPAND_DIMS: _same,
    _B.CONCATENATION: _joined,
    _B.PAD: _padded,
    _B.PADV2: _padded,
    _B.MIRROR_PAD: _mirrored,
    _B.SLICE: _slice,
    _B.STRIDED_SLICE: _strided_slice,
    _B.SPLIT: _split,
    _B.SPLIT_V: _split_by_sizes,
    _B.PACK: _packed,
    _B.UNPACK: _unpacked,
    _B.TRANSPOSE: lambda m: m.array(0).transpose(m.numbers(1)),
    _B.TILE: lambda m: np.tile(m.array(0), m.numbers(1)),
    _B.BROADCAST_TO: lambda m: np.broadcast_to(m.array(0), m.numbers(1)),
    _B.REVERSE_V2: lambda m: np.flip(m.array(0), tuple(m.numbers(1))),
    _B.GATHER: _gathered,
    _B.SHAPE: _shape,
    _B.RESIZE_NEAREST_NEIGHBOR: _nearest,
    _B.DEPTH_TO_SPACE: _depth_to_space,
    _B.SPACE_TO_DEPTH: _space_to_depth,
}
