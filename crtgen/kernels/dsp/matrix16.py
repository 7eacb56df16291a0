"""The matrix micro-kernel for int16: up to three pixels times two output channels.

It also serves int8 where 24 bits do not hold a sum, where weights of -128 do not go together, and a channel
that is alone: of that only A is computed. Activations lie in scratch as ``[step][pixel]``, each word two
inputs of 16 bits. A word of weights serves two channels A and B and two inputs: its bytes are a0, b0, a1, b1,
of which SXTB16 leaves the a's, and rotated the b's. The sums have 32 bits, which is proven to be enough for
each layer.
"""

from functools import lru_cache

import numpy as np

from crtgen.kernels.asm import LISTED, Function, Routine
from crtgen.kernels.dsp.epilogue import clamp, epilogue_lanes, floor, of_sums
from crtgen.kernels.dsp.matrix import MAX_STRIDE, Micro, WeightStream, pairs_of_channels
from crtgen.kernels.dsp.packing import Packing, order_weights
from crtgen.kernels.requant import Rescale
from crtgen.kernels.words import Words, words
from crtgen.ops.fixedpoint import Int8, Int64

__all__ = ["group_of_pixels16", "weight_stream16"]


@lru_cache(maxsize=256)
def group_of_pixels16(m: Micro) -> Routine:
    """``group(weights, y, columns, end)``: the pairs of channels from ``weights`` to ``end``."""
    writer = _Writer(m)
    writer.write()
    return writer.f.done()


