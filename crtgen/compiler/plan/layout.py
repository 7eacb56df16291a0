"""Pack the buffers of one run into the arena: the problem, a lower bound, and first fit.

Problem
    Every buffer, and the scratch of every step that needs some, is an *item*: a size in bytes and a span of
    moments during which its bytes must survive. Items whose spans meet must not overlap, offsets are
    multiples of ``align``, and the arena should be as small as possible. This is dynamic storage allocation,
    which is NP-hard, with one exception: a step may write its output over an input that nothing reads
    later, if its kernel permits that.

One rule for both
    For every pair of items whose spans meet, either j starts at least ``gaps[i, j]`` bytes above i, or i
    starts at least ``gaps[j, i]`` bytes above j. The gap from i up to j is normally the size of i. If output
    o may overwrite input i, ``gaps[o, i]`` is only the kernel's *lead*: the distance that the output must
    start before the input. For example, an input of 24 bytes and an output of 20 with a lead of 8 fit into
    32 bytes (output at 0, input at 8) instead of 44.

First fit
    Take the items in some order and place each one at the lowest aligned offset that obeys the rule beside
    the items placed so far. The invariant is that the rule holds for every pair of placed items, so *any*
    order gives a valid layout and the order only decides the size of the arena. Some order gives the
    smallest one: sort the items of an optimal layout by offset (at equal offsets, an output before the input
    that it overwrites), and first fit places none of them higher than that layout does. With n items there
    are n! orders, so we try five good ones and then random changes of the best.

Lower bound
    All items that are live at the same moment must fit into the arena. So no arena is smaller than the sum
    of their sizes, less the most that the step of this moment can save by overwriting. A layout that meets
    this bound is optimal for this order of steps, and the search stops.

Example (``STAGGERED`` in ``tests/compiler/plan/test_bounded.py``, aligned to 4)
    ====  =====  ========
    item  bytes  moments
    ====  =====  ========
    A        12  1 to 3
    B        20  0 to 2
    C        24  3
    D        12  2
    ====  =====  ========

    At moment 2 A, B and D are live, so no arena is below 12 + 20 + 12 = 44 bytes. Largest first places C
    at 0, and B at 0 too, because B and C never meet. A meets both, so it goes to 24. D meets A and B, the
    gap from 20 to 24 is too small, and D goes to 36: the arena has 48 bytes. The order A, B, C, D gives the
    offsets 0, 12, 12, 32 and meets the bound. None of the five orders finds it; ``lay_heuristically`` does.

How it is used, and what was dropped
    ``plan/bounded.py`` begins with ``lay_first_fit`` and then searches by branch and bound, which can prove
    that a layout is the smallest. It falls back on ``lay_heuristically`` if that takes too long. First fit
    alone met the bound in all but 24 of 270 measured layouts. CP-SAT of OR-Tools found the same arenas as
    branch and bound and was dropped: layouts depended on what was installed, and loading it took half a
    second (docs/decisions/0025-layouts-by-branch-and-bound.md). ``plan/check.py`` checks every finished plan
    byte by byte and shares no code with this module.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from random import Random

from crtgen.base import budget
from crtgen.compiler.plan.order import overlap
from crtgen.compiler.plan.places import Liveness

__all__ = [
    "Problem",
    "arena_of",
    "find_needs",
    "find_problem",
    "lay_first_fit",
    "lay_heuristically",
    "problem_of_part",
]

CLIMB = 400
"""Random changes of the order that ``lay_heuristically`` tries."""
_PAIR_BYTES, _PAIR_OPERATIONS = 250, 2000
"""Budget for one pair of items that are live together, from its gap to the search for offsets."""

_FREE_PAIRS = 1 << 16
"""Problems with at most this many pairs are not charged: they are quick, and row loops try hundreds."""


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Items to place at aligned offsets: all buffers first, then the scratch of each step that needs some.

    ``sizes``: bytes of each item, not rounded.
    ``spans``: first and last moment at which each item holds data. Moment 0 is before the run, when the
    inputs are in place; moment ``1 + s`` is step ``s``; the last moment is after the run.
    ``gaps``: for every pair of items that are live together, in both directions, the least distance from i
    up to j if i is the lower one. It is the size of i, or the lead if i may overwrite j.
    ``scratch``: maps a step to the item that is its scratch buffer.
    ``align``: alignment of every offset, in bytes.
    ``needs``: for each moment, a number of bytes below which no layout can go.
    """

    sizes: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    gaps: Mapping[tuple[int, int], int]
    scratch: Mapping[int, int]
    align: int
    needs: tuple[int, ...]

    @property
    def lower_bound(self) -> int:
        """A size in bytes that no arena can be below; a layout that meets it is optimal."""
        return max(self.needs)


