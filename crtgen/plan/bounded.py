"""The least arena of a layout problem, by branch and bound on which of two items is the lower one.

Each item has a lowest and a highest offset. Of two that hold something at the same time one is below the
other: where there is no room for one of the two orders, the other one is settled, and moves the limits of
both items. What is not settled so is tried, large pairs with little room first. In arenas that are nearly
full hardly anything is left to try.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from crtgen.plan.layout import Problem, arena_of, lay_first_fit, lay_heuristically

__all__ = ["least_arena"]

_MOST_TRIED = 400
_SIZE_MATTERS = 4
"""With it, hardly a stretch of a network is left undecided; by room or by size alone, some are."""


def least_arena(problem: Problem, enough: int = 0) -> int:
    """Bytes of the least arena; or of any of at most ``enough`` bytes, if there is one.

    Where too much would have to be tried, it is that of the heuristic.
    """
    least = max(problem.lower_bound, enough)
    arena = arena_of(problem, lay_first_fit(problem))
    while arena > least:
        search = _Search(problem, arena - 1)
        found = search.run()
        if found is None:
            return arena if search.tried <= _MOST_TRIED else arena_of(problem, lay_heuristically(problem))
        arena = arena_of(problem, found)
    return arena


@dataclass(slots=True)
class _State:
    """The lowest and highest offset of each item, in units of alignment; which pairs are settled, and how."""

    low: list[int]
    high: list[int]
    settled: dict[int, bool] = field(default_factory=dict)

    def copy(self) -> "_State":
        return _State(self.low[:], self.high[:], self.settled.copy())


class _Search:
    """For offsets within an arena of ``limit`` bytes; ``tried`` counts what had to be tried."""

    def __init__(self, problem: Problem, limit: int) -> None:
        align = problem.align
        gaps = {pair: -(-gap // align) for pair, gap in problem.gaps.items()}
        self.pairs = [(i, j, gap, gaps[j, i]) for (i, j), gap in gaps.items() if i < j]
        self.of_item: list[list[int]] = [[] for _ in problem.sizes]
        for number, (i, j, _, _) in enumerate(self.pairs):
            self.of_item[i].append(number)
            self.of_item[j].append(number)
        self.align = align
        self.start = _State([0] * len(problem.sizes), [(limit - size) // align for size in problem.sizes])
        self.tried = 0

    def run(self) -> Sequence[int] | None:
        """Offsets, if there are any; None also where more had to be tried than may be."""
        start = self.start
        if min(start.high, default=0) < 0 or not self._settle(start, range(len(self.pairs))):
            return None
        found = self._try(start)
        return None if found is None else [offset * self.align for offset in found.low]

    def _try(self, state: _State) -> _State | None:
        """Settle what is left, one pair after the other."""
        left = [number for number in range(len(self.pairs)) if number not in state.settled]
        if not left:
            return state
        number = min(left, key=lambda number: self._turn(state, number))
        for first_is_below in (True, False):
            self.tried += 1
            if self.tried > _MOST_TRIED:
                return None
            one = state.copy()
            one.settled[number] = first_is_below
            if self._settle(one, (number,)):
                found = self._try(one)
                if found is not None:
                    return found
        return None

    def _turn(self, state: _State, number: int) -> int:
        """Pairs for which it is less are settled first: how far one can move, less its size with a weight."""
        i, j, up, down = self.pairs[number]
        room = state.high[i] + state.high[j] - state.low[i] - state.low[j] - up - down
        return room - _SIZE_MATTERS * (up + down)

    def _settle(self, state: _State, numbers: Iterable[int]) -> bool:
        """Draw all conclusions from what changed at these pairs; False if there is no room for an item."""
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
            if low[below] + gap > low[above]:
                low[above] = low[below] + gap
                waiting.update(self.of_item[above])
            if high[above] - gap < high[below]:
                high[below] = high[above] - gap
                waiting.update(self.of_item[below])
            if low[above] > high[above] or low[below] > high[below]:
                return False
        return True
