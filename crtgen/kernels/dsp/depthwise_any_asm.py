"""The assembly of depthwise convolutions of any window: one pixel, four channels at a time.

A word of int8 is four channels; SXTB16 makes channels 0 and 2 of it, rotated 1 and 3. Two taps go together:
PKHBT and PKHTB bring the same channels of both into a word, so that SXTB16 makes two inputs of one channel,
for SMLAD. A tap that is left has weights in the order of its inputs, and SMLABB and SMLATT multiply each half
by its own; so have those of int16, of which two words are four channels. Weights of four bits lie in fours of
two taps: shifted, each is the highest of a half once, and a mask leaves ``4096 * w``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from crtgen.kernels.asm import LISTED, Function, Routine, listed
from crtgen.kernels.dsp.epilogue import DspEpilogue, clamp, floor, requantise
from crtgen.kernels.dsp.walk import Walk

__all__ = ["CHANNELS", "GAIN_BITS", "Expansion", "WindowedView", "one_pixel"]

CHANNELS = 4
GAIN_BITS = 12
"""Of weights of four bits."""
_MASK = 0xF000F000


@dataclass(frozen=True, slots=True)
class Expansion:
    """Each of a row's ``count`` inputs, of the C type ``type``, comes into the window ``repeats`` times."""

    count: int
    repeats: int
    type: str


