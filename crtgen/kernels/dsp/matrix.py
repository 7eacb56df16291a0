"""The matrix micro-kernel of convolutions: up to three pixels times two output channels.

Activations lie in scratch as ``[step][pixel]``, each word two int8 inputs widened to int16. A word of weights
serves two channels A and B: its halves are ``256 * a + b`` for two inputs. SMLAD with it accumulates
``mix = 256 * accA + accB``; SXTB16 leaves b, and SMLAD accumulates ``accB``. The weights take no more flash
than int8 would. One stream, read once per group of pixels, holds for each pair of channels: the start values
of mix and accB, the steps' words, the constants of requantisation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from crtgen.kernels.asm import LISTED, Function, Routine
from crtgen.kernels.dsp.epilogue import Epilogue, Lanes, clamp, epilogue_lanes, floor, of_sums
from crtgen.kernels.dsp.packing import Packing, order_weights
from crtgen.kernels.dsp.words import words16
from crtgen.kernels.kernel import Const
from crtgen.kernels.requant import Rescale
from crtgen.kernels.words import Words, packed_rows, words
from crtgen.ops.fixedpoint import Int8, Int64

__all__ = [
    "MAX_STRIDE",
    "Micro",
    "Unrolling",
    "WeightStream",
    "Writer",
    "fits",
    "group_of_pixels",
    "micro",
    "pairs_of_channels",
    "starts",
    "weight_stream",
]

_GAIN = 256
MAX_STRIDE = 2040  # bytes of a pixel: two pixels on must be within the 12 bits of a store's offset


@dataclass(frozen=True, slots=True)
class Micro:
    """The micro-kernel for ``pixels`` pixels; ``unroll`` steps are written out, all of them or a divisor.

    ``packed``: weights have four bits. ``apart``: no register holds sums of two channels. ``swapped``: the
    second channel of a pair is a.
    """

    pixels: int
    steps: int
    unroll: int
    stride: int
    epilogue: Epilogue
    packed: bool
    apart: bool = False
    swapped: bool = False

    @property
    def looped(self) -> bool:
        return self.unroll < self.steps

    @property
    def activation_bytes(self) -> int:
        return 4 * self.steps * self.pixels


@lru_cache(maxsize=256)
def group_of_pixels(m: Micro) -> Routine:
    """``group(weights, y, columns, end)``: the pairs of channels from ``weights`` to ``end``."""
    writer = Writer(m)
    writer.write()
    return writer.f.done()


class Writer:
    """Writes the micro-kernel: its registers, and what is done with them."""

    gain: ClassVar[int] = 8
    """Bits of the gain of the first channel."""

    def __init__(self, m: Micro) -> None:
        self.m = m
        self.f = f = Function(
            "group",
            "const uint32_t *weights",
            "int8_t *y",
            "const uint32_t *columns",
            "const uint32_t *end",
            purpose=f"{m.pixels} packed pixels times the pairs of channels from `weights` to `end`.",
            keep=(1, 2, 3) if m.looped else (2, 3),
        )
        self.weights, y, columns, end = f.arguments
        f.free(end)
        self.y = self.columns_end = ""
        if m.looped:
            self.columns_end = f.core("where the columns end", ("lr",))
            f.number(self.columns_end, m.activation_bytes)
            f("add", self.columns_end, self.columns_end, columns)
            f.free(y)
        else:
            self.y = y
        self.columns = columns
        self.inputs = f.cores("inputs, then requantisation", 3, LISTED)
        self.taps = f.cores("weights of two steps, then requantisation", 2, LISTED)
        self.mix = f.cores("256 * a + b of each pixel", m.pixels)
        self.low = f.cores("b of each pixel", m.pixels)

    def write(self) -> None:
        f, m = self.f, self.m
        with f.loop("pairs of channels", "pairs") as again:
            f("ldr", self.columns, f.kept[2])
            f("ldrd", self.mix[-1], self.low[-1], f"[{self.weights}], #8")
            if m.looped:
                for mix, low in zip(self.mix[:-1], self.low[:-1], strict=True):
                    f("mov", mix, self.mix[-1])
                    f("mov", low, self.low[-1])
                with f.loop("steps", m.steps // m.unroll) as next_steps:
                    self._steps()
                    self._compare()
                    f("bne", next_steps)
            else:
                self._steps()
            self._requantise()
            clamp(f, m.epilogue, (*self.mix, *self.low))
            self._store()
            f("ldr", self.inputs[0], f.kept[3])
            f("cmp", self.weights, self.inputs[0])
            f("bne", again)

    def _compare(self) -> None:
        """Whether the columns end."""
        self.f("cmp", self.columns, self.columns_end)

    def _steps(self) -> None:
        f, m = self.f, self.m
        fresh = not m.looped
        for pair in range(m.unroll // 2):
            f("ldrd", *self.taps, f"[{self.weights}], #8")
            self._step(self.taps[0], fresh and not pair)
            self._step(self.taps[1], False)
        if m.unroll % 2:
            f("ldr", self.taps[0], f"[{self.weights}], #4")
            self._step(self.taps[0], fresh and m.unroll == 1)

    def _step(self, weights: str, first: bool) -> None:
        """Two inputs of each pixel times a word of weights; the first step begins with the start values."""
        self._load()
        self._products(self.mix, weights, first)
        self.f("sxtb16", weights, weights)
        self._products(self.low, weights, first)

    def _load(self) -> None:
        """Two inputs of each pixel."""
        inputs = self.inputs[: self.m.pixels]
        if len(inputs) > 1:
            self.f("ldm", f"{self.columns}!", f"{{{', '.join(inputs)}}}")
        else:
            self.f("ldr", inputs[0], f"[{self.columns}], #4")

    def _products(self, sums: Sequence[str], weights: str, first: bool) -> None:
        """Two inputs of each pixel times two weights."""
        for total, pair in zip(sums, self.inputs, strict=False):
            self.f("smlad", total, pair, weights, sums[-1] if first else total)

    def _requantise(self) -> None:
        """A sum less the other one is 256 times that of the first channel."""
        f, epilogue = self.f, self.m.epilogue
        lanes = list(zip(self.mix, self.low, strict=True))
        if epilogue.floor:
            constants = (*self.inputs, self.taps[0])
            f("ldm", f"{self.weights}!", f"{{{', '.join(constants)}}}")
            for mix, low in lanes:
                f("sub", mix, mix, low)
                floor(f, epilogue, mix, constants[0], constants[1], epilogue.shifts[0])
                floor(f, epilogue, low, constants[2], constants[3], epilogue.shifts[1])
            return
        for mix, low in lanes:
            f("sub", mix, mix, low)
        if epilogue.form == "sum":
            for mix in self.mix:
                f("asr", mix, mix, f"#{self.gain}")
            return
        self._finish(self.mix, 0, self.gain)
        self._finish(self.low, 1, 0)

    def _finish(self, sums: Sequence[str], channel: int, gain: int) -> None:
        """The outputs of a channel, in one of the longer forms."""
        epilogue, (multiplier, constant, shift) = self.m.epilogue, self.inputs
        self.f("ldm", f"{self.weights}!", f"{{{', '.join(self.inputs[: epilogue.constants])}}}")
        right = epilogue.shifts[channel] if epilogue.shifts else shift
        of_sums(self.f, epilogue, sums, (multiplier, constant), self.taps[1], right, gain)

    def _store(self) -> None:
        """The second channel first: the last store moves the pointer on to the next pair of channels."""
        f, m = self.f, self.m
        store, size = m.epilogue.store, m.epilogue.bits // 8
        y = self.y or self.taps[1]
        if not self.y:
            f("ldr", y, f.kept[1])
        here, there = (self.low, self.mix) if m.swapped else (self.mix, self.low)
        f(store, there[0], f"[{y}, #{size}]")
        for number, (first, second) in enumerate(zip(here[1:], there[1:], strict=True), 1):
            f(store, first, f"[{y}, #{number * m.stride * size}]")
            f(store, second, f"[{y}, #{(number * m.stride + 1) * size}]")
        f(store, here[0], f"[{y}], #{2 * size}")
        if not self.y:
            f("str", y, f.kept[1])


@dataclass(frozen=True, slots=True, eq=False)
class WeightStream:
    """The packed weights of a layer.

    ``pairs`` is how many pairs of channels there are, of ``pair_words`` words: ``pack`` makes those of some
    pairs. With an odd number of channels the last pair repeats a channel: ``even`` pairs step by two
    channels, and one more, if ``odd``, ends at the last channel. ``packed``: weights have four bits.
    ``apart`` and ``swapped``: as those of ``Micro``. ``alone``: the only pair is twice the same channel.
    """

    pack: Callable[[slice], Words]
    pair_words: int
    epilogue: Epilogue
    pairs: int
    odd: bool
    packed: bool = False
    apart: bool = False
    swapped: bool = False
    alone: bool = False

    @property
    def const(self) -> Const:
        def pack() -> Words:
            return packed_rows(self.pairs, self.pair_words, self.pack)

        note = "per pair of channels: start, weights, requantisation"
        return Const("weights", "uint32", (self.pairs * self.pair_words,), pack, 4, note)

    @property
    def channels(self) -> int:
        return 1 if self.alone else 2 * self.pairs - self.odd

    @property
    def pixel_bytes(self) -> int:
        """Of an output pixel."""
        return self.channels * self.epilogue.bits // 8

    @property
    def even(self) -> int:
        return self.pairs - self.odd

    @property
    def even_words(self) -> int:
        return self.even * self.pair_words

    @property
    def odd_words(self) -> int:
        """Words of the last pair if it repeats a channel, else 0."""
        return self.pair_words if self.odd else 0


@dataclass(frozen=True, slots=True)
class Unrolling:
    """How many steps are written out: all of up to ``whole``, else at most ``looped`` per round.

    For less than a group of pixels it is up to ``last``.
    """

    whole: int
    looped: int
    last: int = 8

    def padded(self, steps: int) -> int:
        """``steps``, or a few more that allow an unrolling; the added ones have no weight."""
        if steps <= self.whole:
            return steps
        counts = {u: -(-steps // u) * u for u in range(2, self.looped + 1, 2)}
        return min(counts.values(), key=lambda count: 8 * count + 3 * count / self.of(count))

    def padded_pairs(self, steps: int) -> int:
        """The same for steps that are taken two by two."""
        return 2 * self.halved.padded(-(-steps // 2))

    @property
    def of_the_last(self) -> "Unrolling":
        """What is done with the last pixels of an image."""
        return Unrolling(self.last, self.last)

    @property
    def halved(self) -> "Unrolling":
        """What is done with pairs of steps."""
        return Unrolling(self.whole // 2, self.looped // 2)

    def of(self, steps: int) -> int:
        """The steps to write out: all, or the greatest divisor."""
        if steps <= self.whole:
            return steps
        return max(u for u in range(1, self.looped + 1) if steps % u == 0)


def micro(pixels: int, steps: int, stream: WeightStream, unrolling: Unrolling) -> Micro:
    """The micro-kernel; ``steps`` are padded for the unrolling."""
    unroll = 2 * unrolling.halved.of(steps // 2) if stream.packed else unrolling.of(steps)
    form = stream.epilogue, stream.packed, stream.apart, stream.swapped
    return Micro(pixels, steps, unroll, stream.channels, *form)


def weight_stream(
    weights: Int8, packing: Packing, steps: int, bias: Int64, rescale: Rescale, each: bool = False
) -> WeightStream | None:
    """The stream of ``weights[O, inputs of a window]``; ``bias[O]`` is all that does not depend on the input.

    ``each`` is that of ``epilogue_lanes``.

    None if there is one channel only, or too many, or weights of -128 in wrong places, or no exact
    requantisation.
    """
    channels = len(weights)
    if channels < 2 or channels * (4 if rescale.is_sum else 1) > MAX_STRIDE:
        return None
    a, b = pairs_of_channels(channels)
    swapped = not each and not fits(weights[a], weights[b])
    if swapped:
        a, b = b, a
    lanes = epilogue_lanes(rescale, ((_GAIN, a), (1, b)), each)
    if lanes is None or not fits(weights[a], weights[b]):
        return None

    def pack(some: slice) -> Words:
        mixed: Int64 = _GAIN * weights[a[some]].astype(np.int64) + weights[b[some]]
        halves = order_weights(mixed, packing, steps)
        taps = words16(halves[..., 0], halves[..., 1])
        begin = starts(_GAIN, (bias[a], bias[b]), lanes)
        return np.concatenate([begin[some], taps, *(part[some] for part in lanes.constants)], axis=1)

    words_each = 2 + steps + sum(part.shape[1] for part in lanes.constants)
    return WeightStream(pack, words_each, lanes.epilogue, len(a), channels % 2 == 1, swapped=swapped)


def fits(a: Int8, b: Int8) -> bool:
    """Whether halfwords hold ``256 * a + b``: not where a weight is -128 and that beside it is negative."""
    return not ((a == -128) & (b < 0)).any()


def pairs_of_channels(channels: int) -> tuple[Int64, Int64]:
    """First and second channel of each pair; the last pair may repeat one."""
    a = np.arange(0, channels - 1, 2)
    if channels % 2:
        a = np.append(a, channels - 2)
    return a, a + 1


def starts(gain: int, biases: tuple[Int64, Int64], lanes: Lanes) -> Words:
    """``[pair, 2]``: the start values of both sums, the first one with its gain."""
    a, b = (bias + offset for bias, offset in zip(biases, lanes.offsets, strict=True))
    return np.stack([words(gain * a + b), words(b)], axis=1)
