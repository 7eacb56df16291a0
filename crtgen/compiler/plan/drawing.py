"""Draws an arena: a table with a bar for the lifetime of each place."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Bar", "chart"]


@dataclass(frozen=True, slots=True, order=True)
class Bar:
    """A place in the arena, in bytes, with the first and last moment at which it holds its data; see
    ``Lifetime``.
    """

    offset: int
    first: int
    last: int
    label: str
    nbytes: int


def chart(bars: Iterable[Bar], width: int, steps: int) -> tuple[str, ...]:
    """Return a line of headings, then one per bar, by offset; the moments of a run of ``steps`` take at most
    ``width`` columns.

    Steps count from 1; ``in`` is before the first and ``out`` after the last.
    """
    rows = sorted(bars)
    margin = max((len(row.label) for row in rows), default=0)
    moments = steps + 2
    column = -(-moments // width)
    scale = "one column per step" if column == 1 else f"{column} steps per column"
    return (
        f"{'offset':>10} {'bytes':>10}  {'alive':<9} {'value':<{margin}}  {scale}",
        *(_line(row, margin, moments, column) for row in rows),
    )


def _line(row: Bar, margin: int, moments: int, column: int) -> str:
    alive = f"{_moment(row.first, moments)}-{_moment(row.last, moments)}"
    starts = range(0, moments, column)
    bar = "".join("#" if row.first < s + column and row.last >= s else "." for s in starts)
    return f"{row.offset:>10,} {row.nbytes:>10,}  {alive:<9} {row.label:<{margin}}  {bar}"


def _moment(moment: int, moments: int) -> str:
    return {0: "in", moments - 1: "out"}.get(moment, str(moment))
