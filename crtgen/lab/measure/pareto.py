"""Pareto front of several builds, and a plot of them in text."""

from collections.abc import Sequence

from crtgen.api.report import Report

__all__ = ["front", "plot", "undominated"]

_WIDTH, _HEIGHT = 56, 12


def _costs(figures: Report) -> tuple[int, int, int]:
    return figures.instructions or 0, figures.flash_bytes or 0, figures.ram_bytes or 0


def front(results: Sequence[Report]) -> tuple[bool, ...]:
    return undominated([_costs(r) for r in results])


def undominated(costs: Sequence[tuple[float, ...]]) -> tuple[bool, ...]:
    """Return for each point True unless another one is no larger in every coordinate and smaller in one."""
    return tuple(not any(_dominates(other, mine) for other in costs) for mine in costs)


def _dominates(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


def plot(results: Sequence[Report]) -> str:
    """Plot instructions upwards and flash to the right; each point has the name of its level."""
    counts, flashes, _ = zip(*map(_costs, results), strict=True)
    rows = [""] * _HEIGHT
    for flash, count, level in sorted(zip(flashes, counts, (r.optimize for r in results), strict=True)):
        row = _HEIGHT - 1 - _place(count, counts, _HEIGHT)
        rows[row] = f"{rows[row]:<{_place(flash, flashes, _WIDTH)}}* {level} "
    labels = [f"{max(counts):,}", *[""] * (_HEIGHT - 2), f"{min(counts):,}"]
    margin = max(map(len, labels))
    low, high = f"{min(flashes):,}", f"{max(flashes):,} bytes of flash"
    lines = [
        "instructions",
        *(f"{label:>{margin}} |{row}".rstrip() for label, row in zip(labels, rows, strict=True)),
        f"{'':>{margin}} +{'-' * _WIDTH}",
        f"{'':>{margin}}  {low}{high:>{_WIDTH - len(low)}}",
    ]
    return "\n".join(lines) + "\n"


def _place(value: int, values: Sequence[int], cells: int) -> int:
    # The cell of ``value`` between the least and the greatest.
    spread = max(values) - min(values)
    return round((value - min(values)) / spread * (cells - 1)) if spread else 0
