"""Layout with the smallest arena, by branch and bound on which of two items is the lower one.

The problem is that of ``layout``: of two items that hold data at the same time, one is below the other by at
least a gap. Once every such pair has an order, the lowest offsets follow by longest paths. So the search is
over orders of pairs, for an arena of a given size:

1. Each item has a lowest and a highest possible offset, at first 0 and ``limit - size``.
2. If a pair has room for only one of its two orders, that order is settled. It raises the lowest offset of
   the upper item and lowers the highest offset of the lower one, which may settle other pairs (constraint
   propagation). A pair with room for neither order refutes the branch.
3. If no two items collide at their lowest offsets, these offsets are a layout. Otherwise one colliding pair
   is chosen, and both of its orders are tried. The pair with the least room comes first, since it is refuted
   soonest.

In an arena that is nearly full, step 2 settles almost everything. So ``lay`` first tries the lower bound
itself, then bisects between sizes that are refuted and the best layout found. A search that looks at too many
pairs is given up; then the result is the best layout found, without proof. The count of pairs, not the clock,
ends a search, so the same problem has the same layout on every machine.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from crtgen.compiler.plan.layout import Problem, arena_of, lay_first_fit, lay_heuristically

__all__ = ["Layout", "lay"]

# Pairs, a fraction of a second. MobileNets look at some thousand, few networks at more than 100,000.
_MOST_LOOKED_AT = 400_000


@dataclass(frozen=True, slots=True)
class Layout:
    """The offset of each item, the bytes of the arena, and True if it is proven that no fewer suffice."""

    offsets: tuple[int, ...]
    arena: int
    is_least: bool


def lay(problem: Problem, enough: int = 0) -> Layout:
    """Return the layout with the smallest arena, or any layout of at most ``enough`` bytes.

    Usually it takes little effort to see that an arena is too small. So the lower bound is tried first, then
    the middle between the largest refuted size and the best layout. If the search is given up, the result is
    the best of the search and of the heuristic. The same problem has the same layout on every machine.
    """
    best, proven, is_hard = lay_first_fit(problem), problem.lower_bound, False
    arena, limit = arena_of(problem, best), max(proven, enough)
    while arena > max(proven, enough):
        search = _OffsetSearch(problem, limit)
        found = search.run()
        if found is not None:
            best, arena = found, arena_of(problem, found)
        elif search.looked_at <= _MOST_LOOKED_AT:
            proven = limit + 1
        elif is_hard:
            best = min(best, lay_heuristically(problem), key=lambda offsets: arena_of(problem, offsets))
            break
        else:
            is_hard = True
        limit = arena - 1 if is_hard else (max(proven, enough) + arena) // 2
    arena = arena_of(problem, best)
    return Layout(best, arena, arena <= proven)


@dataclass(slots=True)
class _BoundedState:
    """The lowest and highest offset of each item, in units of alignment; which pairs are settled, and how."""

    low: list[int]
    high: list[int]
    settled: dict[int, bool] = field(default_factory=dict)

    def copy(self) -> "_BoundedState":
        return _BoundedState(self.low[:], self.high[:], self.settled.copy())


class _OffsetSearch:
    # For offsets within an arena of ``limit`` bytes; ``looked_at`` counts pairs.
    def __init__(self, problem: Problem, limit: int) -> None:
        align = problem.align
        gaps = {pair: -(-gap // align) for pair, gap in problem.gaps.items()}
        self.pairs = [(i, j, gap, gaps[j, i]) for (i, j), gap in gaps.items() if i < j]
        self.of_item: list[list[int]] = [[] for _ in problem.sizes]
        for number, (i, j, _, _) in enumerate(self.pairs):
            self.of_item[i].append(number)
            self.of_item[j].append(number)
        self.align = align
        self.start = _BoundedState(
            [0] * len(problem.sizes), [(limit - size) // align for size in problem.sizes]
        )
        self.looked_at = 0

    def run(self) -> tuple[int, ...] | None:
        # Offsets, if there are any; None also where more had to be looked at than may be.
        state = self.start
        if min(state.high, default=0) < 0 or not self._settle(state, range(len(self.pairs))):
            return None
        waiting: list[tuple[_BoundedState, int, bool]] = []
        while (number := self._next(state)) is not None:
            self.looked_at += len(self.pairs)
            if self.looked_at > _MOST_LOOKED_AT:
                return None
            # Depth first: the last entry, with the first item below, is tried next.
            waiting += [(state, number, False), (state, number, True)]
            found = None
            while found is None and waiting:
                found = self._settled(*waiting.pop())
            if found is None:
                return None
            state = found
        return tuple(offset * self.align for offset in state.low)

    def _next(self, state: _BoundedState) -> int | None:
        # The colliding pair with the least room left for its size.
        low, least, chosen = state.low, inf, None
        for number, (i, j, up, down) in enumerate(self.pairs):
            if low[i] + up > low[j] and low[j] + down > low[i]:
                # Slack of both orders together: offsets may move by this much before one of them fails.
                room = state.high[i] + state.high[j] - low[i] - low[j] - 2 * (up + down)
                if room < least:
                    least, chosen = room, number
        return chosen

    def _settled(self, before: _BoundedState, number: int, first_is_below: bool) -> _BoundedState | None:
        # Consequences of an order of a pair; None if it leaves no room.
        state = before.copy()
        state.settled[number] = first_is_below
        return state if self._settle(state, (number,)) else None

    def _settle(self, state: _BoundedState, numbers: Iterable[int]) -> bool:
        # Draw all conclusions from what changed at these pairs; False if there is no room for an item.
        low, high, settled = state.low, state.high, state.settled
        waiting = set(numbers)
        while waiting:
            number = waiting.pop()
            i, j, up, down = self.pairs[number]
            if number not in settled:
                fits_up, fits_down = low[i] + up <= high[j], low[j] + down <= high[i]
                if fits_up and fits_down:
                    continue
                if not (fits_up or fits_down):
                    return False
                settled[number] = fits_up
            below, above, gap = (i, j, up) if settled[number] else (j, i, down)
            # The upper item moves up, the lower one is limited from above; both may affect their neighbours.
            if low[below] + gap > low[above]:
                low[above] = low[below] + gap
                waiting.update(self.of_item[above])
            if high[above] - gap < high[below]:
                high[below] = high[above] - gap
                waiting.update(self.of_item[below])
            if low[above] > high[above] or low[below] > high[below]:
                return False
        return True
