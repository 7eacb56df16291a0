"""Assembly of convolutions that several layers share when optimising for size."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from crtgen.compiler.kernels.asm import LISTED, Function, Routine, Writer, listed
from crtgen.compiler.kernels.dsp.epilogue import DspEpilogue, clamp, requantise, saturate
from crtgen.compiler.kernels.dsp.form import Form
from crtgen.compiler.kernels.dsp.walk import PIXELS
from crtgen.compiler.kernels.shared.tables import places_in

__all__ = ["UNROLL", "DspSharedView", "SharedGroup", "any_windows"]

UNROLL = 4
"""Steps written out; a layer's steps are padded to a multiple."""

_PIXEL_BYTES, _SHIFT_A, _SHIFT_B, _END = 4, 8, 12, 16  # in crt_dsp_conv_job


@dataclass(frozen=True, slots=True)
class DspSharedView:
    """Parameters of the shared function: the conversion of outputs, and the bytes of an input and an output.

    All other parameters are in a layer's table.
    """

    epilogue: DspEpilogue
    form: Form

    @property
    def size(self) -> int:
        return self.epilogue.bits // 8


class SharedGroup(Writer):
    """Writes ``group(weights, y, columns, job)``, which multiplies three pixels by the pairs of channels up
    to the job's end.
    """

    bias = ""

    def __init__(self, k: DspSharedView) -> None:
        self.epilogue, self.size, self.form = k.epilogue, k.size, k.form
        spills = self.form.spills
        self.f = f = Function(
            "group",
            "const uint32_t *weights",
            "int8_t *y",
            "const uint32_t *columns",
            "const void *job",
            purpose="Three packed pixels times the pairs of channels from `weights` on.",
            keep=(1, 2, 3),
            local=int(spills),
        )
        self.weights, y, self.columns, job = f.arguments
        self.end = f.core("where the columns end", ("lr",))
        f("ldr", self.end, f"[{job}]")
        f("add", self.end, self.end, self.columns)
        f.free(y, job)
        if spills:
            f("str", self.end, "[sp]")
            f.free(self.end)
        self.form.pin(self)
        self.inputs = f.cores("inputs, then requantisation", PIXELS, LISTED)
        self.taps = f.cores("weights of some steps, then requantisation", self.form.taps, LISTED)
        self.a = f.cores("sums of the first channel, or of both", PIXELS)
        self.b = f.cores("sums of the second channel", PIXELS)

    def write(self) -> None:
        f, spills = self.f, self.form.spills
        with f.loop("pairs of channels", "pairs") as again:
            f("ldr", self.columns, f.kept[2])
            f("ldrd", self.a[-1], self.b[-1], f"[{self.weights}], #8")
            for registers in (self.a, self.b):
                for register in registers[:-1]:
                    f("mov", register, registers[-1])
            with f.loop("steps", "rounds") as more:
                self.form.steps(self, UNROLL, fresh=False)
                if spills:
                    f("ldr", self.taps[0], "[sp]")
                f("cmp", self.columns, self.taps[0] if spills else self.end)
                f("bne", more)
            for mix, low in zip(self.a, self.b, strict=True) if self.form.gain else ():
                f("sub", mix, mix, low)
            self._requantise()
            self._store()
            f("bne", again)

    def load(self) -> None:
        self.f("ldm", f"{self.columns}!", listed(self.inputs))

    def products(self, sums: Sequence[str], weights: str, first: bool = False) -> None:
        for total, word in zip(sums, self.inputs, strict=True):
            self.f("smlad", total, word, weights, total)

    def _requantise(self) -> None:
        f, epilogue, job = self.f, self.epilogue, self.columns
        if not epilogue.floor:
            for registers, gain in ((self.a, self.form.gain), (self.b, 0)):
                f("ldm", f"{self.weights}!", listed(self.inputs))
                multiplier, constant, shift = self.inputs
                requantise(f, epilogue, registers, (multiplier, constant), self.taps[1], shift, gain)
        else:
            constants, shift = (*self.inputs, self.taps[0]), self.taps[1]
            f("ldm", f"{self.weights}!", listed(constants))
            f("ldr", job, f.kept[3])
            parts = ((self.a, constants[:2], _SHIFT_A), (self.b, constants[2:], _SHIFT_B))
            for registers, (multiplier, constant), place in parts:
                f("ldr", shift, f"[{job}, #{place}]")
                for register in registers:
                    f("smmla", register, register, multiplier, constant)
                    f("asr", register, register, shift)
                    saturate(f, epilogue, register)
        clamp(f, epilogue, (*self.a, *self.b), self.taps)
        if not epilogue.floor:
            f("ldr", job, f.kept[3])

    def _store(self) -> None:
        # The flags say whether the last pair of channels is done.
        f, job, step, store, size = self.f, self.columns, self.taps[0], self.epilogue.store, self.size
        f("ldr", step, f"[{job}, #{_PIXEL_BYTES}]")
        f("ldr", self.inputs[0], f.kept[1])
        f("add", self.inputs[1], self.inputs[0], step)
        f("add", self.inputs[2], self.inputs[1], step)
        f(store, self.b[0], f"[{self.inputs[0]}, #{size}]")
        for place, mix, low in zip(self.inputs[1:], self.a[1:], self.b[1:], strict=True):
            f(store, mix, f"[{place}]")
            f(store, low, f"[{place}, #{size}]")
        f(store, self.a[0], f"[{self.inputs[0]}], #{2 * size}")
        f("str", self.inputs[0], f.kept[1])
        f("ldr", step, f"[{job}, #{_END}]")
        f("cmp", self.weights, step)


