"""Assembly of depthwise convolutions in bit fields: two inputs in a word, two taps in another, SMLAL.

``(x0 + x1 * 2**21) * (v0 + v1 * 2**21)`` has ``x0 * v0`` in its lowest 21 bits, ``x0 * v1 + x1 * v0`` in the
next ones and ``x1 * v1`` above: four products in one instruction, if the taps are reversed. Sums of such
products are the sums of the fields as long as none overflows its field. All sums begin at half of a field's
range, so that none is negative. The upper field belongs to the next two outputs.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from crtgen.compiler.kernels.asm import LISTED, Function, Routine, Writer, listed

__all__ = ["BEGIN", "FIELD", "HALF", "FieldEpilogue", "FieldOutputs", "FieldRows", "outputs", "pack_rows"]

FIELD = 21
"""Bits of a field."""
HALF = 1 << FIELD - 1
"""Start values of two sums: the middle field has all of it, the other fields a half each."""
BEGIN = (HALF // 2, (HALF >> 32 - FIELD) + (HALF // 2 << 2 * FIELD - 32))
"""The accumulator before the first product, lower word first."""

_SPARE = 2  # registers that an epilogue may use
_DOUBLE = 1020  # the largest offset of LDRD
_AT_ONCE = 4  # words that are packed in a round
_ROWS, _BLOCKS, _Y = "[sp, #0]", "[sp, #4]", "[sp, #8]"


@dataclass(frozen=True, slots=True)
class FieldRows:
    """``rows`` rows of inputs, ``step`` bytes apart, as words of two neighbours.

    Rows are ``row_bytes`` bytes of inputs apart, and ``pitch`` words apart when packed. With ``first``, the
    first input is the upper half of a word whose lower half is ``padding``; then follow ``pairs`` words, and
    with ``last`` an input with padding above it.
    """

    rows: int
    pairs: int
    step: int
    row_bytes: int = 0
    pitch: int = 0
    first: bool = False
    last: bool = False
    padding: int = 0


@lru_cache(maxsize=256)
def pack_rows(k: FieldRows) -> Routine:
    """Write ``pack(to, from)``, which packs two adjacent inputs into a word, 21 bits apart."""
    f = Function("pack", "uint32_t *to", "const int8_t *from", purpose="Two inputs of a channel in a word.")
    to, x = f.arguments
    padding = f.constant("padding", k.padding) if k.first or k.last else ""
    both = f.cores("inputs", 2 * min(_AT_ONCE, max(k.pairs, 1)), LISTED)
    lower, upper = both[: len(both) // 2], both[len(both) // 2 :]
    with f.repeated("rows", k.rows):
        if k.first:
            f("ldrsb", lower[0], f"[{x}]")
            f("add", lower[0], padding, lower[0], f"lsl #{FIELD}")
            f("str", lower[0], f"[{to}], #4")
            f.advance(x, k.step)
        f.rounds("rounds", k.pairs, _AT_ONCE, lambda some: _pack(f, k, lower[:some], upper[:some]))
        if k.last:
            f("ldrsb", lower[0], f"[{x}]")
            f("add", lower[0], lower[0], padding, f"lsl #{FIELD}")
            f("str", lower[0], f"[{to}], #4")
        f.advance(x, k.row_bytes - (2 * k.pairs + k.first) * k.step, spare=lower[0])
        f.advance(to, 4 * (k.pitch - k.pairs - k.first - k.last), spare=lower[0])
    return f.done()


def _pack(f: Function, k: FieldRows, lower: Sequence[str], upper: Sequence[str]) -> None:
    # ``count`` words.
    to, x = f.arguments
    for number, (low, high) in enumerate(zip(lower, upper, strict=True)):
        f("ldrsb", low, f"[{x}, #{2 * number * k.step}]")
        f("ldrsb", high, f"[{x}, #{(2 * number + 1) * k.step}]")
    for low, high in zip(lower, upper, strict=True):
        f("add", low, low, high, f"lsl #{FIELD}")
    f("stm", f"{to}!", listed(lower))
    f.advance(x, 2 * len(lower) * k.step, spare=upper[0])


class FieldEpilogue(Protocol):
    @property
    def constants(self) -> int:
        """Words of constants of a channel."""

    def append_all(
        self, f: Function, totals: Sequence[str], constants: Sequence[str], spare: Sequence[str]
    ) -> None:
        """Append outputs of a channel; there are two spare registers."""


@dataclass(frozen=True, slots=True)
class FieldOutputs:
    """``height`` rows of ``width`` outputs of a channel, ``step`` bytes apart.

    An output needs ``rows`` rows of inputs, ``pitch`` words apart, and from each as many neighbours as there
    are taps in ``taps`` words. The rows of the next outputs are ``row_step`` words further on. With
    ``written_out`` the rows of a window are unrolled, otherwise they are a loop.
    """

    width: int
    height: int
    rows: int
    taps: int
    pitch: int
    row_step: int
    step: int
    epilogue: FieldEpilogue
    written_out: bool

    @property
    def pairs(self) -> int:
        return 3 if self.taps == 2 and self.epilogue.constants == 2 else 2

    @property
    def blocks(self) -> int:
        return self.width // (2 * self.pairs)

    @property
    def left(self) -> int:
        return self.width % (2 * self.pairs)

    @property
    def tap_words(self) -> int:
        return self.rows * self.taps

    @property
    def stream_words(self) -> int:
        """Words of a channel's stream: initial sums, taps, initial value, requantisation."""
        return len(BEGIN) + self.tap_words + self.constants

    @property
    def constants(self) -> int:
        return 1 + self.epilogue.constants


