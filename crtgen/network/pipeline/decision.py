"""Settings that decide when outputs are an event, and the counts and sums derived from them."""

from dataclasses import dataclass
from math import ceil, floor

import numpy as np
import numpy.typing as npt

from crtgen.base.errors import UsageError
from crtgen.network.ir import Value

__all__ = ["Boxes", "Clusters", "Decision", "Gate", "least_sum", "runs_in"]

_MOST_RUNS = 1000
_MOST_SECONDS = 3600
_MOST_BOXES = 100


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Clusters of normal data: ``centroids`` ``[K, N]`` in units of ``scale`` from ``mean``, and their
    ``radii``.

    As in Edge Impulse, the anomaly score of x is the minimum, over all clusters, of the distance between ``(x
    - mean) / scale`` and the centroid minus the cluster's radius: below 0 within a cluster.
    """

    centroids: npt.NDArray[np.float32]
    radii: npt.NDArray[np.float32]
    mean: npt.NDArray[np.float32]
    scale: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boxes:
    """Settings for converting outputs to at most ``most`` boxes.

    ``fomo``: adjacent cells form one box. ``nms``: of boxes with the same label whose overlap exceeds
    ``overlap`` of their union, the one with the highest score is kept.
    """

    kind: str
    most: int = 10
    overlap: float = 0.5

    def __post_init__(self) -> None:
        if not 1 <= self.most <= _MOST_BOXES:
            raise UsageError(f"[decision] most is {self.most}", hint=f"1 to {_MOST_BOXES} boxes")
        if not 0 < self.overlap < 1:
            raise UsageError(
                f"[decision] overlap is {self.overlap}", hint="give a value between 0 and 1, such as 0.5"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """An output of a second network, such as speech detection, that must be active for an event.

    The mean of its last ``average`` scores, or of as many as exist, must be above ``above``.
    """

    above: float = 0.5
    average: int = 1

    def __post_init__(self) -> None:
        _check_runs("[gate] average", self.average)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The rule by which outputs become events.

    The scores of the last ``average`` runs are averaged; if ``least`` is above 0, at least that many runs are
    enough. A run votes for the one among ``labels`` with the greatest mean, if that is above ``above``, a
    real value. ``patience`` votes for a label in a row, or among the last ``vote`` runs, are an event,
    reported with the ``top`` best labels. For ``quiet`` seconds after an event there is no other event, or
    none with the same label (``quiet_of``). Nothing is decided in the first ``ignore`` seconds after the
    first result. ``names`` are those of the network's outputs.

    With ``anomaly`` the score is ``mse``, the mean square difference between the network's input and output,
    or ``kmeans``, the distance from ``clusters``. With ``boxes`` each run is decided separately.
    """

    labels: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    above: float = 0.5
    average: int = 1
    least: int = 0
    patience: int = 1
    vote: int = 0
    quiet: float = 0.0
    quiet_of: str = "all"
    ignore: float = 0.0
    top: int = 1
    anomaly: str = ""
    clusters: Clusters | None = None
    boxes: Boxes | None = None
    gate: Gate | None = None

    def __post_init__(self) -> None:
        for what, listed in (("labels", self.names), ("label", self.labels)):
            twice = [each for each in listed if listed.count(each) > 1]
            if twice:
                raise UsageError(
                    f"[decision] {what}: two are called {twice[0]!r}", hint="give each its own name"
                )
        for name in ("average", "patience", "top"):
            _check_runs(f"[decision] {'top_k' if name == 'top' else name}", getattr(self, name))
        for name in ("quiet", "ignore"):
            seconds = getattr(self, name)
            if not 0 <= seconds <= _MOST_SECONDS:
                hint = f"0 to {_MOST_SECONDS} seconds"
                raise UsageError(f"[decision] {name} is {seconds} s", hint=hint)
        for reason, hint in self._contradictions():
            raise UsageError(f"[decision] {reason}", hint=hint)

    def _contradictions(self) -> list[tuple[str, str]]:
        limits = [
            (self.least > self.average, f"least is {self.least} of {self.average} runs", "average is more"),
            (self.vote > _MOST_RUNS, f"vote is {self.vote}", f"1 to {_MOST_RUNS}"),
            (0 < self.vote < self.patience, f"patience is {self.patience} of {self.vote} runs that vote", ""),
            (self.quiet_of not in ("all", "label"), f"quiet_of is {self.quiet_of!r}", "all or label"),
            (self.quiet_of != "all" and not self.quiet, "quiet_of without quiet", "say for how many seconds"),
            (self.top > 1 and self.anomaly != "", "top_k of an anomaly, which is one number", "leave it out"),
            (
                (self.clusters is None) == (self.anomaly == "kmeans"),
                'clusters go with anomaly = "kmeans"',
                "",
            ),
        ]
        return [(reason, hint) for wrong, reason, hint in limits if wrong]


def _check_runs(name: str, value: int) -> None:
    if not 1 <= value <= _MOST_RUNS:
        raise UsageError(f"{name} is {value}", hint=f"1 to {_MOST_RUNS}")


def least_sum(output: Value, above: float, count: int) -> int:
    """Return the smallest sum of ``count`` stored scores whose mean, as a real value, is above ``above``."""
    quant = output.quant
    scale, zero = (quant.scale, quant.zero_point) if quant is not None else (1.0, 0)
    return floor(count * (above / scale + zero)) + 1


def runs_in(seconds: float, rate: int, hop: int) -> int:
    """Return the number of runs in this many seconds, rounded up."""
    return ceil(seconds * rate / hop - 1e-9)
