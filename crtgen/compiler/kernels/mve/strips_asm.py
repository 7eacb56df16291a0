"""Assembly of depthwise convolutions that several layers share when optimising for size."""

from collections.abc import Sequence
from functools import cache

from crtgen.compiler.kernels.asm import EVEN, ODD, Function, Routine, Writer
from crtgen.compiler.kernels.mve.matrix import gather_sums
from crtgen.compiler.kernels.shared.tables import places_in

__all__ = ["StripsWriter", "insert_row"]

_PATCHES, _CHANNEL = "[sp]", "[sp, #4]"
_STREAM, _END, _LEFT, _TAPS = "[sp, #8]", "[sp, #12]", "[sp, #16]", "[sp, #20]"
_LOCAL = 9


@cache
def insert_row() -> Routine:
    """Write ``insert(to, row, step, seen)``, which stores a row of the image into one byte of each word."""
    f = Function(
        "insert",
        "int8_t *to",
        "const int8_t *row",
        "int32_t step",
        "int32_t seen",
        purpose="Puts a row of the image to one byte of each word: 16 bytes every `step` bytes.",
    )
    to, row, step, seen = f.arguments
    (number,) = f.cores("number of a byte", 1, ("r12",))
    vector, places = f.vectors("bytes, then where they go", 2)
    f("mov", number, "#0")
    f("vidup.u8", places, number, "#4")
    with f.predicated_while("vectors", 8, "vectors", seen):
        f("vldrb.u8", vector, f"[{row}]")
        f("add", row, row, step)
        f("vstrb.8", vector, f"[{to}, {places}]")
        f("add", to, to, "#64")
    return f.done()


