"""Functions of softmax in fixed point, as gemmlowp's fixedpoint.h has them, on Python's integers.

``product`` is SaturatingRoundingDoublingHighMul for factors that are not both -2^31; ``halved`` is
RoundingDivideByPOT. A number in Q0 is 31 bits behind the point, one in Q5 is 26.
"""

__all__ = ["exponential", "halved", "product", "reciprocal"]

_TOP = (1 << 31) - 1
_STEPS = (1, 2, 3)
_BARREL = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
"""e^-(2^k) in Q0 for k from -2 to 4."""


def product(a: int, b: int) -> int:
    return (a * b + (1 << 30)) >> 31


def halved(v: int, n: int) -> int:
    """Return v / 2^n, rounded to the nearest, halves away from zero."""
    rest, half = v & ((1 << n) - 1), ((1 << n) - 1) >> 1
    return (v >> n) + (rest > half + (v < 0))


def exponential(a: int) -> int:
    """Return e^a in Q0 for a <= 0 in Q5 (exp_on_negative_values)."""
    if a == 0:
        return _TOP
    quarter = 1 << 24
    rest = (a & quarter - 1) - quarter
    result, remainder = _of_quarter(rest << 5), rest - a
    for k, factor in enumerate(_BARREL):
        if remainder >> (24 + k) & 1:
            result = product(result, factor)
    return result


def _of_quarter(a: int) -> int:
    # For a from -1/4 to 0 in Q0, around e^(-1/8).
    x = a + (1 << 28)
    x2 = product(x, x)
    x3, x4 = product(x2, x), product(x2, x2)
    rest = halved(product(halved(x4, 2) + x3, 715827883) + x2, 1)
    return 1895147668 + product(1895147668, x + rest)


def reciprocal(total: int) -> int:
    """Return 1 / total in Q0, scaled so that it is from 1/2 to 1 (GetReciprocal, one_over_one_plus_x).

    Steps of Newton's have 2 bits before the point; what is multiplied with 4 of them saturates.
    """
    half = total << 31 - total.bit_length()  # half of the sum, from 1/2 to 1 in Q0
    x = 1515870810 + (half * -1010580540 + 0x40000000 >> 31)
    for _ in _STEPS:
        step = x * (0x20000000 - (half * x + 0x40000000 >> 31)) + 0x40000000 >> 31
        if -0x20000000 <= step < 0x20000000:
            x += step << 2
        else:
            x += _TOP if step > 0 else -_TOP - 1
    return x << 1 if -0x40000000 <= x < 0x40000000 else _TOP if x > 0 else -_TOP - 1
