"""The matrix micro-kernel for weights of four bits.

A word of weights serves two channels A and B and two steps. Its bytes are ``16 * a + b + 8``: as a signed
byte, less 8, that is ``16 * a + b``, and its low half, less 8, is b. SXTAB16 and UXTAB16 subtract as they
widen, bytes 0 and 2 for the first step, 1 and 3 for the second. The rest is as for weights of int8.
"""

from functools import lru_cache
from typing import ClassVar

import numpy as np

from crtgen.kernels.asm import LISTED, Function, Routine
from crtgen.kernels.dsp.epilogue import epilogue_lanes
from crtgen.kernels.dsp.matrix import MAX_STRIDE, Micro, WeightStream, Writer, pairs_of_channels, starts
from crtgen.kernels.dsp.packing import Packing, order_weights
from crtgen.kernels.requant import Rescale
from crtgen.kernels.words import Words
from crtgen.ops.fixedpoint import Int8, Int64

__all__ = ["group_of_pixels4", "weight_stream4"]

_GAIN = 16
_BIAS = 8  # of the second channel's weights


@lru_cache(maxsize=256)
def group_of_pixels4(m: Micro) -> Routine:
    """``group(weights, y, columns, end)``: the pairs of channels from ``weights`` to ``end``."""
    writer = _Writer(m)
    writer.write()
    return writer.f.done()


class _Writer(Writer):
    """The end of the columns is on the stack: its register has what is added to weights."""

    gain: ClassVar[int] = 4

    def __init__(self, m: Micro) -> None:
        self.m = m
        self.f = f = Function(
            "group4",
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
        self.y = ""
        self.bias = f.core("-8 twice", ("lr",))
        self.inputs = f.cores("inputs, then requantisation", 3, LISTED)
        self.taps = f.cores("weights, then requantisation", 2, LISTED)
        self.mix = f.cores("16 * a + b of each pixel", m.pixels)
        self.low = f.cores("b of each pixel", m.pixels)
        f("mvn", self.bias, f"#{(_BIAS - 1) * 0x10001}")

    def _compare(self) -> None:
        self.f("ldr", self.taps[0], "[sp]")
        self.f("cmp", self.columns, self.taps[0])

    def _steps(self) -> None:
        for number in range(self.m.unroll // 2):
            self.f("ldr", self.taps[0], f"[{self.weights}], #4")
            self._two(first=not self.m.looped and number == 0)

    def _two(self, first: bool) -> None:
        """Two steps with a word of weights."""
        f, (word, taps) = self.f, self.taps
        for rotated, low in (((), taps), (("ror #8",), word)):
            self._load()
            f("sxtab16", taps, self.bias, word, *rotated)
            self._products(self.mix, taps, first and not rotated)
            f("and", low, word, "#0x0f0f0f0f")
            f("uxtab16", low, self.bias, low, *rotated)
            self._products(self.low, low, first and not rotated)


def weight_stream4(
    weights: Int8, packing: Packing, steps: int, bias: Int64, rescale: Rescale, each: bool = False
) -> WeightStream | None:
    """The stream of ``weights[O, inputs of a window]``, an even number of steps.

    ``each`` is that of ``epilogue_lanes``.

    None if there is one channel only, or too many, or no exact requantisation.
    """
    channels = len(weights)
    if channels < 2 or channels > MAX_STRIDE:
        return None
    a, b = pairs_of_channels(channels)
    lanes = epilogue_lanes(rescale, ((_GAIN, a), (1, b)), each)
    if lanes is None:
        return None

    def pack(some: slice) -> Words:
        first, second = (order_weights(weights[n[some]].astype(np.int64), packing, steps) for n in (a, b))
        both = (_GAIN * first + second + _BIAS).reshape(len(first), -1, 2, 2)  # [pair, word, step, input]
        taps = both.transpose(0, 1, 3, 2).astype(np.int8, order="C").reshape(len(both), -1).view(np.uint32)
        begin = starts(_GAIN, (bias[a], bias[b]), lanes)
        return np.concatenate([begin[some], taps, *(part[some] for part in lanes.constants)], axis=1)

    words_each = 2 + steps // 2 + sum(part.shape[1] for part in lanes.constants)
    return WeightStream(pack, words_each, lanes.epilogue, len(a), channels % 2 == 1, packed=True)
