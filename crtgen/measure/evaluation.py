"""How good a pipeline is on labelled recordings: clips in folders, or recordings with times of events."""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

from crtgen import files
from crtgen.errors import UsageError
from crtgen.files import PICTURES
from crtgen.ir import Array
from crtgen.pipeline import Decision, Pipeline, events_of, read_samples, runs_of

__all__ = [
    "Classified",
    "Clip",
    "Detected",
    "Ranked",
    "Recording",
    "classify",
    "count_events",
    "detect",
    "rank",
    "read_clips",
    "read_recordings",
    "swept",
]

Run = Callable[[Sequence[Array]], list[Array]]
"""What a pipeline's model makes of runs one after the other, after a reset."""

_RECORDED = (".wav", ".npy", *PICTURES)
_BEFORE, _AFTER = 0.0, 2.0
"""Seconds around an event in which it counts as noticed: MLPerf Tiny's runner adds one second twice."""
_DEBOUNCE = 1.0
"""Seconds after a false alarm in which it is the same one."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording of one thing, and the number of its label."""

    path: Path
    label: int


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording in which something happens at times: from and to, in seconds."""

    path: Path
    events: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Classified:
    """``confusion[i][j]`` clips of label i were taken for label j."""

    names: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]

    @property
    def count(self) -> int:
        return sum(map(sum, self.confusion))

    @property
    def accuracy(self) -> float:
        """The share of clips that were taken for what they are."""
        return sum(row[i] for i, row in enumerate(self.confusion)) / self.count


@dataclass(frozen=True, slots=True)
class Ranked:
    """The area under the curve of true over false positives: 1 if anomalies score above all else."""

    normal: int
    anomalies: int
    auc: float


@dataclass(frozen=True, slots=True)
class Detected:
    """Events that were noticed, that were not, and alarms without an event."""

    hits: int
    misses: int
    false_alarms: int
    hours: float

    @property
    def false_alarms_an_hour(self) -> float:
        return self.false_alarms / self.hours if self.hours else 0.0


def read_clips(folder: Path, names: Sequence[str]) -> list[Clip]:
    """The clips in folders that are called as the labels. Raises ``UsageError`` for other folders or none."""
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    for path in folders:
        if path.name not in names:
            hint = f"labels in [decision]: {', '.join(names) or 'none'}"
            raise UsageError(f"the folder {path.name} is called as no label", where=str(folder), hint=hint)
    found = [
        Clip(file, list(names).index(path.name))
        for path in folders
        for file in sorted(path.iterdir())
        if file.suffix.lower() in _RECORDED
    ]
    if not found:
        hint = "a folder for each label, with files of .wav or .npy, or pictures"
        raise UsageError("it has no clips", where=str(folder), hint=hint)
    return found


def read_recordings(path: Path) -> list[Recording]:
    """The rows ``file,start,stop`` of a table, in seconds; a file without events has a row without times.

    Files are named from the table's folder. Raises ``UsageError`` with the row that is wrong.
    """
    found: dict[Path, list[tuple[float, float]]] = {}
    rows = csv.reader(StringIO(files.read_text(path, "the table")))
    for number, row in enumerate(rows, 1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or (number == 1 and cells[:1] == ["file"]):
            continue
        if len(cells) != 3 or not cells[0]:
            raise UsageError(f"row {number} is not file,start,stop", where=str(path))
        events = found.setdefault(path.parent / cells[0], [])
        if cells[1] or cells[2]:
            events.append(_span(cells, number, path))
    if not found:
        raise UsageError("it names no recordings", where=str(path), hint="rows of file,start,stop")
    return [Recording(file, tuple(sorted(events))) for file, events in found.items()]


def _span(cells: Sequence[str], number: int, path: Path) -> tuple[float, float]:
    try:
        start, stop = float(cells[1]), float(cells[2])
    except ValueError:
        start, stop = 0.0, -1.0
    if not 0 <= start <= stop < 1e7:
        raise UsageError(f"row {number}: from {cells[1]} to {cells[2]} s", where=str(path))
    return start, stop


def outputs_of(pipeline: Pipeline, path: Path, run: Run) -> tuple[list[Array], float]:
    """The output of each run on a recording, and its seconds."""
    samples = read_samples(path, pipeline)
    try:
        runs = runs_of(pipeline, samples)
    except UsageError as error:
        error.where = error.where or str(path)
        raise
    if len(runs) <= pipeline.warm:
        needed = pipeline.span - pipeline.before + pipeline.warm * pipeline.hop
        what = f"{len(samples)} samples are fewer than the {needed} that fill the network's window"
        raise UsageError(what, where=str(path), hint="take longer recordings, or run the network more often")
    return run(runs), len(samples) / pipeline.rate


def classify(pipeline: Pipeline, clips: Sequence[Clip], run: Run) -> Classified:
    """Each clip is taken for the label whose score is greatest in the last run, at the end of the clip."""
    assert pipeline.decision is not None
    names = pipeline.decision.names
    confusion = np.zeros((len(names), len(names)), int)
    for clip in clips:
        outputs, _ = outputs_of(pipeline, clip.path, run)
        confusion[clip.label, int(np.argmax(outputs[-1]))] += 1
    return Classified(names, tuple(tuple(map(int, row)) for row in confusion))


def rank(pipeline: Pipeline, normal: Sequence[Path], anomalies: Sequence[Path], run: Run) -> Ranked:
    """The scores of a clip are averaged."""

    def score(path: Path) -> float:
        outputs, _ = outputs_of(pipeline, path, run)
        return float(np.mean([np.asarray(y, np.float64).mean() for y in outputs[pipeline.warm :]]))

    low, high = np.array([score(p) for p in normal]), np.array([score(p) for p in anomalies])
    above: npt.NDArray[np.float64] = (high[:, None] > low) + 0.5 * (high[:, None] == low)
    return Ranked(len(low), len(high), float(above.mean()))


def detect(
    pipeline: Pipeline, recordings: Sequence[Recording], run: Run
) -> tuple[Detected, list[list[Array]]]:
    """What the events of recordings come to, and the outputs, for other thresholds."""
    kept, hours = [], 0.0
    for recording in recordings:
        outputs, seconds = outputs_of(pipeline, recording.path, run)
        kept.append(outputs)
        hours += seconds / 3600
    return _detected(pipeline, recordings, kept, hours), kept


def swept(
    pipeline: Pipeline, recordings: Sequence[Recording], kept: Sequence[list[Array]], hours: float
) -> Iterator[tuple[float, Detected]]:
    """The same with other thresholds."""
    assert pipeline.decision is not None
    for above in (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99):
        decision: Decision = replace(pipeline.decision, above=above)
        yield above, _detected(replace(pipeline, decision=decision), recordings, kept, hours)


def _detected(
    pipeline: Pipeline, recordings: Sequence[Recording], kept: Sequence[list[Array]], hours: float
) -> Detected:
    counts = np.zeros(3, int)
    for recording, outputs in zip(recordings, kept, strict=True):
        times = [event.sample / pipeline.rate for event in events_of(pipeline, outputs)]
        counts += count_events(times, recording.events)
    hits, misses, alarms = map(int, counts)
    return Detected(hits, misses, alarms, hours)


def count_events(times: Sequence[float], events: Sequence[tuple[float, float]]) -> tuple[int, int, int]:
    """Hits, misses and false alarms, as MLPerf Tiny's runner counts them for the streaming wake word.

    An event is a hit if something was noticed from its start to two seconds after its end. What is left are
    false alarms; those within a second of the one before are the same.
    """
    left, hits = sorted(times), 0
    for start, stop in events:
        inside = [t for t in left if start - _BEFORE <= t <= stop + _AFTER]
        hits += bool(inside)
        left = [t for t in left if t not in inside]
    alarms, last = 0, -np.inf
    for time in left:
        if time - last > _DEBOUNCE:
            alarms += 1
            last = time
    return hits, len(events) - hits, alarms
