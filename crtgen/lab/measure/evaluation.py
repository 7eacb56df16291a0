"""Quality on labelled data: the classes of clips, and the events in recordings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen import api
from crtgen.base.errors import UsageError
from crtgen.lab.measure.labelled import NORMAL, Clip, Recording, read_arrays, read_clips, read_recordings
from crtgen.lab.measure.subject import Run, Subject, run_of, runs_in
from crtgen.network.ir import Array
from crtgen.network.pipeline import JoinedPipeline, events_of, read_samples

__all__ = [
    "Classified",
    "Detected",
    "Evaluation",
    "Ranked",
    "Threshold",
    "count_events",
    "evaluate",
    "evaluate_here",
    "rehearse",
    "sweep_cells",
]

_BEFORE, _AFTER = 0.0, 2.0
"""Seconds around an event in which it counts as noticed: MLPerf Tiny's runner adds one second twice."""
# Seconds after a false alarm in which it is the same one.
_DEBOUNCE = 1.0
# Thresholds of events.
_SWEPT = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.99)
# Parts of what is none that thresholds of scores are above.
_QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Classified:
    """Result for classes: ``confusion[i][j]`` clips of label i were classified as j; ``auc`` of label 1 if
    there are two.
    """

    names: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    auc: float | None = None

    @property
    def count(self) -> int:
        return sum(map(sum, self.confusion))

    @property
    def accuracy(self) -> float:
        return sum(row[i] for i, row in enumerate(self.confusion)) / self.count


@dataclass(frozen=True, slots=True)
class Ranked:
    """Result for anomalies: the area under the ROC curve, 1 if all anomalies score above all other clips."""

    normal: int
    anomalies: int
    auc: float


@dataclass(frozen=True, slots=True)
class Detected:
    """Result for events: detected ones, missed ones, and false alarms."""

    hits: int
    misses: int
    false_alarms: int
    hours: float

    @property
    def false_alarms_an_hour(self) -> float:
        return self.false_alarms / self.hours if self.hours else 0.0


@dataclass(frozen=True, slots=True)
class Threshold:
    """Result for another threshold; ``an_hour`` is the rate of false alarms in recordings."""

    above: float
    hits: int
    misses: int
    false_alarms: int
    an_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A result, results for other thresholds, and the class of each clip if there are classes."""

    result: Classified | Ranked | Detected
    thresholds: tuple[Threshold, ...] = ()
    taken: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        match self.result:
            case Classified() as result:
                right = sum(row[i] for i, row in enumerate(result.confusion))
                area = "" if result.auc is None else f", AUC {result.auc:.4f}"
                return f"accuracy {result.accuracy:.4f}, {right} of {result.count} clips{area}"
            case Ranked() as result:
                return f"AUC {result.auc:.4f}, {result.normal} normal clips and {result.anomalies} others"
            case Detected() as result:
                alarms = f"{result.false_alarms} false alarms in {result.hours:.2f} h"
                return f"{result.hits} hits, {result.misses} misses, {alarms}"

    @property
    def figures(self) -> dict[str, float]:
        match self.result:
            case Classified(auc=auc):
                return {"accuracy": self.result.accuracy, **({} if auc is None else {"auc": auc})}
            case Ranked(auc=auc):
                return {"auc": auc}
            case Detected():
                return {
                    "hits": self.result.hits,
                    "misses": self.result.misses,
                    "false_alarms": self.result.false_alarms,
                    "false_alarms_an_hour": self.result.false_alarms_an_hour,
                }


def rehearse(subject: Subject, data: Path) -> Evaluation:
    """Evaluate zeros for the first clip of each label, to report errors in the data early.

    Commands call it before they build anything. Raises ``UsageError`` as ``evaluate`` does.
    """
    output = subject.output
    zeros = np.zeros(output.shape, output.dtype.numpy)
    return evaluate(subject, data, lambda inputs: [zeros] * len(inputs), first_only=True)


def evaluate(subject: Subject, data: Path, run: Run, first_only: bool = False) -> Evaluation:
    """Evaluate on a folder of clips, a ``.npz`` or a table of events. Raises ``UsageError`` for others.

    With ``first_only``, only the first clip of each label and the first recording of a table are used.
    """
    suffix = data.suffix.lower()
    if suffix == ".csv":
        recordings = read_recordings(data)
        return _detect(subject, recordings[:1] if first_only else recordings, run)
    if not data.is_dir() and suffix != ".npz":
        raise UsageError(
            "the data are neither a folder nor a .npz file nor a table",
            where=str(data),
            hint="see crtgen eval --help",
        )
    if subject.is_anomaly:
        return _rank(subject, _chosen(_normal_or_not(data), first_only), run)
    if data.is_dir():
        hint = "name them in [decision] labels" if subject.pipeline else "name them by --labels"
        return _classify(subject, _chosen(read_clips(data, subject.names, hint), first_only), run)
    clips = read_arrays(data, len(subject.names) or max(subject.count, 2))
    return _classify(subject, _chosen(clips, first_only), run)


def _chosen(clips: Sequence[Clip], first_only: bool) -> Sequence[Clip]:
    return list({clip.label: clip for clip in reversed(clips)}.values()) if first_only else clips


def evaluate_here(
    model: api.Model, data: Path, say: api.Say = lambda text: None, names: Sequence[str] = ()
) -> Evaluation:
    """Evaluate a model with the numpy reference on this computer; ``names`` are a network's labels."""
    image = model.compile("host").generate("server").build(say=say)
    with image.run(counting=False) as session:
        return evaluate(Subject.of(model, names), data, run_of(session))