def outputs(k: FieldOutputs) -> Routine:
    """Write ``outputs(x, y, taps)``, which computes all outputs of a channel."""
    return _FieldWriter.routine(k)


class _FieldWriter(Writer):
    def __init__(self, k: FieldOutputs) -> None:
        self.k = k
        self.f = f = Function(
            "outputs",
            "const uint32_t *x",
            "int8_t *y",
            "const uint32_t *taps",
            purpose=f"{k.height} rows of {k.width} outputs of a channel.",
            local=2 if k.written_out else 3,
        )
        self.x, self.y, self.stream = f.arguments
        first = f.cores("sums", 2, LISTED)
        self.taps = f.cores("taps, then constants", k.taps, LISTED)
        self.data = f.cores("inputs, then constants", 2, LISTED)
        self.sums = (first, *(f.cores("sums", 2) for _ in range(k.pairs - 1)))
        self.carry = f.core("upper field of the outputs before")
        known = (*self.taps, *self.data)
        spare = f.cores("of requantisation", max(0, k.constants - 1 + _SPARE - len(known)))
        self.start, *self.constants = known[: k.constants]
        self.spare = (self.start, *known[k.constants :], *spare)

    def write(self) -> None:
        f, k = self.f, self.k
        if not k.written_out:
            f("str", self.y, _Y)
        with self._repeated("rows", k.height, _ROWS):
            self._sums(1, begin=-1)
            f.advance(self.stream, -4 * (len(BEGIN) + k.tap_words))
            f("mov", self.carry, self.sums[0][1])
            if k.blocks:
                with self._repeated("blocks", k.blocks, _BLOCKS):
                    self._block(2 * k.pairs)
                    f("mov", self.carry, self.sums[-1][1])
                    f.advance(self.x, 4 * k.pairs)
            if k.left:
                self._block(k.left)
            f.advance(self.x, 4 * (k.row_step - k.blocks * k.pairs), spare=self.data[0])

    def _repeated(self, meaning: str, rounds: int, place: str) -> AbstractContextManager[None]:
        # Rounds that are counted on the stack; what runs once is no loop.
        if rounds == 1:
            return nullcontext()
        return self.f.counted_loop(meaning, self.data[0], rounds, place)

    def _sums(self, pairs: int, begin: int = 0) -> None:
        # ``pairs`` accumulators over all taps, from the outputs at ``begin`` on.
        f, k = self.f, self.k
        sums = self.sums[:pairs]
        if k.written_out:
            for row in range(k.rows):
                f("ldm", f"{self.stream}!", listed((*(sums[0] if not row else ()), *self.taps)))
                self._copy(sums if not row else ())
                self._row(row, sums, begin)
            return
        f("ldm", f"{self.stream}!", listed(sums[0]))
        self._copy(sums)
        with f.counted_loop("taps", self.y, k.rows):
            f("ldm", f"{self.stream}!", listed(self.taps))
            self._row(0, sums, begin)
            f.advance(self.x, 4 * k.pitch)
        f.advance(self.x, -4 * k.pitch * k.rows)

    def _copy(self, sums: Sequence[tuple[str, ...]]) -> None:
        # All accumulators begin as the first one does.
        for other in sums[1:]:
            for to, of in zip(other, sums[0], strict=True):
                self.f("mov", to, of)

    def _row(self, row: int, sums: Sequence[tuple[str, ...]], begin: int) -> None:
        # The products of a row of a window.
        f, k = self.f, self.k
        words = k.taps - 1 + len(sums) + begin
        for first in range(0, words, 2):
            self._load(4 * (row * k.pitch + first), min(2, words - first))
            for word in range(first, min(first + 2, words)):
                for number, (low, high) in enumerate(sums):
                    tap = k.taps - 1 + begin + number - word
                    if 0 <= tap < k.taps:
                        f("smlal", low, high, self.data[word % 2], self.taps[tap])

    def _load(self, offset: int, count: int) -> None:
        f, at = self.f, f"[{self.x}, #{offset}]"
        if count > 1 and offset <= _DOUBLE:
            f("ldrd", *self.data, at)
            return
        for number in range(count):
            f("ldr", self.data[number], f"[{self.x}, #{offset + 4 * number}]")

    def _block(self, count: int) -> None:
        # ``count`` outputs: each accumulator has one in two fields, and one in its middle.
        f, k = self.f, self.k
        pairs = -(-count // 2)
        self._sums(pairs)
        totals, before = [], self.carry
        for low, high in self.sums[:pairs]:
            f("ubfx", self.data[0], low, "#0", f"#{FIELD}")
            f("add", before, self.data[0], before, f"lsr #{2 * FIELD - 32}")
            f("lsr", low, low, f"#{FIELD}")
            f("bfi", low, high, f"#{32 - FIELD}", f"#{2 * FIELD - 32}")
            totals += [before, low]
            before = high
        totals = totals[:count]
        f("ldm", self.stream, listed((self.start, *self.constants)))
        f.advance(self.stream, -4 * (len(BEGIN) + k.tap_words))
        for total in totals:
            f("add", total, total, self.start)
        k.epilogue.append_all(f, totals, self.constants, self.spare)
        if not k.written_out:
            f("ldr", self.y, _Y)
        f.store_each("strb", totals, self.y, k.step, spare=self.start)
        if not k.written_out:
            f("str", self.y, _Y)
