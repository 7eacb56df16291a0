"""The micro-kernel of matrix products: up to three pixels times the two channels of a pair.

Activations are in scratch as ``[step][pixel]``, each word two inputs of 16 bits. Weights are one stream, read
once per group of pixels. For each pair of channels, the stream holds the initial values of both sums, the
steps' words, and the constants of requantisation. A ``Form`` defines the content of a word of weights, and
how it is multiplied.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from crtgen.compiler.kernels.asm import LISTED, Function, Writer, listed
from crtgen.compiler.kernels.dsp.epilogue import DspEpilogue, clamp, floor, requantise
from crtgen.compiler.kernels.dsp.form import Form

__all__ = ["Micro", "Tile"]


@dataclass(frozen=True, slots=True)
class Micro:
    """The micro-kernel for ``pixels`` pixels; ``unroll`` steps are unrolled, which are all of them or a
    divisor.

    ``stride`` is the channels of an output pixel. ``swapped``: the second channel of a pair is a.
    """

    pixels: int
    steps: int
    unroll: int
    stride: int
    epilogue: DspEpilogue
    form: Form
    swapped: bool = False

    @property
    def looped(self) -> bool:
        return self.unroll < self.steps

    @property
    def activation_bytes(self) -> int:
        return 4 * self.steps * self.pixels


class Tile(Writer):
    """Writes ``group(weights, y, columns, end)``: the pairs of channels from ``weights`` to ``end``."""

    bias = ""

    def __init__(self, m: Micro) -> None:
        self.m, self.form = m, m.form
        spills = self.form.spills
        self.f = f = Function(
            self.form.name(m.epilogue.bits),
            "const uint32_t *weights",
            "int8_t *y",
            "const uint32_t *columns",
            "const uint32_t *end",
            purpose=f"{m.pixels} packed pixels times the pairs of channels from `weights` to `end`.",
            keep=(1, 2, 3) if m.looped or spills else (2, 3),
            local=int(m.looped and spills),
        )
        self.weights, y, self.columns, spare = f.arguments
        self.y = "" if m.looped or spills else y
        self.end = f.core("where the columns end", ("lr",)) if m.looped and not spills else ""
        if m.looped:
            end = self.end or spare
            f.number(end, m.activation_bytes)
            f("add", end, end, self.columns)
            if spills:
                f("str", end, "[sp]", note="where the columns end")
        f.free(spare, *(() if self.y else (y,)))
        self.form.pin(self)
        gain = self.form.gain
        self.inputs = f.cores("inputs, then requantisation", 3, LISTED)
        self.taps = f.cores("weights of two steps, then requantisation", self.form.taps, LISTED)
        self.a = f.cores(f"{1 << gain} * a + b of each pixel" if gain else "sums of channel a", m.pixels)
        b = "b of each pixel" if gain else "sums of channel b"
        self.b = f.cores(b, m.pixels) if m.stride > 1 else ()

    def write(self) -> None:
        f, m = self.f, self.m
        with f.loop("pairs of channels", "pairs") as again:
            f("ldr", self.columns, f.kept[2])
            f("ldrd", self.a[-1], self.b[-1] if self.b else self.taps[2], f"[{self.weights}], #8")
            if m.looped:
                for sums in filter(None, (self.a, self.b)):
                    for total in sums[:-1]:
                        f("mov", total, sums[-1])
                with f.loop("steps", m.steps // m.unroll) as next_steps:
                    self.form.steps(self, m.unroll, fresh=False)
                    if not self.end:
                        f("ldr", self.taps[0], "[sp]")
                    f("cmp", self.columns, self.end or self.taps[0])
                    f("bne", next_steps)
            else:
                self.form.steps(self, m.steps, fresh=True)
            self._requantise()
            clamp(f, m.epilogue, (*self.a, *self.b), self.taps)
            self._store()
            f("ldr", self.inputs[0], f.kept[3])
            f("cmp", self.weights, self.inputs[0])
            f("bne", again)

    def load(self) -> None:
        inputs = self.inputs[: self.m.pixels]
        if len(inputs) > 1:
            self.f("ldm", f"{self.columns}!", listed(inputs))
        else:
            self.f("ldr", inputs[0], f"[{self.columns}], #4")

    def products(self, sums: Sequence[str], weights: str, first: bool = False) -> None:
        for total, pair in zip(sums, self.inputs, strict=False):
            self.f("smlad", total, pair, weights, sums[-1] if first else total)

    def _requantise(self) -> None:
        # A sum of both channels less that of the second is that of the first with its gain.
        f, epilogue, gain = self.f, self.m.epilogue, self.form.gain
        for mix, low in zip(self.a, self.b, strict=True) if gain else ():
            f("sub", mix, mix, low)
        if epilogue.form == "sum":
            for total in self.a:
                f("asr", total, total, f"#{gain}")
            return
        if epilogue.floor:
            constants = (*self.inputs, self.taps[0])
            f("ldm", f"{self.weights}!", listed(constants))
            pairs = (constants[:2], constants[2:])
            for sums, (multiplier, constant), shift in zip(
                (self.a, self.b), pairs, epilogue.shifts, strict=True
            ):
                for total in sums:
                    floor(f, epilogue, total, multiplier, constant, shift)
            return
        multiplier, constant, given = self.inputs
        for channel, sums in enumerate((self.a, self.b)):
            f("ldm", f"{self.weights}!", listed(self.inputs[: epilogue.constants]))
            right = epilogue.shifts[channel] if epilogue.shifts else given
            requantise(f, epilogue, sums, (multiplier, constant), self.taps[1], right, 0 if channel else gain)

    def _store(self) -> None:
        # The second channel first: the last store moves the pointer on to the next pair of channels.
        f, m, y = self.f, self.m, self.y or self.taps[1]
        store, size = m.epilogue.store, m.epilogue.bits // 8
        if not self.y:
            f("ldr", y, f.kept[1])
        if not self.b:
            for number, total in enumerate(self.a):
                f(store, total, f"[{y}, #{number * size}]")
            return
        here, there = (self.b, self.a) if m.swapped else (self.a, self.b)
        f(store, there[0], f"[{y}, #{size}]")
        for number, (first, second) in enumerate(zip(here[1:], there[1:], strict=True), 1):
            f(store, first, f"[{y}, #{number * m.stride * size}]")
            f(store, second, f"[{y}, #{(number * m.stride + 1) * size}]")
        f(store, here[0], f"[{y}], #{2 * size}")
        if not self.y:
            f("str", y, f.kept[1])
