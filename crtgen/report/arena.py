"""The arena as text: a table with a small chart, one column per step."""

from crtgen.report.report import Place, Report

__all__ = ["arena_map", "bound_text"]

_CHART = 64


def bound_text(report: Report) -> str:
    """How far the arena is from the least that there can be."""
    return (
        "the least possible" if report.arena_optimal else f"at least {report.arena_lower_bound:,} are needed"
    )


def arena_map(report: Report) -> str:
    """The arena: a line per place with offset, bytes, the steps it is alive in, and a bar over the steps.

    Steps count from 1; ``in`` is before the first and ``out`` after the last. Scratch memory has its own
    lines. Long networks are drawn with several steps per column. Code without a plan has no places.
    """
    places = [place for place in report.arena or () if not place.alias_of]
    rows = sorted((place.offset, place.first, _label(place), place) for place in places)
    width = max((len(label) for _, _, label, _ in rows), default=0)
    moments = max((place.last for place in places), default=0) + 1
    column = -(-moments // _CHART)
    lines = [
        f"arena {report.arena_bytes:,} bytes, {bound_text(report)}",
        f"{'offset':>10} {'bytes':>10}  {'alive':<9} {'value':<{width}}  {column} step(s) per column",
    ]
    for _, _, label, place in rows:
        alive = f"{_moment(place.first, moments)}-{_moment(place.last, moments)}"
        bar = "".join(
            "#" if place.first < start + column and place.last >= start else "."
            for start in range(0, moments, column)
        )
        lines.append(f"{place.offset:>10,} {place.nbytes:>10,}  {alive:<9} {label:<{width}}  {bar}")
    return "\n".join(lines) + "\n"


def _label(place: Place) -> str:
    return f"{place.name} (scratch)" if place.is_scratch else place.name


def _moment(moment: int, moments: int) -> str:
    return {0: "in", moments - 1: "out"}.get(moment, str(moment))
