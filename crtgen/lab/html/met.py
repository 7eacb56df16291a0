"""Panel of a page about the inputs that a device met: the counts of ``crt/drift.h`` beside the reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crtgen.compiler.codegen.drift import PARTS, DriftReference
from crtgen.lab.html import charts
from crtgen.lab.html.parts import Drawing, HtmlTable, drawn
from crtgen.lab.measure.drift import DriftWindow, ks, psi

__all__ = ["Met", "panel"]

_SAYS = {
    "inputs": "elements of the input, by sixteenths of their range",
    "classes": "which class wins",
    "margins": "by how much it wins",
    "saturated": "elements of layers at the ends of their range",
    "entropy": "entropy of the scores",
}
_ROWS = ("inputs", "classes", "margins")


@dataclass(frozen=True, slots=True)
class Met:
    # Counts from a device, and the reference counts if there are data for them.

    window: DriftWindow
    usual: DriftReference | None = None


def panel(met: Met) -> list[Drawing | HtmlTable]:
    # A table of the distances, and bars of the inputs if the device counted any since its last window.
    window = met.window
    title = f"What a device met: {window.alarms} of {window.windows} windows beyond a limit"
    columns = ("what", "distance in the last window", "limit", "", "PSI", "KS")
    made: list[Drawing | HtmlTable] = [
        HtmlTable(title, columns, tuple(_row(met, n) for n in range(len(PARTS))))
    ]
    if window.runs:
        rows = [("counted", window.counts["inputs"])]
        rows += [("usual", met.usual.expected["inputs"])] if met.usual else []
        says = f"Shares of each sixteenth of the range, in the {window.runs} runs since the last window."
        made.append(Drawing("The inputs that a device met", says, drawn(charts.shares(_shares(rows)))))
    return made


def _row(met: Met, number: int) -> tuple[str, ...]:
    part = PARTS[number]
    distance, limit = met.window.distances[number], met.window.limits[number]
    beyond = "beyond" if distance > limit else ""
    return (_SAYS[part], f"{distance:,}", f"{limit:,}", beyond, *_indices(met, part))


def _indices(met: Met, part: str) -> tuple[str, str]:
    # PSI and KS of the runs since the last window.
    if met.usual is None or not met.window.runs or part not in _ROWS:
        return "", ""
    counts, expected = met.window.counts[part], met.usual.expected[part]
    return f"{psi(counts, expected):.3f}", f"{ks(counts, expected):.3f}"


def _shares(rows: Sequence[tuple[str, Sequence[int]]]) -> list[Mapping[str, Any]]:
    return [
        {"of": name, "bin": n, "share": number / max(1, sum(counts))}
        for name, counts in rows
        for n, number in enumerate(counts)
    ]