def problem_of_part(
    problem: Problem, liveness: Liveness, order: Sequence[int], items: Sequence[int]
) -> Problem:
    """Return the problem of ``items`` alone, as if the others were in another memory.

    ``liveness`` and ``order`` are those of ``problem``. Items keep their order and are numbered from 0; an
    output can overwrite an input only if both are among them. Steps have no scratch in the result: its items
    are told apart by their position.
    """
    number = {item: n for n, item in enumerate(items)}
    gaps = {
        (number[i], number[j]): gap for (i, j), gap in problem.gaps.items() if i in number and j in number
    }
    tasks = tuple(
        replace(
            task, leads={(o, i): lead for (o, i), lead in task.leads.items() if o in number and i in number}
        )
        for task in liveness.tasks
    )
    apart = Liveness(liveness.places, tasks)
    needs = _needs(apart, order, problem.sizes, problem.spans, problem.align, frozenset(items))
    return Problem(
        tuple(problem.sizes[i] for i in items),
        tuple(problem.spans[i] for i in items),
        gaps,
        {},
        problem.align,
        tuple(needs),
    )


def find_problem(liveness: Liveness, order: Sequence[int], align: int) -> Problem:
    """Return the layout problem of ``liveness`` if its tasks run in ``order``.

    ``order`` holds task numbers; the position in it is the step. Raises ``UnsupportedError`` if more items
    are live together than the budget of the current load allows.
    """
    sizes, spans, scratch = _items(liveness, order)
    _ask_for_pairs(spans)
    gaps = {(i, j): sizes[i] for i, j in _together(spans)}
    for step, task in enumerate(order):
        for (o, i), lead in liveness.tasks[task].leads.items():
            # The kernel permits the overwrite, but only the order decides if this step is the last reader.
            if spans[i][1] == 1 + step:
                gaps[o, i] = min(sizes[o], lead)
    needs = tuple(_needs(liveness, order, sizes, spans, align))
    return Problem(tuple(sizes), tuple(spans), gaps, scratch, align, needs)


def _ask_for_pairs(spans: Sequence[tuple[int, int]]) -> None:
    # Charge the budget for all pairs of items that are live together, before any of them is stored.
    # An item meets all that begin no later than it ends, but not those that ended before it began.
    begins, ends = (sorted(times) for times in zip(*spans, strict=True)) if spans else ([], [])
    pairs = sum(bisect_right(begins, end) - bisect_left(ends, begin) - 1 for begin, end in spans)
    if pairs <= _FREE_PAIRS:
        return
    spending = budget.current()
    spending.hold(_PAIR_BYTES * pairs, "planning values that are there at the same time")
    spending.compute(_PAIR_OPERATIONS * pairs, "planning values that are there at the same time")


def find_needs(liveness: Liveness, order: Sequence[int], align: int) -> tuple[int, ...]:
    """Return ``Problem.needs`` without building the gaps between items, whose number is quadratic."""
    sizes, spans, _ = _items(liveness, order)
    return tuple(_needs(liveness, order, sizes, spans, align))


def _items(
    liveness: Liveness, order: Sequence[int]
) -> tuple[Sequence[int], Sequence[tuple[int, int]], Mapping[int, int]]:
    # Return sizes and spans of all items, and the item that holds the scratch of each step.
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
    """Return the span of each buffer: from its writer, or from moment 0 for inputs, to its last reader.

    A buffer that is kept lives until after the run.
    """
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
    live: list[list[int]] = [[] for _ in range(moments)]
    for item, (first, last) in enumerate(spans):
        for moment in range(first, last + 1):
            live[moment].append(item)
    return live


