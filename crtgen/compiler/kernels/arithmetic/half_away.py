"""TFLite's requantisation with rounding and zero point merged into one constant, for outputs that are not
clamped at zero.

1 is subtracted from negative values, so that ties go away from zero. Scales from 1/2 to 1 have no right
shift, so TFLite rounds only once, with ties up, and nothing is subtracted. If some outputs of negative sums
are not removed by the clamp, sums get an offset that lifts those that matter above zero. It is nearly an
integer number of output steps, which the zero point subtracts again.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import Mask, Rescale
from crtgen.network.ops.fixedpoint import Int64, saturating_rounding_doubling_high_mul
from crtgen.network.ops.scheme import INT8, Scheme

__all__ = ["HalfAway", "solve_half_away"]

_HALF_WORD = 1 << 31
_MAX_SHIFT = 23  # of outputs of int8, for which constants have 32 bits
_OFFSETS = 4096  # that are tried
_NEAREST = 16  # of these
_BITS = 31  # of a multiplier


@dataclass(frozen=True, slots=True, eq=False)
class HalfAway:
    """``clamp(sat((round(acc * multiplier / 2**31) + constant - (acc < 0)) >> shift))``.

    ``offset`` is added to accumulators before.
    """

    shift: Int64
    multiplier: Int64
    constant: Int64
    offset: Int64
    scheme: Scheme = INT8

    def apply(self, acc: Int64) -> Int64:
        """Return the saturated result for ``acc[..., O]``, before any narrower clamp."""
        acc = acc + self.offset
        high = saturating_rounding_doubling_high_mul(acc, self.multiplier)
        shifted: Int64 = (high + self.constant - (acc < 0)) >> self.shift
        return np.clip(shifted, *self.scheme.limits)


def solve_half_away(rescale: Rescale, gain: int = 1) -> HalfAway | None:
    """Return TFLite's arithmetic with rounding and zero point merged into one constant, or None.

    None for wide sums and float32 factors, if a varying channel has a scale of 1 or more, or one of 1/2 or
    more without an offset, or if the accumulators times ``gain`` or times 2 do not fit into 32 bits.
    """
    if rescale.wide or rescale.factors is not None:
        return None
    least = rescale.apply(rescale.low)
    varies = least < rescale.apply(rescale.high)
    shift = np.where(varies, -rescale.shifts, 1)
    if shift.min() < 0 or shift.max() > _MAX_SHIFT:
        return None
    offset = _lifted(rescale, shift == 0)
    if offset is None:
        return None
    extent = int(((np.maximum(np.abs(rescale.low), np.abs(rescale.high)) + offset) * varies).max())
    base = np.where(varies, rescale.zero_point, least)
    base -= saturating_rounding_doubling_high_mul(offset, rescale.multipliers)
    constant = ((np.int64(1) << shift) >> 1) + (base << shift)
    if max(2, gain) * extent >= _HALF_WORD or np.abs(constant).max() >= _HALF_WORD:
        return None
    return HalfAway(shift, np.where(varies, rescale.multipliers, 0), constant, offset, rescale.scheme)


def _lifted(rescale: Rescale, whole: Mask) -> Int64 | None:
    # The offsets of ``HalfAway``, of those channels alone that have no shift; None if there is none.
    offset = np.zeros(rescale.channels, np.int64)
    if not whole.any():
        return offset
    for channel in np.flatnonzero(whole):
        one = rescale.take(slice(channel, channel + 1))
        ends = int(one.low[0]), int(one.high[0])
        found = _lift(int(one.multipliers[0]), one.zero_point, ends, (one.levels(), one.thresholds().ravel()))
        if found is None:
            return None
        offset[channel] = found
    return offset


def _lift(multiplier: int, zero_point: int, ends: tuple[int, int], steps: tuple[Int64, Int64]) -> int | None:
    # Offset for sums between the two ``ends``; None if no offset is exact. ``steps`` are levels of the output
    # with the least sums that reach them, or one more than the greatest sum. Outputs are ``round(sum *
    # multiplier / 2**31) - (sum < 0)`` plus a constant that makes 0 the zero point.
    levels, reached = steps
    low, high = ends
    first, before = (np.clip(acc, low, high) for acc in (reached, reached - 1))
    none = np.zeros(1, np.int64)

    def is_exact(offset: int) -> bool:
        def level(acc: Int64) -> Int64:
            lifted = acc + offset
            return saturating_rounding_doubling_high_mul(lifted, multiplier) - (lifted < 0) + zero_point

        start = level(none) - zero_point
        at, below = (level(acc) - start for acc in (first, before))
        right = ((at >= levels) | (reached > high)) & ((below < levels) | (reached <= low))
        return bool(right.all())

    return next((each for each in _offsets(multiplier, int(1 - reached.min())) if is_exact(each)), None)


def _offsets(multiplier: int, least: int) -> list[int]:
    # None, and those that are nearest to a whole number of steps, from the ``least`` one that will do.
    several = np.arange(max(least, 0), max(least, 0) + _OFFSETS, dtype=np.int64)
    part = (several * multiplier) & ((1 << _BITS) - 1)
    order = np.argsort(np.minimum(part, (1 << _BITS) - part), kind="stable")
    return [0, *several[order[:_NEAREST]].tolist()]
