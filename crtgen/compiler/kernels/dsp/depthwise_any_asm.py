"""Assembly of depthwise convolutions with any window: one pixel, four channels at a time.

An int8 word is four channels; SXTB16 widens channels 0 and 2 of it, and of the rotated word channels 1 and 3.
Two taps are processed together: PKHBT and PKHTB bring the same channels of both into a word, so that SXTB16
gives two inputs of one channel, for SMLAD. A remaining single tap has weights in the order of its inputs, and
SMLABB and SMLATT multiply each half by its own weight; the same is done for int16, where two words are four
channels. 4-bit weights are stored in groups of four, for two taps: shifted, each is once at the top of a
halfword, and a mask leaves ``4096 * w``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from crtgen.compiler.kernels.asm import LISTED, Function, Routine, Writer, listed
from crtgen.compiler.kernels.dsp.epilogue import DspEpilogue, clamp, floor, requantise
from crtgen.compiler.kernels.dsp.walk import Walk

__all__ = ["CHANNELS", "GAIN_BITS", "Expansion", "WindowedView", "one_pixel"]

CHANNELS = 4
GAIN_BITS = 12
"""Gain of 4-bit weights, in bits."""
_MASK = 0xF000F000


@dataclass(frozen=True, slots=True)
class Expansion:
    """An expansion of rows: each of ``count`` inputs, of the C type ``type``, is written ``repeats``
    times.
    """

    count: int
    repeats: int
    type: str


@dataclass(frozen=True, slots=True)
class WindowedView:
    """A depthwise layer that reads a window in ``rows`` iterations, ``row_step`` bytes apart.

    ``taps`` are the offsets of the inputs of an iteration, which may cover several rows of the window;
    ``last`` are those of the remaining rows. Channels are in ``whole`` groups of four and, with ``rest``,
    another group that ends at the last channel. Rows go through ``expansion`` unless they are copied
    unchanged. Inputs and outputs have ``size`` bytes. ``int4``: weights have four bits.
    """

    channels: int
    size: int
    rows: int
    taps: tuple[int, ...]
    row_step: int
    walk: Walk
    expansion: Expansion | None
    epilogue: DspEpilogue
    int4: bool
    last: tuple[int, ...] = ()

    @property
    def paired(self) -> bool:
        return self.size == 1 and not self.int4

    @property
    def whole(self) -> int:
        return self.channels // CHANNELS

    @property
    def rest(self) -> bool:
        return self.channels % CHANNELS != 0

    @property
    def copies(self) -> bool:
        rows = self.walk.rows
        return rows is not None and (rows.kept > 0 or self.expansion is None)

    @property
    def pixel_bytes(self) -> int:
        return self.channels * self.size

    @property
    def last_group(self) -> int:
        return self.pixel_bytes - CHANNELS * self.size

    @property
    def tap_words(self) -> int:
        each = self.rows * (-(-len(self.taps) // 2) if self.int4 else 2 * len(self.taps))
        return each + 2 * len(self.last)

    @property
    def group_words(self) -> int:
        return CHANNELS + self.tap_words + CHANNELS * self.epilogue.constants

    @property
    def whole_words(self) -> int:
        return self.whole * self.group_words


def one_pixel(k: WindowedView) -> Routine:
    """Write ``pixel(x, weights, y, groups)``, which computes ``groups`` groups of four channels."""
    return (_PairTaps if k.paired else _NibbleTaps if k.int4 else _Taps).routine(k)


class _Taps(Writer):
    """One tap at a time: inputs of four channels, each multiplied by the weight of its channel."""

    purpose = "A pixel, so many groups of four channels."
    keep: tuple[int, ...] = (0, 3)

    def __init__(self, k: WindowedView) -> None:
        self.k = k
        self.f = f = Function(
            "pixel",
            "const int8_t *x",
            "const uint32_t *weights",
            "int8_t *y",
            "uint32_t groups",
            purpose=self.purpose,
            keep=self.keep,
        )
        self.x, self.weights, self.y, groups = f.arguments
        f.free(groups)
        self._take()

    def _take(self) -> None:
        f = self.f
        self.taps = f.cores("weights, then requantisation", 2, LISTED)
        self.inputs = f.cores("inputs, then requantisation", 2, LISTED)
        self.sums = f.cores("sums", CHANNELS, LISTED)
        self.rest = f.cores("of loops, then requantisation", 2, LISTED)
        self.spare = f.core("of loops, then requantisation", ("lr",))

    def write(self) -> None:
        f, k = self.f, self.k
        with f.loop("four channels", "groups") as again:
            f("ldm", f"{self.weights}!", listed(self.sums))
            f("ldr", self.x, f.kept[0])
            f("add", self.spare, self.x, f"#{CHANNELS * k.size}")
            f("str", self.spare, f.kept[0])
            self._rows()
            self._store()
            f("ldr", self.spare, f.kept[3])
            f("subs", self.spare, self.spare, "#1")
            f("str", self.spare, f.kept[3])
            f("bne", again)

    def _rows(self) -> None:
        f, k = self.f, self.k
        if k.rows > 1:
            f.number(self.rest[1], k.row_step)
            with f.counted_loop("rows", self.rest[0], k.rows):
                self._row(k.taps)
                f("add", self.x, self.x, self.rest[1])
        else:
            self._row(k.taps)

    def _row(self, offsets: Sequence[int]) -> None:
        for offset in offsets:
            for word, at in zip(self.inputs, (offset, offset + 4), strict=True):
                self.f("ldr", word, f"[{self.x}, #{at}]")
            self.f("ldrd", *self.taps, f"[{self.weights}], #8")
            self._halves(0, self.taps[0], 1)
            self._halves(1, self.taps[1], 1)

    def _bytes(self, offset: int) -> None:
        # Four channels of int8 as two words.
        even, odd = self.inputs[:2]
        self.f("ldr", odd, f"[{self.x}, #{offset}]")
        self.f("sxtb16", even, odd, note="channels 0 and 2")
        self.f("sxtb16", odd, odd, "ror #8", note="channels 1 and 3")

    def _halves(self, word: int, taps: str, apart: int) -> None:
        # The two inputs of a word, each times a weight; their channels are ``apart`` channels apart.
        first = word if apart > 1 else 2 * word
        for operation, total in (("smlabb", self.sums[first]), ("smlatt", self.sums[first + apart])):
            self.f(operation, total, self.inputs[word], taps, total)

    def _store(self) -> None:
        f, k = self.f, self.k
        self._requantise((*self.taps[:2], *self.inputs, *self.rest, self.spare, self.x))
        for place in (1, 2, 3):
            f(k.epilogue.store, self.sums[place], f"[{self.y}, #{place * k.size}]")
        f(k.epilogue.store, self.sums[0], f"[{self.y}], #{CHANNELS * k.size}")

    def _requantise(self, words: Sequence[str]) -> None:
        # ``words`` are registers for constants, of which all but the last two ascend.
        f, epilogue = self.f, self.k.epilogue
        if epilogue.floor:
            f("ldm", f"{self.weights}!", listed(words[:-2]))
            f("ldrd", *words[-2:], f"[{self.weights}], #8")
            for number, total in enumerate(self.sums):
                floor(f, epilogue, total, words[2 * number], words[2 * number + 1], epilogue.shifts[0])
            clamp(f, epilogue, self.sums, words)
            return
        multiplier, constant, shift, spare = words[:4]
        for total in self.sums:
            f("ldm", f"{self.weights}!", listed(words[: epilogue.constants]))
            right, gain = epilogue.shifts[0] if epilogue.shifts else shift, GAIN_BITS if self.k.int4 else 0
            requantise(f, epilogue, (total,), (multiplier, constant), spare, right, gain)
        clamp(f, epilogue, self.sums, words)


class _NibbleTaps(_Taps):
    # 4-bit weights, which a mask separates.
    def _rows(self) -> None:
        self.f("mov", self.spare, f"#{_MASK}")
        super()._rows()

    def _row(self, offsets: Sequence[int]) -> None:
        packed, tap = self.taps
        for number, offset in enumerate(offsets):
            if number % 2 == 0:
                self.f("ldr", packed, f"[{self.weights}], #4")
            self._bytes(offset)
            for word in (0, 1):
                shift = 8 * (number % 2) + 4 * word
                self.f("and", tap, self.spare, packed, *([f"lsl #{shift}"] if shift else []))
                self._halves(word, tap, 2)


class _PairTaps(_Taps):
    """Two taps at a time. Input and output pointers are on the stack while their registers are needed."""

    purpose = "A pixel, so many groups of four channels, two taps at a time."
    keep = (0, 2, 3)

    def _take(self) -> None:
        f = self.f
        f.free(self.y)
        self.taps = f.cores("weights, then requantisation", 4, LISTED)
        self.inputs = f.cores("inputs, then requantisation", 3, LISTED)
        self.sums = f.cores("sums", CHANNELS, LISTED)
        self.spare = f.core("of loops", ("lr",))

    def _rows(self) -> None:
        f, k = self.f, self.k
        if k.rows > 1:
            with f.counted_loop("rows", self.spare, k.rows):
                self._row(k.taps)
                f.advance(self.x, k.row_step, spare=self.inputs[0])
        else:
            self._row(k.taps)
        self._row(k.last)

    def _row(self, offsets: Sequence[int]) -> None:
        # The taps at these offsets; the last one alone if it is left.
        f, (a, b, upper) = self.f, self.inputs
        for first, second in zip(offsets[::2], offsets[1::2], strict=False):
            f("ldr", a, f"[{self.x}, #{first}]")
            f("ldr", b, f"[{self.x}, #{second}]")
            f("ldm", f"{self.weights}!", listed(self.taps))
            f("pkhtb", upper, b, a, "asr #16", note="channels 2 and 3 of both")
            f("pkhbt", a, a, b, "lsl #16", note="channels 0 and 1")
            for number, (made, word) in enumerate(((b, a), (a, a), (b, upper), (upper, upper))):
                f("sxtb16", made, word, *(("ror #8",) if number % 2 else ()))
                f("smlad", self.sums[number], made, self.taps[number], self.sums[number])
        if len(offsets) % 2:
            self._bytes(offsets[-1])
            f("ldrd", *self.taps[:2], f"[{self.weights}], #8")
            for half in (0, 1):
                self._halves(half, self.taps[half], 2)

    def _store(self) -> None:
        f, sums = self.f, self.sums
        self._requantise((*self.taps, *self.inputs, self.x))
        f("ldr", self.x, f.kept[2])
        for place in (1, 2, 3):
            f("strb", sums[place], f"[{self.x}, #{place}]")
        f("strb", sums[0], f"[{self.x}], #{CHANNELS}")
        f("str", self.x, f.kept[2])
