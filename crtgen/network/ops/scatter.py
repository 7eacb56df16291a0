"""Operators that write to positions computed at run time: ``scatter_nd`` and ``scatter_elements``.

An index out of range is clamped to the valid range, so that nothing outside is written.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Index, Op, Signature, Value, shape_text
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, floats, make, plain

__all__ = ["REDUCTIONS", "Scatter", "ScatterElements", "ScatterNd", "cases"]

REDUCTIONS: Mapping[str, Callable[[Any, Any, Any], None] | None] = {
    "none": None,
    "add": np.add.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
    "mul": np.multiply.at,
}
"""Operations that combine an element with an update; without one, the update replaces the element."""


class Scatter(Op):
    """``x, indices, updates -> x`` with the updates written at their positions, one after another.

    ``reduction`` is one of ``REDUCTIONS``; integers are plain, and wrap.
    """

    __slots__ = ()

    reduction: str

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 3)
        x, indices, updates = inputs
        whole = indices.dtype in (DType.INT32, DType.INT64)
        require(whole, f"indices of {indices.dtype.value}; supported: int32, int64")
        require(updates.dtype is x.dtype, f"updates of {updates.dtype.value} into {x.dtype.value}")
        require(self.reduction in REDUCTIONS, f"reduction {self.reduction}")
        counts = self.reduction == "none" or x.dtype is not DType.BOOL
        require(counts, f"reduction {self.reduction} of {x.dtype.value}")
        self.check(x.shape, indices.shape, updates.shape)
        return ((x.shape, x.dtype),)

    @abstractmethod
    def check(self, x: tuple[int, ...], indices: tuple[int, ...], updates: tuple[int, ...]) -> None:
        """Raise ``ValueError`` unless these shapes match."""

    @abstractmethod
    def places(self, sig: Signature, indices: Index) -> Index:
        """Return the element index of each update's destination."""

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        result, updates = arrays[0].copy().reshape(-1), arrays[2].reshape(-1)
        places, combine = self.places(sig, arrays[1].astype(np.int64)), REDUCTIONS[self.reduction]
        with np.errstate(over="ignore"):
            if combine is None:
                for place, update in zip(places.tolist(), updates, strict=True):
                    result[place] = update
            else:
                combine(result, places, updates)
        return (result.reshape(sig.y.shape),)


@dataclass(frozen=True, slots=True)
class ScatterNd(Scatter):
    """``x, indices, updates -> x`` with updates at positions whose leading coordinates are the last axis of
    ``indices``.

    The coordinates are combined into the index of an element, which must be in range.
    """

    name: ClassVar[str] = "scatter_nd"

    reduction: str = "none"

    def check(self, x: tuple[int, ...], indices: tuple[int, ...], updates: tuple[int, ...]) -> None:
        fits = len(indices) > 0 and 0 < indices[-1] <= len(x)
        require(fits, f"indices of shape {shape_text(indices)} into {shape_text(x)}")
        shape = (*indices[:-1], *x[indices[-1] :])
        require(updates == shape, f"updates of {shape_text(updates)} instead of {shape_text(shape)}")

    def strides(self, sig: Signature) -> tuple[int, ...]:
        """Return the number of elements of the tensor that one step of each coordinate skips."""
        return tuple(prod(sig.x.shape[i + 1 :]) for i in range(sig.inputs[1].shape[-1]))

    def run(self, sig: Signature) -> int:
        """Return the number of elements written at each position."""
        return prod(sig.x.shape[sig.inputs[1].shape[-1] :])

    def places(self, sig: Signature, indices: Index) -> Index:
        run = self.run(sig)
        first = (indices * np.array(self.strides(sig), np.int64)).sum(axis=-1).reshape(-1, 1)
        found: Index = (np.clip(first, 0, sig.x.elements - run) + np.arange(run)).reshape(-1)
        return found


@dataclass(frozen=True, slots=True)
class ScatterElements(Scatter):
    """Each update is written at its own position, except that the coordinate along ``axis`` is the index."""

    name: ClassVar[str] = "scatter_elements"

    axis: int
    reduction: str = "none"

    def check(self, x: tuple[int, ...], indices: tuple[int, ...], updates: tuple[int, ...]) -> None:
        fits = len(x) == len(indices) and 0 <= self.axis < len(x)
        fits = fits and all(n <= d for a, (n, d) in enumerate(zip(indices, x, strict=True)) if a != self.axis)
        require(fits, f"indices of {shape_text(indices)} into {shape_text(x)} along axis {self.axis}")
        require(updates == indices, f"updates of {shape_text(updates)} at {shape_text(indices)}")

    def places(self, sig: Signature, indices: Index) -> Index:
        within = np.clip(indices, 0, sig.x.shape[self.axis] - 1)
        grid = [within if a == self.axis else g for a, g in enumerate(np.indices(indices.shape))]
        return np.ravel_multi_index(grid, sig.x.shape).astype(np.int64).reshape(-1)


def cases() -> Iterator[Case]:
    near, far = {"i": (0.0, 2.0)}, {"i": (-2.0, 9.0)}
    x = floats("x", (3, 4, 5))
    yield make("onnx", ScatterNd(), [x, plain("i", (5, 2)), floats("u", (5, 5))], limits=near)
    yield make("all_onnx", ScatterNd("add"), [x, plain("i", (9, 3)), floats("u", (9,))], limits=near)
    wide = [plain("x", (4, 3), DType.INT64), plain("i", (6, 1), DType.INT64), plain("u", (6, 3), DType.INT64)]
    yield make("far_onnx", ScatterNd("mul"), wide, limits=far)
    yield make(
        "elements_onnx", ScatterElements(1), [x, plain("i", (2, 6, 5)), floats("u", (2, 6, 5))], limits=far
    )
    for reduction in ("add", "mul", "max", "min"):
        small = [plain("x", (7, 3), DType.INT8), plain("i", (9, 2)), plain("u", (9, 2), DType.INT8)]
        whole = [plain("x", (5,), DType.INT32), plain("i", (9,), DType.INT64), plain("u", (9,), DType.INT32)]
        real = [floats("x", (3, 5)), plain("i", (3, 4)), floats("u", (3, 4))]
        yield make(f"{reduction}_int8_onnx", ScatterElements(0, reduction), small, limits=far)
        yield make(f"{reduction}_int32_onnx", ScatterElements(0, reduction), whole, limits=far)
        yield make(f"{reduction}_f32_onnx", ScatterElements(1, reduction), real, limits=far)
    fixed = Value.constant("i", np.array([[2], [0]], np.int32))
    bools = [plain("x", (4, 3), DType.BOOL), fixed, plain("u", (2, 3), DType.BOOL)]
    yield make("constant_onnx", ScatterNd(), bools)
