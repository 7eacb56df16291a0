"""Operators that move elements: ``reshape``, ``pad``, ``transpose``, ``strided_slice``, ``concat``.

Outputs have the quantisation of the inputs; only ``reshape`` may change it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, AxisMap, DType, Index, Op, Signature, Value, shape_text
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, floats, int8s, int16s, make, plain
from crtgen.network.ops.traits import along_all, channels, channelwise

__all__ = ["Concat", "Identity", "Pad", "Reshape", "StridedSlice", "Transpose", "cases"]


@dataclass(frozen=True, slots=True)
class Reshape(Op):
    name: ClassVar[str] = "reshape"
    monotonic: ClassVar[bool] = True

    shape: tuple[int, ...]

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        fits = prod(self.shape) == x.elements
        require(fits, f"{x.elements} elements do not make {shape_text(self.shape)}")
        return ((self.shape, x.dtype),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (arrays[0].reshape(self.shape),)

    def is_identity(self, sig: Signature) -> bool:
        return True

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        """Map an axis to the output axis with as many elements before it and after it."""
        (axis,) = axes
        found = (a for a in range(len(self.shape)) if _around(self.shape, a) == _around(sig.x.shape, axis))
        return next(map(AxisMap, found), None)

    def lengthened(self, axis: int, length: int) -> Op:
        return replace(self, shape=(*self.shape[:axis], length, *self.shape[axis + 1 :]))

    def resized(self, sig: Signature) -> Op:
        return replace(self, shape=sig.y.shape)

    def channel_groups(self, sig: Signature) -> tuple[Index | None, ...] | None:
        """Group channel n with all channels equal to n modulo the shorter of the two last axes; None unless
        it divides the longer.
        """
        before, after = channels(sig.x), channels(sig.y)
        few, many = sorted((before, after))
        return None if many % few else (np.arange(before) % few, np.arange(after) % few)


@dataclass(frozen=True, slots=True)
class Identity(Op):
    """A copy, for an output that would otherwise be a constant, an input, or another output."""

    name: ClassVar[str] = "identity"
    monotonic: ClassVar[bool] = True
    unscaled: ClassVar[bool] = True

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        return ((inputs[0].shape, inputs[0].dtype),)

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        return along_all(sig, axes)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (arrays[0].copy(),)

    def channel_groups(self, sig: Signature) -> tuple[Index | None, ...] | None:
        return None if sig.x.is_constant else channelwise(sig)


@dataclass(frozen=True, slots=True)
class Pad(Op):
    """``before`` and ``after`` elements of ``value`` around each axis.

    ``value`` is in the tensor's own type (quantised for int8); None is zero, or the zero point.
    """

    name: ClassVar[str] = "pad"
    monotonic: ClassVar[bool] = True
    unscaled: ClassVar[bool] = True

    before: tuple[int, ...]
    after: tuple[int, ...]
    value: float | int | None = None

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        ranks = len(self.before) == len(self.after) == len(x.shape)
        require(ranks, f"padding of {len(self.before)} axes on {len(x.shape)}")
        require(min(*self.before, *self.after, 0) == 0, "padding must not be negative")
        sizes = zip(self.before, x.shape, self.after, strict=True)
        return ((tuple(sum(axis) for axis in sizes), x.dtype),)

    def fill(self, sig: Signature) -> float | int:
        """Return the value of a padded element, in the tensor's own type."""
        if self.value is not None:
            return self.value
        return sig.x.quant.zero_point if sig.x.quant is not None else 0

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        border = list(zip(self.before, self.after, strict=True))
        return (np.pad(arrays[0], border, constant_values=self.fill(sig)),)

    def is_identity(self, sig: Signature) -> bool:
        return True

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        (axis,) = axes
        return None if axis is None else AxisMap(axis, before=self.before[axis])

    def channel_groups(self, sig: Signature) -> tuple[Index | None, ...] | None:
        return channelwise(sig) if self.before[-1:] == self.after[-1:] == (0,) else None