@cache
def any_windows(size: int) -> Routine:
    """Write ``windows(to, p, table)``, which packs the whole words of three windows.

    ``size`` is the bytes of an input.
    """
    at = places_in("dsp_conv")
    f = Function(
        "windows",
        "uint32_t *to",
        "const int8_t *const *p",
        "const int32_t *table",
        purpose="Widens the whole words of three windows: inputs 0 and 2 of each word, then 1 and 3."
        if size == 1
        else "Brings the whole words of three windows together.",
    )
    to, p, table = f.arguments
    words = f.cores("inputs", PIXELS, LISTED)
    windows = f.cores("windows", PIXELS, LISTED)
    wide = f.cores("inputs widened, then advance", PIXELS if size == 1 else 1, LISTED)
    f("ldm", p, listed(windows))
    rows, taps = f.moved(p, "rows left"), f.core("taps left")
    f("ldr", rows, f"[{table}, #{at['rows']}]")
    with f.loop("rows", "rows") as next_row:
        f("ldr", taps, f"[{table}, #{at['taps']}]")
        with f.loop("taps", "taps") as next_tap:
            left = f.core("words left")
            f("ldr", left, f"[{table}, #{at['words']}]")
            with f.loop("words", "words") as next_word:
                for word, window in zip(words, windows, strict=True):
                    f("ldr", word, f"[{window}], #4")
                for rotated in ((), ("ror #8",)) if size == 1 else ():
                    for register, word in zip(wide, words, strict=True):
                        f("sxtb16", register, word, *rotated)
                    f("stm", f"{to}!", listed(wide))
                if size == 2:
                    f("stm", f"{to}!", listed(words))
                f("subs", left, left, "#1")
                f("bne", next_word)
            f.free(left)
            _advance(f, windows, wide[0], f"[{table}, #{at['tap_advance']}]")
            f("subs", taps, taps, "#1")
            f("bne", next_tap)
        _advance(f, windows, wide[0], f"[{table}, #{at['window_advance']}]")
        f("subs", rows, rows, "#1")
        f("bne", next_row)
    return f.done()


def _advance(f: Function, windows: tuple[str, ...], by: str, place: str) -> None:
    f("ldr", by, place)
    for window in windows:
        f("add", window, window, by)
