"""Assembly of products of pairs of pixels: two multiplications in one.

A word holds an input of each of two pixels, ``x + 65536 * x'``. Times a weight it is ``w * x + 65536 * (w *
x')``. The sum of two such products, plus 2**15, still has ``w0 * x0 + w1 * x1`` of the first pixel in its
lower half, and the same sum of the second pixel in its upper half. So the upper half of each such *mix* is
added to the second pixel's sum, and the whole mix to a total. In the end, that total is 65536 times the
second sum, plus the first one, plus 2**15 for each mix.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from crtgen.compiler.kernels.asm import HIGH, LISTED, LOW, Function, Writer, listed
from crtgen.compiler.kernels.base.epilogue import Limbs, LongProducts

__all__ = ["MIX", "Narrow", "NarrowPairs", "Wide", "WidePairs"]

MIX = 1 << 15
"""Constant that makes the lower half of a mix positive."""
_CHANNELS = 2  # at a time, of narrow instructions
_X, _END = 0, 3  # parameters that are kept
_REACH = 32  # bytes that LDRB reaches
_Y, _SECOND, _MIXES = "[sp, #0]", "[sp, #4]", "[sp, #8]"


@dataclass(frozen=True, slots=True)
class Wide:
    """One channel of two or four ``pixels``, for cores with MLA and SMULL; ``steps`` pairs of inputs.

    ``outputs`` is the distance in bytes between the outputs of two pixels. A step of the loop takes
    ``unroll`` pairs.
    """

    pixels: int
    steps: int
    outputs: int
    unroll: int
    epilogue: LongProducts

    @property
    def weight_bytes(self) -> int:
        return -(-self.steps // 2) * 4

    @property
    def step_words(self) -> int:
        return self.pixels


class WidePairs(Writer):
    """Writes ``group(x, weights, y, end)``: the channels from ``weights`` to ``end``."""

    def __init__(self, k: Wide) -> None:
        self.k = k
        self.f = f = Function(
            "group",
            "const uint32_t *x",
            "const uint32_t *weights",
            "int8_t *y",
            "const uint32_t *end",
            purpose=f"{k.pixels} pixels times the channels from `weights` to `end`.",
            keep=(_X, _END),
        )
        self.x, self.weights, self.y, end = f.arguments
        f.free(end)
        pairs = k.pixels // 2
        self.first = f.cores("total, then sum of the second pixel", 2, LISTED)
        self.inputs = f.cores("inputs, then mixes, then requantisation", 2 * pairs, LISTED)
        self.more = f.cores("total and sum of two further pixels", 2 * (pairs - 1))
        self.weight = f.core("weight, then requantisation")
        self.count = f.core("rounds left, then requantisation")
        self.half = f.constant("2**15", MIX)

    def write(self) -> None:
        f, k = self.f, self.k
        with f.loop("channels", "channels") as again:
            f("ldr", self.x, f.kept[_X])
            total, upper = self.first
            f("ldr", upper, f"[{self.weights}], #4")
            f.number(self.count, MIX * k.steps)
            f("sub", total, upper, self.count)
            f("add", total, total, upper, "lsl #16")
            for register, first in zip(self.more, self.first, strict=False):
                f("mov", register, first)
            rounds, left = divmod(k.steps, k.unroll)
            if rounds > 1:
                with f.counted_loop("inputs", self.count, rounds):
                    self._steps(k.unroll)
            self._steps(left if rounds > 1 else k.steps)
            f.advance(self.weights, k.weight_bytes - 2 * k.steps)
            self._outputs()
            f("ldr", self.count, f.kept[_END])
            f("cmp", self.weights, self.count)
            f("bne", again)

    def _steps(self, count: int) -> None:
        # ``count`` pairs of inputs.
        f, pairs = self.f, self.k.pixels // 2
        mixes, seconds = self.inputs[:pairs], self.inputs[pairs:]
        for _ in range(count):
            f("ldm", f"{self.x}!", listed(self.inputs))
            for inputs, start in ((mixes, (self.half,) * pairs), (seconds, mixes)):
                f("ldrsb", self.weight, f"[{self.weights}], #1")
                for mix, x, before in zip(mixes, inputs, start, strict=True):
                    f("mla", mix, self.weight, x, before)
            for mix, (total, upper) in zip(mixes, self._pairs(), strict=True):
                f("add", total, total, mix)
                f("add", upper, upper, mix, "asr #16")

    def _pairs(self) -> Sequence[Sequence[str]]:
        # Total and sum of each pair of pixels.
        return (self.first, self.more)[: self.k.pixels // 2]

    def _outputs(self) -> None:
        f, k = self.f, self.k
        spare = (*self.inputs, self.weight, self.count, self.x)
        constants = sorted(spare[: k.epilogue.constants], key=LISTED.index)
        f("ldm", f"{self.weights}!", listed(constants))
        for total, upper in self._pairs():
            f("sub", total, total, upper, "lsl #16")
        sums = [register for pair in self._pairs() for register in pair]
        for pixel, register in reversed(list(enumerate(sums))):
            k.epilogue.append(f, register, constants, spare[len(constants) :])
            f("strb", register, f"[{self.y}, #{pixel * k.outputs}]" if pixel else f"[{self.y}], #1")


@dataclass(frozen=True, slots=True)
class Narrow:
    """Two channels of two pixels, for cores with narrow instructions only; ``steps`` pairs of inputs.

    LDRB has an immediate offset and LDRSB has none, so weights are stored as ``w + 128``. The excess in a mix
    is removed together with the term that makes its lower half positive: a third word with each pair of
    inputs.
    """

    steps: int
    outputs: int
    unroll: int
    epilogue: Limbs

    pixels = 2
    step_words = 3

    @property
    def weight_bytes(self) -> int:
        return 2 * _CHANNELS * self.steps


class NarrowPairs(Writer):
    """Writes ``group(x, weights, y, end)``: the pairs of channels from ``weights`` to ``end``."""

    def __init__(self, k: Narrow) -> None:
        self.k = k
        self.f = f = Function(
            "group",
            "const uint32_t *x",
            "const uint32_t *weights",
            "int8_t *y",
            "const uint32_t *end",
            purpose="Two pixels times the pairs of channels from `weights` to `end`.",
            keep=(_X, _END),
            local=3,
            narrow=True,
        )
        self.x, self.weights, self.y, end = f.arguments
        f.free(end)
        self.end = f.core("where whole rounds end", LOW)
        self.mix, self.other = f.cores("mixes, then requantisation", 2, LOW)
        self.inputs = self.y, *f.cores("inputs, then requantisation", 2, LOW)
        self.totals = f.cores("totals", _CHANNELS, HIGH)
        self.sums = f.cores("sums of the second pixel", _CHANNELS, HIGH)
        self.limits = f.cores("limits", 2, ("r12", "lr"))

    def write(self) -> None:
        f, k = self.f, self.k
        for limit, number in zip(self.limits, (k.epilogue.low, k.epilogue.high), strict=True):
            f.number(self.mix, number)
            f("mov", limit, self.mix)
        f("str", self.y, _Y)
        f.number(self.mix, k.outputs)
        f("adds", self.mix, self.mix, self.y)
        f("str", self.mix, _SECOND)
        f.number(self.mix, MIX * k.steps)
        f("str", self.mix, _MIXES)
        rounds, left = divmod(k.steps, k.unroll)
        if rounds > 1:
            f.number(self.end, 4 * k.step_words * k.unroll * rounds)
            f("adds", self.end, self.end, self.x)
        done = f.label("done")
        with f.loop("channels", "channels") as again:
            f("ldr", self.x, f.kept[_X])
            f("ldr", self.other, _MIXES)
            for total, upper in zip(self.totals, self.sums, strict=True):
                start, first, _ = self.inputs
                f("ldm", f"{self.weights}!", listed((start,)))
                f("mov", upper, start)
                f("lsls", first, start, "#16")
                f("adds", first, first, start)
                f("subs", first, first, self.other)
                f("mov", total, first)
            if rounds > 1:
                with f.loop("inputs", rounds) as more:
                    self._steps(k.unroll)
                    f("cmp", self.x, self.end)
                    f("bne", more)
            self._steps(left if rounds > 1 else k.steps)
            self._outputs()
            f("ldr", self.mix, f.kept[_END])
            f("cmp", self.weights, self.mix)
            f("beq", done)
            f("b", again)
        f.place(done)

    def _steps(self, count: int) -> None:
        # ``count`` pairs of inputs, with offsets in LDRB's range.
        f = self.f
        for first in range(0, count, _REACH // (2 * _CHANNELS)):
            steps = min(_REACH // (2 * _CHANNELS), count - first)
            for step in range(steps):
                f("ldm", f"{self.x}!", listed(self.inputs))
                for channel in range(_CHANNELS):
                    self._step(2 * (_CHANNELS * step + channel), channel)
            f("adds", self.weights, self.weights, f"#{2 * _CHANNELS * steps}")

    def _step(self, at: int, channel: int) -> None:
        f, (first, second, taken_off) = self.f, self.inputs
        f("ldrb", self.mix, f"[{self.weights}, #{at}]")
        f("muls", self.mix, first, self.mix)
        f("ldrb", self.other, f"[{self.weights}, #{at + 1}]")
        f("muls", self.other, second, self.other)
        f("adds", self.mix, self.mix, self.other)
        f("adds", self.mix, self.mix, taken_off)
        f("add", self.totals[channel], self.mix)
        f("asrs", self.mix, self.mix, "#16")
        f("add", self.sums[channel], self.mix)

    def _outputs(self) -> None:
        f, k = self.f, self.k
        first, second, spare = self.inputs
        for channel in range(_CHANNELS):
            place = self.weights, 4 * k.epilogue.constants * channel
            f("mov", self.mix, self.totals[channel])
            f("mov", self.other, self.sums[channel])
            f("lsls", first, self.other, "#16")
            f("subs", self.mix, self.mix, first)
            for total, y in ((self.mix, _Y), (self.other, _SECOND)):
                made = k.epilogue.append(f, total, place, (first, second))
                f("ldr", spare, y)
                f("strb", made, f"[{spare}, #{channel}]")
        for y in (_Y, _SECOND):
            f("ldr", spare, y)
            f("adds", spare, spare, f"#{_CHANNELS}")
            f("str", spare, y)
        f("adds", self.weights, self.weights, f"#{4 * k.epilogue.constants * _CHANNELS}")
