"""Sums and products of two quantised tensors: tests if ONNX's two definitions of them agree.

DequantizeLinear, Add and QuantizeLinear round three times, while QLinearAdd rounds differently. For some
scales the results differ, for a few pairs of inputs.
"""

from functools import lru_cache

import numpy as np

from crtgen.network.frontends.onnx_edges import OF_BYTE, numbers_of, real_numbers
from crtgen.network.ir import DType, Quant, Signature, Value
from crtgen.network.ops import Add, Mul

__all__ = ["is_one"]


@lru_cache(maxsize=256)
def is_one(code: str, a: Quant, b: Quant, y: Quant) -> bool:
    """Return True if both definitions of ``Add`` or ``Mul`` agree on all 65,536 pairs of int8."""
    numbers = np.arange(-OF_BYTE, OF_BYTE, dtype=np.int64)
    x = [real_numbers(q) for q in (a, b)]
    real = x[0][:, None] + x[1] if code == "Add" else x[0][:, None] * x[1]
    thrice = numbers_of(real, y)
    shapes = ((256, 1), (1, 256), (256, 256))
    first, second, out = (
        Value(n, s, DType.INT8, q) for n, s, q in zip("aby", shapes, (a, b, y), strict=True)
    )
    op = Add() if code == "Add" else Mul()
    bytes_ = numbers.astype(np.int8)
    (once,) = op.reference(Signature((first, second), (out,)), [bytes_[:, None], bytes_[None]])
    return bool((once == thrice).all())
