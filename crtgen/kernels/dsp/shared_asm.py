"""The assembly of convolutions that layers share where size matters."""

from functools import cache

from crtgen.kernels.asm import LISTED, Function, Routine
from crtgen.kernels.dsp.epilogue import Epilogue, clamp, half_away, saturate
from crtgen.kernels.dsp.walk import PIXELS

__all__ = ["UNROLL", "any_group", "any_windows"]

UNROLL = 4
"""Steps written out; a layer's steps are padded to a multiple."""

_COLUMN_BYTES, _CHANNELS, _SHIFT_A, _SHIFT_B, _END = (4 * i for i in range(5))


@cache
def any_group(epilogue: Epilogue) -> Routine:
    """``group(weights, y, columns, job)``: three pixels times the pairs of channels up to the job's end."""
    writer = _Group(epilogue)
    writer.write()
    return writer.f.done()


class _Group:
    def __init__(self, epilogue: Epilogue) -> None:
        self.epilogue = epilogue
        self.f = f = Function(
            "group",
            "const uint32_t *weights",
            "int8_t *y",
            "const uint32_t *columns",
            "const void *job",
            purpose="Three packed pixels times the pairs of channels from `weights` on.",
            keep=(1, 2, 3),
        )
        self.weights, y, self.columns, job = f.arguments
        self.end = f.core("where the columns end", ("lr",))
        f("ldr", self.end, f"[{job}]")
        f("add", self.end, self.end, self.columns)
        f.free(y, job)
        self.inputs = f.cores("inputs, then requantisation", PIXELS, LISTED)
        self.taps = f.cores("weights of two steps, then requantisation", 2, LISTED)
        self.mix = f.cores("256 * a + b of each pixel", PIXELS)
        self.low = f.cores("b of each pixel", PIXELS)

    def write(self) -> None:
        f = self.f
        with f.loop("pairs of channels", "pairs") as again:
            f("ldr", self.columns, f.kept[2])
            f("ldrd", self.mix[-1], self.low[-1], f"[{self.weights}], #8")
            for registers in (self.mix, self.low):
                for register in registers[:-1]:
                    f("mov", register, registers[-1])
            with f.loop("steps", "rounds") as more:
                for _ in range(UNROLL // 2):
                    f("ldrd", *self.taps, f"[{self.weights}], #8")
                    for taps in self.taps:
                        self._step(taps)
                f("cmp", self.columns, self.end)
                f("bne", more)
            for mix, low in zip(self.mix, self.low, strict=True):
                f("sub", mix, mix, low, note="256 * a")
            self._requantise()
            self._store()
            f("bne", again)

    def _step(self, weights: str) -> None:
        f = self.f
        f("ldm", f"{self.columns}!", f"{{{', '.join(self.inputs)}}}")
        for total, word in zip(self.mix, self.inputs, strict=True):
            f("smlad", total, word, weights, total)
        f("sxtb16", weights, weights)
        for total, word in zip(self.low, self.inputs, strict=True):
            f("smlad", total, word, weights, total)

    def _requantise(self) -> None:
        f, epilogue, job = self.f, self.epilogue, self.columns
        if not epilogue.floor:
            for registers, operation, by in ((self.mix, "asr", "#7"), (self.low, "lsl", "#1")):
                f("ldm", f"{self.weights}!", f"{{{', '.join(self.inputs)}}}")
                multiplier, constant, shift = self.inputs
                for register in registers:
                    f(operation, register, register, by)
                    half_away(f, epilogue, register, (multiplier, constant), self.taps[1], shift)
                clamp(f, epilogue, registers)
            f("ldr", job, f.kept[3])
            return
        constants, shift = (*self.inputs, self.taps[0]), self.taps[1]
        f("ldm", f"{self.weights}!", f"{{{', '.join(constants)}}}")
        f("ldr", job, f.kept[3])
        parts = ((self.mix, constants[:2], _SHIFT_A), (self.low, constants[2:], _SHIFT_B))
        for registers, (multiplier, constant), place in parts:
            f("ldr", shift, f"[{job}, #{place}]")
            for register in registers:
                f("smmla", register, register, multiplier, constant)
                f("asr", register, register, shift)
                saturate(f, epilogue, register)
                clamp(f, epilogue, (register,))

    def _store(self) -> None:
        """The flags say whether the last pair of channels is done."""
        f, job, channels = self.f, self.columns, self.taps[0]
        f("ldr", channels, f"[{job}, #{_CHANNELS}]")
        f("ldr", self.inputs[0], f.kept[1])
        f("add", self.inputs[1], self.inputs[0], channels)
        f("add", self.inputs[2], self.inputs[1], channels)
        f("strb", self.low[0], f"[{self.inputs[0]}, #1]")
        for place, mix, low in zip(self.inputs[1:], self.mix[1:], self.low[1:], strict=True):
            f("strb", mix, f"[{place}]")
            f("strb", low, f"[{place}, #1]")
        f("strb", self.mix[0], f"[{self.inputs[0]}], #2")
        f("str", self.inputs[0], f.kept[1])
        f("ldr", channels, f"[{job}, #{_END}]")
        f("cmp", self.weights, channels)


@cache
def any_windows(places: tuple[tuple[str, int], ...]) -> Routine:
    """``windows(to, p, table)``: whole words of three windows, by the numbers at these places."""
    at = dict(places)
    f = Function(
        "windows",
        "uint32_t *to",
        "const int8_t *const *p",
        "const int32_t *table",
        purpose="Widens the whole words of three windows: inputs 0 and 2 of each word, then 1 and 3.",
    )
    to, p, table = f.arguments
    words = f.cores("four inputs", PIXELS, LISTED)
    windows = f.cores("windows", PIXELS, LISTED)
    wide = f.cores("inputs widened, then advance", PIXELS, LISTED)
    f("ldm", p, f"{{{', '.join(windows)}}}")
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
                for rotated in ((), ("ror #8",)):
                    for register, word in zip(wide, words, strict=True):
                        f("sxtb16", register, word, *rotated)
                    f("stm", f"{to}!", f"{{{', '.join(wide)}}}")
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
