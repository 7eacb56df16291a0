"""The page of a sweep: models and boards as matrices, Pareto fronts, and changes with their causes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import log

from crtgen.base.version import __version__
from crtgen.lab.html import charts
from crtgen.lab.html.parts import Drawing, HtmlTable, drawn, environment
from crtgen.lab.measure.pareto import undominated
from crtgen.lab.sweep.changes import Changes, JobChange
from crtgen.lab.sweep.store import StoreRow, SweepInfo

__all__ = ["render_sweep"]

# Characters of the end of a log that are shown.
_LONGEST_LOG = 4000


@dataclass(frozen=True, slots=True)
class _Cell:
    # A figure, its subtext, and its place among all of its model: 0 to 100 %, -1 if unknown.

    text: str
    more: str = ""
    heat: int = -1
    is_wrong: bool = False


@dataclass(frozen=True, slots=True)
class _Matrix:
    # Models down, boards to the right, for one choice of options.

    label: str
    boards: tuple[str, ...]
    rows: tuple[tuple[str, tuple[_Cell, ...]], ...]


@dataclass(frozen=True, slots=True)
class _Failure:
    title: str
    message: str
    log: str


def render_sweep(
    sweep: SweepInfo, rows: Sequence[StoreRow], before: SweepInfo | None, changes: Changes | None
) -> str:
    """Return the page of a sweep's rows; ``changes`` are the differences to the sweep ``before``."""
    failures = [row for row in rows if row.state == "failed"]
    return (
        environment()
        .get_template("report/sweep.html.j2")
        .render(
            name=sweep.name,
            started=sweep.started,
            version=__version__,
            counts=_counts(rows),
            matrices=_matrices(rows),
            fronts=[part for model in _names(rows, "model") for part in _front(model, rows)],
            before=before.started if before else "",
            reasons=_reasons(changes) if changes else (),
            changes=_changes(changes.changed) if changes else None,
            failures=list(map(_failure, failures)),
        )
    )


def _counts(rows: Sequence[StoreRow]) -> tuple[tuple[str, str], ...]:
    states = {state: sum(row.state == state for row in rows) for state in ("done", "failed", "waiting")}
    spent = sum(row.seconds for row in rows)
    named = [("jobs", len(rows)), *((state, count) for state, count in states.items() if count)]
    counts = [(name, f"{count:,}") for name, count in named]
    return (*counts, ("minutes of workers", f"{spent / 60:,.1f}"))


def _failure(row: StoreRow) -> _Failure:
    log = row.log if len(row.log) <= _LONGEST_LOG else f"...{row.log[-_LONGEST_LOG:]}"
    return _Failure(f"{row.model} on {row.board}, {row.label}", f"{row.error}: {row.message}", log)


def _names(rows: Iterable[StoreRow], column: str) -> tuple[str, ...]:
    # The values of a column, in the order of the sweep.
    return tuple(dict.fromkeys(getattr(row, column) for row in rows))


def _matrices(rows: Sequence[StoreRow]) -> list[_Matrix]:
    table = {row.cell: row for row in rows}
    ranges = {model: _range(rows, model) for model in _names(rows, "model")}
    made = []
    for label in _names(rows, "label"):
        own = [row for row in rows if row.label == label]
        models, boards = _names(own, "model"), _names(own, "board")
        lines = tuple(
            (model, tuple(_cell(table.get((model, board, label)), ranges[model]) for board in boards))
            for model in models
        )
        made.append(_Matrix(label, boards, lines))
    return made


def _range(rows: Sequence[StoreRow], model: str) -> tuple[int, int]:
    # The least and the most instructions of a model, on any board with any options.
    known = [row.instructions for row in rows if row.model == model and row.instructions]
    return (min(known), max(known)) if known else (0, 0)


def _cell(row: StoreRow | None, limits: tuple[int, int]) -> _Cell:
    if row is None:
        return _Cell("")
    if row.state == "waiting":
        return _Cell("waiting")
    if row.state == "failed":
        return _Cell(row.error, row.message, is_wrong=True)
    sizes = f"{_number(row.flash_bytes)} flash, {_number(row.ram_bytes)} RAM"
    if row.instructions is None:
        return _Cell(_milliseconds(row), sizes)
    low, high = limits
    spread = log(high / low) if low and high > low else 0.0
    heat = round(100 * log(row.instructions / low) / spread) if spread else 0
    return _Cell(f"{row.instructions:,}", sizes, heat)


def _milliseconds(row: StoreRow) -> str:
    return f"{row.figures.get('seconds', 0) * 1e3:,.3f} ms"


def _costs(row: StoreRow) -> tuple[float, int, int]:
    # Instructions, or the time where nobody counts them, flash and RAM.
    time = row.figures.get("instructions", row.figures.get("seconds", 0))
    return time, row.flash_bytes or 0, row.ram_bytes or 0


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


def _front(model: str, rows: Sequence[StoreRow]) -> list[Drawing | HtmlTable]:
    # On each board, the choices that no other one beats in every figure.
    done = [row for row in rows if row.model == model and row.state == "done"]
    good: list[StoreRow] = []
    for _, group in groupby(sorted(done, key=lambda row: row.board), lambda row: row.board):
        listed = list(group)
        best = undominated(list(map(_costs, listed)))
        good += [row for row, is_good in zip(listed, best, strict=True) if is_good]
    parts: list[Drawing | HtmlTable] = []
    counted = [row for row in done if row.instructions is not None]
    if counted:
        points = [
            (f"{r.board}, {r.label}", r.flash_bytes or 0, r.instructions or 0, r in good) for r in counted
        ]
        says = "Blue: no other options are at least as good in instructions, flash and RAM on the same board."
        parts.append(Drawing(model, says, drawn(charts.choices(model, points))))
    lines = tuple(
        (r.board, r.label, _number(r.instructions) or _milliseconds(r), *map(_number, _costs(r)[1:]))
        for r in good
    )
    columns = ("board", "options", "instructions or time", "flash", "RAM")
    if lines:
        parts.append(HtmlTable(f"{model}: worth having", columns, lines, 2))
    return parts


def _reasons(changes: Changes) -> tuple[str, ...]:
    # Why jobs had to run again, and how many only one of the sweeps has.
    listed = [f"{count:,} jobs ran again: {blame}" for blame, count in changes.reasons.items()]
    listed += [f"{changes.new:,} jobs are new"] if changes.new else []
    listed += [f"{changes.gone:,} jobs are no longer there"] if changes.gone else []
    return tuple(listed)


def _changes(changed: Sequence[JobChange]) -> HtmlTable:
    rows = []
    for change in changed:
        name = f"{change.model} on {change.board}, {change.label}"
        if change.before != change.now:
            rows.append((name, change.reason, "outcome", change.before, change.now, ""))
        for metric, a, b in change.figures:
            rows.append((name, change.reason, metric, _number(a), _number(b), _growth(a, b)))
    columns = ("job", "to blame", "figure", "before", "now", "")
    return HtmlTable("What changed since the last sweep", columns, tuple(rows), 3)


def _growth(a: float | None, b: float | None) -> str:
    return f"{(b - a) / a:+.1%}" if a and b is not None else ""