@dataclass(frozen=True, slots=True)
class Transpose(Op):
    """Axis ``i`` of the output is axis ``perm[i]`` of the input."""

    name: ClassVar[str] = "transpose"
    monotonic: ClassVar[bool] = True
    unscaled: ClassVar[bool] = True

    perm: tuple[int, ...]

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        whole = sorted(self.perm) == list(range(len(x.shape)))
        require(whole, f"{self.perm} is not a permutation of {len(x.shape)} axes")
        return ((tuple(x.shape[p] for p in self.perm), x.dtype),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.ascontiguousarray(arrays[0].transpose(self.perm)),)

    def moving(self, sig: Signature) -> list[int]:
        """Return the axes longer than 1 in the output's order; if they keep their order, no element moves."""
        return [axis for axis in self.perm if sig.x.shape[axis] > 1]

    def is_identity(self, sig: Signature) -> bool:
        return self.moving(sig) == sorted(self.moving(sig))

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        (axis,) = axes
        return None if axis is None else AxisMap(self.perm.index(axis))

    def channel_groups(self, sig: Signature) -> tuple[Index | None, ...] | None:
        return channelwise(sig) if self.perm[-1:] == (len(self.perm) - 1,) else None


@dataclass(frozen=True, slots=True)
class StridedSlice(Op):
    """The elements ``begin, begin + stride, ...`` before ``end``, along each axis.

    All indices are resolved: ``begin`` is a valid index of the axis, ``end`` is at most its length, and at
    least -1 (for a negative stride). The axes in ``shrink``, which have one element each, are removed.
    """

    name: ClassVar[str] = "strided_slice"
    monotonic: ClassVar[bool] = True
    unscaled: ClassVar[bool] = True

    begin: tuple[int, ...]
    end: tuple[int, ...]
    stride: tuple[int, ...]
    shrink: tuple[int, ...] = ()

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        counts = {len(self.begin), len(self.end), len(self.stride), len(x.shape)}
        require(len(counts) == 1, f"a slice of {len(self.begin)} axes on {len(x.shape)}")
        require(0 not in self.stride, "the stride is zero")
        lengths = [len(range(*s)) for s in zip(self.begin, self.end, self.stride, strict=True)]
        inside = all(
            0 <= b < d and -1 <= e <= d for b, e, d in zip(self.begin, self.end, x.shape, strict=True)
        )
        require(inside and min(lengths, default=1) > 0, f"the slice leaves {shape_text(x.shape)} or is empty")
        single = all(0 <= a < len(lengths) and lengths[a] == 1 for a in self.shrink)
        require(single, f"axes {self.shrink} are not of length 1")
        return ((tuple(n for a, n in enumerate(lengths) if a not in self.shrink), x.dtype),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        picks = [np.arange(*s) for s in zip(self.begin, self.end, self.stride, strict=True)]
        return (arrays[0][np.ix_(*picks)].reshape(sig.y.shape),)

    def is_identity(self, sig: Signature) -> bool:
        return all(step > 0 or length == 1 for step, length in zip(self.stride, sig.x.shape, strict=True))

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        (axis,) = axes
        if axis is None or axis in self.shrink:
            return None
        whole = (self.begin[axis], self.end[axis], self.stride[axis]) == (0, sig.x.shape[axis], 1)
        return AxisMap(self._kept.index(axis)) if whole else None

    @property
    def _kept(self) -> list[int]:
        return [axis for axis in range(len(self.begin)) if axis not in self.shrink]

    def lengthened(self, axis: int, length: int) -> Op:
        own = self._kept[axis]
        return replace(self, end=(*self.end[:own], length, *self.end[own + 1 :]))

    def resized(self, sig: Signature) -> Op:
        return replace(self, end=(*self.end[:-1], channels(sig.x)))

    def channel_groups(self, sig: Signature) -> tuple[Index | None, ...] | None:
        last = len(sig.x.shape) - 1
        whole = (self.begin[-1:], self.end[-1:], self.stride[-1:]) == ((0,), sig.x.shape[-1:], (1,))
        return channelwise(sig) if whole and last not in self.shrink else None


@dataclass(frozen=True, slots=True)
class Concat(Op):
    """The inputs joined along ``axis``; all have the same quantisation."""

    name: ClassVar[str] = "concat"
    monotonic: ClassVar[bool] = True
    unscaled: ClassVar[bool] = True

    axis: int

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require(len(inputs) > 0, "it has no inputs")
        first = inputs[0]
        require(0 <= self.axis < len(first.shape), f"there is no axis {self.axis}")
        for x in inputs:
            require(x.dtype is first.dtype, f"{x.name} is {x.dtype.value}, not {first.dtype.value}")
            alike = len(x.shape) == len(first.shape) and self._cut(x) == self._cut(first)
            require(alike, f"{x.name} is {shape_text(x.shape)}")
        total = sum(x.shape[self.axis] for x in inputs)
        return (((*first.shape[: self.axis], total, *first.shape[self.axis + 1 :]), first.dtype),)

    def _cut(self, x: Value) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return x.shape[: self.axis], x.shape[self.axis + 1 :]

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.concatenate(arrays, axis=self.axis),)

    def is_identity(self, sig: Signature) -> bool:
        return len(sig.inputs) == 1

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        found = along_all(sig, axes) if None not in axes else None
        return found if found is not None and found.axis != self.axis else None

    def channel_groups(self, sig: Signature) -> tuple[Index | None, ...] | None:
        if self.axis < len(sig.y.shape) - 1:
            return channelwise(sig)
        if len({value.name for value in sig.inputs}) < len(sig.inputs):
            return None
        ends = np.cumsum([channels(value) for value in sig.inputs])
        parts = [np.arange(end - channels(value), end) for value, end in zip(sig.inputs, ends, strict=True)]
        return (*parts, np.arange(channels(sig.y)))


