"""Fixed-point exp, reciprocal, logistic and tanh: gemmlowp's ``fixedpoint.h``, on int64 arrays.

``Qm`` is a signed 32-bit value with m integer bits and 31 - m fractional bits.
"""

import numpy as np

from crtgen.network.ops.fixedpoint import Int64, rounding_divide_by_pot
from crtgen.network.ops.fixedpoint import saturating_rounding_doubling_high_mul as mul

__all__ = [
    "exp_on_negative_values",
    "inverse_square_root",
    "logarithm",
    "logistic",
    "one_over_one_plus_x",
    "tanh",
]

_ONE = 2**31 - 1  # Q0
_ONE_Q2 = 1 << 29
_EXP_MINUS_EIGHTH = 1895147668  # Q0
_THIRD = 715827883  # Q0
_48_17THS = 1515870810  # Q2
_MINUS_32_17THS = -1010580540  # Q2

# exp(-2**k) in Q0 for k = -2 .. 4
_EXP_OF_MINUS_POWERS = {
    -2: 1672461947,
    -1: 1302514674,
    0: 790015084,
    1: 290630308,
    2: 39332535,
    3: 720401,
    4: 242,
}


def _saturating_left_shift(x: Int64, bits: int | Int64) -> Int64:
    shifted: Int64 = np.clip(x << bits, -(2**31), 2**31 - 1)
    return shifted


def _exp_near_zero(a: Int64) -> Int64:
    # exp of Q0 in [-1/4, 0), as Q0: the Taylor series around -1/8.
    x = a + (1 << 28)
    x2 = mul(x, x)
    x3 = mul(x2, x)
    x4 = mul(x2, x2)
    tail = mul(rounding_divide_by_pot(x4, 2) + x3, _THIRD) + x2
    return _EXP_MINUS_EIGHTH + mul(x + rounding_divide_by_pot(tail, 1), _EXP_MINUS_EIGHTH)


def exp_on_negative_values(a: Int64, integer_bits: int) -> Int64:
    """Return exp of ``a`` <= 0 in Q<integer_bits>, at most 5, as Q0."""
    fractional_bits = 31 - integer_bits
    quarter = 1 << (fractional_bits - 2)
    head = (a & (quarter - 1)) - quarter
    result = _exp_near_zero(_saturating_left_shift(head, integer_bits))
    remainder = head - a
    for power, factor in _EXP_OF_MINUS_POWERS.items():
        if integer_bits > power:
            bit = remainder & (1 << (fractional_bits + power))
            result = np.where(bit != 0, mul(result, factor), result)
    return np.where(a == 0, _ONE, result)


def _newton_reciprocal(a: Int64) -> Int64:
    # 2 / (1 + a) of Q0 in [0, 1], as Q2, by three Newton steps.
    half = (a + _ONE + 1) >> 1
    x = _48_17THS + mul(half, _MINUS_32_17THS)
    for _ in range(3):
        x = x + _saturating_left_shift(mul(x, _ONE_Q2 - mul(half, x)), 2)
    return x


def one_over_one_plus_x(a: Int64) -> Int64:
    """Return 1 / (1 + a) for a Q0 number in [0, 1], as Q0."""
    return _saturating_left_shift(_newton_reciprocal(a), 1)


def logistic(a: Int64, integer_bits: int) -> Int64:
    """Return 1 / (1 + exp(-a)) for Q<integer_bits>, as Q0."""
    positive = one_over_one_plus_x(exp_on_negative_values(-np.abs(a), integer_bits))
    signed = np.where(a > 0, positive, _ONE - positive)
    return np.where(a == 0, 1 << 30, signed)


def tanh(a: Int64, integer_bits: int) -> Int64:
    exponential = exp_on_negative_values(-np.abs(a), integer_bits + 1)
    positive = _saturating_left_shift(_newton_reciprocal(exponential) - _ONE_Q2, 2)
    return np.where(a == 0, 0, np.where(a < 0, -positive, positive))


def inverse_square_root(x: Int64) -> tuple[Int64, Int64]:
    """Return ``1 / sqrt(x)`` of integers as a multiplier and a shift to the left; 0 counts as 1.

    Five Newton steps that start at 1, in Q3 (``GetInvSqrtQuantizedMultiplierExp``).
    """
    down = np.where(x >= 1 << 29, 1, 0)
    one, x = x <= 1, np.maximum(x >> 2 * down, 1)
    bits = np.frexp(x.astype(np.float64))[1].astype(np.int64)
    pairs = (31 - bits) // 2 - 1
    scaled = (x << 2 * pairs) >> 1
    half = rounding_divide_by_pot(scaled, 1)
    root = np.full_like(x, 1 << 28)
    for _ in range(5):
        cube = _saturating_left_shift(mul(mul(root, root), root), 6)
        root = _saturating_left_shift(mul(np.full_like(x, 3 << 27), root) - mul(half, cube), 3)
    multiplier = mul(root, 1518500250)
    shift = 11 - pairs + down
    multiplier = np.where(shift < 0, multiplier << np.maximum(-shift, 0), multiplier)
    return np.where(one, _ONE, multiplier), np.where(one, 0, -np.maximum(shift, 0))


def logarithm(x: Int64) -> Int64:
    """Return the natural logarithm of a Q12 number of at least 1, as Q5
    (``log_x_for_x_greater_than_or_equal_to_1``).

    Both ``x`` and ``x * sqrt(1/2)`` are divided by a power of two; the one whose remainder is nearer to 1 is
    used. The logarithm of the remainder is a quotient of polynomials.
    """
    sqrt_half, fourth_root_of_half = 1518500250, 1805811301  # Q0
    bits = np.frexp(x.astype(np.float64))[1].astype(np.int64)
    first = _saturating_left_shift(mul(_saturating_left_shift(x, 31 - bits), sqrt_half), 1)
    first_power = ((bits - 20) << 25) + (1 << 23)
    scaled_bits = np.frexp(mul(x, sqrt_half).astype(np.float64))[1].astype(np.int64)
    second = _saturating_left_shift(x, 31 - scaled_bits)
    second_power = ((scaled_bits - 19) << 25) - (1 << 23)
    rest, power = np.minimum(first, second), np.maximum(first_power, second_power)
    total = rest + fourth_root_of_half
    half = (total + 1) >> 1
    q = (rest - fourth_root_of_half) * 2
    square = mul(q, q)
    above = mul(q, rest) + mul(mul(q, square), 117049297)
    below = mul(half, 1057819769 + q + mul(square, 127690142)) + mul(q, 638450708)
    share = mul(rounding_divide_by_pot(above, 6), one_over_one_plus_x(below))
    return _saturating_left_shift(mul(power, 1488522236) + share, 1)
