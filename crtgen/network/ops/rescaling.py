"""ONNX Runtime's rescaling of integers: a float32 product, rounded with ties to even.

A value is ``clamp(zero_point + rint(f32(f32(acc) * factor)))``, where ``acc`` is the integer sum and ``f32``
rounds to float32. The formulas were measured on ONNX Runtime 1.31 on a CPU.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Rescaling, Value
from crtgen.network.ops.attrs import require
from crtgen.network.ops.fixedpoint import Int64, single

__all__ = ["Factors", "by_float", "fused_sum", "mantissa_of", "product_factors", "rounded_product"]

Factors = npt.NDArray[np.float32]

_MOST = 1 << 30
_FURTHEST = 60  # bits to the right: a factor of 2**-36, times 31 bits, is below one half


def by_float(value: Value) -> bool:
    """Return True if results are scaled to this tensor by a float32 product."""
    return value.quant is not None and value.quant.rescaling is Rescaling.FLOAT32


def product_factors(first: float, others: Sequence[float], output: float, bounds: Sequence[int]) -> Factors:
    """Compute ``first * other / output`` for each of the others, in float32 from left to right.

    ``bounds`` are the largest magnitudes by which the factors are multiplied. Raises ``ValueError`` if a
    result is far beyond the range of integers.
    """
    factors = np.array([single(single(first * other) / output) for other in others], np.float32)
    largest = max(float(f) * bound for f, bound in zip(factors.tolist(), bounds, strict=True))
    require(largest < _MOST, f"sums are {largest:,.0f} of its output's steps: too many")
    return factors


def rounded_product(acc: Int64, factors: Factors | float) -> Int64:
    product = acc.astype(np.float32) * np.asarray(factors, np.float32)
    whole: Int64 = np.rint(product).astype(np.int64)
    return whole


def mantissa_of(factor: float) -> tuple[int, int]:
    """Return a float32 factor as ``m * 2**-right`` with m below 2**24; 0 if every product with the factor is
    0.
    """
    fraction, exponent = math.frexp(factor)
    right = 24 - exponent
    return (int(fraction * 2**24), right) if right <= _FURTHEST else (0, 1)


def fused_sum(a: Int64, b: Int64, factors: tuple[float, float], start: float) -> Int64:
    """Return ``rint(fma(a, factors[0], fma(b, factors[1], start)))``, each fma rounded to float32 once.

    Products of small integers and float32 values are exact in double, and so are the sums with a third value.
    """
    inner = (b * factors[1] + start).astype(np.float32).astype(np.float64)
    outer = (a * factors[0] + inner).astype(np.float32)
    whole: Int64 = np.rint(outer).astype(np.int64)
    return whole
