"""The matrix micro-kernel of convolutions: up to three pixels times two output channels.

Activations lie in scratch as ``[step][pixel]``, each word two int8 inputs widened to int16. A word of weights
serves two channels A and B: its halves are ``256 * a + b`` for two inputs. SMLAD with it accumulates
``mix = 256 * accA + accB``; SXTB16 leaves b, and SMLAD accumulates ``accB``. The weights take no more flash
than int8 would. One stream, read once per group of pixels, holds for each pair of channels: the start values
of mix and accB, the steps' words, the constants of requantisation.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from crtgen.kernels.dsp.finish import Finish, Lanes, finish_lanes
from crtgen.kernels.dsp.packing import Packing, order_weights
from crtgen.kernels.dsp.words import Words, words, words16
from crtgen.kernels.kernel import Const
from crtgen.kernels.requant import Rescale
from crtgen.ops.fixedpoint import Int64

__all__ = ["Lane", "Micro", "Stream", "Unrolling", "micro", "stream_of"]

_GAIN = 256
_MAX_STRIDE = 2040  # two pixels on must be within the 12 bits of STRB's offset


@dataclass(frozen=True, slots=True)
class Lane:
    """The registers of one pixel, and where its two outputs go relative to the first pixel's."""

    mix: str
    low: str
    act: str
    at_a: int
    at_b: int


@dataclass(frozen=True, slots=True)
class Micro:
    """The micro-kernel for ``pixels`` pixels; ``unroll`` steps are written out, all of them or a divisor."""

    pixels: int
    steps: int
    unroll: int
    stride: int
    finish: Finish

    @property
    def lanes(self) -> tuple[Lane, ...]:
        at = [p * self.stride for p in range(self.pixels)]
        return tuple(
            Lane(f"r{2 + p}", f"r{5 + p}", f"r{8 + p}", at[p], at[p] + 1) for p in range(self.pixels)
        )

    @property
    def last(self) -> Lane:
        return self.lanes[-1]

    @property
    def looped(self) -> bool:
        return self.unroll < self.steps

    @property
    def pairs(self) -> range:
        """The unrolled steps two by two."""
        return range(self.unroll // 2)

    @property
    def odd(self) -> bool:
        """Whether a single step follows the pairs."""
        return self.unroll % 2 == 1

    @property
    def activation_bytes(self) -> int:
        return 4 * self.steps * self.pixels

    def instructions(self, pairs: int) -> float:
        """One call: all pairs of channels for one group of pixels."""
        lanes, finish = self.pixels, self.finish
        step = 2 * lanes + 2
        rounds = self.steps // self.unroll
        steps = self.steps * step + rounds * (self.unroll // 2 + self.unroll % 2)
        loop: float = 2 * rounds + 2 * (lanes - 1) + 2 if self.looped else 0
        constants = 1 if finish.shifts else 2
        return pairs * (5 + steps + loop + constants + lanes * (2 * finish.instructions + 3)) + 8


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """The packed weights of a layer.

    ``pairs`` is how many pairs of channels there are, of ``pair_words`` words. With an odd number of channels
    the last pair repeats a channel: ``even`` pairs step by two channels, and one more, if ``odd``, ends at
    the last channel.
    """

    pack: Callable[[], Words]
    pair_words: int
    finish: Finish
    pairs: int
    odd: bool

    @property
    def const(self) -> Const:
        note = "per pair of channels: start, weights, requantisation"
        return Const("weights", "uint32", (self.pairs * self.pair_words,), self.pack, 4, note)

    @property
    def channels(self) -> int:
        return 2 * self.pairs - self.odd

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
    """How many steps are written out: all of up to ``whole``, else at most ``looped`` per round."""

    whole: int
    looped: int

    def padded(self, steps: int) -> int:
        """``steps``, or a few more that allow an unrolling; the added ones have no weight."""
        if steps <= self.whole:
            return steps
        counts = {u: -(-steps // u) * u for u in range(2, self.looped + 1, 2)}
        return min(counts.values(), key=lambda count: 8 * count + 3 * count / self.of(count))

    def of(self, steps: int) -> int:
        """The steps to write out: all, or the greatest divisor."""
        if steps <= self.whole:
            return steps
        return max(u for u in range(1, self.looped + 1) if steps % u == 0)


def micro(pixels: int, steps: int, stride: int, finish: Finish, unrolling: Unrolling) -> Micro:
    """The micro-kernel; ``steps`` are padded for the unrolling."""
    return Micro(pixels, steps, unrolling.of(steps), stride, finish)


def stream_of(
    weights: Int64, packing: Packing, steps: int, bias: Int64, rescale: Rescale, each: bool = False
) -> Stream | None:
    """The stream of ``weights[O, inputs of a window]``; ``bias[O]`` is all that does not depend on the input.

    ``each`` is that of ``finish_lanes``.

    None if there is one channel only, or too many, or a weight of -128 in the wrong place, or no exact
    requantisation.
    """
    channels = len(weights)
    if channels < 2 or channels > _MAX_STRIDE:
        return None
    a = np.arange(0, channels - 1, 2)
    if channels % 2:
        a = np.append(a, channels - 2)
    b = a + 1
    mixed = _GAIN * weights[a] + weights[b]
    lanes = finish_lanes(rescale, ((_GAIN, a), (1, b)), each)
    if lanes is None or mixed.min() < -(1 << 15):
        return None

    def pack() -> Words:
        halves = order_weights(mixed, packing, steps)
        taps = words16(halves[..., 0], halves[..., 1])
        return np.concatenate([*_start(bias[a], bias[b], lanes), taps, *lanes.constants], axis=1).reshape(-1)

    words_each = 2 + steps + sum(part.shape[1] for part in lanes.constants)
    return Stream(pack, words_each, lanes.finish, len(a), channels % 2 == 1)


def _start(bias_a: Int64, bias_b: Int64, lanes: Lanes) -> tuple[Words, ...]:
    start_a, start_b = bias_a + lanes.offsets[0], bias_b + lanes.offsets[1]
    return words(_GAIN * start_a + start_b)[:, None], words(start_b)[:, None]
