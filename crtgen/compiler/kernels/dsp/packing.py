"""Packing of the inputs under a window for the matrix micro-kernel, and of the weights in the same order.

A window is ``segments`` runs of contiguous bytes. Whole words are packed four inputs at a time: SXTB16 of a
word gives inputs 0 and 2, SXTB16 of the rotated word gives 1 and 3. The remainders of all runs, up to three
bytes each, are packed two at a time, before the words. A word of int16 inputs already holds two.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from crtgen.compiler.kernels.asm import FAR, LISTED, Function, Writer, listed
from crtgen.compiler.kernels.engine.window import WindowShape
from crtgen.network.ops.fixedpoint import Int8, Int64

__all__ = ["Packing", "PackingWriter", "order_weights"]

Numbers = TypeVar("Numbers", Int8, Int64)

_WRITTEN_OUT = 12  # words of a window up to which no loop packs them


@dataclass(frozen=True, slots=True)
class Packing:
    """A window as runs of bytes: ``rows`` rows of ``taps`` runs of ``length`` bytes.

    ``row_step`` and ``tap_step`` are the bytes from a run to the run below and to the run beside it, ``size``
    is the bytes of an input.
    """

    rows: int
    taps: int
    length: int
    row_step: int
    tap_step: int
    size: int = 1

    @classmethod
    def of(cls, window: WindowShape, pitch: int, size: int = 1) -> "Packing":
        """Return the runs of a window whose channels are bytes, in rows of ``pitch`` bytes. Adjacent taps
        form one run.
        """
        row_step, pixel = window.dilation_y * pitch, window.channels
        if window.dilation_x == 1 or window.taps_x == 1:
            return cls(window.taps_y, 1, window.taps_x * pixel, row_step, 0, size)
        return cls(window.taps_y, window.taps_x, pixel, row_step, window.dilation_x * pixel, size)

    @property
    def words(self) -> int:
        return self.length // 4

    @property
    def row_advance(self) -> int:
        """Distance from the last word of a row of runs to the next row."""
        return self.row_step - self.taps * (self.tap_step if self.taps > 1 else 4 * self.words)

    @property
    def tap_advance(self) -> int:
        return self.tap_step - 4 * self.words

    @property
    def rest(self) -> tuple[tuple[int, int | None], ...]:
        """Offsets of the inputs that do not fill a word, in pairs; the last one may be single."""
        ends = range(4 * self.words, self.length, self.size)
        left = [self._offset(run) + at for run in self._runs() for at in ends]
        return tuple((left[i], left[i + 1] if i + 1 < len(left) else None) for i in range(0, len(left), 2))

    @property
    def whole(self) -> tuple[int, ...]:
        return tuple(self._offset(run) + 4 * word for run in self._runs() for word in range(self.words))

    @property
    def written_out(self) -> bool:
        """True if the words of several short runs are loaded without loops."""
        return len(self._runs()) > 1 and 0 < len(self.whole) <= _WRITTEN_OUT and self.whole[-1] <= FAR

    @property
    def steps(self) -> int:
        return len(self.rest) + 2 // self.size * self.words * self.rows * self.taps

    def _runs(self) -> list[tuple[int, int]]:
        return [(row, tap) for row in range(self.rows) for tap in range(self.taps)]

    def _offset(self, run: tuple[int, int]) -> int:
        return run[0] * self.row_step + run[1] * self.tap_step

    def order(self) -> Int64:
        """Return ``[steps, 2]``: for each half of each step the index of the input in the window, row by row;
        -1 for none.
        """
        length, words = self.length // self.size, self.words * 4 // self.size
        runs: Int64 = np.arange(self.rows * self.taps * length, dtype=np.int64).reshape(-1, length)
        mixed = [0, 2, 1, 3] if self.size == 1 else [0, 1]
        whole = runs[:, :words].reshape(-1, len(mixed))[:, mixed].reshape(-1, 2)
        rest = runs[:, words:].reshape(-1)
        even = np.append(rest, [-1] * (len(rest) % 2)).reshape(-1, 2)
        return np.concatenate([even, whole]).astype(np.int64)


def order_weights(weights: Numbers, packing: Packing, steps: int) -> Numbers:
    """Return ``weights[O, inputs of the window]`` as ``[O, steps, 2]``; steps beyond those of the packing are
    0.
    """
    padded = np.append(weights, np.zeros((len(weights), 1), weights.dtype), axis=1)
    ordered = padded[:, packing.order()]
    return np.pad(ordered, ((0, 0), (0, steps - packing.steps), (0, 0)))


class PackingWriter(Writer):
    """Writes ``pack(to, a, b, c)`` for up to three pixels, whose windows begin at ``a``, ``b`` and ``c``.

    Bytes that do not fill a word are packed first, then words, in loops or one by one.
    """

    def __init__(self, packing: Packing, pixels: int) -> None:
        names = ("a", "b", "c")[:pixels]
        self.packing = packing
        self.load = "ldrsb" if packing.size == 1 else "ldrsh"
        self.f = f = Function(
            "pack",
            "uint32_t *to",
            *(f"const int8_t *{name}" for name in names),
            purpose="Widens the inputs of windows: 0 and 2 of each word, then 1 and 3."
            if packing.size == 1
            else "Brings the inputs of windows together, word by word.",
        )
        self.to, *self.windows = f.arguments
        self.wide = f.cores("what is stored", pixels, LISTED)
        self.words = f.cores("what is loaded", pixels, LISTED)

    def write(self) -> None:
        packing = self.packing
        for first, second in packing.rest:
            self._two(first, second)
        if packing.written_out:
            for offset in packing.whole:
                self._word(offset)
        elif packing.words:
            self._rows()

    def _two(self, first: int, second: int | None) -> None:
        # Two inputs of each window, or one.
        f = self.f
        for window, low, high in zip(self.windows, self.wide, self.words, strict=True):
            self._single(low, window, first)
            if second is not None:
                self._single(high, window, second)
                f("pkhbt", low, low, high, "lsl #16")
            else:
                f("uxth", low, low)
        self._store()

    def _single(self, to: str, window: str, offset: int) -> None:
        if offset > FAR:
            self.f.number(to, offset)
            self.f(self.load, to, f"[{window}, {to}]")
        else:
            self.f(self.load, to, f"[{window}, #{offset}]")

    def _rows(self) -> None:
        f, packing = self.f, self.packing
        with f.repeated("rows", packing.rows):
            with f.repeated("taps", packing.taps):
                unroll = 2 if packing.words % 2 == 0 else 1
                with f.repeated("words", packing.words // unroll):
                    for _ in range(unroll):
                        self._word(None)
                if packing.taps > 1:
                    self._advance(packing.tap_advance)
            if packing.rows > 1:
                self._advance(packing.row_advance)

    def _advance(self, by: int) -> None:
        for window in self.windows:
            self.f.advance(window, by)

    def _word(self, offset: int | None) -> None:
        # A word of each window, those where the pointers are if there is no offset.
        f = self.f
        loaded = self.words if self.packing.size == 1 else self.wide
        for word, window in zip(loaded, self.windows, strict=True):
            f("ldr", word, f"[{window}], #4" if offset is None else f"[{window}, #{offset}]")
        if self.packing.size > 1:
            self._store()
            return
        for rotated in ((), ("ror #8",)):
            for wide, word in zip(self.wide, self.words, strict=True):
                f("sxtb16", wide, word, *rotated)
            self._store()

    def _store(self) -> None:
        if len(self.wide) > 1:
            self.f("stm", f"{self.to}!", listed(self.wide))
        else:
            self.f("str", self.wide[0], f"[{self.to}], #4")
