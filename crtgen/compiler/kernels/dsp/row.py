"""A row of inputs times the weights of four outputs at a time, with the DSP extension.

A word holds weights of two inputs; a ``RowForm`` defines how four outputs share words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.compiler.kernels.asm import LISTED, Function, Writer, listed
from crtgen.compiler.kernels.dsp.epilogue import DspEpilogue, clamp, floor, requantise, saturate
from crtgen.compiler.kernels.engine.words import Words, words
from crtgen.network.ops.fixedpoint import Int64

__all__ = ["ROW_HALFWORDS", "ROW_NIBBLES", "ROW_WIDE", "Outputs", "PackedRow", "RowForm"]


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Four outputs at a time, from ``steps`` words of weights and ``inputs`` words of packed inputs.

    ``unroll`` steps are unrolled. If all outputs share one requantisation, ``header`` words before the
    columns hold the constants. ``swapped``: of two adjacent outputs the second one has the gain.
    """

    steps: int
    unroll: int
    inputs: int
    header: int
    epilogue: DspEpilogue
    form: "RowForm"
    swapped: bool

    @property
    def looped(self) -> bool:
        return self.unroll < self.steps


class RowForm:
    """Storage of the weights of four outputs that share words.

    ``gains`` are those of their separated sums. A group begins with ``head_words`` words and has ``parts``
    words of weights per step. ``spills``: no register is left for the output and for the end of the columns.
    """

    gains: ClassVar[tuple[int, int, int, int]] = (1, 1, 1, 1)
    parts: ClassVar[int] = 2
    head_words: ClassVar[int]
    spills: ClassVar[bool] = True

    def name(self, bits: int) -> str:
        raise NotImplementedError

    def sums(self, f: Function) -> tuple[tuple[str, ...], tuple[str, ...]]:
        raise NotImplementedError

    def begin(self, t: "Outputs") -> None: ...

    def step(self, t: "Outputs") -> None:
        """Append the products of two words of inputs with their weights."""
        f = t.f
        f("ldrd", *t.pair, f"[{t.columns}], #8")
        f("ldm", f"{t.weights}!", listed(t.taps))
        for inputs, weights in zip(t.pair, (t.taps[:2], t.taps[2:]), strict=True):
            for number, word in enumerate(weights):
                self.mixed(t, number, inputs, word)
            for word in weights:
                f("sxtb16", word, word)
            for total, word in zip(t.low, weights, strict=True):
                f("smlad", total, inputs, word, total)

    def mixed(self, t: "Outputs", number: int, inputs: str, word: str) -> None:
        raise NotImplementedError

    def apart(self, t: "Outputs") -> tuple[str, ...]:
        raise NotImplementedError

    def heads(self, start: Int64) -> Words:
        """Return ``[group, head_words]`` from the initial values of sums ``[group, 4]``."""
        raise NotImplementedError

    def halfwords(self, weights: Int64) -> Int64:
        """Return ``[group, parts, input]`` from weights ``[group, 4, input]``."""
        return 256 * weights[:, 0::2] + weights[:, 1::2]


class _RowHalfwords(RowForm):
    """Form of 8-bit weights: halfwords of ``256 * a + b``; SXTB16 extracts b. All sums have 32 bits."""

    gains = (256, 1, 256, 1)
    head_words = 4
    spills = False

    def name(self, bits: int) -> str:
        return "dense"

    def sums(self, f: Function) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return f.cores("256 * a + b of two pairs", 2, LISTED), f.cores("b of two pairs", 2, LISTED)

    def mixed(self, t: "Outputs", number: int, inputs: str, word: str) -> None:
        t.f("smlad", t.mix[number], inputs, word, t.mix[number])

    def apart(self, t: "Outputs") -> tuple[str, ...]:
        for mix, low in zip(t.mix, t.low, strict=True):
            t.f("sub", mix, mix, low, note="256 * a")
        return t.mix[0], t.low[0], t.mix[1], t.low[1]

    def heads(self, start: Int64) -> Words:
        a, b, c, d = start.T
        return words(np.stack([256 * a + b, 256 * c + d, b, d], axis=1))


class _RowWide(RowForm):
    # With SMLALD, which accumulates ``256 * a + b`` in 64 bits: for int16 inputs, and for int8 if 24 bits do
    # not hold a sum. 32 bits hold b, which is checked for each layer.
    head_words = 6

    def name(self, bits: int) -> str:
        return "dense16" if bits > 8 else "dense_wide"

    def sums(self, f: Function) -> tuple[tuple[str, ...], tuple[str, ...]]:
        mix = f.cores("256 * a + b of two pairs, 64 bits each", 4, LISTED)
        return mix, f.cores("b of two pairs", 2, (*LISTED, "lr"))

    def mixed(self, t: "Outputs", number: int, inputs: str, word: str) -> None:
        t.f("smlald", *t.mix[2 * number :][:2], inputs, word)

    def apart(self, t: "Outputs") -> tuple[str, ...]:
        f, sums = t.f, []
        for number, low in enumerate(t.low):
            lower, upper = t.mix[2 * number :][:2]
            f("subs", lower, lower, low, note="256 * a")
            f("sbc", upper, upper, low, "asr #31")
            f("lsr", lower, lower, "#8")
            f("orr", lower, lower, upper, "lsl #24")
            sums += [lower, low]
        return tuple(sums)

    def heads(self, start: Int64) -> Words:
        mix = 256 * start[:, ::2] + start[:, 1::2]
        both = np.stack([words(mix), words(mix >> 32)], axis=2).reshape(len(start), 4)
        return np.concatenate([both, words(start[:, 1::2])], axis=1)


