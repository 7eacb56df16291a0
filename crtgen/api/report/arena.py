"""The arena as text: a table with a small chart, one column per step."""

from collections.abc import Iterator

from crtgen.api.report.report import ArenaPlace, Report
from crtgen.compiler.plan import Bar, chart

__all__ = ["arena_map", "bound_text"]

_CHART = 64


def bound_text(report: Report) -> str:
    return (
        "the least possible" if report.arena_optimal else f"at least {report.arena_lower_bound:,} are needed"
    )


def arena_map(report: Report) -> str:
    """Draw the arena: a line per place with offset, bytes, the steps in which it is alive, and a bar over the
    steps.

    Scratch memory has its own lines. Long networks are drawn with several steps per column. Code without a
    plan gives an empty map.
    """
    bars = (
        Bar(place.offset, place.first, place.last, _label(place), place.nbytes)
        for place in report.arena or ()
        if not place.alias_of
    )
    head = f"arena {report.arena_bytes:,} bytes, {bound_text(report)}"
    return "\n".join((head, *chart(bars, _CHART), *_states(report))) + "\n"


def _states(report: Report) -> Iterator[str]:
    # A line for each state: none is in the arena.
    if report.states:
        yield f"states, kept from run to run, {report.state_bytes:,} bytes"
    for place in report.states or ():
        yield f"{place.offset:>8} {place.nbytes:>8}  {place.name}"


def _label(place: ArenaPlace) -> str:
    return f"{place.name} (scratch)" if place.is_scratch else place.name
