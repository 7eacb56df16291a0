"""Integer arithmetic of quantised networks: a real factor as a 31-bit mantissa and a shift.

Array functions take and return int64 arrays that hold int32 values. The definitions are those of TFLite's
``common.h`` with double rounding: a rounded high product, then a rounded shift.
"""

import math

import numpy as np
import numpy.typing as npt

__all__ = [
    "Int8",
    "Int64",
    "multiply_by_quantized_multiplier",
    "multiply_wide",
    "quantize_multiplier",
    "reduced_multiplier",
    "round_half_away",
    "rounding_divide_by_pot",
    "saturating_rounding_doubling_high_mul",
    "single",
]

Int8 = npt.NDArray[np.int8]
Int64 = npt.NDArray[np.int64]
_Integers = npt.NDArray[np.int64] | npt.NDArray[np.int32] | int


def quantize_multiplier(real: float, bound: int = 0) -> tuple[int, int]:
    """Return ``real`` as ``multiplier * 2**(shift - 31)``, with the multiplier in [2**30, 2**31); (0, 0)
    below 2**-32.

    ``bound`` is the largest magnitude by which it will be multiplied. Raises ``ValueError`` for a negative or
    infinite factor, and if a left shift would exceed 32 bits.
    """
    if not 0 <= real < math.inf:
        raise ValueError(f"the ratio of its scales is {real}")
    fraction, shift = math.frexp(real)
    multiplier = round_half_away(fraction * 2**31)
    if multiplier == 2**31:
        multiplier //= 2
        shift += 1
    if shift < -31 or multiplier == 0:
        return 0, 0
    if shift > 31:
        raise ValueError(f"the ratio of its scales is {real:.3g}, more than 32 bits hold")
    if bound << max(shift, 0) >= 2**31:
        raise ValueError(
            f"values up to {bound:,}, at a ratio of scales of {real:.3g}, are more than 32 bits hold"
        )
    return multiplier, shift


def single(real: float) -> float:
    """Return ``real`` rounded to float32; infinity if it is too large.

    For a product or quotient of two float32 values, computed in double, this equals the float32 operation.
    """
    with np.errstate(over="ignore"):
        return float(np.float32(real))


def round_half_away(real: float) -> int:
    """Return the nearest integer; ties are rounded away from zero, as by C's ``round``."""
    return int(math.copysign(math.floor(abs(real) + 0.5), real))


def saturating_rounding_doubling_high_mul(a: Int64, b: _Integers) -> Int64:
    """Return ``a * b / 2**31`` rounded to nearest, ties up; -2**31 squared gives 2**31 - 1."""
    product: Int64 = np.minimum((a * b + (1 << 30)) >> 31, 2**31 - 1)
    return product


def rounding_divide_by_pot(x: Int64, exponent: _Integers) -> Int64:
    """Return ``x / 2**exponent`` rounded to nearest, ties away from zero."""
    bits = np.asarray(exponent, np.int64)
    mask = (np.int64(1) << bits) - 1
    rounded: Int64 = (x >> bits) + ((x & mask) > (mask >> 1) + (x < 0))
    return rounded


def multiply_by_quantized_multiplier(x: Int64, multiplier: _Integers, shift: _Integers) -> Int64:
    """Return ``x * multiplier * 2**(shift - 31)``, rounded twice; ``x << shift`` must fit into 32 bits."""
    left = np.maximum(np.asarray(shift, np.int64), 0)
    right = np.maximum(-np.asarray(shift, np.int64), 0)
    return rounding_divide_by_pot(saturating_rounding_doubling_high_mul(x << left, multiplier), right)


def reduced_multiplier(multiplier: int) -> int:
    """Reduce a multiplier of 31 bits to 15, as TFLite does for 64-bit sums."""
    return min((multiplier + (1 << 15)) >> 16, 0x7FFF)


def multiply_wide(x: Int64, multiplier: _Integers, shift: _Integers) -> Int64:
    """Return ``x * multiplier * 2**(shift - 31)`` for sums of up to 48 bits, with 15 bits of the multiplier.

    Ties are rounded up.
    """
    reduced = np.minimum((np.asarray(multiplier, np.int64) + (1 << 15)) >> 16, 0x7FFF)
    total = 15 - np.asarray(shift, np.int64)
    scaled: Int64 = (x * reduced + (np.int64(1) << (total - 1))) >> total
    return scaled
