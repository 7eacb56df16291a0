"""Layout of the arena: the problem, its lower bound, and a fast heuristic.

Each tensor, and the scratch buffer of each step, holds data from one moment to another, and needs a range of
bytes in one static arena during that time. This is dynamic storage allocation with fixed times, which is
NP-hard. Two items that never hold data at the same moment may share bytes; two that do must not overlap.

Kernels make one exception: many may overwrite an input while they read it, if the output begins at least
``lead`` bytes below the input. So the constraint between two items is not symmetric. For a pair (i, j) that
is alive together, either j begins at least ``gaps[i, j]`` bytes above i, or i begins at least ``gaps[j, i]``
bytes above j. Usually a gap is the size of the lower item; where the lower one may overwrite the upper one,
it is only the lead. Example: an output of 100 bytes over an input of 80 bytes with a lead of 20 needs 100
bytes instead of 180.

The lower bound is the largest sum of live bytes at any moment. From that sum the step's best saving by
overlays is subtracted, which ``overlap`` bounds from above, so that no layout can go below the bound. Each
item but the topmost one is rounded up to the alignment.

The heuristic is first fit: take the items in some order, and put each at the lowest aligned offset that the
items before it leave free. Several orders are tried (by size, by size times lifetime, by start, ...), then
400 random moves of an item to an earlier turn, of which those that are not worse are kept. The random
generator has a fixed seed, so every machine gets the same layout. ``bounded`` finds the least arena, and uses
this as its start; decision 25 compares the two.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from crtgen.base import budget
from crtgen.compiler.plan.order import overlap
from crtgen.compiler.plan.places import Liveness

__all__ = ["Problem", "arena_of", "find_needs", "find_problem", "lay_first_fit", "lay_heuristically"]

CLIMB = 400
# Bytes and operations per pair of items that exist at the same time, from its gap to the search for offsets.
_PAIR_BYTES, _PAIR_OPERATIONS = 250, 2000

# Problems with no more are quick, and many of them may be tried.
_FREE_PAIRS = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Items to lay at aligned offsets: the places first, then the scratch of the steps that need any.

    ``spans`` are the first and last moment at which an item holds something: moment 0 is before the run,
    moment ``1 + s`` is step ``s``, and one more is after the run. ``gaps`` has both directions of every
    pair that is alive together: if i starts below j, or at the same offset, j has to start at least
    ``gaps[i, j]`` bytes above it. That is i's size, or the lead where i may overwrite j.
    ``scratch`` maps a step to its item, ``needs`` are the bytes below which no layout can go at each moment.
    """

    sizes: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    gaps: Mapping[tuple[int, int], int]
    scratch: Mapping[int, int]
    align: int
    needs: tuple[int, ...]

    @property
    def lower_bound(self) -> int:
        """Bytes below which no layout can go."""
        return max(self.needs)


def find_problem(liveness: Liveness, order: Sequence[int], align: int) -> Problem:
    """The layout problem of ``liveness`` when its tasks run in ``order``."""
    sizes, spans, scratch = _items(liveness, order)
    _ask_for_pairs(spans)
    gaps = {(i, j): sizes[i] for i, j in _together(spans)}
    for step, task in enumerate(order):
        for (o, i), lead in liveness.tasks[task].leads.items():
            if spans[i][1] == 1 + step:
                gaps[o, i] = min(sizes[o], lead)
    needs = tuple(_needs(liveness, order, sizes, spans, align))
    return Problem(tuple(sizes), tuple(spans), gaps, scratch, align, needs)


def _ask_for_pairs(spans: Sequence[tuple[int, int]]) -> None:
    # Ask the budget for the pairs of items that hold something at the same time.
    # An item meets all that begin before it ends, except those that ended before it began, and itself.
    begins, ends = (sorted(times) for times in zip(*spans, strict=True)) if spans else ([], [])
    pairs = sum(bisect_right(begins, end) - bisect_left(ends, begin) - 1 for begin, end in spans)
    if pairs <= _FREE_PAIRS:
        return
    spending = budget.current()
    spending.hold(_PAIR_BYTES * pairs, "planning values that are there at the same time")
    spending.compute(_PAIR_OPERATIONS * pairs, "planning values that are there at the same time")


