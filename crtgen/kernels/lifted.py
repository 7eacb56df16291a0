"""Scales from 1/2 to 1, without a shift to the right, in a form that takes 1 off of what is negative.

TFLite rounds once there, halves up, so nothing has to be taken off. Where outputs of negative sums are not
all cut off, sums get an offset that lifts those that matter above zero, and that is nearly a whole number of
steps: the zero point takes it away again.
"""

from collections.abc import Iterator

import numpy as np

from crtgen.ops.fixedpoint import Int64, saturating_rounding_doubling_high_mul

__all__ = ["lift"]

_OFFSETS = 4096  # that are tried
_NEAREST = 16  # of these
_BITS = 31  # of a multiplier


def lift(multiplier: int, zero_point: int, ends: tuple[int, int], steps: tuple[Int64, Int64]) -> int | None:
    """What to add to sums from one of the ``ends`` to the other; None if nothing is exact.

    ``steps`` are levels of the output, and the least sums that reach them, or else one beyond the greatest.
    Outputs are ``round(sum * multiplier / 2**31) - (sum < 0)`` and a constant, which makes 0 the zero point.
    """
    levels, reached = steps
    low, high = ends

    def high_word(acc: Int64, offset: int) -> Int64:
        lifted = acc + offset
        return saturating_rounding_doubling_high_mul(lifted, multiplier) - (lifted < 0)

    for offset in _offsets(multiplier, int(-reached.min() + 1)):
        none = high_word(np.zeros(1, np.int64), offset) - zero_point
        at, before = (high_word(np.clip(acc, low, high), offset) - none for acc in (reached, reached - 1))
        if ((at >= levels) | (reached > high)).all() and ((before < levels) | (reached <= low)).all():
            return offset
    return None


def _offsets(multiplier: int, least: int) -> Iterator[int]:
    """None, and those that are nearest to a whole number of steps, from the ``least`` one that will do."""
    yield 0
    several = np.arange(max(least, 0), max(least, 0) + _OFFSETS, dtype=np.int64)
    part = (several * multiplier) & ((1 << _BITS) - 1)
    order = np.argsort(np.minimum(part, (1 << _BITS) - part), kind="stable")
    yield from several[order[:_NEAREST]].tolist()
