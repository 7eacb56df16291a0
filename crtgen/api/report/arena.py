"""The arena as text: a table with a small chart, one column per step."""

from collections.abc import Iterator

from crtgen.api.report.report import ArenaPlace, Report
from crtgen.compiler.plan import ArenaPart, Bar, chart

__all__ = ["arena_map", "bound_text"]

_CHART = 64


def bound_text(report: Report) -> str:
    return _bound(ArenaPart(report.arena_bytes, report.arena_lower_bound, report.arena_optimal))


def _bound(part: ArenaPart) -> str:
    return "the least possible" if part.optimal else f"at least {part.lower_bound:,} are needed"


def arena_map(report: Report) -> str:
    """Draw the arena: one line per place with offset, bytes, the steps in which it is in use, and a bar over
    the steps.

    Scratch memory has its own lines. Long networks are drawn with several steps per column. Code without a
    plan gives an empty map. Each part of the arena in another memory is drawn after it.
    """
    whole = ArenaPart(report.arena_bytes, report.arena_lower_bound, report.arena_optimal)
    drawn = (_part(report, name, part) for name, part in {"": whole, **report.parts}.items())
    return "\n".join((*(line for lines in drawn for line in lines), *_states(report))) + "\n"


def _part(report: Report, name: str, part: ArenaPart) -> Iterator[str]:
    bars = (
        Bar(place.offset, place.first, place.last, _label(place), place.nbytes)
        for place in report.arena or ()
        if not place.alias_of and place.part == name
    )
    head = f"part of the arena in {name}" if name else "arena"
    yield f"{head} {part.size:,} bytes, {_bound(part)}"
    yield from chart(bars, _CHART, len(report.layers))


def _states(report: Report) -> Iterator[str]:
    # A line for each state: none is in the arena.
    if report.states:
        yield f"states, kept from run to run, {report.state_bytes:,} bytes"
    for place in report.states or ():
        yield f"{place.offset:>8} {place.nbytes:>8}  {place.name}"


def _label(place: ArenaPlace) -> str:
    return f"{place.name} (scratch)" if place.is_scratch else place.name