def sweep_cells(sweep: Sequence[Threshold]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    timed = sweep[0].an_hour is not None
    columns = ("above", "hits", "misses", "false alarms", *(["an hour"] * timed))
    rows = []
    for each in sweep:
        cells = (f"{each.above:.6g}", *map(str, (each.hits, each.misses, each.false_alarms)))
        rows.append(cells if each.an_hour is None else (*cells, f"{each.an_hour:.1f}"))
    return columns, rows


def _normal_or_not(data: Path) -> list[Clip]:
    # Clips, those of anomalies with label 1.
    if not data.is_dir():
        clips = read_arrays(data, None)
    else:
        names = sorted(path.name for path in data.iterdir() if path.is_dir())
        names.sort(key=lambda name: name != NORMAL)
        clips = read_clips(data, names)
        if names[0] != NORMAL:
            raise UsageError(
                f'the folder has no subfolder "{NORMAL}"',
                where=str(data),
                hint="put recordings of normal operation into it",
            )
    clips = [replace(clip, label=min(clip.label, 1)) for clip in clips]
    if len({clip.label for clip in clips}) < 2:
        raise UsageError(
            "the folder needs recordings of normal operation and of anomalies",
            where=str(data),
            hint="put recordings into its subfolders, one folder per kind",
        )
    return clips


def _classify(subject: Subject, clips: Sequence[Clip], run: Run) -> Evaluation:
    # Each clip is taken for the label whose score is greatest in the last run, at the end of the clip. A
    # single score is that of label 1, which is taken where it is above 0.5, or what a pipeline says.
    count = max(subject.count, 2)
    names = subject.names or tuple(map(str, range(count)))
    confusion, taken, scores = np.zeros((count, count), int), [], []
    for clip in clips:
        last = subject.scores(clip, run)[-1]
        if len(last) == 1:
            last = np.array([_limit(subject), last[0]])
        taken.append(int(np.argmax(last)))
        scores.append(last[1] if subject.count == 1 else last[1] - last[0])
        confusion[clip.label, taken[-1]] += 1
    table = tuple(tuple(map(int, row)) for row in confusion)
    if count != 2 or len({clip.label for clip in clips}) < 2:
        return Evaluation(Classified(names, table), (), tuple(taken))
    low, high = _parted(clips, scores)
    return Evaluation(Classified(names, table, _area(low, high)), _swept(low, high), tuple(taken))


def _limit(subject: Subject) -> float:
    pipeline = subject.pipeline
    return 0.5 if pipeline is None or pipeline.decision is None else pipeline.decision.above


def _rank(subject: Subject, clips: Sequence[Clip], run: Run) -> Evaluation:
    # The scores of a clip are averaged.
    low, high = _parted(clips, [float(subject.scores(clip, run).mean()) for clip in clips])
    return Evaluation(Ranked(len(low), len(high), _area(low, high)), _swept(low, high))


def _parted(clips: Sequence[Clip], scores: Sequence[float]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    labels, numbers = np.array([clip.label for clip in clips]), np.array(scores)
    return numbers[labels == 0], numbers[labels > 0]


def _area(low: npt.NDArray[Any], high: npt.NDArray[Any]) -> float:
    above = (high[:, None] > low) + 0.5 * (high[:, None] == low)
    return float(np.asarray(above).mean())


def _swept(low: npt.NDArray[Any], high: npt.NDArray[Any]) -> tuple[Threshold, ...]:
    # Thresholds that are above parts of what is none.
    limits = sorted({float(np.quantile(low, part, method="higher")) for part in _QUANTILES})
    counts = ((limit, int((high > limit).sum()), int((low > limit).sum())) for limit in limits)
    return tuple(Threshold(limit, hits, len(high) - hits, alarms) for limit, hits, alarms in counts)


def _detect(subject: Subject, recordings: Sequence[Recording], run: Run) -> Evaluation:
    pipeline = subject.pipeline
    if pipeline is None or pipeline.decision is None:
        raise UsageError("a table of events needs a pipeline", hint="describe one: docs/pipelines.md")
    kept, hours = [], 0.0
    for recording in recordings:
        samples = read_samples(recording.path, pipeline)
        kept.append(run(runs_in(pipeline, samples, str(recording.path))))
        hours += len(samples) / pipeline.rate / 3600
    decision = pipeline.decision
    found = _detected(pipeline, recordings, kept, hours)
    others = [] if decision.anomaly else list(_detected_above(pipeline, recordings, kept, hours))
    return Evaluation(found, tuple(others))


def _detected_above(
    pipeline: JoinedPipeline, recordings: Sequence[Recording], kept: Sequence[list[Array]], hours: float
) -> Iterator[Threshold]:
    assert pipeline.decision is not None
    for above in _SWEPT:
        other = replace(pipeline, decision=replace(pipeline.decision, above=above))
        found = _detected(other, recordings, kept, hours)
        counts = (found.hits, found.misses, found.false_alarms)
        yield Threshold(above, *counts, found.false_alarms_an_hour)


def _detected(
    pipeline: JoinedPipeline, recordings: Sequence[Recording], kept: Sequence[list[Array]], hours: float
) -> Detected:
    counts = np.zeros(3, int)
    for recording, outputs in zip(recordings, kept, strict=True):
        times = [event.sample / pipeline.rate for event in events_of(pipeline, outputs)]
        counts += count_events(times, recording.events)
    hits, misses, alarms = map(int, counts)
    return Detected(hits, misses, alarms, hours)


def count_events(times: Sequence[float], events: Sequence[tuple[float, float]]) -> tuple[int, int, int]:
    """Count hits, misses and false alarms as MLPerf Tiny's runner does for the streaming wake word.

    A labelled event is a hit if something was detected from its start to two seconds after its end. Other
    detections are false alarms; those within a second of the one before count once.
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
