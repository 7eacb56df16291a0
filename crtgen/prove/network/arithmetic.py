"""The integer arithmetic of TensorFlow Lite Micro, for arrays, written for this purpose.

``requantize`` is MultiplyByQuantizedMultiplier with two roundings; the functions of softmax are gemmlowp's
(fixedpoint.h).
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Ints",
    "exp_q5",
    "high_mul",
    "least_difference",
    "quantized_multiplier",
    "reciprocal",
    "requantize",
]

Ints = NDArray[np.int64]

_TOP = (1 << 31) - 1


def quantized_multiplier(m: float) -> tuple[int, int]:
    """The 31 bits and the exponent of a positive factor; (0, 0) for one that is as good as 0."""
    if m == 0:
        return 0, 0
    q, exponent = math.frexp(m)
    mantissa = math.floor(q * (1 << 31) + 0.5)
    if mantissa == 1 << 31:
        mantissa, exponent = mantissa // 2, exponent + 1
    return (0, 0) if exponent < -31 else (mantissa, exponent)


def high_mul(a: Any, m: Any) -> Any:
    """SaturatingRoundingDoublingHighMul of values that are not both -2^31."""
    product = a * m
    v = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    return np.where(v >= 0, v >> 31, -((-v) >> 31))


def rounded_shift(v: Any, n: Any) -> Any:
    """RoundingDivideByPOT: to the nearest, halves away from zero."""
    mask = (np.int64(1) << n) - 1
    return (v >> n) + ((v & mask) > (mask >> 1) + (v < 0))


def requantize(acc: Ints, multiplier: int, exponent: int) -> Any:
    """acc * multiplier * 2^(exponent - 31), rounded twice."""
    return rounded_shift(high_mul(acc << max(exponent, 0), multiplier), max(-exponent, 0))


def _saturated_left(v: Any, n: int) -> Any:
    return np.clip(v << n, -_TOP - 1, _TOP)


def least_difference(shift: int) -> int:
    """The least difference of inputs of softmax that counts: -CalculateInputRadius(5, shift)."""
    return -((31 << 26) // (1 << shift))


_EXP_FACTORS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)


def exp_q5(a: Any) -> Any:
    """exp of a number that is not positive, with 5 integer bits, as Q0 (exp_on_negative_values)."""
    quarter = 1 << 24
    rest = (a & (quarter - 1)) - quarter
    result = _exp_of_quarter(_saturated_left(rest, 5))
    remainder = rest - a
    for k, factor in enumerate(_EXP_FACTORS):
        result = np.where(remainder & (quarter << k), high_mul(result, factor), result)
    return np.where(a == 0, _TOP, result)


def _exp_of_quarter(a: Any) -> Any:
    """exp of -1/4 to 0, in Q0."""
    x = a + (1 << 28)
    x2 = high_mul(x, x)
    x3, x4 = high_mul(x2, x), high_mul(x2, x2)
    sum_of_terms = rounded_shift(high_mul(rounded_shift(x4, 2) + x3, 715827883) + x2, 1)
    return 1895147668 + high_mul(1895147668, x + sum_of_terms)


def reciprocal(a: Any) -> Any:
    """1 / (1 + a) of a from 0 to 1, in Q0 (one_over_one_plus_x_for_x_in_0_1)."""
    total = a + _TOP
    half = np.where(total >= 0, total + 1, total - 1) // 2
    x = 1515870810 + high_mul(half, -1010580540)
    for _ in range(3):
        x = x + _saturated_left(high_mul(x, (1 << 29) - high_mul(half, x)), 2)
    return _saturated_left(x, 1)


Function = Callable[[Ints], Any]
