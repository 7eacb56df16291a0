"""Differences between two sweeps, and their causes: the model, its options, crtgen, or the tools."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from crtgen.lab.measure.lock import RESOLUTION
from crtgen.lab.settings import METRICS
from crtgen.lab.sweep.store import StoreRow

__all__ = ["Changes", "JobChange", "compare", "is_same"]

# Columns that the address of a job is made of, and how they are called.
_PARTS = {"source": "the model", "settings": "options", "code": "crtgen", "toolchain": "the toolchain"}

# Instructions may differ by this fraction between two runs of the same code.
_NOISE = 0.0001


@dataclass(frozen=True, slots=True)
class JobChange:
    """A job whose figures or success changed; each of ``figures`` is metric, before, now.

    ``blame`` names the inputs that changed. ``same_code``: the generated code is the same, so tools or
    measurement are the cause.
    """

    model: str
    board: str
    label: str
    before: str
    now: str
    figures: tuple[tuple[str, float | None, float | None], ...]
    blame: tuple[str, ...]
    same_code: bool

    def __str__(self) -> str:
        moved = [] if self.before == self.now else [f"{self.before} -> {self.now}"]
        moved += [f"{metric} {_text(a)} -> {_text(b)}" for metric, a, b in self.figures]
        return f"{self.model} on {self.board}, {self.label}: {', '.join(moved)}, by {self.reason}"

    @property
    def reason(self) -> str:
        return "; ".join(self.blame) + (" (the generated code is the same)" if self.same_code else "")

    def to_dict(self) -> dict[str, Any]:
        figures = [{"metric": metric, "before": a, "now": b} for metric, a, b in self.figures]
        return {**asdict(self), "figures": figures}


@dataclass(frozen=True, slots=True)
class Changes:
    """Comparison of two sweeps: jobs that only one has, why jobs were repeated, and their results."""

    new: int
    gone: int
    reasons: dict[str, int]
    """Number of jobs with another address, by cause."""
    changed: tuple[JobChange, ...]

    def to_dict(self) -> dict[str, Any]:
        changed = [change.to_dict() for change in self.changed]
        return {"new": self.new, "gone": self.gone, "reasons": self.reasons, "changed": changed}


def _text(value: float | None) -> str:
    return "none" if value is None else f"{value:,}"


def compare(before: Iterable[StoreRow], now: Sequence[StoreRow]) -> Changes:
    old = {row.cell: row for row in before}
    pairs = [(old[row.cell], row) for row in now if row.cell in old]
    other = [(a, b) for a, b in pairs if a.digest != b.digest]
    reasons = Counter(blame for a, b in other for blame in _blame(a, b))
    changed = (_change(a, b) for a, b in other)
    return Changes(
        new=len(now) - len(pairs),
        gone=len(old) - len(pairs),
        reasons=dict(reasons.most_common()),
        changed=tuple(change for change in changed if change is not None),
    )


def _change(a: StoreRow, b: StoreRow) -> JobChange | None:
    # None if nothing is different, or if the job has no outcome yet.
    if "waiting" in (a.state, b.state):
        return None
    values = ((metric, a.figures.get(metric), b.figures.get(metric)) for metric in METRICS)
    figures = tuple(each for each in values if not is_same(*each))
    if not figures and (a.state, a.error) == (b.state, b.error):
        return None
    same = bool(a.project) and a.project == b.project
    return JobChange(*b.cell, a.error or a.state, b.error or b.state, figures, _blame(a, b), same)


def is_same(metric: str, a: float | None, b: float | None) -> bool:
    """Return True if two values of a figure are equal within the accuracy of its measurement."""
    if metric != "instructions" or a is None or b is None:
        return a == b
    return abs(a - b) <= max(_NOISE * a, RESOLUTION)


def _blame(a: StoreRow, b: StoreRow) -> tuple[str, ...]:
    # Inputs that differ; crtgen and tools with their versions.
    found = []
    for column, name in _PARTS.items():
        old, new = getattr(a, column), getattr(b, column)
        if old == new:
            continue
        if column == "toolchain":
            pairs = [(x, y) for x, y in zip(old.split("; "), new.split("; "), strict=False) if x != y]
            old, new = ("; ".join(side) for side in zip(*pairs, strict=True)) if pairs else (old, new)
        found.append(name if column in ("source", "settings") else f"{name}: {old} -> {new}")
    return tuple(found)
