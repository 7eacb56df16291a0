"""Labelled data: clips in folders, arrays, or recordings with times of events."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crtgen.base.errors import UsageError
from crtgen.base.files import PICTURES
from crtgen.base.formats import arrays
from crtgen.base.formats.tables import read_table
from crtgen.network.ir import Array

__all__ = ["NORMAL", "Clip", "Recording", "read_arrays", "read_clips", "read_recordings"]

_RECORDED = (".wav", ".npy", *PICTURES)

NORMAL = "normal"
"""The folder of normal recordings; in arrays, label 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """A labelled sample, as a file or an array, and the index of its label."""

    data: Path | Array
    label: int
    where: str


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording with the times of its events: start and stop, in seconds."""

    path: Path
    events: tuple[tuple[float, float], ...]


def read_clips(folder: Path, names: Sequence[str], hint: str = "") -> list[Clip]:
    """Return the clips in folders that are named after the labels. Raises ``UsageError`` if other folders or
    no clips are found.
    """
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    for path in folders:
        if path.name not in names:
            says = f"known labels: {', '.join(names) or 'none'}"
            says = f"{says}; {hint}" if hint else says
            raise UsageError(
                f"the folder {path.name} is not named after a label", where=str(folder), hint=says
            )
    found = [
        Clip(file, list(names).index(path.name), str(file))
        for path in folders
        for file in sorted(path.iterdir())
        if file.suffix.lower() in _RECORDED
    ]
    if not found:
        says = "a folder for each label, with files of .wav or .npy, or pictures"
        raise UsageError("the folder has no clips", where=str(folder), hint=says)
    return found


def read_arrays(path: Path, count: int | None) -> list[Clip]:
    """Return the rows of ``x`` in a ``.npz``, labelled by the indices in ``y``, which must be below
    ``count``.
    """
    hint = "numpy.savez with x [N, ...] and y [N] of integers from 0 on"
    held = arrays.read_arrays(path, "the data", hint, needed=("x", "y"))
    x, y = held["x"], held["y"]
    if y.ndim != 1 or y.dtype.kind not in "iu" or x.ndim < 2 or len(x) != len(y) or not len(y):
        what = f"x of shape {x.shape} and y of {y.dtype}, shape {y.shape}"
        raise UsageError(what, where=str(path), hint=hint)
    top = int(y.max())
    if y.min() < 0 or (count is not None and top >= count):
        raise UsageError(
            f"the labels are {y.min()} to {top}, but there are {count} of them", where=str(path), hint=hint
        )
    return [Clip(row, int(label), f"{path}: x[{i}]") for i, (row, label) in enumerate(zip(x, y, strict=True))]


def read_recordings(path: Path) -> list[Recording]:
    """Return the rows ``file,start,stop`` of a table, in seconds; a file without events has a row without
    times.

    File names are relative to the table's folder. Raises ``UsageError`` with the row that is wrong.
    """
    found: dict[Path, list[tuple[float, float]]] = {}
    for number, row in enumerate(read_table(path, "the table"), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or (number == 1 and cells[:1] == ["file"]):
            continue
        if len(cells) != 3 or not cells[0]:
            raise UsageError(
                f"row {number} is not file,start,stop",
                where=str(path),
                hint="a row is for example clap.wav,0.5,1.25",
            )
        events = found.setdefault(path.parent / cells[0], [])
        if cells[1] or cells[2]:
            events.append(_span(cells, number, path))
    if not found:
        raise UsageError("the table names no recordings", where=str(path), hint="rows of file,start,stop")
    return [Recording(file, tuple(sorted(events))) for file, events in found.items()]


def _span(cells: Sequence[str], number: int, path: Path) -> tuple[float, float]:
    try:
        start, stop = float(cells[1]), float(cells[2])
    except ValueError:
        start, stop = 0.0, -1.0
    if not 0 <= start <= stop < 1e7:
        raise UsageError(
            f"row {number}: from {cells[1]} to {cells[2]} s",
            where=str(path),
            hint="the start comes before the stop",
        )
    return start, stop
