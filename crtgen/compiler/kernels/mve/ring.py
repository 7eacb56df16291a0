"""A ring of padded image rows in scratch, and the lead with which outputs may overwrite the image."""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.asm import Runs
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.window import WindowShape, least_lead
from crtgen.compiler.kernels.mve.bytes import copy, fill
from crtgen.compiler.kernels.mve.stream import LANES

__all__ = ["Ring", "pairs_lead"]


@dataclass(frozen=True, slots=True)
class Ring:
    """``rows`` rows of ``pitch`` bytes in scratch, padded with ``fill``; the image is at byte ``left``."""

    rows: int
    pitch: int
    left: int
    row_bytes: int
    fill: int

    @classmethod
    def of(cls, window: WindowShape, fill: int) -> "Ring":
        pitch = -(-window.columns * window.channels // 4) * 4
        seen = max(0, min(window.width, window.columns - window.left))
        return cls(window.rows, pitch, window.left * window.channels, seen * window.channels, fill)

    @property
    def bytes(self) -> int:
        """Bytes of scratch; vectors may extend beyond the last row."""
        return -(-self.rows * self.pitch // 16) * 16 + LANES

    @property
    def sides(self) -> tuple[tuple[int, int], ...]:
        """Start and size in bytes of the padding at each side of a row."""
        right = self.left + self.row_bytes
        both = (0, self.left), (right, self.pitch - right)
        return tuple((at, count) for at, count in both if count)

    @property
    def by_sides(self) -> bool:
        """True if it is faster to fill the padding of each row than to fill everything."""
        return self._fill_sides.instructions < self.fill_whole.instructions

    @property
    def fill_whole(self) -> Runs:
        return fill().runs(vectors=self.bytes / LANES)

    @property
    def _fill_sides(self) -> Runs:
        calls = (fill().runs(vectors=-(-count // LANES)) for _, count in self.sides)
        return self.rows * Runs.sum(calls)

    def fill_work(self, work: Work) -> None:
        work.block("ring", 1)
        if self.by_sides:
            work.assembly += self._fill_sides
            work.block("side", self.rows * len(self.sides), len(self.sides))
        else:
            work.assembly += self.fill_whole

    def load_work(self, work: Work, w: WindowShape) -> None:
        loaded = max((w.out_height - 1) * w.stride_y + w.rows, 0)
        inside = max(min(loaded - w.top, w.height), 0)
        row = -(-self.row_bytes // LANES)
        work.block("ring row", w.batch * loaded)
        work.assembly += w.batch * inside * copy().runs(vectors=row)
        work.assembly += w.batch * (loaded - inside) * fill().runs(vectors=row)


def pairs_lead(window: WindowShape, outputs: int, overlapping: bool) -> int:
    """Return the lead if pairs of pixels of a row are read until their outputs are complete.

    The last pair of an odd row is the last two pixels if ``overlapping``, otherwise the last one alone.
    """
    width = window.out_width
    starts = np.arange(0, width, 2)
    starts = np.minimum(starts, width - 2) if overlapping else starts
    rows = np.arange(window.batch * window.out_height)[:, None] * width
    written = (rows + np.minimum(starts + 2, width)).ravel()
    return least_lead(written * outputs, window.first_reads()[(rows + starts).ravel()])
