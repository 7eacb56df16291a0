"""The least arena, against every order of few items, and where the heuristic misses it."""

from itertools import permutations
from random import Random

import pytest

from crtgen.compiler.plan import bounded
from crtgen.compiler.plan.bounded import Layout, lay
from crtgen.compiler.plan.layout import Problem, arena_of, lay_first_fit

ALIGN = 4


def problem(sizes: list[int], spans: list[tuple[int, int]], leads: dict[tuple[int, int], int]) -> Problem:
    """Items that hold something from one moment to another; ``leads`` are gaps that are no sizes."""
    items = range(len(sizes))
    together = [(i, j) for i in items for j in items if i != j and _meet(spans[i], spans[j])]
    gaps = {(i, j): leads.get((i, j), sizes[i]) for i, j in together}
    return Problem(tuple(sizes), tuple(spans), gaps, {}, ALIGN, (max(sizes),))


def _meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def by_every_order(of: Problem) -> int:
    """The least arena: in some order by offset, each item lies as low as those below it allow."""
    found = []
    for order in permutations(range(len(of.sizes))):
        offsets = [0] * len(order)
        for turn, item in enumerate(order):
            ends = [offsets[below] + of.gaps.get((below, item), 0) for below in order[:turn]]
            lowest = max((-(-end // ALIGN) * ALIGN for end in ends), default=0)
            offsets[item] = max(lowest, *(offsets[below] for below in order[:turn]), 0) if turn else 0
        found.append(arena_of(of, offsets))
    return min(found)


@pytest.mark.parametrize("seed", range(60))
def test_it_is_the_least(seed: int) -> None:
    random = Random(seed)
    count = random.randint(2, 6)
    sizes = [random.randint(1, 40) for _ in range(count)]
    starts = [random.randint(0, 4) for _ in range(count)]
    spans = [(start, start + random.randint(0, 3)) for start in starts]
    leads = {(random.randrange(count), random.randrange(count)): random.randint(0, 10)}
    leads = {(i, j): min(lead, sizes[i]) for (i, j), lead in leads.items()}
    made = problem(sizes, spans, leads)
    found = lay(made)
    assert (found.arena, found.is_least) == (by_every_order(made), True)
    assert arena_of(made, found.offsets) == found.arena


STAGGERED = problem([12, 20, 24, 12], [(1, 3), (0, 2), (3, 3), (2, 2)], {})


def test_it_is_less_than_by_first_fit() -> None:
    assert arena_of(STAGGERED, lay_first_fit(STAGGERED)) == 48
    assert lay(STAGGERED).arena == 44


def test_what_would_take_too_long_is_laid_by_the_heuristic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "_MOST_LOOKED_AT", 0)
    monkeypatch.setattr(bounded, "lay_heuristically", lambda problem: (32, 0, 8, 20))
    assert lay(STAGGERED) == Layout((32, 0, 8, 20), 44, False)


def test_less_is_not_looked_for_than_asked() -> None:
    sizes, spans = [12, 8, 12, 8, 20], [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)]
    made = problem(sizes, spans, {})
    least = lay(made).arena
    assert least <= lay(made, enough=least + 100).arena <= least + 100
