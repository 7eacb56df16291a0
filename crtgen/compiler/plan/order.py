"""The order of execution: the one with the lowest peak of live bytes.

What is in memory depends on which nodes have run, not on the order in which they ran. So the search
goes over sets of nodes that are closed under "must run before" (the ideals of the graph), level by level,
and keeps the best way to each. That is exact; where a level has more than ``BEAM`` sets only the best of
them go on, and the result is a heuristic one; so it is where hundreds of nodes could be next, of which there
is time for some. A chain has one set per level.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import nsmallest
from itertools import compress
from typing import NamedTuple

from crtgen.base import budget
from crtgen.compiler.plan.places import BufferUse, Liveness

__all__ = ["BEAM", "best_order", "overlap"]

BEAM = 256

# Ways from a set to the next that are looked at in all, in some seconds: each level has its share.
_MOST_WAYS = 1 << 20


class _OrderState(NamedTuple):
    """A set of nodes that have run, with the best order to reach it; sizes are in units of the alignment.

    ``done`` has a bit per node that has run, ``ready`` are the nodes that may run next. ``live`` is the size
    of the data in memory now, ``rank`` is the peak and the sum over the steps.
    """

    done: int
    ready: tuple[int, ...]
    live: int
    rank: tuple[int, int]
    last: int = -1
    before: "_OrderState | None" = None


@dataclass(frozen=True, slots=True)
class _Move:
    """A node as the search sees it; sizes are in units of the alignment.

    ``alone`` is the memory that it needs in addition to live values, minus what it saves by overwriting
    places that no other node reads. ``shared`` has, for each other place that it may overwrite, a bit per
    node that reads it; ``asked`` is its need for each set of these that is free. ``ends`` are the places that
    may be free after it, each with a bit per node that reads it and its size. ``waiting`` are the nodes that
    depend on this one, each with a bit per node on which it depends.
    """

    node: int
    written: int
    alone: int
    shared: tuple[int, ...]
    asked: Callable[[tuple[bool, ...]], int]
    ends: tuple[tuple[int, int, int], ...]
    waiting: tuple[tuple[int, int], ...]

    def need(self, left: int) -> int:
        """Return the bytes needed in addition to live data if only the nodes in ``left`` have not run yet."""
        for readers in self.shared:
            if not readers & left:
                return self.asked(tuple([not others & left for others in self.shared]))
        return self.alone


def best_order(liveness: Liveness, align: int) -> tuple[int, ...]:
    """Return the graph's nodes, by position, in the order of execution.

    Among equal peaks the smaller sum over the steps wins, then the model's own order.
    """
    sizes = tuple(-(-place.size // align) for place in liveness.places)
    followers: list[list[int]] = [[] for _ in liveness.tasks]
    for node, task in enumerate(liveness.tasks):
        for before in _bits(task.after):
            followers[before].append(node)
    moves = [_move(liveness, sizes, align, node, after) for node, after in enumerate(followers)]
    ready = tuple(node for node, task in enumerate(liveness.tasks) if not task.after)
    live = sum(sizes[i] for i, p in enumerate(liveness.places) if p.writer is None and (p.kept or p.readers))
    level = [_OrderState(0, ready, live, (0, 0))]
    share = max(_MOST_WAYS // max(len(liveness.tasks), 1), 1)
    spending = budget.current()
    for _ in liveness.tasks:
        spending.check()
        reached: dict[int, tuple[tuple[int, int], _OrderState, _Move]] = {}
        for state in level:
            peak, total = state.rank
            for node in state.ready[:share]:
                move, done = moves[node], state.done | 1 << node
                need = state.live + (move.need(~done) if move.shared else move.alone)
                rank = max(peak, need), total + need
                # Two ways to the same set of nodes leave the same memory: only the better one goes on.
                known = reached.get(done)
                if known is None or rank < known[0]:
                    reached[done] = rank, state, move
        # The more nodes could be next, the fewer sets can be expanded in the time there is.
        width = max(share // len(level[0].ready), 1)
        best = nsmallest(min(BEAM, width), reached.values(), key=lambda way: way[0])
        level = [_after(*way) for way in best]
    (final,) = level
    return _path(final)


def _move(
    liveness: Liveness, sizes: tuple[int, ...], align: int, node: int, followers: Sequence[int]
) -> _Move:
    task = liveness.tasks[node]
    ends = [i for i in (*task.reads, *task.writes) if not liveness.places[i].kept]
    written = sum(sizes[i] for i in task.writes)
    own = frozenset(i for i in ends if not liveness.places[i].readers & ~(1 << node))
    over = {i for _, i in task.leads}
    shared = [i for i in ends if i in over - own]

    @cache
    def asked(free: tuple[bool, ...]) -> int:
        dying = own.union(compress(shared, free))
        return written - -task.scratch // align - overlap(task, dying, sizes, align)

    return _Move(
        node,
        written,
        asked(()),
        tuple(liveness.places[i].readers for i in shared),
        asked,
        tuple((i, liveness.places[i].readers, sizes[i]) for i in ends),
        tuple((i, liveness.tasks[i].after) for i in followers),
    )


def _bits(mask: int) -> Iterator[int]:
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def _after(rank: tuple[int, int], state: _OrderState, move: _Move) -> _OrderState:
    # The state that a move leads to.
    done = state.done | 1 << move.node
    freed = sum(size for _, readers, size in move.ends if not readers & ~done)
    next_nodes = [node for node, after in move.waiting if not after & ~done]
    ready = tuple(sorted([*(node for node in state.ready if node != move.node), *next_nodes]))
    return _OrderState(done, ready, state.live + move.written - freed, rank, move.node, state)


def _path(state: _OrderState) -> tuple[int, ...]:
    path = []
    while state.before is not None:
        path.append(state.last)
        state = state.before
    return tuple(reversed(path))


def overlap(task: BufferUse, dying: frozenset[int], sizes: tuple[int, ...], align: int) -> int:
    """Return the most memory that ``task`` can save by placing its outputs over ``dying`` places, in units of
    ``align``.
    """
    pairs = {
        (o, i): max(0, min(sizes[i], sizes[o] - -(-lead // align)))
        for (o, i), lead in task.leads.items()
        if i in dying
    }
    # An upper bound, not a matching: no output saves more than its size, no input gives more than its own.
    by_output = {o: min(sizes[o], sum(v for (p, _), v in pairs.items() if p == o)) for o, _ in pairs}
    by_input = {i: min(sizes[i], sum(v for (_, p), v in pairs.items() if p == i)) for _, i in pairs}
    return min(sum(by_output.values()), sum(by_input.values()))
