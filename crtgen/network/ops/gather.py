"""Gathers and slices, whose indices may be computed at run time.

An index out of range is clamped to the valid range, so that nothing outside is read or written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Op, Signature, Value, shape_text
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, floats, int8s, int16s, make, plain
from crtgen.network.ops.elementwise import Numbers

__all__ = ["DynamicSlice", "DynamicUpdateSlice", "Gather", "GatherNd", "cases"]

Types = tuple[tuple[tuple[int, ...], DType], ...]


def _require_indices(value: Value) -> None:
    whole = value.dtype in (DType.INT32, DType.INT64)
    require(whole, f"indices of {value.dtype.value}; supported: int32, int64")


@dataclass(frozen=True, slots=True)
class Gather(Op):
    """``x, indices -> x`` with the elements at ``indices`` along ``axis``.

    The first ``batch`` axes of both operands are the same and are traversed together.
    """

    name: ClassVar[str] = "gather"

    axis: int
    batch: int = 0

    def infer(self, inputs: Sequence[Value]) -> Types:
        require_inputs(inputs, 2)
        x, indices = inputs
        _require_indices(indices)
        fits = 0 <= self.batch <= self.axis < len(x.shape) and self.batch <= len(indices.shape)
        require(fits, f"axis {self.axis} behind {self.batch} axes of {shape_text(x.shape)}")
        same = x.shape[: self.batch] == indices.shape[: self.batch]
        require(same, f"{shape_text(x.shape)} and {shape_text(indices.shape)} begin differently")
        found = (*x.shape[: self.axis], *indices.shape[self.batch :], *x.shape[self.axis + 1 :])
        return ((found, x.dtype),)

    def sizes(self, sig: Signature) -> tuple[int, int, int, int]:
        """Return the number of elements in the batch axes, in the axes between batch and axis, along the
        axis, and in the axes after it.
        """
        shape = sig.x.shape
        return (
            prod(shape[: self.batch]),
            prod(shape[self.batch : self.axis]),
            shape[self.axis],
            prod(shape[self.axis + 1 :]),
        )

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        batch, outer, length, inner = self.sizes(sig)
        x = arrays[0].reshape(batch, outer, length, inner)
        at = np.clip(arrays[1].astype(np.int64), 0, length - 1).reshape(batch, -1)
        taken = np.stack([x[b][:, at[b]] for b in range(batch)])
        return (taken.reshape(sig.y.shape),)


@dataclass(frozen=True, slots=True)
class GatherNd(Op):
    """``x, indices -> x`` at positions whose leading coordinates are the last axis of ``indices``.

    Coordinates are combined into the index of an element, which is clamped to the valid range.
    """

    name: ClassVar[str] = "gather_nd"

    def infer(self, inputs: Sequence[Value]) -> Types:
        require_inputs(inputs, 2)
        x, indices = inputs
        _require_indices(indices)
        fits = len(indices.shape) > 0 and indices.shape[-1] <= len(x.shape)
        require(fits, f"indices of shape {shape_text(indices.shape)} into {shape_text(x.shape)}")
        return (((*indices.shape[:-1], *x.shape[indices.shape[-1] :]), x.dtype),)

    def strides(self, sig: Signature) -> tuple[int, ...]:
        """Return the number of elements of the tensor that one step of each coordinate skips."""
        return tuple(prod(sig.x.shape[i + 1 :]) for i in range(sig.inputs[1].shape[-1]))

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        strides, length = self.strides(sig), prod(sig.x.shape[sig.inputs[1].shape[-1] :])
        first = (arrays[1].astype(np.int64) * np.array(strides, np.int64)).sum(axis=-1).reshape(-1, 1)
        inside = np.clip(first, 0, sig.x.elements - length)
        taken = arrays[0].reshape(-1)[inside + np.arange(length)]
        return (taken.reshape(sig.y.shape),)


@dataclass(frozen=True, slots=True)
class DynamicSlice(Op):
    """``x, begin -> `` the ``size`` elements of ``x`` along each axis that begin at ``begin``."""

    name: ClassVar[str] = "dynamic_slice"

    size: tuple[int, ...]

    def infer(self, inputs: Sequence[Value]) -> Types:
        require_inputs(inputs, 2)
        x, begin = inputs
        _require_indices(begin)
        alike = len(self.size) == len(x.shape) == begin.elements
        fits = alike and all(0 < n <= d for n, d in zip(self.size, x.shape, strict=True))
        require(fits, f"a slice of {shape_text(self.size)} out of {shape_text(x.shape)}")
        return ((self.size, x.dtype),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.ascontiguousarray(arrays[0][_window(sig.x.shape, self.size, arrays[1])]),)


@dataclass(frozen=True, slots=True)
class DynamicUpdateSlice(Op):
    name: ClassVar[str] = "dynamic_update_slice"

    def infer(self, inputs: Sequence[Value]) -> Types:
        require_inputs(inputs, 3)
        x, update, begin = inputs
        _require_indices(begin)
        alike = len(update.shape) == len(x.shape) == begin.elements and update.dtype is x.dtype
        fits = alike and all(n <= d for n, d in zip(update.shape, x.shape, strict=True))
        require(
            fits, f"an update of {shape_text(update.shape)} {update.dtype.value} in {shape_text(x.shape)}"
        )
        return ((x.shape, x.dtype),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        result = arrays[0].copy()
        result[_window(sig.x.shape, sig.inputs[1].shape, arrays[2])] = arrays[1]
        return (result,)


def _window(shape: Sequence[int], size: Sequence[int], begin: Numbers | Array) -> tuple[slice, ...]:
    most = np.array(shape, np.int64) - np.array(size, np.int64)
    first = np.clip(begin.astype(np.int64).reshape(-1), 0, most).tolist()
    return tuple(slice(b, b + n) for b, n in zip(first, size, strict=True))


def cases() -> Iterator[Case]:
    at = {"i": (0.0, 2.0)}
    for prefix, x in (("int8", int8s("x", (3, 4, 5))), ("f32", floats("x", (3, 4, 5)))):
        yield make(f"{prefix}_first", Gather(0), [x, plain("i", (6,))], limits=at)
        yield make(f"{prefix}_last", Gather(2), [x, plain("i", (2, 2))], limits=at)
        yield make(f"{prefix}_nd", GatherNd(), [x, plain("i", (5, 2))], limits=at)
        yield make(f"{prefix}_nd_all", GatherNd(), [x, plain("i", (2, 2, 3))], limits=at)
        yield make(f"{prefix}_slice", DynamicSlice((1, 2, 3)), [x, plain("i", (3,))], limits=at)
        update = Value("u", (2, 3, 2), x.dtype, x.quant)
        yield make(f"{prefix}_update", DynamicUpdateSlice(), [x, update, plain("i", (3,))], limits=at)
    batched = [int8s("x", (2, 3, 4, 5)), plain("i", (2, 3))]
    yield make("batched", Gather(2, 1), batched, limits=at)
    fixed = Value.constant("i", np.array([2, 0, 1, 1], np.int32))
    yield make("constant", Gather(1), [int8s("x", (2, 3, 7)), fixed])
    table = Value.constant("x", np.arange(35, dtype=np.float32).reshape(7, 5))
    yield make("of_constant", Gather(0), [table, plain("i", (3,))], limits={"i": (0, 6)})
    yield make("scalar", Gather(0), [floats("x", (7,)), plain("i", ())], limits={"i": (0, 6)})
    wide = [int16s("x", (4, 6)), int16s("u", (1, 6)), plain("i", (2,), DType.INT64)]
    yield make("int16_update", DynamicUpdateSlice(), wide, limits={"i": (-3.0, 9.0)})
    yield make("outside", DynamicSlice((2, 2)), [wide[0], wide[2]], limits={"i": (-3.0, 9.0)})
    yield make("outside", Gather(0), [wide[0], plain("i", (5,))], limits={"i": (-3.0, 9.0)})
