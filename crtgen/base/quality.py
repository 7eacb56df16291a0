"""Limits of a model's quality as ``crtgen eval`` measures it, and the goals of a benchmark."""

from collections.abc import Mapping

from crtgen.base.errors import UsageError

__all__ = ["GOALS", "QUALITY", "limits_of", "shortfalls"]

QUALITY = ("accuracy", "auc", "hits", "misses", "false_alarms", "false_alarms_an_hour")
"""Figures that may have a limit: a minimum for the first three, a maximum for the others."""

_AT_LEAST = ("accuracy", "auc", "hits")

GOALS: Mapping[str, Mapping[str, float]] = {
    "mlperf-kws": {"accuracy": 0.90},
    "mlperf-vww": {"accuracy": 0.80},
    "mlperf-ic": {"accuracy": 0.85},
    "mlperf-ad": {"auc": 0.85},
    "mlperf-sww": {"misses": 8, "false_alarms": 8},
}
"""The quality targets of MLPerf Tiny's closed division."""


def limits_of(goal: str) -> Mapping[str, float]:
    """Return the limits of a goal by name. Raises ``UsageError`` for an unknown goal."""
    if goal not in GOALS:
        raise UsageError(f"unknown goal {goal!r}", hint=f"known: {', '.join(GOALS)}")
    return GOALS[goal]


def shortfalls(limits: Mapping[str, float], figures: Mapping[str, float]) -> list[str]:
    """Return a line for each metric that misses its limit. Raises ``UsageError`` if the data lack a
    metric.
    """
    found = []
    for name, limit in limits.items():
        if name not in figures:
            raise UsageError(f"{name} is not measured for such data", hint=f"known: {', '.join(figures)}")
        actual = figures[name]
        if actual < limit if name in _AT_LEAST else actual > limit:
            bound = "at least" if name in _AT_LEAST else "at most"
            found.append(f"{name} {actual:.4g}, {bound} {limit:g} wanted")
    return found
