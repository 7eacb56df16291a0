"""Assembly of depthwise 3x3 convolutions with the DSP extension.

A depthwise layer multiplies nine inputs of a channel with nine weights of the same channel. SMLAD computes
two products of halfwords at once, but neighbours in memory belong to different channels. So the inputs are
rearranged once, and each rearranged word serves several outputs:

1. ``widen`` takes two rows of four channels. PKHBT, PKHTB and SXTB16 turn the bytes of rows a and b into
   words (a, b) of int16, one word per channel and column: 4 + 4 bytes become 4 words.
2. The outputs of a channel walk along the columns. A column of three inputs is one word (rows a and b) and
   one halfword (row c): SMLAD and SMLABB. With a vertical stride of 1, two rows of outputs share four rows of
   inputs: the words are (row 0, row 1) and (row 2, row 3), and each output row has its weights in matching
   pairs.
3. The weights of a channel stay in registers for a whole row; ``DspEpilogue`` requantises the sums.

Padding is a row of zero points, read with a step of 0 bytes: ``widen_padding`` has a step for each of the
rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from crtgen.compiler.kernels.asm import FAR, LISTED, NEAR, Function, Routine, Writer, listed
from crtgen.compiler.kernels.dsp.epilogue import DspEpilogue, clamp, requantise, saturate
from crtgen.compiler.kernels.dsp.rows import Chunk, OutputRow

__all__ = ["Channel", "DspDepthwiseWriter", "PackedColumns", "widen", "widen_padding"]

_START, _MULTIPLIER, _CONSTANT, _SHIFT, _END = (f"[sp, #{4 * i}]" for i in range(5))
_LOCAL = 5


@dataclass(frozen=True, slots=True)
class PackedColumns:
    """``seen`` columns of four channels, ``step`` bytes apart, become words, ``pairs`` words apart.

    Two channels are ``apart`` words apart. An input has ``size`` bytes.
    """

    seen: int
    step: int
    pairs: int
    apart: int
    size: int = 1


@lru_cache(maxsize=256)
def widen(k: PackedColumns, at_once: int) -> Routine:
    """Write ``widen(to, a, b)``, which joins the inputs of rows a and b to words (a, b)."""
    f = Function(
        "widen",
        "uint32_t *to",
        "const int8_t *a",
        "const int8_t *b",
        purpose="Two rows of four channels as words of two inputs each.",
    )
    to, *rows = f.arguments
    left, *words = f.cores("columns left, then inputs", 2 + 2 * k.size)
    places = _places(f, k, to)
    near = k.step <= NEAR
    with f.counted_loop("columns", left, k.seen // at_once):
        for _ in range(at_once):
            _load(f, k, words, rows, f"], #{k.step}" if near else "]")
            for row in () if near else rows:
                f("add", row, row, f"#{k.step}")
            _columns(f, k, places, words)
    return f.done()


def _load(f: Function, k: PackedColumns, words: Sequence[str], rows: Sequence[str], last: str) -> None:
    # Four inputs of both rows, one or two words each; ``last`` ends the address of a row's last load.
    for number, row in enumerate(rows):
        if k.size > 1:
            f("ldr", words[2 + number], f"[{row}, #4]")
        f("ldr", words[number], f"[{row}{last}")


@lru_cache(maxsize=256)
def widen_padding(k: PackedColumns) -> Routine:
    """Write ``widen(to, a, b, steps)``: ``widen`` for rows that may be padding; each half of ``steps`` is the
    distance in bytes between columns of one row.
    """
    f = Function(
        "widen_padding",
        "uint32_t *to",
        "const int8_t *a",
        "const int8_t *b",
        "uint32_t steps",
        purpose="The same for rows of which one may be padding, whose columns are 0 bytes apart.",
    )
    to, a, b, steps = f.arguments
    left, *words = f.cores("columns left, then inputs", 2 + 2 * k.size)
    second = f.core("bytes between columns of the second row")
    places = _places(f, k, to)
    f("lsr", second, steps, "#16")
    f("uxth", steps, steps)
    with f.counted_loop("columns", left, k.seen):
        _load(f, k, words, (a, b), "]")
        f("add", a, a, steps)
        f("add", b, b, second)
        _columns(f, k, places, words)
    return f.done()


def _places(f: Function, k: PackedColumns, to: str) -> tuple[str, ...]:
    # Addresses of a column of four channels; the first one advances to ``to``.
    offsets = [4 * channel * k.apart for channel in (1, 2, 3)]
    if offsets[-1] <= FAR:
        others = [f"[{to}, #{offset}]" for offset in offsets]
    else:
        registers = f.cores("from the first channel to another", 3)
        for register, offset in zip(registers, offsets, strict=True):
            f.number(register, offset)
        others = [f"[{to}, {register}]" for register in registers]
    return f"[{to}], #{4 * k.pairs}", *others


def _columns(f: Function, k: PackedColumns, places: Sequence[str], words: Sequence[str]) -> None:
    if k.size > 1:
        _short_columns(f, places, words)
        return
    a, b, both = words
    f("pkhbt", both, a, b, "lsl #16")
    f("pkhtb", b, b, a, "asr #16")
    for channel, word, rotated in ((1, both, True), (2, b, False), (3, b, True)):
        f("sxtb16", a, word, *(("ror #8",) if rotated else ()))
        f("str", a, places[channel])
    f("sxtb16", a, both)
    f("str", a, places[0])


def _short_columns(f: Function, places: Sequence[str], words: Sequence[str]) -> None:
    *halves, both = words
    for channel in (2, 0):
        a, b = halves[channel : channel + 2]
        f("pkhbt", both, a, b, "lsl #16")
        f("pkhtb", b, b, a, "asr #16")
        f("str", b, places[channel + 1])
        f("str", both, places[channel])


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel of a strip: its output rows, two at a time with a vertical stride of 1, otherwise one.

    ``single``: one more row remains. ``compact``: the weights' words also contain a constant of the
    requantisation. Output rows are ``out_row_bytes`` apart. ``int4``: weights have four bits, and sums are 16
    times too large.
    """

    stride: int
    compact: bool
    out_row_bytes: int
    epilogue: DspEpilogue
    row: OutputRow
    single: OutputRow | None
    int4: bool

    @property
    def rows_per_pass(self) -> int:
        return 2 if self.stride == 1 else 1


