"""The weights of matrix products for the micro-kernel, and the unrolling of its loops."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import Rescale
from crtgen.compiler.kernels.dsp.epilogue import DspEpilogue, epilogue_lanes
from crtgen.compiler.kernels.dsp.form import HALFWORDS, NIBBLES, Form
from crtgen.compiler.kernels.dsp.packing import Packing
from crtgen.compiler.kernels.dsp.tile import Micro
from crtgen.compiler.kernels.engine.kernel import Const
from crtgen.compiler.kernels.engine.layout import records, stream
from crtgen.compiler.kernels.engine.words import Words
from crtgen.network.ops.fixedpoint import Int8, Int64

__all__ = ["Unrolling", "WeightStream", "micro", "weight_stream"]

_MAX_STRIDE = 2040  # bytes of a pixel: two pixels on must be within the 12 bits of a store's offset


@dataclass(frozen=True, slots=True, eq=False)
class WeightStream:
    """The packed weights of a layer.

    There are ``pairs`` pairs of channels, of ``pair_words`` words each; ``pack`` makes the words of some
    pairs. With an odd number of channels the last pair repeats a channel: ``even`` pairs advance by two
    channels, and a last one, if ``odd``, ends at the last channel. ``swapped``: see ``Micro``. ``alone``: the
    only pair is the same channel twice. ``end_words`` of a pair hold the requantisation.
    """

    pack: Callable[[slice], Words]
    pair_words: int
    epilogue: DspEpilogue
    pairs: int
    odd: bool
    form: Form
    swapped: bool = False
    alone: bool = False
    end_words: int = 0

    @property
    def const(self) -> Const:
        note = "per pair of channels: start, weights, requantisation"
        at = None if self.form is NIBBLES else (8, 4 * (self.pair_words - self.end_words))
        halves = self.form is HALFWORDS
        return stream(self.pairs, self.pair_words, self.pack, note, weights=at, halves=halves, pairs=True)

    @property
    def channels(self) -> int:
        return 1 if self.alone else 2 * self.pairs - self.odd

    @property
    def pixel_bytes(self) -> int:
        return self.channels * self.epilogue.bits // 8

    @property
    def even(self) -> int:
        return self.pairs - self.odd

    @property
    def even_words(self) -> int:
        return self.even * self.pair_words

    @property
    def odd_words(self) -> int:
        """Words of the last pair if it repeats a channel, otherwise 0."""
        return self.pair_words if self.odd else 0


@dataclass(frozen=True, slots=True)
class Unrolling:
    """Unrolling of steps: all if there are at most ``whole``, otherwise at most ``looped`` per iteration.

    For an incomplete group of pixels the limit is ``last``.
    """

    whole: int
    looped: int
    last: int = 8

    def padded(self, steps: int, each: int) -> int:
        """``steps`` rounded up so that they can be unrolled ``each`` at a time; the additional steps have
        zero weights.
        """
        groups, some = -(-steps // each), self._of_groups(each)
        if groups > some.whole:
            counts = {u: -(-groups // u) * u for u in range(2, some.looped + 1, 2)}
            groups = min(counts.values(), key=lambda count: 8 * count + 3 * count / some.of(count, 1))
        return each * groups

    def of(self, steps: int, each: int) -> int:
        """Return the number of steps to unroll, in multiples of ``each``: all, or the greatest divisor within
        the limit.
        """
        groups, some = steps // each, self._of_groups(each)
        if groups <= some.whole:
            return steps
        return each * max(u for u in range(1, some.looped + 1) if groups % u == 0)

    @property
    def of_the_last(self) -> "Unrolling":
        return Unrolling(self.last, self.last)

    def _of_groups(self, each: int) -> "Unrolling":
        return Unrolling(self.whole // each, self.looped // each)


def micro(pixels: int, steps: int, stream: WeightStream, unrolling: Unrolling) -> Micro:
    unroll = unrolling.of(steps, stream.form.steps_of_a_word)
    return Micro(pixels, steps, unroll, stream.channels, stream.epilogue, stream.form, stream.swapped)


def weight_stream(
    form: Form,
    weights: Int8,
    packing: Packing,
    steps: int,
    bias: Int64,
    rescale: Rescale,
    each: bool = False,
) -> WeightStream | None:
    """Return the stream of ``weights[O, inputs of a window]``; ``bias[O]`` includes everything that does not
    depend on the input.

    ``each``: see ``epilogue_lanes``. None for too many channels, for a single channel that would have to
    share sums or have its own shift, for sums or weights that the form cannot hold, and without an exact
    requantisation.
    """
    channels, size = len(weights), rescale.scheme.activations.itemsize
    if (channels < 2 and (form.gain or each)) or channels * (4 if rescale.is_sum else size) > _MAX_STRIDE:
        return None
    if not form.gain and (rescale.is_sum or not rescale.narrow):
        return None
    a, b = _pairs_of_channels(channels)
    swapped = not each and not form.holds(weights[a], weights[b])
    if swapped:
        a, b = b, a
    lanes = epilogue_lanes(rescale, tuple(zip(form.gains, (a, b), strict=True)), each)
    if lanes is None or not form.holds(weights[a], weights[b]):
        return None

    def pack(some: slice) -> Words:
        begin = form.starts(*(bias[n[some]] + by[some] for n, by in zip((a, b), lanes.offsets, strict=True)))
        taps = form.words(weights[a[some]], weights[b[some]], packing, steps)
        return records(begin, taps, *(part[some] for part in lanes.constants))

    end_words = sum(part.shape[1] for part in lanes.constants)
    words_each = 2 + steps // form.steps_of_a_word + end_words
    odd, alone = channels % 2 == 1 and channels > 1, channels == 1
    return WeightStream(pack, words_each, lanes.epilogue, len(a), odd, form, swapped, alone, end_words)


def _pairs_of_channels(channels: int) -> tuple[Int64, Int64]:
    # First and second channel of each pair; the last pair may repeat one, and one alone is both.
    a = np.arange(0, channels - 1, 2)
    if channels % 2:
        a = np.append(a, channels - 2)
    return a, a + 1
