"""How a Helium kernel turns four accumulators at a time into int8."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crtgen.kernels.asm import Function
from crtgen.kernels.requant import Rescale, clamp_limits, solve_floor
from crtgen.ops.fixedpoint import Int64

__all__ = ["Finish", "Requantisation", "finish_words", "requantisation"]

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


def finish_words(
    f: Function,
    finish: Finish,
    sums: Sequence[str],
    stream: str,
    spare: tuple[str, str, str],
    united: tuple[str, str] | None = None,
) -> None:
    """Append what makes int8 of sums of four channels each, in the lowest byte of a word.

    Constants come from ``[stream]``, those that all channels share from ``united``. ``spare`` are two vectors
    and a register.
    """
    start, factor, number = spare
    f("vldrw.u32", start, f"[{stream}], #16")
    if united is None:
        f("vldrw.u32", factor, f"[{stream}], #16")
    _each(f, "vadd.i32", sums, start)
    if finish.left:
        _each(f, "vshl.s32", sums, factor)
        f("vldrw.u32", factor, f"[{stream}], #16")
    multiplier, last = united or (factor, start)
    _each(f, "vmulh.s32" if finish.shift is not None else "vqrdmulh.s32", sums, multiplier)
    if united is None:
        f("vldrw.u32", last, f"[{stream}], #16")
    if finish.shift is not None:
        _each(f, "vadd.i32", sums, last)
        _each(f, "vqrshrnb.s32", sums, f"#{finish.shift}")
    else:
        _shift_right(f, finish, sums, (last, factor, number))
    for q in sums:
        f("vqmovnb.s16", q, q)
    for limit, operation in ((finish.low, "vmax.s8"), (finish.high, "vmin.s8")):
        if limit is not None:
            f.number(number, limit)
            f("vdup.8", start, number)
            _each(f, operation, sums, start)


def _shift_right(f: Function, finish: Finish, sums: Sequence[str], registers: tuple[str, str, str]) -> None:
    """By minus the bits in ``right``, halves away from zero; then the zero point, and words to halves."""
    right, signs, zero = registers
    for q in sums:
        if finish.some_whole:
            f("vand", signs, q, right, note="negative, and shifted")
        f("vshr.s32", signs, signs if finish.some_whole else q, "#31")
        f("vadd.i32", q, q, signs, note="halves go away from zero")
    _each(f, "vrshl.s32", sums, right)
    f.number(zero, finish.zero_point)
    _each(f, "vadd.i32", sums, zero)
    for q in sums:
        f("vqmovnb.s32", q, q)


def _each(f: Function, operation: str, sums: Sequence[str], operand: str) -> None:
    for q in sums:
        f(operation, q, q, operand)
