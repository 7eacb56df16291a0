"""The integer arithmetic of TensorFlow Lite Micro on arrays, written independently of the generator.

``requantize`` is MultiplyByQuantizedMultiplier with two roundings; the functions of softmax are gemmlowp's
(fixedpoint.h).
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Ints",
    "exp_negative",
    "high_mul",
    "input_radius",
    "interpolated",
    "interpolation_table",
    "inverse_square_root",
    "logistic_q4",
    "quantized_multiplier",
    "reciprocal",
    "requantize",
    "requantize_each",
    "requantize_long",
    "rounded_shift",
    "sigmoid_table",
    "tanh_q4",
]

Ints = NDArray[np.int64]

_TOP = (1 << 31) - 1


def quantized_multiplier(m: float) -> tuple[int, int]:
    """Return the 31-bit multiplier and the exponent of a positive factor; (0, 0) if the factor is so small
    that it counts as 0.
    """
    if m == 0:
        return 0, 0
    q, exponent = math.frexp(m)
    mantissa = math.floor(q * (1 << 31) + 0.5)
    if mantissa == 1 << 31:
        mantissa, exponent = mantissa // 2, exponent + 1
    return (0, 0) if exponent < -31 else (mantissa, exponent)


def high_mul(a: Any, m: Any) -> Any:
    """Return SaturatingRoundingDoublingHighMul of two values that are not both -2^31.

    TFLite adds 1 << 30, or 1 - (1 << 30) to a negative product, and truncates towards zero. Both are the same
    as rounding halves up.
    """
    return (a * m + (1 << 30)) >> 31


def rounded_shift(v: Any, n: Any) -> Any:
    """RoundingDivideByPOT: to the nearest, halves away from zero."""
    mask = (np.int64(1) << n) - 1
    return (v >> n) + ((v & mask) > (mask >> 1) + (v < 0))


def requantize(acc: Ints, multiplier: int, exponent: int) -> Any:
    """Return acc * multiplier * 2^(exponent - 31), rounded twice."""
    return rounded_shift(high_mul(acc << max(exponent, 0), multiplier), max(-exponent, 0))


def requantize_each(acc: Ints, multiplier: Ints, exponent: Ints) -> Any:
    return rounded_shift(high_mul(acc << np.maximum(exponent, 0), multiplier), np.maximum(-exponent, 0))


@lru_cache(1 << 10)
def inverse_square_root(n: int) -> tuple[int, int]:
    """Return the 31-bit multiplier and the exponent of 1 / sqrt(n) for n >= 1
    (GetInvSqrtQuantizedMultiplierExp).
    """
    if n == 1:
        return _TOP, 0
    exponent = 11
    while n >= 1 << 29:
        n, exponent = n >> 2, exponent + 1
    pairs = (31 - n.bit_length()) // 2 - 1
    exponent -= pairs
    half = int(rounded_shift(np.int64(n << 2 * pairs >> 1), 1))
    x = 1 << 28  # with three integer bits, as are the other numbers
    for _ in range(5):
        cube = _saturated_left(high_mul(high_mul(x, x), x), 6)
        x = int(_saturated_left(high_mul(3 << 27, x) - high_mul(half, cube), 3))
    x = high_mul(x, 1518500250)
    return (x << -exponent, 0) if exponent < 0 else (x, -exponent)


def requantize_long(acc: Ints, multiplier: int, exponent: int) -> Any:
    """Requantise a 64-bit sum: the multiplier is rounded to 15 bits, the product is rounded once."""
    reduced = (multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF
    return (acc * reduced + (1 << (14 - exponent))) >> (15 - exponent)


_ABOVE = (4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40, 41, 43,
          44, 45, 46, 49, 50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255)  # fmt: skip


def sigmoid_table() -> Any:
    """Return TFLite's rounded table of 65536 / (1 + exp(-i / 24)), i from 0 to 255, in which some entries are
    1 higher.
    """
    table = np.rint(65536 / (1 + np.exp(-np.arange(256) / 24))).astype(np.int64)
    table[list(_ABOVE)] += 1
    return table


Transform = Callable[[float], float]


def interpolation_table(transform: Transform, scale: float, out_scale: float) -> Ints:
    """Return the 513 entries of a function of int16, all in float32 (TFLite's LUTPopulateInt16, lut.h).

    Each entry is moved by half of the interpolation's error in the middle of its interval. Zero points are 0.
    """
    f32 = np.float32
    low, high = f32(scale) * f32(-0x8000), f32(scale) * f32(0x7FFF)
    step = (high - low) / f32(512)
    inverse = f32(0x10000) / (f32(out_scale) * f32(0x7FFF) - f32(out_scale) * f32(-0x8000))
    places = [low + f32(i) * step for i in range(513)]
    values = [f32(transform(float(x))) * inverse for x in (*places[:512], high)]
    following = [f32(transform(float(low + f32(i + 1) * step))) * inverse for i in range(512)]
    middles = [f32(transform(float(x + step / f32(2)))) * inverse for x in places[:512]]
    table = []
    for here, after, middle in zip(values, following, middles, strict=False):
        error = _away((after + _away(here)) / f32(2)) - _away(middle)
        table.append(_away(here) - _away(error / f32(2)))
    made: Ints = np.clip(np.array([*table, _away(values[512])]), -0x8000, 0x7FFF).astype(np.int64)
    return made


def _away(x: Any) -> Any:
    # To the nearest integer, halves away from zero, as a float32.
    return np.float32(math.copysign(math.floor(abs(float(x)) + 0.5), float(x)))


def interpolated(table: Ints, x: Any) -> Any:
    """Return values between two entries of a table of int16 (TFLite's LUTLookup)."""
    place, part = 256 + (x >> 7), x & 127
    return table[place] + ((table[place + 1] - table[place]) * part + 64 >> 7)


def _saturated_left(v: Any, n: int) -> Any:
    return np.clip(v << n, -_TOP - 1, _TOP)


def input_radius(bits: int, shift: int) -> int:
    """Return the input magnitude from which on the result no longer changes (TFLite's
    CalculateInputRadius).
    """
    top = ((1 << bits) - 1) << (31 - bits)
    return top // (1 << shift) if shift >= 0 else top << -shift


_EXP_FACTORS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)


def exp_negative(a: Any, bits: int) -> Any:
    """Return exp(a) in Q0.31 for a <= 0 with ``bits`` integer bits (gemmlowp's exp_on_negative_values)."""
    quarter = 1 << (29 - bits)
    rest = (a & (quarter - 1)) - quarter
    result = _exp_of_quarter(_saturated_left(rest, bits))
    remainder = rest - a
    for k, factor in enumerate(_EXP_FACTORS[: bits + 2]):
        result = np.where(remainder & (quarter << k), high_mul(result, factor), result)
    return np.where(a == 0, _TOP, result)


def _exp_of_quarter(a: Any) -> Any:
    # exp of -1/4 to 0, in Q0.
    x = a + (1 << 28)
    x2 = high_mul(x, x)
    x3, x4 = high_mul(x2, x), high_mul(x2, x2)
    sum_of_terms = rounded_shift(high_mul(rounded_shift(x4, 2) + x3, 715827883) + x2, 1)
    return 1895147668 + high_mul(1895147668, x + sum_of_terms)


def reciprocal(a: Any) -> Any:
    """Return 1 / (1 + a) in Q0.31 for a from 0 to 1 (gemmlowp's one_over_one_plus_x_for_x_in_0_1)."""
    return _saturated_left(_twice_reciprocal(a), 1)


def _twice_reciprocal(a: Any) -> Any:
    # 2 / (1 + a) with two integer bits, by three steps of Newton's.
    total = a + _TOP
    half = np.where(total >= 0, total + 1, total - 1) // 2
    x = 1515870810 + high_mul(half, -1010580540)
    for _ in range(3):
        x = x + _saturated_left(high_mul(x, (1 << 29) - high_mul(half, x)), 2)
    return x


def logistic_q4(a: Any) -> Any:
    """Return 1 / (1 + exp(-a)) in Q0.31 for a with 4 integer bits (gemmlowp's logistic)."""
    positive = reciprocal(exp_negative(-abs(a), 4))
    return np.where(a == 0, 1 << 30, np.where(a > 0, positive, _TOP - positive))


def tanh_q4(a: Any) -> Any:
    """Return tanh(a) in Q0.31 for a with 4 integer bits (gemmlowp's tanh)."""
    positive = _saturated_left(_twice_reciprocal(exp_negative(-abs(a), 5)) - (1 << 29), 2)
    return np.where(a == 0, 0, np.where(a > 0, positive, -positive))


Function = Callable[[Ints], Any]