def _together(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    # Yield every pair of items whose spans meet, as (i, j) and as (j, i).
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
    only: frozenset[int] | None = None,
) -> Iterator[int]:
    """Yield the lower bound of each moment, in bytes; with ``only``, for these items alone.

    Offsets are aligned, so every item takes whole units of ``align``, except the topmost one, which needs no
    padding behind it.
    """
    units = tuple(-(-size // align) for size in sizes)
    for moment, every in enumerate(_live(spans, len(order) + 2)):
        live = every if only is None else [i for i in every if i in only]
        need = sum(units[i] for i in live)
        if 1 <= moment <= len(order):
            dying = frozenset(i for i in live if spans[i][1] == moment)
            need -= overlap(liveness.tasks[order[moment - 1]], dying, units, align)
        # We do not know which item is topmost. Taking the largest padding keeps the bound a lower one.
        slack = max((units[i] * align - sizes[i] for i in live), default=0)
        yield need * align - slack


def arena_of(problem: Problem, offsets: Sequence[int]) -> int:
    return max((o + s for o, s in zip(offsets, problem.sizes, strict=True)), default=0)


def lay_heuristically(problem: Problem) -> tuple[int, ...]:
    """Return offsets by first fit in five orders, then in random changes of the best of these.

    The result need not be optimal. It is the same on every machine: the seed and the number of attempts are
    fixed, and no clock is read. The search ends early if an arena meets the lower bound.
    """
    neighbours = _neighbours(problem)
    best, priority = _in_several_orders(problem, neighbours)
    if best[0] <= problem.lower_bound:
        return best[1]
    return _climb(problem, neighbours, priority, best)


def lay_first_fit(problem: Problem) -> tuple[int, ...]:
    """Return the best offsets that first fit finds in five orders: fast, valid, not always optimal."""
    best, _ = _in_several_orders(problem, _neighbours(problem))
    return best[1]


def _in_several_orders(
    problem: Problem, neighbours: "_Neighbours"
) -> tuple[tuple[int, tuple[int, ...]], list[int]]:
    # Return the smallest arena with its offsets, and the order of items that led to it.
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
    # List, for each item i, (j, gap from i up to j, gap from j up to i) of the items live with it.
    neighbours: list[list[tuple[int, int, int]]] = [[] for _ in problem.sizes]
    for (i, j), gap in problem.gaps.items():
        neighbours[i].append((j, gap, problem.gaps[j, i]))
    return neighbours


def _priorities(problem: Problem) -> Iterable[list[int]]:
    # Yield the five orders in which first fit places the items.
    sizes, spans = problem.sizes, problem.spans
    items = range(len(sizes))
    keys: tuple[Callable[[int], tuple[int, ...]], ...] = (
        # largest first, then earliest
        lambda i: (-sizes[i], spans[i][0]),
        # largest bytes times moments first, then earliest
        lambda i: (-sizes[i] * (1 + spans[i][1] - spans[i][0]), spans[i][0]),
        # longest life first, then largest
        lambda i: (spans[i][0] - spans[i][1], -sizes[i]),
        # in the order of the run, then largest
        lambda i: (spans[i][0], -sizes[i]),
        # latest end first, then largest
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
    """Place the items in the order of ``priority``, each at the lowest offset that is free.

    Return None as soon as an item would end above ``most`` bytes. ``laid`` holds the offsets of the first
    ``len(laid)`` items of ``priority`` if they are known already; they are not computed again.
    """
    offsets = [laid.get(item) for item in range(len(problem.sizes))]
    for item in priority[len(laid) :]:
        taken = []
        for other, up, down in neighbours[item]:
            place = offsets[other]
            if place is not None:
                # The item may start ``up`` or more below its neighbour, or ``down`` or more above it.
                taken.append((place - up, place + down))
        # One pass is enough. An interval that the offset is at or below stays above it: later ones start
        # no lower, so none of them moves the offset. One that the offset is above it never enters again,
        # because the offset only rises.
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
    """Return the best offsets after ``CLIMB`` attempts to move one item to another turn of the order.

    Half of the attempts take the item that ends highest, since the arena cannot shrink while it stays there;
    the others take any item. An order with an equal arena is kept as well, so that the walk can leave a
    plateau.
    """
    random = Random(0)
    current, offsets = best
    top = _top(problem, offsets)
    for _ in range(CLIMB):
        moved = top if random.random() < 0.5 else random.randrange(len(offsets))
        candidate = [i for i in priority if i != moved]
        turn = random.randrange(len(offsets))
        candidate.insert(turn, moved)
        # First fit looks only at items placed earlier, so the common start of both orders keeps its offsets.
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
