"""Conversion of float32 to int8 or int16 on an FPU, without a division, four values at a time.

A quotient is computed as a sum of two products: the reciprocal of the scale is split into two parts. For NaN
and values far beyond int8, the FPU reports an invalid conversion: then the four values are clamped to
slightly more than the range of int8, and converted again. Values of int16 are clamped first, since a
conversion to 32 bits reports less, and the proof would have to cut all floats into 65,536 spans.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crtgen.compiler.kernels.asm import Function, Routine, listed
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import bits_of
from crtgen.compiler.kernels.portable.borders import Floats, borders_of, fused
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import INT8, INT16, AffineParams, Quantize
from crtgen.network.ops.rescaling import by_float
from crtgen.network.ops.scheme import Scheme, scheme_of

__all__ = ["QuantizeView", "parts_of", "quantize"]

_AT_ONCE = 4
_FAR = {INT8: 512, INT16: 131072}  # steps: beyond all values
_INVALID = 1  # of FPSCR: a conversion that has no result


@dataclass(frozen=True, slots=True)
class QuantizeView:
    """Constants of a quantisation.

    ``parts`` are the two parts of the scale's reciprocal, the larger one first. ``far`` is the magnitude to
    which values are clamped. Ties are rounded away from zero or, if ``even``, to even. A result has ``bits``
    bits.
    """

    elements: int
    zero_point: int
    parts: tuple[float, float]
    far: float
    even: bool = False
    bits: int = 8

    @property
    def short(self) -> bool:
        return self.bits == 16


def parts_of(
    scale: float, zero_point: int, even: bool = False, scheme: Scheme = INT8
) -> tuple[float, float] | None:
    """Return float32 ``a`` and ``b`` for which ``fma(x, a, x * b)`` is rounded to the same integer as ``x /
    scale``: ties away from zero or, if ``even``, to even.

    The result never falls as x grows, so it suffices to check each border and the float just before it. None
    if the check fails.
    """
    steps = scheme.magnitude(zero_point)
    at = borders_of(scale, steps, even)
    if at is None:
        return None
    exact = 1 / float(np.float32(scale))
    first = float(np.float32(exact))
    second = float(np.float32(exact - first))
    at_border, before = (
        _rounded(_quotients(x, first, second), even) for x in (at, np.nextafter(at, np.float32(0)))
    )
    wanted = np.arange(1, steps + 1)
    return (first, second) if ((at_border >= wanted) & (before < wanted)).all() else None


def _rounded(x: Floats, even: bool) -> Floats:
    return np.rint(x) if even else np.floor(x.astype(np.float64) + 0.5).astype(np.float32)


def _quotients(x: Floats, first: float, second: float) -> Floats:
    return fused(x, np.float32(first), x * np.float32(second))


@design(Quantize, types=(DType.FLOAT32,), to=DType.INT8, needs="vfp")
@design(Quantize, types=(DType.FLOAT32,), to=DType.INT16, needs="vfp")
def quantize(op: Quantize, sig: Signature, target: Target) -> Kernel | None:
    """Multiply by a reciprocal; None if no exact parts are found."""
    params, even, scheme = op.parameters(sig), by_float(sig.y), scheme_of(sig.y)
    assert isinstance(params, AffineParams)
    parts = parts_of(params.scale, params.zero_point, even, scheme)
    if parts is None:
        return None
    far = float(np.float32(_FAR[scheme] * params.scale))
    if scheme is INT16 and not even:
        parts = 2 * parts[0], 2 * parts[1]  # half steps
    bits = 8 * sig.y.dtype.itemsize
    routine = _quantized(QuantizeView(sig.y.elements, params.zero_point, parts, far, even, bits))
    return Kernel(
        design="vfp quantise",
        template="",
        view=None,
        inplace=(InPlace(),),
        work=Work(routine.runs(beyond=0) if sig.y.elements >= _AT_ONCE and bits == 8 else routine.runs()),
        routines=(routine,),
    )


@lru_cache(maxsize=256)
def _quantized(k: QuantizeView) -> Routine:
    to = f"int{k.bits}_t *y"
    f = Function("quantise", "const float *x", to, purpose=f"Quantises {k.elements} numbers.")
    writer = _QuantizeWriter(f, k)
    fours, rest = divmod(k.elements, _AT_ONCE)
    if fours and k.short:
        writer.short_fours(fours)
    elif fours:
        writer.fours(fours)
    if rest:
        with f.repeated("numbers", rest):
            writer.one()
    return f.done()


class _QuantizeWriter:
    """Writer of a quantisation.

    For ties away from zero it converts to half steps, truncating: a result is half of the converted value
    plus 1, rounded down; a negative value is halved without adding 1. VCVTR rounds ties to even.
    """

    def __init__(self, f: Function, k: QuantizeView) -> None:
        self.f, self.k = f, k
        self.x, self.y = f.arguments
        self.numbers = f.singles("numbers", _AT_ONCE)
        self.halves = f.singles("halves of steps", _AT_ONCE)
        self.parts = f.singles("parts of 1 / scale", 2)
        self.ends = f.singles("ends", 2)
        self.state = f.core("state of the FPU")
        reals = (*k.parts, -k.far, k.far)
        for register, value in zip((*self.parts, *self.ends), reals, strict=True):
            f.number(self.state, bits_of(value))
            f("vmov", register, self.state)

    def fours(self, rounds: int) -> None:
        f, begin, again = self.f, self.f.label("begin"), self.f.label("again")
        start = self.k.zero_point + 128
        starts = [
            f.constant("the zero point" if self.k.even else "twice the zero point", n * 65537)
            for n in ((start,) if self.k.even else (2 * start + 1, 2 * start))
        ]
        words, last = f.cores("results", 4), f.core("where the fours end")
        f.add(last, self.y, _AT_ONCE * rounds)
        self._forget()
        f("b", begin)
        with f.loop("beyond", "beyond") as beyond:
            for number in self.numbers:
                self._cut(number)
            self._forget()
            f("b", again)
        f.place(begin)
        with f.loop("fours", rounds) as fours:
            f("vldmia", f"{self.x}!", listed(self.numbers))
            f.place(again)
            self._convert(_AT_ONCE)
            f.place(f.label("converted"))
            f("vmrs", self.state, "fpscr")
            f("lsls", self.state, self.state, "#31", note="was one invalid?")
            f("bne", beyond)
            self._add(words, starts)
            f("orr", words[0], words[0], words[1], "lsl #8")
            f("eor", words[0], words[0], "#0x80808080")
            f("str", words[0], f"[{self.y}], #{_AT_ONCE}")
            f("cmp", self.y, last)
            f("bne", fours)
        f.free(*starts, *words, last)

    def short_fours(self, rounds: int) -> None:
        f, words = self.f, self.f.cores("results", 4)
        first, second, third, fourth = words
        with f.repeated("fours", rounds):
            f("vldmia", f"{self.x}!", listed(self.numbers))
            for number in self.numbers:
                self._cut(number)
            self._convert(_AT_ONCE)
            f("vmov", first, second, *self.halves[:2])
            f("vmov", third, fourth, *self.halves[2:])
            self._finish(words)
            f("pkhbt", first, first, second, "lsl #16")
            f("pkhbt", second, third, fourth, "lsl #16")
            f("strd", first, second, f"[{self.y}], #8")
        f.free(*words)

    def one(self) -> None:
        f, result = self.f, self.state
        f("vldmia", f"{self.x}!", listed(self.numbers[:1]))
        self._cut(self.numbers[0])
        self._convert(1)
        f("vmov", result, self.halves[0])
        self._finish((result,))
        f("strh" if self.k.short else "strb", result, f"[{self.y}], #{self.k.bits // 8}")

    def _finish(self, results: Sequence[str]) -> None:
        # From steps, or half steps, to results.
        f, bits = self.f, f"#{self.k.bits}"
        for result in results:
            if not self.k.even:
                f("add", result, result, result, "asr #31")
        for result in results:
            f.advance(result, self.k.zero_point if self.k.even else 2 * self.k.zero_point + 1)
        for result in results:
            f("ssat", result, bits, result, *(() if self.k.even else ("asr #1",)))

    def _convert(self, count: int) -> None:
        f, pairs = self.f, list(zip(self.numbers, self.halves, strict=True))[:count]
        for number, half in pairs:
            f("vmul.f32", half, number, self.parts[1])
        for number, half in pairs:
            f("vfma.f32", half, number, self.parts[0])
        for _, half in pairs:
            if self.k.even:
                f("vcvtr.s32.f32", half, half)
            elif self.k.short:
                f("vcvt.s32.f32", half, half)
            else:
                f("vcvt.s16.f32", half, half, "#1")

    def _add(self, words: Sequence[str], starts: Sequence[str]) -> None:
        # Two results in each of the first words, all of them 128 more than they are.
        f, (first, second, third, fourth) = self.f, words
        f("vmov", first, second, *self.halves[:2])
        f("vmov", third, fourth, *self.halves[2:])
        for word, other in ((first, third), (second, fourth)):
            if self.k.even:
                for number in (word, other):
                    f("ssat", number, "#16", number)
            f("pkhbt", word, word, other, "lsl #16")
            if self.k.even:
                f("qadd16", word, word, *starts)
            else:
                f("sadd16", other, word, word, note="which are below zero?")
                f("sel", other, *starts)
                f("shadd16", word, word, other)
            f("usat16", word, "#8", word)

    def _cut(self, number: str) -> None:
        # To the ends; what is none becomes the least.
        for end, beyond in zip(self.ends, ("lt", "gt"), strict=True):
            self.f("vcmp.f32", number, end)
            self.f("vmrs", "APSR_nzcv", "fpscr")
            self.f("it", beyond)
            self.f(f"vmov{beyond}.f32", number, end)

    def _forget(self) -> None:
        # The registers' contents are no longer valid.
        self.f("vmrs", self.state, "fpscr")
        self.f("bic", self.state, self.state, f"#{_INVALID}")
        self.f("vmsr", "fpscr", self.state)
