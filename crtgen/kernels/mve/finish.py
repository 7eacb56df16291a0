"""How a Helium kernel turns four accumulators at a time into int8."""

from dataclasses import dataclass

import numpy as np

from crtgen.kernels.requant import Rescale, clamp_limits, solve_floor
from crtgen.ops.fixedpoint import Int64

__all__ = ["Finish", "Requantisation", "requantisation"]

_NARROWING = range(1, 17)  # shifts of VQRSHRNB


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a kernel.

    With a ``shift`` it is ``sat8(((acc + start) * multiplier >> 32) + constant >> shift)``, and the constants
    per channel are start, multiplier, constant. Without, TFLite's two roundings: start, the bits to the left
    if ``left``, multiplier, minus the bits to the right; ``some_whole`` says that these may be 0. ``low`` and
    ``high`` are clamps after saturation, if any. ``uniform``: the multiplier and what follows it are the same
    for all channels and stay in q4 and q5.
    """

    shift: int | None
    left: bool
    some_whole: bool
    zero_point: int
    low: int | None
    high: int | None
    uniform: bool = False

    @property
    def constants(self) -> int:
        """Words per channel."""
        return 1 if self.uniform else 4 if self.left else 3

    def instructions(self, vectors: int) -> int:
        """Of finishing so many vectors of the same four channels, loading constants included."""
        clamps = (self.low is not None) + (self.high is not None)
        each = 5 if self.shift is not None else 8 + self.some_whole + self.left
        fixed = self.constants + 2 * clamps + (self.shift is None)
        return fixed + (each + clamps) * vectors


@dataclass(frozen=True, slots=True, eq=False)
class Requantisation:
    """A finish and its constants, ``int64[n, O]``."""

    finish: Finish
    constants: Int64


def requantisation(rescale: Rescale, start: Int64) -> Requantisation:
    """The cheapest form; ``start[O]`` is what accumulators begin with."""
    low, high = clamp_limits(rescale.act_min, rescale.act_max)
    form = solve_floor(rescale)
    if form is not None and form.shift in _NARROWING:
        finish = Finish(form.shift, False, False, 0, low, high)
        # VQRSHRNB rounds: what it adds is taken off before
        constant = form.constant - (1 << (form.shift - 1))
        return Requantisation(finish, np.stack([start + form.offset, form.multiplier, constant]))
    left, right = np.maximum(rescale.shifts, 0), np.minimum(rescale.shifts, 0)
    finish = Finish(None, bool(left.any()), bool((right == 0).any()), rescale.zero_point, low, high)
    rows = [start, *([left] if finish.left else []), rescale.multipliers, right]
    return Requantisation(finish, np.stack(rows))