class StripsWriter(Writer):
    """Writes ``channels(strip)``, which computes all channels of a strip, eight outputs at a time."""

    def __init__(self, squares: bool, clamped: bool) -> None:
        self.squares, self.clamped, self.at = squares, clamped, places_in("mve_depthwise")
        self.f = f = Function(
            "channels",
            "const void *strip",
            no_alias=True,
            purpose="All channels of a strip, eight outputs at a time.",
            local=_LOCAL,
        )
        (self.strip,) = f.arguments
        self.patch, self.y, self.start = f.cores("patch, outputs, start and shift", 3, ODD)
        self.multiplier, self.table = f.core("multiplier", ODD), f.core("table", ODD)
        self.apart = f.core("bytes between two patches", ODD)
        f.free(self.strip)
        self.sums = f.cores("sums", 8, EVEN)
        self.weights = f.vectors("weights; for the next column, row, and both", 4)
        self.constants = f.vector("taps, then signs, then limits")
        self.inputs = f.vector("patch, then sums"), f.vector("sums, then places")
        self.lanes = f.vector("distances within a patch")

    def write(self) -> None:
        f = self.f
        self._begin()
        with f.loop("channels", "channels") as again:
            self._channel()
            with f.loop("eight outputs", "eights") as more:
                self._sums()
                self._requantise()
                self._store()
                f("bgt", more)
            end = self.sums[2]
            f("ldr", self.y, _CHANNEL)
            f("ldr", end, _END)
            f("cmp", self.y, end)
            f("bne", again)

    def _begin(self) -> None:
        f, (taps, turned), spare = self.f, (self.constants, self.inputs[0]), self.sums[2]
        stream, turn = self.start, self.apart
        f("ldm", self.strip, f"{{{self.patch}, {self.y}, {stream}, {self.table}, {turn}}}")
        f("ldr", spare, f"[{self.table}, #{self.at['channels']}]")
        f("add", spare, spare, self.y)
        f("strd", self.patch, self.y, _PATCHES)
        f("strd", stream, spare, _STREAM)
        f("vldrw.u32", taps, f"[{self.table}, #{self.at['taps']}]")
        f("vmov", turned, taps)
        f("vshl.u32", taps, turn, note="turned as the rows are")
        f("sub", turn, turn, "#32")
        f("vshl.u32", turned, turn)
        f("vorr", taps, taps, turned)
        f("vstrw.32", taps, _TAPS)
        f("ldrd", spare, self.apart, f"[{self.table}, #{self.at['column']}]")
        f("mov", self.sums[0], "#0")
        f("vidup.u32", self.lanes, self.sums[0], "#1")
        f("vmul.i32", self.lanes, self.lanes, spare)

    def _channel(self) -> None:
        f, a, b, c = self.f, *self.sums[:3]
        w, at = self.weights, self.at
        f("ldrd", self.patch, self.y, _PATCHES)
        f("add", a, self.patch, "#4")
        f("add", b, self.y, "#1")
        f("strd", a, b, _PATCHES)
        f("ldr", b, _STREAM)
        f("ldr", self.start, f"[{b}], #4")
        f("ldr", self.multiplier, f"[{b}], #4")
        f("vldrw.u32", self.constants, _TAPS)
        f("vpt.s8", "ge", self.constants, "zr", note="those that are not are 0")
        f("vldrbt.u8", w[0], f"[{b}, {self.constants}]")
        f("ldrd", c, a, f"[{self.table}, #{at['weights']}]")
        f("add", b, b, c)
        f("str", b, _STREAM)
        f("str", a, _LEFT)
        if self.squares:
            f("mov", a, "#0")
            f("vmov", w[1], w[0])
            f("vshlc", w[1], a, "#32")
            for down, here in ((w[2], w[0]), (w[3], w[1])):
                f("vshl.i32", down, here, "#8")
                f("vsri.32", down, here, "#24")

    def _sums(self) -> None:
        # In the order of the lanes of two vectors that are narrowed to one.
        order = [self.sums[i] for i in (0, 4, 1, 5, 2, 6, 3, 7)]
        if self.squares:
            for part in ((0, 1, 4, 5), (2, 3, 6, 7)):
                self._patch([self.sums[i] for i in part])
        else:
            for total in order:
                self._patch([total])
        gather_sums(self.f, self.inputs[0], self.sums[:4])
        gather_sums(self.f, self.inputs[1], self.sums[4:])

    def _patch(self, sums: Sequence[str]) -> None:
        f, inputs = self.f, self.inputs[0]
        f("vldrw.u32", inputs, f"[{self.patch}, {self.lanes}]")
        f("add", self.patch, self.patch, self.apart)
        for total, weights in zip(sums, self.weights, strict=False):
            f("vmladav.s8", total, inputs, weights)

    def _requantise(self) -> None:
        f, first, second, zero = self.f, *self.sums[:3]
        low, high = self.inputs
        f("asr", first, self.start, "#8")
        f("ldr", zero, f"[{self.table}, #{self.at['zero_point']}]")
        for q in self.inputs:
            f("vadd.i32", q, q, first)
            f("vqrdmulh.s32", q, q, self.multiplier)
            f("vshr.s32", self.constants, q, "#31")
            f("vadd.i32", q, q, self.constants, note="halves go away from zero")
            f("vrshl.s32", q, self.start, note="by the lowest byte")
            f("vadd.i32", q, q, zero)
        f("vqmovnb.s32", low, low)
        f("vqmovnt.s32", low, high)
        f("vqmovnb.s16", low, low)
        if self.clamped:
            f("ldrd", first, second, f"[{self.table}, #{self.at['low']}]")
            for limit, operation in ((first, "vmax.s8"), (second, "vmin.s8")):
                f("vdup.8", self.constants, limit)
                f(operation, low, low, self.constants)

    def _store(self) -> None:
        f, left, by = self.f, *self.sums[:2]
        outputs, places = self.inputs
        f("vldrh.u16", places, f"[{self.table}, #{self.at['places']}]")
        f("ldr", left, _LEFT)
        f("vctp.16", left)
        f("vpst")
        f("vstrbt.16", outputs, f"[{self.y}, {places}]")
        f("ldr", by, f"[{self.table}, #{self.at['advance']}]")
        f("add", self.y, self.y, by)
        f("subs", left, left, "#8")
        f("str", left, _LEFT)
