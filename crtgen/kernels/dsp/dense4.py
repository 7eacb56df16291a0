"""A row of inputs times weights of four bits of four outputs at a time, with the DSP extension.

A halfword of weights is ``4096 * d + 256 * (c + 8) + 16 * (b + 8) + a + 8``. SMLALD multiplies it as it is,
SMLAD what masks leave: its low byte, ``a + 8``, and ``256 * (c + 8)``. The sum of the inputs, known once for
all outputs, takes the eights out.
"""

from functools import lru_cache
from typing import ClassVar

import numpy as np

from crtgen.kernels.asm import LISTED, Routine
from crtgen.kernels.dsp.dense16 import Writer, listed
from crtgen.kernels.dsp.epilogue import Epilogue
from crtgen.kernels.requant import Rescale
from crtgen.kernels.words import Words, words
from crtgen.ops.fixedpoint import Int64

__all__ = ["groups_of_outputs4", "halfwords", "heads4", "sums_fit"]

_EIGHTS = "[sp, #4]"
_MOST = 1 << 23
_OFFSETS = 1 << 17  # offsets of requantisation are below
_WRITTEN_OUT = 8  # words of inputs that are added up in a round


@lru_cache(maxsize=256)
def groups_of_outputs4(steps: int, unroll: int, inputs: int, header: bool, epilogue: Epilogue) -> Routine:
    """``dense(weights, y, columns, end)``: groups of four outputs from ``weights`` to ``end``.

    Words of ``inputs`` are in the first of the columns. With a ``header``, what requantises lies before them.
    """
    writer = _Writer("dense4", "int8_t", (steps, unroll, header), epilogue)
    writer.add_inputs(inputs)
    writer.write()
    return writer.f.done()


class _Writer(Writer):
    """``mix`` is the sum of whole halfwords, ``low`` are those of low bytes, of a, and of c."""

    extra: ClassVar[bool] = True

    def _sums(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        mix = self.f.cores("sum of halfwords, 64 bits", 2, LISTED)
        return mix, self.f.cores("sums of low bytes, of a, of c", 3, LISTED)

    def add_inputs(self, count: int) -> None:
        """Eight times the sum of the inputs in so many words, on the stack."""
        f, (ones, total, left, _) = self.f, self.taps
        f("mov", ones, "#0x00010001")
        f("mov", total, "#0")
        if count >= _WRITTEN_OUT:
            with f.counted_loop("inputs", left, count // _WRITTEN_OUT):
                self._add(_WRITTEN_OUT, ones, total)
        self._add(count % _WRITTEN_OUT, ones, total)
        f("lsl", total, total, "#3")
        f("str", total, _EIGHTS, note="8 times the sum of the inputs")

    def _add(self, count: int, ones: str, total: str) -> None:
        f = self.f
        for _ in range(count // 2):
            f("ldrd", *self.pair, f"[{self.columns}], #8")
            for inputs in self.pair:
                f("smlad", total, inputs, ones, total)
        if count % 2:
            f("ldr", self.pair[0], f"[{self.columns}], #4")
            f("smlad", total, self.pair[0], ones, total)

    def _steps(self) -> None:
        f, (first, second, spare, _) = self.f, self.taps
        byte, a, c = self.low
        for _ in range(self.unroll // 2):
            f("ldrd", *self.pair, f"[{self.columns}], #8")
            f("ldm", f"{self.weights}!", listed((first, second)))
            for inputs, word in zip(self.pair, (first, second), strict=True):
                f("smlald", *self.mix, inputs, word)
                f("uxtb16", spare, word)
                f("smlad", byte, inputs, spare, byte)
                f("and", spare, word, "#0x000f000f")
                f("smlad", a, inputs, spare, a)
                f("and", word, word, "#0x0f000f00")
                f("smlad", c, inputs, word, c)

    def _apart(self) -> tuple[str, ...]:
        f, (d, upper), (b, a, c), eights = self.f, self.mix, self.low, self.taps[0]
        for part in (b, c):
            f("subs", d, d, part)
            f("sbc", upper, upper, part, "asr #31")
        f("lsr", d, d, "#12")
        f("orr", d, d, upper, "lsl #20")
        f("ldr", eights, _EIGHTS)
        f("sub", b, b, a, note="16 * (b + 8)")
        f("rsb", b, eights, b, "asr #4")
        f("rsb", c, eights, c, "asr #8")
        f("sub", a, a, eights)
        return a, b, c, d


def sums_fit(rescale: Rescale, depth: int) -> bool:
    """Whether 256 times a sum, with eights for all weights, has 32 bits."""
    extent = max(int(np.abs(rescale.low).max()), int(np.abs(rescale.high).max()))
    return extent + _OFFSETS + 8 * rescale.scheme.magnitude(0) * depth < _MOST


def halfwords(weights: Int64) -> Int64:
    """``[group, input]`` from the weights of four outputs each, ``[group, 4, input]``."""
    a, b, c, d = weights.transpose(1, 0, 2)
    made: Int64 = 4096 * d + 256 * (c + 8) + 16 * (b + 8) + a + 8
    return made


def heads4(start: Int64) -> Words:
    """``[group, 5]`` words from the starts of sums ``[group, 4]``: of halfwords in 64 bits, bytes, a, c."""
    a, b, c, d = start.T
    byte = 16 * b + a
    mix = 4096 * d + 256 * c + byte
    return np.stack([words(mix), words(mix >> 32), words(byte), words(a), words(256 * c)], axis=1)
