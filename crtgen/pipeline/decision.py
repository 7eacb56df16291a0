"""From the outputs of a network to events: the settings, and the same arithmetic as the generated C."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, floor

import numpy as np

from crtgen.errors import UsageError
from crtgen.ir import Array, DType, Value

__all__ = ["Decider", "Decision", "Event", "least_sum", "runs_in"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """When outputs are an event.

    The scores of the last ``average`` runs are averaged. If the greatest of those of ``labels`` is above
    ``above``, a real number, in ``patience`` runs in a row with the same label, it is an event; ``quiet``
    seconds after one there is none. Nothing is decided in the first ``ignore`` seconds after the first
    result. ``names`` are those of the network's outputs. With ``anomaly`` the score is the mean square of the
    difference between what goes into the network and what comes out.
    """

    labels: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    above: float = 0.5
    average: int = 1
    patience: int = 1
    quiet: float = 0.0
    ignore: float = 0.0
    anomaly: bool = False

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names):
            twice = max(self.names, key=self.names.count)
            raise UsageError(f"[decision] labels: two are called {twice!r}")
        for name, value, most in (("average", self.average, 1000), ("patience", self.patience, 1000)):
            if not 1 <= value <= most:
                raise UsageError(f"[decision] {name} is {value}", hint=f"1 to {most}")
        for name, seconds in (("quiet", self.quiet), ("ignore", self.ignore)):
            if not 0 <= seconds <= 3600:
                raise UsageError(f"[decision] {name} is {seconds} s", hint="0 to 3600 seconds")


@dataclass(frozen=True, slots=True)
class Event:
    """What was noticed: when (samples since the start, up to the end of the run's), which label, its score.

    The score is a sum over ``average`` runs as the output stores it.
    """

    sample: int
    label: int
    score: float


def least_sum(output: Value, decision: Decision) -> int:
    """The least sum of ``average`` stored scores whose mean, as a real number, is above ``above``."""
    quant = output.quant
    scale, zero = (quant.scale, quant.zero_point) if quant is not None else (1.0, 0)
    return floor(decision.average * (decision.above / scale + zero)) + 1


def runs_in(seconds: float, rate: int, hop: int) -> int:
    """Runs that last so long, rounded up."""
    return ceil(seconds * rate / hop - 1e-9)


@dataclass(slots=True)
class Decider:
    """Decides run by run on ``output``; ``rate`` samples come in a second, a run is ``hop`` further on."""

    decision: Decision
    output: Value
    rate: int
    hop: int
    _scores: deque[Array] = field(default_factory=deque)
    _runs: int = 0
    _quiet: int = 0
    _streak: int = 0
    _label: int = -1

    @property
    def labels(self) -> Sequence[int]:
        """The outputs that are looked at."""
        return self.decision.labels or range(self.output.elements)

    def decide(self, scores: Array, sample: int) -> Event | None:
        """The event of a run that ends at a sample, if it is one."""
        self._scores.append(np.asarray(scores).ravel()[list(self.labels)])
        if len(self._scores) > self.decision.average:
            self._scores.popleft()
        self._runs += 1
        self._quiet = max(self._quiet - 1, 0)
        if len(self._scores) < self.decision.average or self._runs <= self._runs_of(self.decision.ignore):
            return None
        place, score, is_above = self._greatest()
        label = self.labels[place]
        self._streak = (self._streak + 1 if label == self._label else 1) if is_above else 0
        self._label = label
        if self._streak < self.decision.patience or self._quiet:
            return None
        self._quiet = self._runs_of(self.decision.quiet)
        self._streak = 0
        return Event(sample, label, score)

    def _runs_of(self, seconds: float) -> int:
        return runs_in(seconds, self.rate, self.hop)

    def _greatest(self) -> tuple[int, float, bool]:
        if self.output.dtype is DType.FLOAT32:
            total = np.zeros(len(self.labels), np.float32)
            for scores in self._scores:
                total = total + scores.astype(np.float32)
            place = int(np.argmax(total))
            limit = np.float32(self.decision.above) * np.float32(self.decision.average)
            return place, float(total[place]), bool(total[place] > limit)
        sums = np.sum([scores.astype(np.int64) for scores in self._scores], axis=0)
        place = int(np.argmax(sums))
        return place, int(sums[place]), bool(sums[place] >= least_sum(self.output, self.decision))
