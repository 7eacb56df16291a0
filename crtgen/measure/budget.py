"""The budget: what each model may cost on each board, as a committed file, and what became worse.

::

    tolerance = 0.005

    [[entry]]
    model = "kws_int8"
    board = "mps2_an386"
    optimize = "speed"
    instructions = 2400000
    arena_bytes = 10112
    ram_bytes = 10116
    flash_bytes = 44000
    stack_bytes = 304

    [entry.layers]
    "model/conv" = 330000
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

from crtgen import files
from crtgen.errors import UsageError
from crtgen.report import Report

__all__ = ["METRICS", "Budget", "Entry", "Excess", "compare", "read_budget", "write_budget"]

METRICS = ("instructions", "arena_bytes", "ram_bytes", "flash_bytes", "stack_bytes")
TOLERANCE = 0.005
"""What part of its budget a figure may be above it."""

RESOLUTION = 100
"""What it may be above it in any case: timers do not count every instruction."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The figures of a model on a board: ``figures`` by metric, ``layers`` instructions by layer."""

    model: str
    board: str
    optimize: str
    figures: Mapping[str, int]
    layers: Mapping[str, int]

    @classmethod
    def of(cls, measured: Report) -> "Entry":
        """The entry that ``measured`` just meets; what the device does not count is left out."""
        figures = {m: getattr(measured, m) for m in METRICS if getattr(measured, m) is not None}
        counts = ((o.name, o.instructions) for layer in measured.layers for o in layer.operators)
        layers = {name: count for name, count in counts if count is not None}
        return cls(measured.model, measured.board, measured.optimize, figures, layers)

    @property
    def key(self) -> tuple[str, str, str]:
        """Model, board and level of optimisation."""
        return self.model, self.board, self.optimize


@dataclass(frozen=True, slots=True)
class Budget:
    """All entries of a file, and what part of its budget a figure may be above it."""

    entries: tuple[Entry, ...]
    tolerance: float = TOLERANCE

    def updated(self, measured: Sequence[Entry]) -> "Budget":
        """With these entries in the place of those of their model, board and level."""
        table = {entry.key: entry for entry in (*self.entries, *measured)}
        return Budget(tuple(table[key] for key in sorted(table)), self.tolerance)


@dataclass(frozen=True, slots=True)
class Excess:
    """A figure above its budget. ``blame`` names the layers that became slower, the worst first."""

    model: str
    board: str
    metric: str
    allowed: int
    actual: int
    blame: tuple[tuple[str, int, int], ...] = ()

    def __str__(self) -> str:
        more = f"{(self.actual - self.allowed) / max(self.allowed, 1):+.1%}"
        where = f"{self.model} on {self.board}: {self.metric}"
        lines = [f"{where} {self.actual:,}, budget {self.allowed:,} ({more})"]
        for layer, before, after in self.blame:
            lines.append(f"  {layer}: {after:,} instructions, budget {before:,} ({after - before:+,})")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        blame = [{"layer": name, "allowed": before, "actual": after} for name, before, after in self.blame]
        return {
            "model": self.model,
            "board": self.board,
            "metric": self.metric,
            "allowed": self.allowed,
            "actual": self.actual,
            "blame": blame,
        }


def compare(allowed: Entry, actual: Entry, tolerance: float = TOLERANCE) -> tuple[Excess, ...]:
    """What of ``actual`` is above its budget."""
    found = []
    for metric, before in allowed.figures.items():
        after = actual.figures.get(metric, before)
        if after - before > max(tolerance * before, RESOLUTION):
            blame = _blame(allowed, actual) if metric == "instructions" else ()
            found.append(Excess(actual.model, actual.board, metric, before, after, blame))
    return tuple(found)


def _blame(allowed: Entry, actual: Entry) -> tuple[tuple[str, int, int], ...]:
    """Layers that need more than they did; one that is new, or has another name, needed nothing."""
    pairs = ((name, allowed.layers.get(name, 0), after) for name, after in actual.layers.items())
    worse = [(name, before, after) for name, before, after in pairs if after - before > RESOLUTION]
    return tuple(sorted(worse, key=lambda row: row[1] - row[2]))


def read_budget(path: Path) -> Budget:
    """Read the file; ``UsageError`` says what is wrong with it."""
    try:
        data = tomllib.loads(files.read_text(path, "the budget"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the budget cannot be read: {error}", where=str(path)) from error
    tolerance = data.pop("tolerance", TOLERANCE)
    entries = data.pop("entry", [])
    if data or not isinstance(entries, list):
        raise UsageError(
            "a budget has a tolerance and entries", where=str(path), hint="see docs/performance.md"
        )
    if type(tolerance) not in (int, float) or not 0 <= tolerance < 1:
        raise UsageError("the tolerance is a part of one, 0.005 for example", where=str(path))
    return Budget(tuple(_entry(path, number, raw) for number, raw in enumerate(entries, 1)), float(tolerance))


def _entry(path: Path, number: int, raw: Any) -> Entry:
    where = f"{path}: entry {number}"
    names = ("model", "board", "optimize")
    if not isinstance(raw, dict) or not all(isinstance(raw.get(name), str) for name in names):
        raise UsageError("an entry names a model, a board and a level of optimisation", where=where)
    layers = raw.get("layers", {})
    figures = {key: value for key, value in raw.items() if key not in (*names, "layers")}
    unknown = sorted(set(figures) - set(METRICS))
    if unknown:
        raise UsageError(f"there is no figure {unknown[0]}", where=where, hint=f"known: {', '.join(METRICS)}")
    if not isinstance(layers, dict) or not all(type(v) is int for v in (*figures.values(), *layers.values())):
        raise UsageError("figures are whole numbers", where=where)
    return Entry(raw["model"], raw["board"], raw["optimize"], figures, layers)


def write_budget(path: Path, budget: Budget) -> None:
    """Write the file, equal budgets as equal bytes; ``UsageError`` if that cannot be."""
    lines = [
        "# What each model may cost: crtgen bench MODELS --budget FILE checks it, with --update writes it.",
        f"tolerance = {budget.tolerance}",
    ]
    for entry in budget.entries:
        names = (("model", entry.model), ("board", entry.board), ("optimize", entry.optimize))
        lines += ["", "[[entry]]", *(f"{key} = {dumps(value)}" for key, value in names)]
        lines += [f"{key} = {value}" for key, value in entry.figures.items()]
        if entry.layers:
            lines += ["", "[entry.layers]", *(f"{dumps(key)} = {v}" for key, v in entry.layers.items())]
    files.write(path, ("\n".join(lines) + "\n").encode())