class DspDepthwiseWriter(Writer):
    """Writes ``channel(data, weights, y, rows)``, which computes ``rows`` rows of a channel."""

    def __init__(self, k: Channel) -> None:
        self.k = k
        self.f = f = Function(
            "channel",
            "const uint32_t *data",
            "const uint32_t *weights",
            "int8_t *y",
            "uint32_t rows",
            purpose="A channel of a strip, so many rows of outputs.",
            keep=(3,),
            local=_LOCAL,
        )
        self.data, self.stream, self.y, rows = f.arguments
        f.free(rows)
        self.sums = f.cores("sums", 4, LISTED)
        self.pair = f.cores("words of a column", 2, ("r12", "lr"))
        self.weights = (*f.cores("weights", 5, LISTED), self.stream)

    def write(self) -> None:
        f, k = self.f, self.k
        self._weights()
        left = self.pair[0]
        if k.single is None:
            with f.loop("rows", "passes") as again:
                self._row(k.row)
                f.advance(self.data, k.row.data_next, spare=left)
                f.advance(self.y, k.row.output_next, spare=left)
                f("ldr", left, f.kept[3])
                f("subs", left, left, f"#{k.rows_per_pass}")
                f("str", left, f.kept[3])
                f("bne", again)
            return
        odd, end = f.label("an odd row"), f.label("end")
        with f.loop("two rows", "passes") as again:
            f("ldr", left, f.kept[3])
            f("subs", left, left, "#2")
            f("bmi", odd)
            f("str", left, f.kept[3])
            self._row(k.row)
            f.advance(self.data, k.row.data_next, spare=left)
            f.advance(self.y, k.row.output_next, spare=left)
            f("b", again)
        f.place(odd)
        f("cmp", left, "#-1")
        f("bne", end)
        with f.loop("one row", "odd"):
            self._row(k.single)
        f.place(end)

    def _weights(self) -> None:
        # Three words of weights to six of two, and the requantisation to the stack.
        f, k = self.f, self.k
        packed = self.sums[:3]
        f("ldm", f"{self.stream}!", listed(packed[:2] if k.int4 else packed))
        start, multiplier, constant, shift = self.weights[:4]
        each = () if k.epilogue.shifts else (shift,)
        if k.compact:
            f("ldm", self.stream, listed((start, multiplier, *each)))
            self._constant(constant)
        else:
            f("ldm", self.stream, listed((start, multiplier, constant, *each)))
        f("stm", "sp", listed((start, multiplier, constant, *each)))
        if k.int4:
            self._bytes()
        for number, word in enumerate(packed):
            if k.stride == 1:
                self._both(word, *self.weights[2 * number : 2 * number + 2])
            else:
                f("sxtb16", self.weights[number], word)
                f("sxtb16", self.weights[number + 3], word, "ror #8")

    def _constant(self, constant: str) -> None:
        # From the weights' last bytes, or from the second word of those of four bits.
        f, spare = self.f, self.sums[3]
        if self.k.int4:
            f("asr", constant, self.sums[1], "#8")
            return
        f("lsr", constant, self.sums[0], "#24")
        for number, word in enumerate(self.sums[1:3], 1):
            f("lsr" if number == 1 else "asr", spare, word, "#24")
            f("orr", constant, constant, spare, f"lsl #{8 * number}")

    def _bytes(self) -> None:
        # Two words of weights of four bits as three of 16 times their values. The columns are in the high
        # halves of the first word's bytes, in the low ones, and the third one is in the second word's first
        # byte and in both halves of the first word's last one.
        f, (first, second, third, spare) = self.f, self.sums
        f("and", third, second, "#0xf0")
        for shift, place in ((28, 12), (24, 20)):
            f("lsr", spare, first, f"#{shift}")
            f("bfi", third, spare, f"#{place}", "#4")
        f("lsl", second, first, "#4")
        for word in (first, second):
            f("and", word, word, "#0xf0f0f0f0")

    def _both(self, packed: str, upper: str, lower: str) -> None:
        # A column's first two weights to a word, and its last two.
        f, spare = self.f, self.pair[0]
        f("sxtb16", spare, packed)
        f("sxtb16", lower, packed, "ror #8")
        f("pkhbt", upper, spare, lower, "lsl #16")
        f("pkhbt", lower, lower, spare)

    def _row(self, r: OutputRow) -> None:
        f, spare = self.f, self.pair[0]
        if r.body:
            f.number(spare, r.output_bytes)
            f("add", spare, spare, self.y)
            f("str", spare, _END)
            with f.loop("columns", r.rounds // r.repeated) as again:
                for _ in range(r.repeated):
                    self._chunk(r.body)
                    if r.separate:
                        f.advance(self.y, r.output_step, spare=spare)
                f("ldr", spare, _END)
                f("cmp", self.y, spare)
                f("bne", again)
        for chunk in r.tail:
            self._chunk(chunk)

    def _chunk(self, c: Chunk) -> None:
        # A few outputs together, from their columns to memory.
        f = self.f
        f("ldr", self.sums[c.last], _START)
        for offset, macs in c.columns:
            moves = "!" if offset and offset == c.data_step else ""
            f("ldrd", *self.pair, f"[{self.data}, #{offset}]{moves}")
            for m in macs:
                f(m.op, self.sums[m.into], self.pair[m.data], self.weights[m.weight], self.sums[m.start])
        self._finish([self.sums[store.sum] for store in c.stores])
        below = self.pair[0]
        if c.below:
            f.number(below, self.k.out_row_bytes)
            f("add", below, below, self.y, note="a row further down")
        for number, store in enumerate(c.stores):
            if c.output_step and number == len(c.stores) - 1:
                place = f"[{self.y}], #{c.output_step}"
            else:
                place = f"[{below if store.below else self.y}, #{store.at}]"
            f(self.k.epilogue.store, self.sums[store.sum], place)

    def _finish(self, sums: Sequence[str]) -> None:
        # The limits come last: until then their registers are those of the requantisation.
        self._requantise(sums)
        clamp(self.f, self.k.epilogue, sums, self.pair)

    def _requantise(self, sums: Sequence[str]) -> None:
        f, epilogue = self.f, self.k.epilogue
        multiplier, constant = self.pair
        if epilogue.floor:
            f("ldrd", multiplier, constant, _MULTIPLIER)
            for total in sums:
                f("smmla", total, total, multiplier, constant)
                saturate(f, epilogue, total, epilogue.shifts[0])
            return
        if epilogue.form == "single":
            f("ldrd", multiplier, constant, _MULTIPLIER)
            requantise(f, epilogue, sums, (multiplier, constant), "", 0)
            return
        f("ldr", multiplier, _MULTIPLIER)
        for total in sums:
            f("ldr", constant, _CONSTANT)
            f("asr" if self.k.int4 else "lsl", total, total, "#3" if self.k.int4 else "#1")
            f("add", constant, constant, total, "asr #31")
            f("smmlar", total, total, multiplier, constant)
            if not epilogue.shifts:
                f("ldr", constant, _SHIFT)
                f("asr", total, total, constant)
            saturate(f, epilogue, total, epilogue.shifts[0] if epilogue.shifts else 0)
