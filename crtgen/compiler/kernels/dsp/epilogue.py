"""The epilogue with the DSP extension: from accumulators to outputs, in one of a few forms, with clamps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.half_away import HalfAway, solve_half_away
from crtgen.compiler.kernels.arithmetic.requant import (
    FloorRequantisation,
    Rescale,
    Single,
    clamp_limits,
    solve_floor,
    solve_rounded,
    solve_single,
)
from crtgen.compiler.kernels.asm import Function
from crtgen.compiler.kernels.engine.words import Words, words
from crtgen.network.ops import INT16
from crtgen.network.ops.fixedpoint import Int64

__all__ = [
    "DspEpilogue",
    "Lanes",
    "clamp",
    "epilogue_lanes",
    "floor",
    "requantise",
    "rounded_lanes",
    "saturate",
]


_SINGLE = 7  # instructions of the form


@dataclass(frozen=True, slots=True)
class DspEpilogue:
    """The epilogue, for accumulators with one or several gains.

    ``form`` is ``floor``, ``half_away``, ``single``, ``rounded`` or ``sum``, which is the accumulator itself;
    ``shifts`` has one shift per gain (to the left for ``rounded``, none for ``single``), or is empty if each
    channel has its own among the constants. ``low`` and ``high`` are clamps to apply after saturation to
    ``bits``, if needed; ``unsigned`` saturation has 0 as its lower limit.
    """

    form: str
    shifts: tuple[int, ...]
    low: int | None
    high: int | None
    bits: int = 8
    unsigned: bool = False

    @classmethod
    def of(cls, form: str, shifts: tuple[int, ...], rescale: Rescale) -> "DspEpilogue":
        """Return the epilogue with the clamps that saturation does not already enforce."""
        scheme = rescale.scheme
        low, high = clamp_limits(rescale.act_min, rescale.act_max, scheme)
        if scheme is INT16 and low == 0:
            return cls(form, shifts, None, high, 16, True)
        return cls(form, shifts, low, high, 8 * scheme.activations.itemsize)

    @property
    def floor(self) -> bool:
        return self.form == "floor"

    @property
    def doubled(self) -> int:
        """1 if the form rounds twice the sum, otherwise 0."""
        return int(self.form == "half_away")

    @property
    def constants(self) -> int:
        """Number of constant words per channel: multiplier, constant, and the shift if each has its own."""
        if self.form in ("rounded", "sum"):
            return int(self.form == "rounded")
        return 2 if self.shifts else 3

    @property
    def instructions(self) -> int:
        """Instructions per output, without those that load constants."""
        form = 2 if self.floor else _SINGLE if self.form == "single" else 4 + (not self.shifts)
        return form + 3 * self.clamps

    @property
    def clamps(self) -> int:
        return (self.low is not None) + (self.high is not None)

    @property
    def store(self) -> str:
        return {8: "strb", 16: "strh", 32: "str"}[self.bits]

    def append_all(
        self,
        f: Function,
        totals: Sequence[str],
        constants: Sequence[str],
        spare: Sequence[str],
        gain: int = 0,
        lane: int = 0,
    ) -> None:
        """Append outputs of a channel from sums times ``2**gain``; ``constants`` are its words."""
        multiplier, constant = constants[:2]
        if self.floor:
            for total in totals:
                floor(f, self, total, multiplier, constant, self.shifts[lane])
        else:
            shift = self.shifts[lane] if self.shifts else constants[2]
            requantise(f, self, totals, (multiplier, constant), spare[0], shift, gain)
        clamp(f, self, totals, spare)


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """A single form of requantisation for every lane of a kernel. A lane is a gain together with the channels
    that have it.

    ``offsets[lane]`` is added to the initial values of its channels, ``constants[lane]`` is words[channel,
    n].
    """

    epilogue: DspEpilogue
    offsets: tuple[Int64, ...]
    constants: tuple[Words, ...]


def epilogue_lanes(rescale: Rescale, lanes: Sequence[tuple[int, Int64]], each: bool = False) -> Lanes | None:
    """Return the cheapest form that works for all lanes, each a pair of gain and channel indices; None if
    there is none.

    ``each``: the form may keep a shift per channel, even if all are equal.
    """
    key = each, tuple((gain, channels.tobytes()) for gain, channels in lanes)
    return rescale.known.once(("lanes", key), lambda: _epilogue_lanes(rescale, lanes, each))


def _epilogue_lanes(rescale: Rescale, lanes: Sequence[tuple[int, Int64]], each: bool) -> Lanes | None:
    if rescale.is_sum:
        return _lanes_of_sums(rescale, lanes)
    parts = [(gain, rescale.take(channels)) for gain, channels in lanes]
    floors = [solve_floor(part, gain) for gain, part in parts]
    found = [form for form in floors if form is not None]
    if len(found) == len(parts):
        return _floor_lanes(rescale, found)
    halves = [solve_half_away(part, gain) for gain, part in parts]
    exact = [form for form in halves if form is not None]
    if len(exact) == len(parts):
        return _half_away_lanes(rescale, exact, each)
    singles = [solve_single(part, gain) for gain, part in parts]
    plain = [form for form in singles if form is not None]
    return _single_lanes(rescale, plain, each) if len(plain) == len(parts) else None


def _lanes_of_sums(rescale: Rescale, lanes: Sequence[tuple[int, Int64]]) -> Lanes | None:
    # Sums as they are; None where 32 bits do not hold one with its gain.
    for gain, channels in lanes:
        if max(rescale.high[channels].max(), -rescale.low[channels].min()) * gain >= 1 << 31:
            return None
    nothing = tuple(np.zeros(len(channels), np.int64) for _, channels in lanes)
    constants = tuple(words(none[:, None][:, :0]) for none in nothing)
    return Lanes(DspEpilogue("sum", (), None, None, 32), nothing, constants)


def _floor_lanes(rescale: Rescale, forms: Sequence[FloorRequantisation]) -> Lanes:
    epilogue = DspEpilogue.of("floor", tuple(f.shift for f in forms), rescale)
    constants = tuple(words(np.stack([f.multiplier, f.constant], axis=1)) for f in forms)
    return Lanes(epilogue, tuple(f.offset for f in forms), constants)


def _half_away_lanes(rescale: Rescale, forms: Sequence[HalfAway], each: bool) -> Lanes:
    shifts = np.unique(np.concatenate([f.shift for f in forms]))
    uniform = len(shifts) == 1 and not each
    epilogue = DspEpilogue.of("half_away", (int(shifts[0]),) * len(forms) if uniform else (), rescale)
    columns = [[f.multiplier, f.constant] if uniform else [f.multiplier, f.constant, f.shift] for f in forms]
    constants = tuple(words(np.stack(c, axis=1)) for c in columns)
    return Lanes(epilogue, tuple(f.offset for f in forms), constants)


def _single_lanes(rescale: Rescale, forms: Sequence[Single], each: bool) -> Lanes:
    # The shift that ``each`` keeps is not used.
    epilogue = DspEpilogue.of("single", () if each else (0,) * len(forms), rescale)
    constants = []
    for form in forms:
        factor = form.factor.view(np.int32).astype(np.int64)
        zero = np.full_like(factor, form.zero_point)
        constants.append(words(np.stack([factor, zero, *([zero] if each else [])], axis=1)))
    return Lanes(epilogue, tuple(np.zeros(len(f.factor), np.int64) for f in forms), tuple(constants))


def rounded_lanes(rescale: Rescale, lanes: int) -> Lanes | None:
    form = solve_rounded(rescale)
    if form is None:
        return None
    epilogue = DspEpilogue.of("rounded", (int(form.left[0]),) * lanes, rescale)
    constants = words(form.multiplier[:, None])
    return Lanes(epilogue, (np.zeros_like(form.left),) * lanes, (constants,) * lanes)


def clamp(f: Function, epilogue: DspEpilogue, registers: Sequence[str], spare: Sequence[str] = ()) -> None:
    """Append the clamps that saturation does not already enforce; limits of int16 are loaded into spare
    registers.
    """
    left = list(spare) if epilogue.bits > 8 else []
    for limit, condition in ((epilogue.low, "lt"), (epilogue.high, "gt")):
        if limit is None:
            continue
        number = left.pop(0) if left else f"#{limit}"
        if epilogue.bits > 8:
            f.number(number, limit)
        for register in registers:
            f("cmp", register, number)
            f("it", condition)
            f(f"mov{condition}", register, number)


def saturate(f: Function, epilogue: DspEpilogue, register: str, shift: int = 0) -> None:
    name, bits = ("usat", epilogue.bits - 1) if epilogue.unsigned else ("ssat", epilogue.bits)
    f(name, register, f"#{bits}", register, *([f"asr #{shift}"] if shift else []))


def floor(
    f: Function,
    epilogue: DspEpilogue,
    register: str,
    multiplier: str,
    constant: str,
    shift: int,
) -> None:
    """Append an output of the form ``floor``: the high word of a product plus the constant, without
    clamps.
    """
    f("smmla", register, register, multiplier, constant)
    saturate(f, epilogue, register, shift)


def requantise(
    f: Function,
    epilogue: DspEpilogue,
    registers: Sequence[str],
    constants: tuple[str, str],
    spare: str,
    shift: int | str,
    gain: int = 0,
) -> None:
    """Append outputs in the form ``half_away`` or ``single``, from accumulators times ``2**gain``, without
    clamps.

    All share ``constants``: multiplier and constant, or factor and zero point; ``shift`` may be a register.
    """
    far = gain - epilogue.doubled
    for register in registers if far else ():
        f("asr" if far > 0 else "lsl", register, register, f"#{abs(far)}")
    if epilogue.form == "single":
        _singles(f, epilogue, registers, *constants)
        return
    multiplier, constant = constants
    for register in registers:
        f("add", spare, constant, register, "asr #31")
        f("smmlar", register, register, multiplier, spare)
        if isinstance(shift, str):
            f("asr", register, register, shift)
        saturate(f, epilogue, register, 0 if isinstance(shift, str) else shift)


def _singles(f: Function, epilogue: DspEpilogue, registers: Sequence[str], factor: str, zero: str) -> None:
    # Two at a time by the floating-point unit.
    numbers = f.singles("numbers of float32", 3)
    *both, scale = numbers
    if len(registers) > 1:
        f("vmov", scale, factor)
    for first in range(0, len(registers), 2):
        pair = registers[first : first + 2]
        floats = both[: len(pair)]
        if len(registers) == 1:
            f("vmov", *both, *pair, factor)
        else:
            f("vmov", *floats, *pair)
        for s in floats:
            f("vcvt.f32.s32", s, s)
        for s in floats:
            f("vmul.f32", s, s, both[1] if len(registers) == 1 else scale)
        for s in floats:
            f("vcvtr.s32.f32", s, s, note="halves go to even numbers")
        f("vmov", *pair, *floats)
    f.free(*numbers)
    for register in registers:
        f("add", register, register, zero)
        saturate(f, epilogue, register)
