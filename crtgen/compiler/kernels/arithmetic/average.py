"""Averages of int8 values, computed from their 16-bit sum without a division."""

from dataclasses import dataclass

import numpy as np

from crtgen.network.ops import INT8

__all__ = ["MOST", "Reciprocal", "reciprocal"]

MOST = 255
"""Number of values whose sum fits into 16 bits."""


@dataclass(frozen=True, slots=True)
class Reciprocal:
    """``(sum * multiplier + constant) >> shift`` is the mean, with ties rounded away from zero."""

    multiplier: int
    constant: int
    shift: int


def reciprocal(count: int) -> Reciprocal | None:
    """Return a multiplication that divides every sum of ``count`` int8 values by ``count``; None if 32 bits
    do not suffice.

    Ties are rounded away from zero; a slightly larger multiplier achieves this on both sides of zero.
    """
    sums = np.arange(INT8.low * count, INT8.high * count + 1, dtype=np.int64)
    means = np.sign(sums) * ((np.abs(sums) + count // 2) // count)
    for shift in range(22, 15, -1):
        for part in range(17):
            multiplier = round((1 << shift) / (count - part / (16 * 130)))
            product = sums * multiplier
            least = int(((means << shift) - product).max())
            beyond = int((((means + 1) << shift) - product).min())
            constant = (least + beyond) // 2
            if least < beyond and int(np.abs(product).max()) + abs(constant) < 1 << 31:
                return Reciprocal(multiplier, constant, shift)
    return None
