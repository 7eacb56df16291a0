"""Converts outputs of an image network to boxes, with the arithmetic of the generated C."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor
from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen.base.errors import UsageError
from crtgen.network.ir import Array, DType, Value, shape_text
from crtgen.network.pipeline.decision import Boxes, Decision

__all__ = ["CANDIDATES", "Box", "BoxLayout", "Finder", "layout_of"]

CANDIDATES = 10
"""Number of boxes that are compared with each other, for each one that may be found."""

# Parts of a whole in which integers count the shared area.
_SHARE = 1 << 16

Numbers = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle by its upper left corner, its label and its score, all as real values.

    Coordinates of ``fomo`` are pixels of the network's input; those of ``nms`` are the network's own.
    """

    x: float
    y: float
    width: float
    height: float
    label: int
    score: float


@dataclass(frozen=True, slots=True)
class BoxLayout:
    """Layout of a network's boxes: ``rows`` of values, in which the scores start at index ``first``.

    Value j of row i is at ``i * row_step + j * step``. ``columns`` is the width of a grid of cells, 0 without
    a grid. With ``has_objectness``, the value before the scores is the score of the box as such.
    """

    rows: int
    row_step: int
    step: int
    first: int
    labels: int
    columns: int = 0
    has_objectness: bool = False


def layout_of(decision: Decision, output: Value, where: str) -> BoxLayout:
    """Return the layout of an output. Raises ``UsageError`` if it cannot hold boxes of this kind."""
    assert decision.boxes is not None
    shape, count = output.shape, len(decision.names)
    if decision.boxes.kind == "fomo":
        shape = shape[1:] if len(shape) == 4 and shape[0] == 1 else shape
        if len(shape) != 3 or shape[2] < 2 or (count and shape[2] != count) or 0 in decision.labels:
            what = f"its output of {shape_text(output.shape)} is no grid of cells with scores of labels"
            hint = "fomo takes [rows, columns, labels], of which label 0 is the background"
            raise UsageError(what, where=where, hint=hint)
        return BoxLayout(shape[0] * shape[1], shape[2], 1, 0, shape[2], columns=shape[1])
    if not count:
        raise UsageError(
            "[decision] boxes: nms needs the names of all labels", where=where, hint="list them as labels"
        )
    shape = tuple(length for length in shape if length != 1)
    for along in (1, 0):
        for first in (4, 5):
            if len(shape) == 2 and shape[along] == first + count:
                rows = shape[1 - along]
                steps = (first + count, 1) if along else (1, rows)
                return BoxLayout(rows, *steps, first, count, has_objectness=first == 5)
    what = f"its output of {shape_text(output.shape)} has no boxes of {4 + count} or {5 + count} numbers"
    hint = f"x, y of the centre, width, height, and a score of each of {count} labels"
    raise UsageError(what, where=where, hint=hint)


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds boxes. ``cell`` is the size of a cell in pixels, across and down; ``zero`` is subtracted from
    stored values.
    """

    boxes: Boxes
    layout: BoxLayout
    labels: tuple[int, ...]
    above: float
    scale: float
    zero: int
    is_real: bool
    cell: tuple[int, int]

    @classmethod
    def of(cls, decision: Decision, output: Value, width: int, height: int) -> "Finder":
        """Make the finder for an output of a network on pictures of ``width`` x ``height`` pixels."""
        assert decision.boxes is not None
        layout = layout_of(decision, output, output.name)
        is_grid = layout.columns > 0
        cell = (width // layout.columns, height // (layout.rows // layout.columns)) if is_grid else (1, 1)
        quant = output.quant
        scale, zero = (quant.scale, quant.zero_point) if quant is not None else (1.0, 0)
        labels = decision.labels or tuple(range(int(is_grid), layout.labels))
        is_real = output.dtype is DType.FLOAT32
        return cls(decision.boxes, layout, labels, decision.above, scale, zero, is_real, cell)

    @property
    def score_scale(self) -> float:
        """Return the unit of a score; the score of a box with its label is a product."""
        return self.scale**2 if self.layout.has_objectness else self.scale

    @property
    def least(self) -> int:
        return floor(self.above / self.score_scale) + 1

    @property
    def candidates(self) -> int:
        return min(CANDIDATES * self.boxes.most, self.layout.rows)

    @property
    def share(self) -> int:
        """Return the threshold above which boxes are of the same object, as a fraction of both areas in units
        of 1/65536.
        """
        return floor(self.boxes.overlap * _SHARE)

    def find(self, output: Array) -> tuple[Box, ...]:
        """Find the boxes in an output: for ``fomo`` from top to bottom, for ``nms`` the best one first."""
        flat = np.asarray(output).ravel()
        table = np.lib.stride_tricks.as_strided(
            flat,
            (self.layout.rows, self.layout.first + self.layout.labels),
            (self.layout.row_step * flat.itemsize, self.layout.step * flat.itemsize),
        )
        rows = table if self.is_real else table.astype(np.int64) - self.zero
        return tuple(self._cells(rows) if self.boxes.kind == "fomo" else self._separate(rows))

    def _is_above(self, score: Any) -> bool:
        return bool(score > np.float32(self.above)) if self.is_real else bool(score >= self.least)

    def _real(self, number: Any, scale: float) -> float:
        return float(number) if self.is_real else float(np.float32(number) * np.float32(scale))

    def _cells(self, rows: Numbers) -> Iterator[Box]:
        # Cells that touch a box of their label widen it, by the rule of Edge Impulse; then boxes do.
        cubes: list[_Cube] = []
        for place, row in enumerate(rows):
            at = (place % self.layout.columns, place // self.layout.columns)
            for label in self.labels:
                if self._is_above(row[label]):
                    _merge(cubes, _Cube(*at, 1, 1, label, row[label]), self.boxes.most)
        merged: list[_Cube] = []
        for cube in cubes:
            _merge(merged, cube, self.boxes.most)
        across, down = self.cell
        for cube in merged:
            size = (cube.width * across, cube.height * down)
            score = self._real(cube.score, self.scale)
            yield Box(cube.x * across, cube.y * down, *size, cube.label, score)

    def _separate(self, rows: Numbers) -> Iterator[Box]:
        kept: list[tuple[int, int]] = []
        for score, place, label in self._best(rows):
            box = rows[place]
            if any(label == other and self._is_same(box, rows[at]) for at, other in kept):
                continue
            kept.append((place, label))
            left, up = (self._edges(box, i)[0] for i in (0, 1))
            corner = (self._real(left, self.scale / 2), self._real(up, self.scale / 2))
            width, height = (self._real(length, self.scale) for length in _lengths(box))
            yield Box(*corner, width, height, label, self._real(score, self.score_scale))
            if len(kept) == self.boxes.most:
                return

    def _edges(self, box: Numbers, axis: int) -> tuple[Any, Any]:
        # Edges of a box; integers are doubled, so that half a length is an integer.
        centre, length = box[axis], _lengths(box)[axis]
        if self.is_real:
            half = np.float32(0.5) * length
            return centre - half, centre + half
        return 2 * centre - length, 2 * centre + length

    def _is_same(self, a: Numbers, b: Numbers) -> bool:
        # True if the overlap of two boxes exceeds the given fraction of their union.
        shared: Any = 1
        for axis in (0, 1):
            (start, end), (other_start, other_end) = self._edges(a, axis), self._edges(b, axis)
            length = min(end, other_end) - max(start, other_start)
            if not length > 0:
                return False
            shared = length if axis == 0 else shared * length
        areas = [_lengths(box)[0] * _lengths(box)[1] for box in (a, b)]
        if self.is_real:
            return bool(shared > np.float32(self.boxes.overlap) * ((areas[0] + areas[1]) - shared))
        return bool(shared * _SHARE > self.share * (4 * (areas[0] + areas[1]) - shared))

    def _best(self, rows: Numbers) -> list[tuple[Any, int, int]]:
        # The greatest scores, their rows and labels; of equal ones those of earlier rows.
        found = []
        for place, row in enumerate(rows):
            scores = [row[self.layout.first + label] for label in self.labels]
            best = int(np.argmax(scores))
            score = scores[best] * row[4] if self.layout.has_objectness else scores[best]
            if self._is_above(score):
                found.append((score, place, self.labels[best]))
        found.sort(key=lambda each: -each[0])
        return found[: self.candidates]


def _lengths(box: Numbers) -> tuple[Any, Any]:
    # Width and height, which are not below 0.
    width, height = (max(length, type(length)(0)) for length in box[2:4])
    return width, height


@dataclass(slots=True)
class _Cube:
    x: int
    y: int
    width: int
    height: int
    label: int
    score: Any

    def touches(self, other: "_Cube") -> bool:
        across = self.x <= other.x + other.width and other.x <= self.x + self.width
        return across and self.y <= other.y + other.height and other.y <= self.y + self.height

    def take(self, other: "_Cube") -> None:
        # Widen it; where the other one begins before it, it moves there and keeps its size.
        self.x, self.y = min(self.x, other.x), min(self.y, other.y)
        self.width = max(self.width, other.x + other.width - self.x)
        self.height = max(self.height, other.y + other.height - self.y)
        self.score = max(self.score, other.score)


def _merge(cubes: list[_Cube], new: _Cube, most: int) -> None:
    # Into the first one of its label that it touches; else it is one more, if there is room.
    for cube in cubes:
        if cube.label == new.label and cube.touches(new):
            cube.take(new)
            return
    if len(cubes) < most:
        cubes.append(new)
