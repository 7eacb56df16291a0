"""The epilogue with Helium: four accumulators at a time to int8 or int16."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import Rescale, clamp_limits, solve_floor
from crtgen.compiler.kernels.asm import Function
from crtgen.network.ops.fixedpoint import Int64

__all__ = [
    "MveEpilogue",
    "Requantisation",
    "epilogue_bytes",
    "epilogue_halves",
    "epilogue_words",
    "requantisation",
    "rounded_products",
]

_NARROWING = range(1, 17)  # shifts of VQRSHRNB


@dataclass(frozen=True, slots=True)
class MveEpilogue:
    """Conversion of accumulators, four at a time, to outputs of ``size`` bytes.

    With a ``shift`` it is ``sat(((acc + start) * multiplier >> 32) + constant >> shift)``, and the constants
    per channel are start, multiplier, constant. With ``single`` it is a float32 product, and the constants
    are start, factor, zero point. Otherwise it is TFLite's two roundings, and the constants are start, left
    shift if ``left``, multiplier, negative right shift, which may be 0 if ``some_whole``. ``low`` and
    ``high`` are clamps after saturation, if needed. ``uniform``: the multiplier and the constants after it
    are the same for all channels and stay in q4 and q5. ``is_sum``: the output is a word, accumulator plus
    start, for inputs of ``size`` bytes.
    """

    shift: int | None
    left: bool
    some_whole: bool
    zero_point: int
    low: int | None
    high: int | None
    uniform: bool = False
    size: int = 1
    single: bool = False
    is_sum: bool = False

    @property
    def is_shifted(self) -> bool:
        return self.shift is None and not self.single and not self.is_sum

    @property
    def output_size(self) -> int:
        return 4 if self.is_sum else self.size

    @property
    def bits(self) -> int:
        return 8 * self.size

    @property
    def constants(self) -> int:
        return 1 if self.uniform else 4 if self.left else 3


@dataclass(frozen=True, slots=True, eq=False)
class Requantisation:
    """An epilogue and its constants, ``int64[n, O]``. ``int4``: the layer's weights have four bits."""

    epilogue: MveEpilogue
    constants: Int64
    int4: bool = False


def requantisation(rescale: Rescale, start: Int64) -> Requantisation | None:
    """Return the cheapest form; ``start[O]`` are the accumulators' initial values.

    None if the sums need more than 32 bits, or if wide sums have no shift that suits all channels.
    """
    return rescale.known.once(("mve", start.tobytes()), lambda: _requantisation(rescale, start))


def _requantisation(rescale: Rescale, start: Int64) -> Requantisation | None:
    if not rescale.narrow:
        return None
    if rescale.is_sum:
        return Requantisation(MveEpilogue(None, False, False, 0, None, None, is_sum=True), start[None])
    low, high = clamp_limits(rescale.act_min, rescale.act_max, rescale.scheme)
    size = rescale.scheme.activations.itemsize
    form = solve_floor(rescale)
    if form is not None and form.shift in _NARROWING:
        epilogue = MveEpilogue(form.shift, False, False, 0, low, high, size=size)
        # VQRSHRNB rounds: what it adds is taken off before
        constant = form.constant - (1 << (form.shift - 1))
        return Requantisation(epilogue, np.stack([start + form.offset, form.multiplier, constant]))
    if rescale.wide:
        return None
    if rescale.factors is not None:
        epilogue = MveEpilogue(None, False, False, 0, low, high, size=size, single=True)
        factors = rescale.factors.view(np.int32).astype(np.int64)
        return Requantisation(epilogue, np.stack([start, factors, np.full_like(start, rescale.zero_point)]))
    left, right = np.maximum(rescale.shifts, 0), np.minimum(rescale.shifts, 0)
    some_whole = bool((right == 0).any()) and rescale.zero_point > rescale.act_min  # else these are cut off
    epilogue = MveEpilogue(None, bool(left.any()), some_whole, rescale.zero_point, low, high, size=size)
    rows = [start, *([left] if epilogue.left else []), rescale.multipliers, right]
    return Requantisation(epilogue, np.stack(rows))


