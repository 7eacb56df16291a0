"""A row of inputs times the weights of four outputs at a time, with the DSP extension and sums of 64 bits.

It serves inputs of int16, and those of int8 where 24 bits do not hold a sum. A halfword of weights is
``256 * a + b``. SMLALD accumulates ``256 * accA + accB`` in 64 bits, SXTB16 leaves b, and SMLAD accumulates
accB in 32 bits, which is proven to be enough for each layer.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

import numpy as np

from crtgen.kernels.asm import LISTED, Function, Routine
from crtgen.kernels.dsp.epilogue import Epilogue, clamp, floor, of_sums
from crtgen.kernels.words import Words, words
from crtgen.ops.fixedpoint import Int64

__all__ = ["Writer", "groups_of_outputs16", "heads16", "listed"]

_GAIN = 256


@lru_cache(maxsize=256)
def groups_of_outputs16(steps: int, unroll: int, header: bool, epilogue: Epilogue) -> Routine:
    """``dense(weights, y, columns, end)``: groups of four outputs from ``weights`` to ``end``.

    With a ``header``, what requantises lies before the columns.
    """
    name, y_type = ("dense16", "int16_t") if epilogue.bits > 8 else ("dense_wide", "int8_t")
    writer = Writer(name, y_type, (steps, unroll, header), epilogue)
    writer.write()
    return writer.f.done()


class Writer:
    """Writes the groups of outputs: registers, and what is done with them.

    ``columns`` are the steps of inputs, those that are written out, and whether there is a header.
    """

    extra: ClassVar[bool] = False
    """Whether there is a word at ``[sp, #4]``."""

    def __init__(self, name: str, y_type: str, columns: tuple[int, int, bool], epilogue: Epilogue) -> None:
        self.steps, self.unroll, self.header = columns
        self.rounds, self.epilogue = self.steps // self.unroll, epilogue
        self.f = f = Function(
            name,
            "const uint32_t *weights",
            f"{y_type} *y",
            "const uint32_t *columns",
            "const uint32_t *end",
            purpose="Groups of four outputs from `weights` to `end`.",
            keep=(1, 2, 3),
            local=2 if self.extra else int(self.rounds > 1),
        )
        self.weights, y, self.columns, end = f.arguments
        if self.rounds > 1:
            f.number(y, 4 * self.steps)
            f("add", y, y, self.columns)
            f("str", y, "[sp]", note="where the columns end")
        f.free(y, end)
        self.taps = f.cores("weights, then requantisation", 4, LISTED)
        self.pair = f.cores("inputs of two steps, then requantisation", 2, LISTED)
        self.mix, self.low = self._sums()

    def _sums(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Registers of the sums that have 64 bits, and of those that have 32."""
        mix = self.f.cores("256 * a + b of two pairs, 64 bits each", 4, LISTED)
        return mix, self.f.cores("b of two pairs", 2, (*LISTED, "lr"))

    def write(self) -> None:
        f = self.f
        with f.loop("four outputs", "groups") as again:
            f("ldr", self.columns, f.kept[2])
            f("ldm", f"{self.weights}!", listed((*self.mix, *self.low)))
            if self.rounds > 1:
                with f.loop("steps", self.rounds) as next_steps:
                    self._steps()
                    f("ldr", self.taps[0], "[sp]")
                    f("cmp", self.columns, self.taps[0])
                    f("bne", next_steps)
            else:
                self._steps()
            self._requantise(self._apart())
            f("ldr", self.taps[0], f.kept[3])
            f("cmp", self.weights, self.taps[0])
            f("bne", again)

    def _steps(self) -> None:
        f = self.f
        for _ in range(self.unroll // 2):
            f("ldrd", *self.pair, f"[{self.columns}], #8")
            f("ldm", f"{self.weights}!", listed(self.taps))
            for inputs, weights in zip(self.pair, (self.taps[:2], self.taps[2:]), strict=True):
                for number, word in enumerate(weights):
                    f("smlald", *self.mix[2 * number : 2 * number + 2], inputs, word)
                for word in weights:
                    f("sxtb16", word, word)
                for total, word in zip(self.low, weights, strict=True):
                    f("smlad", total, inputs, word, total)

    def _apart(self) -> tuple[str, ...]:
        """The sums of the four outputs."""
        f, sums = self.f, []
        for number, low in enumerate(self.low):
            lower, upper = self.mix[2 * number : 2 * number + 2]
            f("subs", lower, lower, low, note="256 * a")
            f("sbc", upper, upper, low, "asr #31")
            f("lsr", lower, lower, "#8")
            f("orr", lower, lower, upper, "lsl #24")
            sums += [lower, low]
        return tuple(sums)

    def _requantise(self, sums: Sequence[str]) -> None:
        f, epilogue = self.f, self.epilogue
        multiplier, constant, shift, spare = self.taps
        (y, *_) = (register for register in (*self.mix, *self.low) if register not in sums)
        f("ldr", y, f.kept[1])
        if self.header:
            f("ldr", self.columns, f.kept[2])
            f("ldmdb", self.columns, listed((multiplier, constant)))
        for number, total in enumerate(sums):
            if not self.header:
                f("ldm", f"{self.weights}!", listed(self.taps[: epilogue.constants]))
            if epilogue.floor:
                floor(f, epilogue, total, multiplier, constant, epilogue.shifts[number])
            else:
                right = epilogue.shifts[number] if epilogue.shifts else shift
                of_sums(f, epilogue, (total,), (multiplier, constant), spare, right)
        clamp(f, epilogue, sums, self.pair)
        size = epilogue.bits // 8
        for place, total in enumerate(sums[1:], 1):
            f(epilogue.store, total, f"[{y}, #{size * place}]")
        f(epilogue.store, sums[0], f"[{y}], #{4 * size}")
        f("str", y, f.kept[1])


def listed(registers: Sequence[str]) -> str:
    """A list of LDM."""
    return f"{{{', '.join(registers)}}}"


def heads16(start: Int64) -> Words:
    """``[group, 6]`` words from the starts of sums ``[group, 4]``: twice 256 * a + b in 64 bits, the b's."""
    mix = _GAIN * start[:, ::2] + start[:, 1::2]
    both = np.stack([words(mix), words(mix >> 32)], axis=2).reshape(len(start), 4)
    return np.concatenate([both, words(start[:, 1::2])], axis=1)
