"""The largest or smallest values along an axis, in order, and their indices."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Op, Signature, Value, shape_text
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, floats, plain

__all__ = ["TopK", "cases", "topk_case"]


@dataclass(frozen=True, slots=True)
class TopK(Op):
    """``x -> values, indices``: the ``count`` largest or smallest values along ``axis``, in order.

    Of equal values, the one with the lower index comes first. Integers are plain.
    """

    name: ClassVar[str] = "top_k"

    count: int
    axis: int
    largest: bool = True
    places: DType = DType.INT64

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        require(x.dtype is DType.FLOAT32 or x.dtype.is_integer, f"numbers of {x.dtype.value}")
        require(0 <= self.axis < len(x.shape), f"there is no axis {self.axis}")
        fits = 0 < self.count <= x.shape[self.axis]
        require(fits, f"{self.count} numbers of {shape_text(x.shape)} along axis {self.axis}")
        shape = tuple(self.count if a == self.axis else d for a, d in enumerate(x.shape))
        return (shape, x.dtype), (shape, self.places)

    def sizes(self, sig: Signature) -> tuple[int, int, int]:
        shape = sig.x.shape
        return prod(shape[: self.axis]), shape[self.axis], prod(shape[self.axis + 1 :])

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, length = arrays[0], sig.x.shape[self.axis]
        if self.largest:  # the order of the reversed axis, backwards: equal numbers stay in order
            order = (
                length
                - 1
                - np.flip(np.argsort(np.flip(x, self.axis), axis=self.axis, kind="stable"), self.axis)
            )
        else:
            order = np.argsort(x, axis=self.axis, kind="stable")
        places = np.take(order, range(self.count), axis=self.axis)
        return np.take_along_axis(x, places, self.axis), places.astype(self.places.numpy)


def cases() -> Iterator[Case]:
    yield topk_case("f32", TopK(3, 1), floats("x", (4, 11)))
    yield topk_case("places_int32", TopK(3, 1, places=DType.INT32), plain("x", (4, 11), DType.INT8))
    yield topk_case("least", TopK(2, 0, False), floats("x", (5, 3)))
    yield topk_case("all", TopK(6, 1), plain("x", (2, 6, 2), DType.INT8), (-2, 2))
    yield topk_case("int64", TopK(2, 2, False), plain("x", (2, 3, 5), DType.INT64), (-3, 3))
    yield topk_case("uint32", TopK(1, 0), plain("x", (9,), DType.UINT32))
    yield topk_case("uint64", TopK(4, 0), plain("x", (9,), DType.UINT64))


def topk_case(name: str, op: TopK, x: Value, limits: tuple[float, float] | None = None) -> Case:
    outputs = tuple(Value(n, s, t) for n, (s, t) in zip(("y", "i"), op.infer([x]), strict=True))
    return Case(f"top_k_{name}_onnx", op, Signature((x,), outputs), {x.name: limits} if limits else {})