def epilogue_words(
    f: Function,
    epilogue: MveEpilogue,
    sums: Sequence[str],
    stream: str,
    spare: tuple[str, str, str],
    united: tuple[str, str] | None = None,
) -> None:
    """Append code that turns sums of four channels each into outputs, in the lowest byte or halfword of each
    word.

    Constants come from ``[stream]``; those that all channels share come from ``united``. ``spare`` are two
    vectors and a register.
    """
    epilogue_halves(f, epilogue, sums, stream, spare, united=united)
    if not epilogue.is_sum:
        epilogue_bytes(f, epilogue, sums, spare)


def epilogue_halves(
    f: Function,
    epilogue: MveEpilogue,
    sums: Sequence[str],
    stream: str,
    spare: tuple[str, str, str],
    *,
    united: tuple[str, str] | None = None,
    above: Sequence[str] | None = None,
) -> None:
    """Append code that requantises sums to 16 bits, in the lower half of each word.

    With ``is_sum`` it only adds the initial values, and the sums stay words. With ``above``, the results go
    to the upper halves of these vectors, whose lower halves are kept.
    """
    start, factor, _ = spare
    f("vldrw.u32", start, f"[{stream}], #16")
    if epilogue.is_sum:
        _each(f, "vadd.i32", sums, start)
        return
    if united is None:
        f("vldrw.u32", factor, f"[{stream}], #16")
    _each(f, "vadd.i32", sums, start)
    if epilogue.left:
        _each(f, "vshl.s32", sums, factor)
        f("vldrw.u32", factor, f"[{stream}], #16")
    multiplier, last = united or (factor, start)
    if epilogue.single:
        rounded_products(f, sums, multiplier)
    else:
        _each(f, "vmulh.s32" if epilogue.shift is not None else "vqrdmulh.s32", sums, multiplier)
    if united is None:
        f("vldrw.u32", last, f"[{stream}], #16")
    _narrowed(f, epilogue, sums, last, factor, above)


def epilogue_bytes(
    f: Function, epilogue: MveEpilogue, halves: Sequence[str], spare: tuple[str, str, str]
) -> None:
    """Append the last steps of a requantisation to 16-bit lanes: zero point, narrowing to int8, clamps."""
    start, _, number = spare
    if epilogue.is_shifted and epilogue.zero_point:
        f.number(number, epilogue.zero_point)
        _each(f, "vqadd.s16", halves, number)
    if epilogue.size == 1:
        for q in halves:
            f("vqmovnb.s16", q, q)
    for limit, operation in ((epilogue.low, "vmax"), (epilogue.high, "vmin")):
        if limit is not None:
            f.number(number, limit)
            f(f"vdup.{epilogue.bits}", start, number)
            _each(f, f"{operation}.s{epilogue.bits}", halves, start)


def _narrowed(
    f: Function,
    epilogue: MveEpilogue,
    sums: Sequence[str],
    last: str,
    spare: str,
    above: Sequence[str] | None,
) -> None:
    # Products to halves, by the last constant.
    half, to = ("b", sums) if above is None else ("t", above)
    if epilogue.is_shifted:
        _shift_right(f, epilogue, sums, last, spare)
    else:
        _each(f, "vadd.i32", sums, last)
    for q, halves in zip(sums, to, strict=True):
        if epilogue.shift is not None:
            f(f"vqrshrn{half}.s32", halves, q, f"#{epilogue.shift}")
        else:
            f(f"vqmovn{half}.s32", halves, q)


def rounded_products(f: Function, vectors: Sequence[str], factor: str) -> None:
    """Append float32 products of words with a factor, converted back to words with ties to even."""
    for q in vectors:
        f("vcvt.f32.s32", q, q)
    _each(f, "vmul.f32", vectors, factor)
    for q in vectors:
        f("vcvtn.s32.f32", q, q)


def _shift_right(f: Function, epilogue: MveEpilogue, sums: Sequence[str], right: str, signs: str) -> None:
    # Shift to the right by minus ``right``, halves away from zero; ``signs`` is spare.
    for q in sums:
        if epilogue.some_whole:
            f("vand", signs, q, right, note="negative, and shifted")
        f("vshr.s32", signs, signs if epilogue.some_whole else q, "#31")
        f("vadd.i32", q, q, signs, note="halves go away from zero")
    _each(f, "vrshl.s32", sums, right)


def _each(f: Function, operation: str, sums: Sequence[str], operand: str) -> None:
    for q in sums:
        f(operation, q, q, operand)
