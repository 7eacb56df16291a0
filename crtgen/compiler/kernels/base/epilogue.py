"""Epilogues without the DSP extension: exact requantisation with 64-bit or with 32-bit products."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from crtgen.compiler.kernels.arithmetic.half_away import solve_half_away
from crtgen.compiler.kernels.arithmetic.requant import Rescale, clamp_limits, solve_floor
from crtgen.compiler.kernels.asm import Function
from crtgen.compiler.kernels.engine.words import Words, words
from crtgen.network.ops.fixedpoint import Int64

__all__ = ["Exact", "Limbs", "LongProducts", "exact_form", "limbs_of", "long_products_of"]

_MULTIPLIER_BITS = 31


@dataclass(frozen=True, slots=True)
class LongProducts:
    """Requantisation for cores with SMULL. ``floor``: high word of the sum plus a constant, shifted;
    otherwise TFLite's two roundings.

    ``shift`` is None if each channel has its own among the constants. ``low`` and ``high`` are clamps after
    saturation to int8, if needed.
    """

    floor: bool
    shift: int | None
    low: int | None
    high: int | None

    @property
    def constants(self) -> int:
        """Number of constant words per channel: multiplier, constant, and its own shift."""
        return 2 + (self.shift is None)

    def append(self, f: Function, total: str, constants: Sequence[str], spare: Sequence[str]) -> None:
        (multiplier, constant, *own), low = constants, spare[0]
        if self.floor:
            f("smull", low, total, total, multiplier)
            f("add", total, total, constant)
        else:
            rounding = spare[1]
            f("add", rounding, constant, total, "asr #31")
            f("lsl", total, total, "#1")
            f("smull", low, total, total, multiplier)
            f("lsls", low, low, "#1", note="its highest bit rounds")
            f("adc", total, total, rounding)
        if own:
            f("asr", total, total, own[0])
        f("ssat", total, "#8", total, *([f"asr #{self.shift}"] if self.shift else []))
        self._clamp(f, total)

    def append_all(
        self, f: Function, totals: Sequence[str], constants: Sequence[str], spare: Sequence[str]
    ) -> None:
        for total in totals:
            self.append(f, total, constants, spare)

    def append_from(self, f: Function, total: str, places: Mapping[str, str], spare: tuple[str, str]) -> None:
        """Append the same code with constants in memory: ``multiplier``, ``constant`` and ``shift`` are
        addresses.
        """
        first, second = spare
        if self.floor:
            f("ldr", first, places["multiplier"])
            f("smull", first, total, total, first)
            f("ldr", first, places["constant"])
            f("add", total, total, first)
        else:
            f("ldr", first, places["constant"])
            f("add", first, first, total, "asr #31")
            f("lsl", total, total, "#1")
            f("ldr", second, places["multiplier"])
            f("smull", second, total, total, second)
            f("lsls", second, second, "#1", note="its highest bit rounds")
            f("adc", total, total, first)
        if self.shift is None:
            f("ldr", first, places["shift"])
            f("asr", total, total, first)
        f("ssat", total, "#8", total, *([f"asr #{self.shift}"] if self.shift else []))
        self._clamp(f, total)

    def _clamp(self, f: Function, total: str) -> None:
        for limit, condition in ((self.low, "lt"), (self.high, "gt")):
            if limit is not None:
                f("cmp", total, f"#{limit}")
                f("it", condition)
                f(f"mov{condition}", total, f"#{limit}")


def long_products_of(rescale: Rescale) -> tuple[LongProducts, Int64, Words] | None:
    """Return the form, the addend of initial values ``[channel]``, and the constants; None if no form is
    exact.
    """
    limits = clamp_limits(rescale.act_min, rescale.act_max)
    floor = solve_floor(rescale)
    if floor is not None:
        columns = [floor.multiplier, floor.constant]
        return LongProducts(True, floor.shift, *limits), floor.offset, words(np.stack(columns, axis=1))
    form = solve_half_away(rescale)
    if form is None:
        return None
    uniform = len(np.unique(form.shift)) == 1
    columns = [form.multiplier, form.constant, *([] if uniform else [form.shift])]
    made = LongProducts(False, int(form.shift[0]) if uniform else None, *limits)
    return made, form.offset, words(np.stack(columns, axis=1))


@dataclass(frozen=True, slots=True)
class Limbs:
    """TFLite's arithmetic with 32-bit products, for cores that have no others.

    A multiplier is split into ``count`` limbs of ``bits`` bits, lowest first; the last one has ``last`` bits.
    With two limbs, the output is ``(acc * m0 >> bits) + acc * m1 + constant - (acc < 0) * 2**last >> shift``,
    from ``low`` to ``high``.
    """

    count: int
    bits: int
    low: int
    high: int

    @property
    def last(self) -> int:
        return _MULTIPLIER_BITS - (self.count - 1) * self.bits

    @property
    def constants(self) -> int:
        """Number of words per channel: the constant, then halfwords with the multiplier's limbs and the
        shift.
        """
        return 1 + -(-(self.count + 1) // 2)

    def append(self, f: Function, total: str, place: tuple[str, int], spare: tuple[str, str]) -> str:
        """Append an output for ``total``, whose constants are at a register plus an offset.

        The result is in the returned register, the first spare one. The limits are in r12 and lr.
        """
        (base, at), (result, factor) = place, spare
        for number in range(self.count):
            into = factor if number else result
            f("ldrh", into, f"[{base}, #{at + 4 + 2 * number}]")
            f("muls", into, total, into)
            if number:
                f("adds", result, result, factor)
            if number < self.count - 1:
                f("asrs", result, result, f"#{self.bits}")
        f("ldr", factor, f"[{base}, #{at}]")
        f("adds", result, result, factor)
        f("asrs", total, total, "#31")
        f("lsls", total, total, f"#{self.last}")
        f("adds", result, result, total)
        f("ldrh", factor, f"[{base}, #{at + 4 + 2 * self.count}]")
        f("asrs", result, factor)
        for limit, condition in (("r12", "bge"), ("lr", "ble")):
            within = f.label("within")
            f("cmp", result, limit)
            f(condition, within)
            f("mov", result, limit)
            f.place(within)
        return result


def limbs_of(rescale: Rescale) -> tuple[Limbs, Words] | None:
    """Return the form and its constants ``[channel, word]``; None if the sums of varying outputs are too
    large.
    """
    form = solve_half_away(rescale)
    if form is None or form.offset.any():
        return None
    # outputs that never vary have no multiplier, however far from zero their sums are
    extents = np.maximum(np.abs(rescale.low), np.abs(rescale.high))
    extent = int(extents[form.multiplier != 0].max(initial=0))
    for bits in range(16, 5, -1):
        limbs = Limbs(-(-_MULTIPLIER_BITS // bits), bits, rescale.act_min, rescale.act_max)
        constant = (np.int64(1) << (limbs.last - 1)) + (form.constant << limbs.last)
        most = (extent + 1) * (1 << max(bits, limbs.last)) + int(np.abs(constant).max()) + (1 << limbs.last)
        if most + extent < 1 << 31:
            return limbs, _constants(limbs, form.multiplier, constant, form.shift + limbs.last)
    return None


Exact: TypeAlias = tuple[Limbs | LongProducts, Int64, Words]
"""An exact form, the start values ``[channel]``, and constants ``[channel, word]``."""


def exact_form(rescale: Rescale, start: Int64, narrow: bool) -> Exact | None:
    """Return an exact requantisation, with long products unless ``narrow``, and the sums' initial values.

    None if there is no exact form.
    """
    if narrow:
        limbs = limbs_of(rescale)
        return limbs and (limbs[0], start, limbs[1])
    found = long_products_of(rescale)
    return found and (found[0], start + found[1], found[2])


def _constants(limbs: Limbs, multiplier: Int64, constant: Int64, shift: Int64) -> Words:
    parts = [(multiplier >> (limbs.bits * n)) & ((1 << limbs.bits) - 1) for n in range(limbs.count - 1)]
    halves = [*parts, multiplier >> (limbs.bits * (limbs.count - 1)), shift]
    halves += [np.zeros_like(shift)] * (len(halves) % 2)
    pairs = [low | high << 16 for low, high in zip(halves[::2], halves[1::2], strict=True)]
    return words(np.stack([constant, *pairs], axis=1))
