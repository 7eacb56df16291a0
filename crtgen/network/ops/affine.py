"""Quantisation with scales and zero points that are tensors: ``quantize_by`` and ``dequantize_by``.

Scales and zero points are broadcast: one for all elements, one per channel, or (in another shape) one per
block.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Signature, Value
from crtgen.network.ops.attrs import require
from crtgen.network.ops.case import Case, floats, make, plain
from crtgen.network.ops.elementwise import Elementwise

__all__ = ["WIDTHS", "DequantizeBy", "QuantizeBy", "cases"]

WIDTHS = (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16)
"""Types of quantised numbers."""


@dataclass(frozen=True, slots=True)
class QuantizeBy(Elementwise):
    """``x, scale, zero -> clamp(rint(x / scale) + zero)``, in the type of the zero points.

    Ties are rounded to even; the result for NaN is undefined.
    """

    name: ClassVar[str] = "quantize_by"
    operands: ClassVar[int] = 3

    def require_types(self, inputs: Sequence[Value]) -> None:
        x, scale, zero = inputs
        require(x.dtype is scale.dtype is DType.FLOAT32, f"{x.dtype.value} by {scale.dtype.value}")
        require(zero.dtype in WIDTHS, f"zero points of {zero.dtype.value}")

    def result_type(self, inputs: Sequence[Value]) -> DType:
        return inputs[2].dtype

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, scale, zero = arrays[0].astype(np.float32), arrays[1].astype(np.float32), arrays[2]
        limits = np.iinfo(sig.y.dtype.value)
        with np.errstate(all="ignore"):
            steps = np.nan_to_num(np.rint(x / scale).astype(np.float64))
        return (np.clip(steps + zero, limits.min, limits.max).astype(sig.y.dtype.numpy),)


@dataclass(frozen=True, slots=True)
class DequantizeBy(Elementwise):
    name: ClassVar[str] = "dequantize_by"
    operands: ClassVar[int] = 3

    def require_types(self, inputs: Sequence[Value]) -> None:
        x, scale, zero = inputs
        require(scale.dtype is DType.FLOAT32, f"scales of {scale.dtype.value}")
        require(x.dtype in (*WIDTHS, DType.INT32), f"quantised numbers of {x.dtype.value}")
        require(x.dtype is zero.dtype, f"zero points of {zero.dtype.value} for {x.dtype.value}")

    def result_type(self, inputs: Sequence[Value]) -> DType:
        return DType.FLOAT32

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, scale, zero = arrays[0].astype(np.int64), arrays[1].astype(np.float32), arrays[2]
        distance = (x - zero.astype(np.int64)).astype(np.int32)
        return ((distance.astype(np.float32) * scale).astype(np.float32),)


def cases() -> Iterator[Case]:
    shapes = ((3, 5), ()), ((2, 3, 4), (3, 1)), ((2, 4, 3), (2, 1, 3))
    for number, (shape, other) in enumerate(shapes):
        scale = floats("s", other)
        for dtype in (*WIDTHS, DType.INT32):
            high = {DType.INT32: 1e6}.get(dtype, float(np.iinfo(dtype.value).max))
            low = 0.0 if dtype.numpy.kind == "u" else -high
            limits = {"s": (0.001, 0.2), "z": (low / 2, high / 2), "q": (low, high)}
            zero, name = plain("z", other, dtype), f"{dtype.value}{number}_onnx"
            yield make(name, DequantizeBy(), [plain("q", shape, dtype), scale, zero], limits=limits)
            if dtype in WIDTHS:
                yield make(name, QuantizeBy(), [floats("x", shape), scale, zero], limits=limits)
