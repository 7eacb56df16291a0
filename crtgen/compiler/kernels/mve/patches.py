"""Patches of 4x4 inputs for depthwise convolutions: which ones are needed, and in what order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from crtgen.compiler.kernels.engine.window import WindowShape
from crtgen.compiler.kernels.mve.stream import LANES

__all__ = [
    "FAR_ADD",
    "SIDE",
    "Batch",
    "Patch",
    "Strip",
    "StripRows",
    "batches_of",
    "in_lanes",
    "patches_of",
    "plane_bytes",
    "stretches",
    "strips_of",
]

SIDE = 4
"""Rows and columns of a patch."""
FAR_ADD = 4095
"""The greatest step of a core register in one instruction."""


@dataclass(frozen=True, slots=True)
class Patch:
    """A load of 4x4 inputs, ``advance`` bytes after the previous one, and the sums that use it.

    It goes to the first or the ``second`` of two vectors. ``sums`` are pairs: the index of a sum and the
    index of its vector of weights. With ``first``, the sums begin here.
    """

    second: bool
    advance: int
    sums: tuple[tuple[int, int], ...]
    first: bool


@dataclass(frozen=True, slots=True)
class Batch:
    """Eight or four outputs of a channel; ``offsets`` are their destinations, in the order of the lanes."""

    patches: tuple[Patch, ...]
    offsets: tuple[int, ...]

    @property
    def full(self) -> bool:
        return len(self.offsets) == 2 * SIDE

    @property
    def words(self) -> tuple[int, ...]:
        if not self.full:
            return self.offsets
        pairs = zip(self.offsets[::2], self.offsets[1::2], strict=True)
        return tuple(low | high << 16 for low, high in pairs)


@dataclass(frozen=True, slots=True)
class StripRows:
    """Loading of a strip's four rows into scratch.

    ``kept`` rows are already there and move to the front by ``moved`` positions. For the others, ``inside``
    tells if they are read or padding. Rows with zero weights only count as padding.
    """

    kept: int
    moved: int
    inside: tuple[bool, ...]

    @property
    def padded(self) -> bool:
        return not all(self.inside)

    @property
    def reads(self) -> bool:
        return any(self.inside)

    @property
    def fresh(self) -> tuple[tuple[int, bool], ...]:
        """Index of each new row among the four, and True if it is read."""
        return tuple(enumerate(self.inside, self.kept))


@dataclass(frozen=True, slots=True)
class Strip:
    """``count`` strips of output rows, the first one at row ``first``, each ``step`` rows after the previous
    one.

    ``planes`` are the sets of four rows.
    """

    first: int
    count: int
    step: int
    planes: tuple[StripRows, ...]

    @property
    def alike(self) -> tuple[tuple[int, int, StripRows], ...]:
        """Consecutive planes of one kind: the index of the first one, and their number."""
        found, at = [], 0
        for kind, planes in groupby(self.planes):
            count = len(list(planes))
            found.append((at, count, kind))
            at += count
        return tuple(found)


def patches_of(window: WindowShape) -> list[tuple[int, int]]:
    planes, across = (range(-(-taps // SIDE)) for taps in (window.taps_y, window.taps_x))
    return [(plane, column * SIDE) for plane in planes for column in across]


def plane_bytes(window: WindowShape, columns: int) -> int:
    return -(-columns * window.channels * SIDE // LANES) * LANES


def stretches(length: int, step: int) -> list[int]:
    """Return the starts of segments of length ``step`` that cover ``length``; the last one may overlap."""
    return sorted({min(at, length - step) for at in range(0, length, step)})


def batches_of(
    window: WindowShape, multiplier: int, starts: Sequence[int], squares: bool, plane: int
) -> Iterator[Batch]:
    """Yield batches of eight sums that together cover the outputs of these columns.

    The last batch has four sums if no more are left.
    """
    full, each = (2, SIDE) if squares else (8, 1)
    groups, column = patches_of(window), window.channels * SIDE
    at = 0
    for first in range(0, len(starts), full):
        part = list(starts[first : first + full])
        size = full if len(part) * 2 > full else full // 2
        part += [part[-1]] * (size - len(part))
        patches = []
        for group, (down, across) in enumerate(groups):
            for number, start in enumerate(part):
                sums = tuple((number * each + i, group + i) for i in range(each))
                here = down * plane + (start * window.stride_x + across * window.dilation_x) * column
                patches.append(Patch(number % 2 > 0, here - at, sums, group == 0))
                at = here
        places = [p for start in part for p in _outputs(window, multiplier, start, squares)]
        yield Batch(tuple(patches), in_lanes(places))


def _outputs(window: WindowShape, multiplier: int, start: int, squares: bool) -> list[int]:
    # Offsets of a patch's outputs: in a square the next column, the next row, and both.
    column = window.channels * multiplier
    here, row = start * column, window.out_width * column
    return [here, here + column, here + row, here + row + column] if squares else [here]


def in_lanes(places: Sequence[int]) -> tuple[int, ...]:
    """Return the places in the order that results from narrowing two vectors into one, whose lanes
    alternate.
    """
    if len(places) == SIDE:
        return tuple(places)
    return tuple(p for pair in zip(places[:SIDE], places[SIDE:], strict=True) for p in pair)


def strips_of(window: WindowShape, step: int) -> tuple[Strip, ...]:
    strips: list[Strip] = []
    previous: int | None = None
    for first in stretches(window.out_height, step):
        top = first * window.stride_y - window.top
        planes = _planes(window, step, top, previous)
        previous = top
        last = strips[-1] if strips else None
        if last and last.planes == planes and first == last.first + last.count * step:
            strips[-1] = Strip(last.first, last.count + 1, step, planes)
        else:
            strips.append(Strip(first, 1, step, planes))
    return tuple(strips)


def _planes(window: WindowShape, step: int, top: int, previous: int | None) -> tuple[StripRows, ...]:
    # The rows of the strip that begins at row ``top``, after that which begins at row ``previous``.
    used = window.taps_y + (step - 1) * window.stride_y
    moved = SIDE if previous is None else top - previous
    single = window.stride_y == window.dilation_y == 1 and used <= SIDE
    kept = max(0, used - moved) if single else 0
    rows = np.arange(-(-used // SIDE) * SIDE)
    at = top + rows * window.dilation_y
    inside = (rows < used) & (at >= 0) & (at < window.height)
    fours = inside.reshape(-1, SIDE)[:, kept:]
    return tuple(StripRows(kept, moved if kept else 0, tuple(four.tolist())) for four in fours)