def find_needs(liveness: Liveness, order: Sequence[int], align: int) -> tuple[int, ...]:
    """The ``needs`` of the problem alone."""
    sizes, spans, _ = _items(liveness, order)
    return tuple(_needs(liveness, order, sizes, spans, align))


def _items(
    liveness: Liveness, order: Sequence[int]
) -> tuple[Sequence[int], Sequence[tuple[int, int]], Mapping[int, int]]:
    # Sizes and spans of places and of scratch, and which item the scratch of a step is.
    spans = _spans(liveness, order)
    sizes = [place.size for place in liveness.places]
    scratch: dict[int, int] = {}
    for step, task in enumerate(order):
        if liveness.tasks[task].scratch:
            scratch[step] = len(sizes)
            sizes.append(liveness.tasks[task].scratch)
            spans.append((1 + step, 1 + step))
    return sizes, spans, scratch


def _spans(liveness: Liveness, order: Sequence[int]) -> list[tuple[int, int]]:
    moment = {task: 1 + step for step, task in enumerate(order)}
    first = [0 if place.writer is None else moment[place.writer] for place in liveness.places]
    last = list(first)
    for step, task in enumerate(order):
        for place in liveness.tasks[task].reads:
            last[place] = 1 + step
    for number, kept in enumerate(place.kept for place in liveness.places):
        if kept:
            last[number] = 1 + len(order)
    return list(zip(first, last, strict=True))


def _live(spans: Sequence[tuple[int, int]], moments: int) -> list[list[int]]:
    # For each moment, the items that hold data.
    live: list[list[int]] = [[] for _ in range(moments)]
    for item, (first, last) in enumerate(spans):
        for moment in range(first, last + 1):
            live[moment].append(item)
    return live


