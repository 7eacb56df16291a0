"""Converts the outputs of runs to events, with the arithmetic of the generated C."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from crtgen.network.ir import Array, DType, Value
from crtgen.network.pipeline.boxes import Box, Finder
from crtgen.network.pipeline.decision import Decision, least_sum, runs_in

__all__ = ["Decider", "Event"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Event:
    """A detected event: its time (in samples from the start, at the end of its run), label and score.

    The score is a sum over ``runs`` runs in units of the stored output, as in the generated C; ``top`` lists
    the best labels with their scores. Commands show the mean as a real value, on the scale of ``above``. With
    ``boxes``, all values are real, and label and score are those of the best box.
    """

    sample: int
    label: int
    score: float
    runs: int = 1
    top: tuple[tuple[int, float], ...] = ()
    boxes: tuple[Box, ...] = ()


@dataclass(slots=True)
class Decider:
    """Decides after each run on ``output``; ``rate`` samples arrive per second, and each run is ``hop``
    samples after the previous one.

    ``width`` and ``height`` are pixels of an image network's input.
    """

    decision: Decision
    output: Value
    rate: int
    hop: int
    width: int = 0
    height: int = 0
    _scores: deque[Array] = field(default_factory=deque)
    _gate: deque[Array] = field(default_factory=deque)
    _votes: deque[int] = field(default_factory=deque)
    _runs: int = 0
    _quiet: int = 0
    _streak: int = 0
    _label: int = -1
    _last: int = -1

    @property
    def labels(self) -> Sequence[int]:
        return self.decision.labels or range(self.output.elements - (self.decision.gate is not None))

    def decide(self, scores: Array, sample: int) -> Event | None:
        if self.decision.boxes is not None:
            return self._found(scores, sample)
        flat = np.asarray(scores).ravel()
        decision = self.decision
        _keep(self._scores, flat[list(self.labels)], decision.average)
        is_open = self._is_open(flat)
        self._runs += 1
        self._quiet = max(self._quiet - 1, 0)
        if len(self._scores) < (decision.least or decision.average):
            return None
        if self._runs <= runs_in(decision.ignore, self.rate, self.hop):
            return None
        sums = self._sums(self._scores)
        order = sorted(range(len(sums)), key=lambda place: -sums[place])[: decision.top]
        label = self.labels[order[0]]
        is_above = is_open and self._is_above(sums[order[0]], decision.above, len(self._scores))
        if not self._is_enough(label, is_above) or (
            self._quiet and (decision.quiet_of == "all" or label == self._last)
        ):
            return None
        self._quiet = runs_in(decision.quiet, self.rate, self.hop)
        self._last = label
        self._streak = 0
        self._votes.clear()
        top = tuple((self.labels[place], sums[place]) for place in order)
        return Event(sample, label, top[0][1], len(self._scores), top)

    def _found(self, output: Array, sample: int) -> Event | None:
        boxes = Finder.of(self.decision, self.output, self.width, self.height).find(output)
        if not boxes:
            return None
        best = max(boxes, key=lambda box: box.score)
        return Event(sample, best.label, best.score, boxes=boxes)

    def _is_open(self, flat: Array) -> bool:
        gate = self.decision.gate
        if gate is None:
            return True
        _keep(self._gate, flat[-1:], gate.average)
        return self._is_above(self._sums(self._gate)[0], gate.above, len(self._gate))

    def _is_enough(self, label: int, is_above: bool) -> bool:
        # True if enough runs in a row had the label, this one included.
        if self.decision.vote:
            _keep(self._votes, label if is_above else -1, self.decision.vote)
            return is_above and self._votes.count(label) >= self.decision.patience
        self._streak = (self._streak + 1 if label == self._label else 1) if is_above else 0
        self._label = label
        return self._streak >= self.decision.patience

    def _sums(self, kept: deque[Array]) -> list[float]:
        if self.output.dtype is not DType.FLOAT32:
            return [int(total) for total in np.sum([scores.astype(np.int64) for scores in kept], axis=0)]
        total = np.zeros(len(kept[0]), np.float32)
        for scores in kept:
            total = total + scores.astype(np.float32)
        return [float(number) for number in total]

    def _is_above(self, total: float, above: float, count: int) -> bool:
        if self.output.dtype is DType.FLOAT32:
            return total > float(np.float32(above) * np.float32(count))
        return total >= least_sum(self.output, above, count)


def _keep(kept: deque[T], new: T, most: int) -> None:
    kept.append(new)
    if len(kept) > most:
        kept.popleft()