class _RowNibbles(RowForm):
    """4-bit weights: halfwords of ``4096 * d + 256 * (c + 8) + 16 * (b + 8) + a + 8``.

    SMLALD multiplies them unchanged, SMLAD the parts that masks leave: the low byte, ``a + 8``, and ``256 *
    (c + 8)``. The sum of the inputs, which is the same for all outputs, removes the eights.
    """

    head_words = 5
    parts = 1
    _EIGHTS = "[sp, #4]"
    _WRITTEN_OUT = 8  # words of inputs that are added up in a round

    def name(self, bits: int) -> str:
        return "dense4"

    def sums(self, f: Function) -> tuple[tuple[str, ...], tuple[str, ...]]:
        mix = f.cores("sum of halfwords, 64 bits", 2, LISTED)
        return mix, f.cores("sums of low bytes, of a, of c", 3, LISTED)

    def begin(self, t: "Outputs") -> None:
        f, count, (ones, total, left, _) = t.f, t.k.inputs, t.taps
        f("mov", ones, "#0x00010001")
        f("mov", total, "#0")
        if count >= self._WRITTEN_OUT:
            with f.counted_loop("inputs", left, count // self._WRITTEN_OUT):
                self._add(t, self._WRITTEN_OUT, ones, total)
        self._add(t, count % self._WRITTEN_OUT, ones, total)
        f("lsl", total, total, "#3")
        f("str", total, self._EIGHTS, note="8 times the sum of the inputs")

    def _add(self, t: "Outputs", count: int, ones: str, total: str) -> None:
        for _ in range(count // 2):
            t.f("ldrd", *t.pair, f"[{t.columns}], #8")
            for inputs in t.pair:
                t.f("smlad", total, inputs, ones, total)
        if count % 2:
            t.f("ldr", t.pair[0], f"[{t.columns}], #4")
            t.f("smlad", total, t.pair[0], ones, total)

    def step(self, t: "Outputs") -> None:
        f, (first, second, spare, _), (byte, a, c) = t.f, t.taps, t.low
        f("ldrd", *t.pair, f"[{t.columns}], #8")
        f("ldm", f"{t.weights}!", listed((first, second)))
        for inputs, word in zip(t.pair, (first, second), strict=True):
            f("smlald", *t.mix, inputs, word)
            f("uxtb16", spare, word)
            f("smlad", byte, inputs, spare, byte)
            f("and", spare, word, "#0x000f000f")
            f("smlad", a, inputs, spare, a)
            f("and", word, word, "#0x0f000f00")
            f("smlad", c, inputs, word, c)

    def apart(self, t: "Outputs") -> tuple[str, ...]:
        f, (d, upper), (b, a, c), eights = t.f, t.mix, t.low, t.taps[0]
        for part in (b, c):
            f("subs", d, d, part)
            f("sbc", upper, upper, part, "asr #31")
        f("lsr", d, d, "#12")
        f("orr", d, d, upper, "lsl #20")
        f("ldr", eights, self._EIGHTS)
        f("sub", b, b, a, note="16 * (b + 8)")
        f("rsb", b, eights, b, "asr #4")
        f("rsb", c, eights, c, "asr #8")
        f("sub", a, a, eights)
        return a, b, c, d

    def heads(self, start: Int64) -> Words:
        a, b, c, d = start.T
        byte = 16 * b + a
        mix = 4096 * d + 256 * c + byte
        return np.stack([words(mix), words(mix >> 32), words(byte), words(a), words(256 * c)], axis=1)

    def halfwords(self, weights: Int64) -> Int64:
        a, b, c, d = weights.transpose(1, 0, 2)
        mixed: Int64 = 4096 * d + 256 * (c + 8) + 16 * (b + 8) + a + 8
        return mixed[:, None]


ROW_HALFWORDS, ROW_WIDE, ROW_NIBBLES = _RowHalfwords(), _RowWide(), _RowNibbles()


class Outputs(Writer):
    """Writes ``dense(weights, y, columns, end)``: groups of four outputs from ``weights`` to ``end``."""

    def __init__(self, k: PackedRow) -> None:
        self.k, self.form = k, k.form
        spills = self.form.spills
        self.f = f = Function(
            self.form.name(k.epilogue.bits),
            "const uint32_t *weights",
            "void *y",
            "const uint32_t *columns",
            "const uint32_t *end",
            purpose="Groups of four outputs from `weights` to `end`.",
            keep=(1, 2, 3) if k.looped or spills else (2, 3),
            local=2 if spills else 0,
        )
        self.weights, y, self.columns, end = f.arguments
        self.y = "" if spills else y
        f.free(end, *((y,) if spills else ()))
        self.taps = f.cores("weights, then requantisation", 4, LISTED)
        self.pair = f.cores("inputs of two steps, then requantisation", 2, LISTED)
        self.mix, self.low = self.form.sums(f)
        self.spare = "" if spills else f.core("ends")
        self._end = "[sp]" if spills else f.kept.get(1, "")
        if k.looped:
            end = self.spare or self.taps[0]
            f.number(end, 4 * k.steps)
            f("add", end, end, self.columns)
            f("str", end, self._end, note="where the columns end")
        self.form.begin(self)

    def write(self) -> None:
        f, k, end = self.f, self.k, self.spare or self.taps[0]
        with f.loop("four outputs", "groups") as again:
            f("ldr", self.columns, f.kept[2])
            f("ldm", f"{self.weights}!", listed((*self.mix, *self.low)))
            if k.looped:
                if self.spare:
                    f("ldr", end, self._end)
                with f.loop("steps", k.steps // k.unroll) as next_steps:
                    self._steps()
                    if not self.spare:
                        f("ldr", end, self._end)
                    f("cmp", self.columns, end)
                    f("bne", next_steps)
            else:
                self._steps()
            sums = self.form.apart(self)
            self._requantise(sums)
            clamp(f, k.epilogue, sums, self.pair)
            self._store(sums)
            f("ldr", end, f.kept[3])
            f("cmp", self.weights, end)
            f("bne", again)

    def _steps(self) -> None:
        for _ in range(self.k.unroll // 2):
            self.form.step(self)

    def _requantise(self, sums: Sequence[str]) -> None:
        f, k = self.f, self.k
        gains = [gain.bit_length() - 1 for gain in self.form.gains]
        if k.epilogue.form == "sum":
            for total, gain in zip(sums, gains, strict=True):
                if gain:
                    f("asr", total, total, f"#{gain}")
            return
        if k.header:
            f("ldr", self.columns, f.kept[2])
        if k.epilogue.form == "rounded":
            self._rounded(sums, gains)
        elif k.epilogue.floor:
            self._floor(sums)
        else:
            self._by_output(sums, gains)

    def _floor(self, sums: Sequence[str]) -> None:
        # As many constants at a time as there are registers.
        f, k = self.f, self.k
        free = self.taps[: k.header] if k.header else (*self.taps, *self.pair)
        f("ldmdb" if k.header else "ldm", self.columns if k.header else f"{self.weights}!", listed(free))
        pairs = tuple(zip(free[::2], free[1::2], strict=True))
        for number, total in enumerate(sums):
            multiplier, constant = pairs[number % len(pairs)]
            if number >= len(pairs) and not k.header:
                f("ldrd", multiplier, constant, f"[{self.weights}], #8")
            right = k.epilogue.shifts[number % len(k.epilogue.shifts)]
            floor(f, k.epilogue, total, multiplier, constant, right)

    def _by_output(self, sums: Sequence[str], gains: Sequence[int]) -> None:
        f, k = self.f, self.k
        multiplier, constant, given, spare = self.taps
        if k.header:
            f("ldmdb", self.columns, listed((multiplier, constant)))
        for number, total in enumerate(sums):
            if not k.header:
                f("ldm", f"{self.weights}!", listed(self.taps[: k.epilogue.constants]))
            right = k.epilogue.shifts[number] if k.epilogue.shifts else given
            requantise(f, k.epilogue, (total,), (multiplier, constant), spare, right, gains[number])

    def _rounded(self, sums: Sequence[str], gains: Sequence[int]) -> None:
        # From the words before the columns.
        f, k, multiplier = self.f, self.k, self.taps[0]
        f("ldr", multiplier, f"[{self.columns}, #-4]")
        for total, gain in zip(sums, gains, strict=True):
            left = 1 + k.epilogue.shifts[0] - gain
            if left:
                f("lsl" if left > 0 else "asr", total, total, f"#{abs(left)}")
        for total in sums:
            f("smmulr", total, total, multiplier)
            saturate(f, k.epilogue, total)

    def _store(self, sums: Sequence[str]) -> None:
        f, k = self.f, self.k
        y = self.y or next(register for register in (*self.mix, *self.low) if register not in sums)
        if not self.y:
            f("ldr", y, f.kept[1])
        a, b, c, d = (sums[n] for n in ((1, 0, 3, 2) if k.swapped else (0, 1, 2, 3)))
        size = k.epilogue.bits // 8
        for place, total in ((1, b), (2, c), (3, d)):
            f(k.epilogue.store, total, f"[{y}, #{place * size}]")
        f(k.epilogue.store, a, f"[{y}], #{4 * size}")
        if not self.y:
            f("str", y, f.kept[1])