def _together(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    # Every pair of items that hold something at the same moment, in both directions.
    live: list[int] = []
    for item in sorted(range(len(spans)), key=lambda i: spans[i]):
        live = [other for other in live if spans[other][1] >= spans[item][0]]
        for other in live:
            yield item, other
            yield other, item
        live.append(item)


def _needs(
    liveness: Liveness,
    order: Sequence[int],
    sizes: Sequence[int],
    spans: Sequence[tuple[int, int]],
    align: int,
) -> Iterator[int]:
    # The sum of live bytes at each moment. Every item but the topmost fills whole units of ``align``; what a
    # step can save by laying outputs over inputs that end there is taken off.
    units = tuple(-(-size // align) for size in sizes)
    for moment, live in enumerate(_live(spans, len(order) + 2)):
        need = sum(units[i] for i in live)
        if 1 <= moment <= len(order):
            dying = frozenset(i for i in live if spans[i][1] == moment)
            need -= overlap(liveness.tasks[order[moment - 1]], dying, units, align)
        slack = max((units[i] * align - sizes[i] for i in live), default=0)
        yield need * align - slack


def arena_of(problem: Problem, offsets: Sequence[int]) -> int:
    """Bytes of the arena that ``offsets`` need."""
    return max((o + s for o, s in zip(offsets, problem.sizes, strict=True)), default=0)


def lay_heuristically(problem: Problem) -> tuple[int, ...]:
    """Offsets by first fit: in several orders, then in changes of the best order at random.

    Deterministic: the generator has a fixed seed and there is a fixed number of attempts. It ends early
    where the lower bound is met.
    """
    neighbours = _neighbours(problem)
    best, priority = _in_several_orders(problem, neighbours)
    if best[0] <= problem.lower_bound:
        return best[1]
    return _climb(problem, neighbours, priority, best)


def lay_first_fit(problem: Problem) -> tuple[int, ...]:
    """Offsets by first fit in several orders."""
    best, _ = _in_several_orders(problem, _neighbours(problem))
    return best[1]


def _in_several_orders(
    problem: Problem, neighbours: "_Neighbours"
) -> tuple[tuple[int, tuple[int, ...]], list[int]]:
    # The least arena with its offsets, and the order of items that leads to it.
    best: tuple[int, tuple[int, ...]] | None = None
    priority: list[int] = []
    for candidate in _priorities(problem):
        offsets = _first_fit(problem, neighbours, candidate, best[0] - 1 if best else inf)
        if offsets is not None:
            best, priority = (arena_of(problem, offsets), offsets), candidate
        if best is not None and best[0] <= problem.lower_bound:
            break
    assert best is not None
    return best, priority


_NOTHING: Mapping[int, int] = {}
_Neighbours = Sequence[Sequence[tuple[int, int, int]]]


def _neighbours(problem: Problem) -> _Neighbours:
    # For each item i: (j, gap from i up to j, gap from j up to i).
    neighbours: list[list[tuple[int, int, int]]] = [[] for _ in problem.sizes]
    for (i, j), gap in problem.gaps.items():
        neighbours[i].append((j, gap, problem.gaps[j, i]))
    return neighbours


def _priorities(problem: Problem) -> Iterable[list[int]]:
    sizes, spans = problem.sizes, problem.spans
    items = range(len(sizes))
    keys: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda i: (-sizes[i], spans[i][0]),
        lambda i: (-sizes[i] * (1 + spans[i][1] - spans[i][0]), spans[i][0]),
        lambda i: (spans[i][0] - spans[i][1], -sizes[i]),
        lambda i: (spans[i][0], -sizes[i]),
        lambda i: (-spans[i][1], -sizes[i]),
    )
    for key in keys:
        yield sorted(items, key=key)


def _first_fit(
    problem: Problem,
    neighbours: _Neighbours,
    priority: Sequence[int],
    most: float,
    laid: Mapping[int, int] = _NOTHING,
) -> tuple[int, ...] | None:
    # Each item in turn at the lowest aligned offset that those before it leave; None above ``most`` bytes.
    # ``laid`` has the offsets of those that come first, where they are known.
    offsets = [laid.get(item) for item in range(len(problem.sizes))]
    for item in priority[len(laid) :]:
        taken = []
        for other, up, down in neighbours[item]:
            place = offsets[other]
            if place is not None:
                # No offset strictly between these two is allowed: too high to be below, too low to be above.
                taken.append((place - up, place + down))
        offset = 0
        for low, high in sorted(taken):
            if low < offset < high:
                offset = -(-high // problem.align) * problem.align
        if offset + problem.sizes[item] > most:
            return None
        offsets[item] = offset
    return tuple(o for o in offsets if o is not None)


def _climb(
    problem: Problem, neighbours: _Neighbours, priority: list[int], best: tuple[int, tuple[int, ...]]
) -> tuple[int, ...]:
    # Move an item to an earlier turn, one of those at the top as a rule; keep what is not worse.
    random = Random(0)
    current, offsets = best
    top = _top(problem, offsets)
    for _ in range(CLIMB):
        # Only an item at the top can lower the arena, but moving others makes room for it.
        moved = top if random.random() < 0.5 else random.randrange(len(offsets))
        candidate = [i for i in priority if i != moved]
        turn = random.randrange(len(offsets))
        candidate.insert(turn, moved)
        # Items before the first change of the order keep their offsets.
        laid = {item: offsets[item] for item in candidate[: min(turn, priority.index(moved))]}
        trial = _first_fit(problem, neighbours, candidate, current, laid)
        if trial is None:
            continue
        priority, current, offsets, top = candidate, arena_of(problem, trial), trial, _top(problem, trial)
        if current < best[0]:
            best = (current, trial)
        if best[0] <= problem.lower_bound:
            break
    return best[1]


def _top(problem: Problem, offsets: Sequence[int]) -> int:
    return max(range(len(offsets)), key=lambda i: offsets[i] + problem.sizes[i])