class _Writer:
    """Writes the micro-kernel: its registers, and what is done with them."""

    def __init__(self, m: Micro) -> None:
        self.m = m
        self.f = f = Function(
            "group16" if m.epilogue.bits > 8 else "group_apart",
            "const uint32_t *weights",
            "int8_t *y",
            "const uint32_t *columns",
            "const uint32_t *end",
            purpose=f"{m.pixels} packed pixels times the pairs of channels from `weights` to `end`.",
            keep=(1, 2, 3),
            local=1 if m.looped else 0,
        )
        self.weights, y, self.columns, end = f.arguments
        if m.looped:
            f.number(end, m.activation_bytes)
            f("add", end, end, self.columns)
            f("str", end, "[sp]", note="where the columns end")
        f.free(y, end)
        self.inputs = f.cores("inputs, then requantisation", 3, LISTED)
        self.taps = f.cores("weights of two steps, then requantisation", 3, LISTED)
        self.first = f.cores("sums of channel a", m.pixels)
        self.second = f.cores("sums of channel b", m.pixels) if m.stride > 1 else ()

    def write(self) -> None:
        f, m = self.f, self.m
        with f.loop("pairs of channels", "pairs") as again:
            f("ldr", self.columns, f.kept[2])
            last = self.second[-1] if self.second else self.taps[2]
            f("ldrd", self.first[-1], last, f"[{self.weights}], #8")
            if m.looped:
                for sums in filter(None, (self.first, self.second)):
                    for total in sums[:-1]:
                        f("mov", total, sums[-1])
                with f.loop("steps", m.steps // m.unroll) as next_steps:
                    self._steps()
                    f("ldr", self.taps[0], "[sp]")
                    f("cmp", self.columns, self.taps[0])
                    f("bne", next_steps)
            else:
                self._steps()
            self._requantise()
            clamp(f, m.epilogue, (*self.first, *self.second), self.taps)
            self._store()
            f("ldr", self.inputs[0], f.kept[3])
            f("cmp", self.weights, self.inputs[0])
            f("bne", again)

    def _steps(self) -> None:
        f, m = self.f, self.m
        fresh = not m.looped
        for pair in range(m.unroll // 2):
            f("ldrd", *self.taps[:2], f"[{self.weights}], #8")
            self._step(self.taps[0], fresh and not pair)
            self._step(self.taps[1], False)
        if m.unroll % 2:
            f("ldr", self.taps[0], f"[{self.weights}], #4")
            self._step(self.taps[0], fresh and m.unroll == 1)

    def _step(self, word: str, first: bool) -> None:
        """Two inputs of each pixel times two weights of each channel."""
        f, inputs, a = self.f, self.inputs[: self.m.pixels], self.taps[2]
        if len(inputs) > 1:
            f("ldm", f"{self.columns}!", f"{{{', '.join(inputs)}}}")
        else:
            f("ldr", inputs[0], f"[{self.columns}], #4")
        f("sxtb16", a, word)
        if self.second:
            f("sxtb16", word, word, "ror #8")
        for sums, weights in ((self.first, a), (self.second, word)):
            for total, pixel in zip(sums, inputs, strict=False):
                f("smlad", total, pixel, weights, sums[-1] if first else total)

    def _requantise(self) -> None:
        f, epilogue = self.f, self.m.epilogue
        if epilogue.floor:
            constants = (*self.inputs, self.taps[0])
            f("ldm", f"{self.weights}!", f"{{{', '.join(constants)}}}")
            for channel, sums in enumerate((self.first, self.second)):
                multiplier, constant = constants[2 * channel : 2 * channel + 2]
                for total in sums:
                    floor(f, epilogue, total, multiplier, constant, epilogue.shifts[channel])
            return
        multiplier, constant, shift = self.inputs
        for channel, sums in enumerate((self.first, self.second)):
            f("ldm", f"{self.weights}!", f"{{{', '.join(self.inputs[: epilogue.constants])}}}")
            right = epilogue.shifts[channel] if epilogue.shifts else shift
            of_sums(f, epilogue, sums, (multiplier, constant), self.taps[0], right)

    def _store(self) -> None:
        """The second channel first: the last store moves the pointer on to the next pair of channels."""
        f, m, y = self.f, self.m, self.taps[0]
        store, size = m.epilogue.store, m.epilogue.bits // 8
        f("ldr", y, f.kept[1])
        if not self.second:
            for number, total in enumerate(self.first):
                f(store, total, f"[{y}, #{number * size}]")
            return
        f(store, self.second[0], f"[{y}, #{size}]")
        for number, (first, second) in enumerate(zip(self.first[1:], self.second[1:], strict=True), 1):
            f(store, first, f"[{y}, #{number * m.stride * size}]")
            f(store, second, f"[{y}, #{(number * m.stride + 1) * size}]")
        f(store, self.first[0], f"[{y}], #{2 * size}")
        f("str", y, f.kept[1])


def weight_stream16(
    weights: Int8, packing: Packing, steps: int, bias: Int64, rescale: Rescale, each: bool = False
) -> WeightStream | None:
    """The stream of ``weights[O, inputs of a window]``; ``each`` is that of ``epilogue_lanes``.

    None for too many channels, or one that is to have its own shift; if sums need more than 32 bits or are
    the outputs, or if there is no exact requantisation.
    """
    channels, size = len(weights), rescale.scheme.activations.itemsize
    if (each and channels < 2) or channels * size > MAX_STRIDE or not rescale.narrow or rescale.is_sum:
        return None
    a, b = pairs_of_channels(channels)
    lanes = epilogue_lanes(rescale, ((1, a), (1, b)), each)
    if lanes is None:
        return None

    def pack(some: slice) -> Words:
        start = [words(bias[n] + by)[some] for n, by in zip((a, b), lanes.offsets, strict=True)]
        first, second = (order_weights(weights[n[some]], packing, steps) for n in (a, b))
        taps = np.stack([first, second], axis=3).reshape(len(first), -1)  # [pair, step, input, channel]
        return np.concatenate(
            [np.stack(start, axis=1), taps.view(np.uint32), *(p[some] for p in lanes.constants)], axis=1
        )

    words_each = 2 + steps + sum(part.shape[1] for part in lanes.constants)
    odd, alone = channels % 2 == 1 and channels > 1, channels == 1
    return WeightStream(pack, words_each, lanes.epilogue, len(a), odd, apart=True, alone=alone)