@dataclass(frozen=True, slots=True)
class WindowedView:
    """A depthwise layer: per pixel ``rows`` times ``taps``, offsets of inputs; ``row_step`` bytes between.

    Behind these are the ``last`` taps, as far from there.
    ``whole`` groups of four channels, and one more that ends at the last channel if ``rest``. Rows go
    through ``expansion`` if they are not copied as they are. Inputs and outputs have ``size`` bytes.
    ``packed``: weights have four bits.
    """

    channels: int
    size: int
    rows: int
    taps: tuple[int, ...]
    row_step: int
    walk: Walk
    expansion: Expansion | None
    epilogue: DspEpilogue
    packed: bool
    last: tuple[int, ...] = ()

    @property
    def paired(self) -> bool:
        """Whether two taps go together."""
        return self.size == 1 and not self.packed

    @property
    def whole(self) -> int:
        return self.channels // CHANNELS

    @property
    def rest(self) -> bool:
        return self.channels % CHANNELS != 0

    @property
    def copies(self) -> bool:
        """Whether rows in scratch are copied as they are."""
        rows = self.walk.rows
        return rows is not None and (rows.kept > 0 or self.expansion is None)

    @property
    def pixel_bytes(self) -> int:
        """Of an output pixel."""
        return self.channels * self.size

    @property
    def last_group(self) -> int:
        """Where the last four channels of a pixel are, in bytes."""
        return self.pixel_bytes - CHANNELS * self.size

    @property
    def tap_words(self) -> int:
        """Words of weights of four channels."""
        each = self.rows * (-(-len(self.taps) // 2) if self.packed else 2 * len(self.taps))
        return each + 2 * len(self.last)

    @property
    def group_words(self) -> int:
        """Words of four channels: starts, weights, requantisation."""
        return CHANNELS + self.tap_words + CHANNELS * self.epilogue.constants

    @property
    def whole_words(self) -> int:
        return self.whole * self.group_words


@lru_cache(maxsize=256)
def one_pixel(k: WindowedView) -> Routine:
    """``pixel(x, weights, y, groups)``: so many groups of four channels of a pixel."""
    return _pairs_of_taps(k) if k.paired else _taps_one_by_one(k)


def _pairs_of_taps(k: WindowedView) -> Routine:
    """The pointers of inputs and outputs are on the stack while others need their registers."""
    f = Function(
        "pixel",
        "const int8_t *x",
        "const uint32_t *weights",
        "int8_t *y",
        "uint32_t groups",
        purpose="A pixel, so many groups of four channels, two taps at a time.",
        keep=(0, 2, 3),
    )
    x, weights, y, groups = f.arguments
    f.free(y, groups)
    taps = f.cores("weights, then requantisation", 4, LISTED)
    inputs = f.cores("inputs, then requantisation", 3, LISTED)
    sums = f.cores("sums", CHANNELS, LISTED)
    left = f.core("of loops", ("lr",))
    with f.loop("four channels", "groups") as again:
        f("ldm", f"{weights}!", listed(sums))
        f("ldr", x, f.kept[0])
        f("add", left, x, f"#{CHANNELS}")
        f("str", left, f.kept[0])
        if k.rows > 1:
            with f.counted_loop("rows", left, k.rows):
                _row_of_pairs(f, k.taps, (x, weights), taps, inputs, sums)
                f.advance(x, k.row_step, spare=inputs[0])
        else:
            _row_of_pairs(f, k.taps, (x, weights), taps, inputs, sums)
        _row_of_pairs(f, k.last, (x, weights), taps, inputs, sums)
        _requantise(f, k, weights, sums, (*taps, *inputs, x))
        f("ldr", x, f.kept[2])
        for place in (1, 2, 3):
            f("strb", sums[place], f"[{x}, #{place}]")
        f("strb", sums[0], f"[{x}], #{CHANNELS}")
        f("str", x, f.kept[2])
        f("ldr", left, f.kept[3])
        f("subs", left, left, "#1")
        f("str", left, f.kept[3])
        f("bne", again)
    return f.done()


def _row_of_pairs(
    f: Function,
    offsets: Sequence[int],
    pointers: tuple[str, str],
    taps: Sequence[str],
    inputs: Sequence[str],
    sums: Sequence[str],
) -> None:
    """The taps at these offsets; the last one alone if it is left."""
    a, b, upper = inputs
    for first, second in zip(offsets[::2], offsets[1::2], strict=False):
        f("ldr", a, f"[{pointers[0]}, #{first}]")
        f("ldr", b, f"[{pointers[0]}, #{second}]")
        f("ldm", f"{pointers[1]}!", listed(taps))
        f("pkhtb", upper, b, a, "asr #16", note="channels 2 and 3 of both")
        f("pkhbt", a, a, b, "lsl #16", note="channels 0 and 1")
        for number, (made, word) in enumerate(((b, a), (a, a), (b, upper), (upper, upper))):
            f("sxtb16", made, word, *(("ror #8",) if number % 2 else ()))
            f("smlad", sums[number], made, taps[number], sums[number])
    if len(offsets) % 2:
        _row(f, offsets[-1:], pointers, taps[:2], (a, b), sums)


def _taps_one_by_one(k: WindowedView) -> Routine:
    f = Function(
        "pixel",
        "const int8_t *x",
        "const uint32_t *weights",
        "int8_t *y",
        "uint32_t groups",
        purpose="A pixel, so many groups of four channels.",
        keep=(0, 3),
    )
    x, weights, y, groups = f.arguments
    f.free(groups)
    taps = f.cores("weights, then requantisation", 2, LISTED)
    inputs = f.cores("inputs, then requantisation", 2, LISTED)
    sums = f.cores("sums", CHANNELS, LISTED)
    rest = f.cores("of loops, then requantisation", 2, LISTED)
    spare = f.core("of loops, then requantisation", ("lr",))
    with f.loop("four channels", "groups") as again:
        f("ldm", f"{weights}!", listed(sums))
        f("ldr", x, f.kept[0])
        f("add", spare, x, f"#{CHANNELS * k.size}")
        f("str", spare, f.kept[0])
        if k.packed:
            f("mov", spare, f"#{_MASK}")
        row, given = (_nibbles, (*taps, spare)) if k.packed else (_shorts, taps)
        if k.rows > 1:
            f.number(rest[1], k.row_step)
            with f.counted_loop("rows", rest[0], k.rows):
                row(f, k.taps, (x, weights), given, inputs, sums)
                f("add", x, x, rest[1])
        else:
            row(f, k.taps, (x, weights), given, inputs, sums)
        _requantise(f, k, weights, sums, (*taps, *inputs, *rest, spare, x))
        for place in (1, 2, 3):
            f(k.epilogue.store, sums[place], f"[{y}, #{place * k.size}]")
        f(k.epilogue.store, sums[0], f"[{y}], #{CHANNELS * k.size}")
        f("ldr", spare, f.kept[3])
        f("subs", spare, spare, "#1")
        f("str", spare, f.kept[3])
        f("bne", again)
    return f.done()


def _row(
    f: Function,
    offsets: Sequence[int],
    pointers: tuple[str, str],
    taps: Sequence[str],
    inputs: Sequence[str],
    sums: Sequence[str],
) -> None:
    """The taps at these offsets: four channels of inputs, each half times its own."""
    for offset in offsets:
        _load(f, pointers[0], offset, inputs)
        f("ldrd", *taps, f"[{pointers[1]}], #8")
        for first, (word, tap) in enumerate(zip(inputs, taps, strict=True)):
            _halves(f, (sums[first], sums[first + 2]), word, tap)


def _shorts(
    f: Function,
    offsets: Sequence[int],
    pointers: tuple[str, str],
    taps: Sequence[str],
    inputs: Sequence[str],
    sums: Sequence[str],
) -> None:
    """The same for inputs of int16."""
    for offset in offsets:
        for word, at in zip(inputs, (offset, offset + 4), strict=True):
            f("ldr", word, f"[{pointers[0]}, #{at}]")
        f("ldrd", *taps, f"[{pointers[1]}], #8")
        for first, word, tap in ((0, inputs[0], taps[0]), (2, inputs[1], taps[1])):
            _halves(f, (sums[first], sums[first + 1]), word, tap)


def _nibbles(
    f: Function,
    offsets: Sequence[int],
    pointers: tuple[str, str],
    taps: Sequence[str],
    inputs: Sequence[str],
    sums: Sequence[str],
) -> None:
    """The same for weights of four bits; the last of the registers for taps has the mask."""
    packed, tap, mask = taps
    for number, offset in enumerate(offsets):
        if number % 2 == 0:
            f("ldr", packed, f"[{pointers[1]}], #4")
        _load(f, pointers[0], offset, inputs)
        for first, word in enumerate(inputs):
            shift = 8 * (number % 2) + 4 * first
            f("and", tap, mask, packed, *([f"lsl #{shift}"] if shift else []))
            _halves(f, (sums[first], sums[first + 2]), word, tap)


def _load(f: Function, x: str, offset: int, inputs: Sequence[str]) -> None:
    """Four channels of int8 as two words."""
    even, odd = inputs
    f("ldr", odd, f"[{x}, #{offset}]")
    f("sxtb16", even, odd, note="channels 0 and 2")
    f("sxtb16", odd, odd, "ror #8", note="channels 1 and 3")


def _halves(f: Function, sums: tuple[str, str], inputs: str, taps: str) -> None:
    """Two inputs, each times a weight."""
    f("smlabb", sums[0], inputs, taps, sums[0])
    f("smlatt", sums[1], inputs, taps, sums[1])


def _requantise(
    f: Function, k: WindowedView, weights: str, sums: Sequence[str], words: Sequence[str]
) -> None:
    """``words`` are registers for constants, of which all but the last two ascend."""
    epilogue = k.epilogue
    if epilogue.floor:
        f("ldm", f"{weights}!", listed(words[:-2]))
        f("ldrd", *words[-2:], f"[{weights}], #8")
        for number, total in enumerate(sums):
            floor(f, epilogue, total, words[2 * number], words[2 * number + 1], epilogue.shifts[0])
        clamp(f, epilogue, sums, words)
        return
    multiplier, constant, shift, spare = words[:4]
    for total in sums:
        f("ldm", f"{weights}!", listed(words[: epilogue.constants]))
        right, gain = epilogue.shifts[0] if epilogue.shifts else shift, GAIN_BITS if k.packed else 0
        requantise(f, epilogue, (total,), (multiplier, constant), spare, right, gain)
    clamp(f, epilogue, sums, words)