def _around(shape: tuple[int, ...], axis: int | None) -> tuple[int, int, int] | None:
    # Length of an axis, and how many elements are before it and behind.
    return None if axis is None else (shape[axis], prod(shape[:axis]), prod(shape[axis + 1 :]))


def cases() -> Iterator[Case]:
    for prefix, x in (("", int8s("x", (2, 3, 5, 4), 0.05, -7)), ("f32_", floats("x", (2, 3, 5, 4)))):
        yield make(f"{prefix}flat", Reshape((2, 60)), [x])
        yield make(f"{prefix}zero", Pad((0, 1, 2, 0), (0, 2, 0, 0)), [x])
        value = 9 if x.dtype is DType.INT8 else -1.5
        yield make(f"{prefix}value", Pad((1, 0, 0, 3), (0, 0, 1, 1), value), [x])
        yield make(f"{prefix}channels_first", Transpose((0, 3, 1, 2)), [x])
        yield make(f"{prefix}reversed", Transpose((3, 2, 1, 0)), [x])
        forward = StridedSlice((0, 1, 0, 1), (2, 3, 5, 4), (1, 1, 2, 2))
        yield make(f"{prefix}forward", forward, [x])
        backward = StridedSlice((1, 2, 4, 3), (2, -1, 0, -1), (1, -1, -3, -2), (0,))
        yield make(f"{prefix}backward", backward, [x])
        other = Value("x2", (2, 3, 1, 4), x.dtype, x.quant)
        yield make(f"{prefix}axis2", Concat(2), [x, other])
        third = Value("x3", (2, 3, 5, 7), x.dtype, x.quant)
        yield make(f"{prefix}axis3", Concat(3), [x, third])
    for x in (int16s("x", (2, 3, 35, 16)), plain("x", (2, 3, 9, 4), DType.INT64)):
        kind, own = x.dtype.value, "_own" if x.dtype is DType.INT64 else ""
        yield make(f"{kind}_reversed{own}", Transpose((3, 2, 1, 0)), [x])
        yield make(f"{kind}_channels_first{own}", Transpose((0, 3, 1, 2)), [x])
        sparse = StridedSlice((0, 1, 0, 1), (2, 3, 9, 4), (1, 1, 1, 2))
        yield make(f"{kind}_sparse{own}", sparse, [x])
        yield make(f"{kind}_zero{own}", Pad((0, 1, 2, 0), (0, 2, 0, 0)), [x])
        yield make(f"{kind}_axis2", Concat(2), [x, Value("x2", x.shape, x.dtype, x.quant)])
    yield make("flat", Transpose((1, 0)), [int8s("x", (6, 11))])
    yield make("f32_planes", Transpose((0, 2, 3, 1)), [floats("x", (1, 3, 12, 10))])
    yield make("f32_pixels", Transpose((0, 3, 1, 2)), [floats("x", (1, 9, 8, 4))])
    yield make("planes", Transpose((0, 2, 3, 1)), [int8s("x", (1, 3, 16, 24))])
    yield make("int8", Identity(), [int8s("x", (2, 3, 5))])
    yield make("f32", Identity(), [floats("x", (7,))])
    rows = [int8s(f"x{i}", (1, 3), 0.1, 4) for i in range(3)]
    yield make("rows3", Concat(0), rows)
