"""The order of execution: the one with the least peak of live bytes.

What lies in memory depends on which nodes have run, not on the order in which they ran. So the search
goes over sets of nodes that are closed under "must run before" (the ideals of the graph), level by level,
and keeps the best way to each. That is exact; where a level has more than ``BEAM`` sets only the best of
them go on, and the result is a heuristic one. A chain has one set per level.
"""

from dataclasses import dataclass

from crtgen.plan.places import Demand, Task

__all__ = ["BEAM", "best_order", "overlap"]

BEAM = 256


@dataclass(frozen=True, slots=True)
class _State:
    """A set of nodes that have run (a bit each) with the best way to it."""

    done: int
    peak: int
    total: int
    live: frozenset[int]
    last: int = -1
    before: "_State | None" = None

    @property
    def rank(self) -> tuple[int, int]:
        return self.peak, self.total


def best_order(demand: Demand, align: int) -> tuple[int, ...]:
    """Positions of the graph's nodes in the order that is to be executed.

    Of equal peaks the one with the smaller sum over the steps wins, then the model's own order.
    """
    sizes = tuple(-(-place.size // align) for place in demand.places)
    live = frozenset(i for i, p in enumerate(demand.places) if p.writer is None and (p.kept or p.readers))
    level = {0: _State(0, 0, 0, live)}
    for _ in demand.tasks:
        reached: dict[int, _State] = {}
        for state in level.values():
            for node, task in enumerate(demand.tasks):
                if not state.done >> node & 1 and task.after & state.done == task.after:
                    new = _run(demand, sizes, align, state, node)
                    if new.done not in reached or new.rank < reached[new.done].rank:
                        reached[new.done] = new
        level = dict(sorted(reached.items(), key=lambda entry: entry[1].rank)[:BEAM])
    (final,) = level.values()
    return _path(final)


def _path(state: _State) -> tuple[int, ...]:
    path = []
    while state.before is not None:
        path.append(state.last)
        state = state.before
    return tuple(reversed(path))


def _run(demand: Demand, sizes: tuple[int, ...], align: int, state: _State, node: int) -> _State:
    """The state after ``node`` ran in ``state``."""
    task = demand.tasks[node]
    done = state.done | 1 << node
    during = state.live.union(task.writes)
    live = frozenset(i for i in during if demand.places[i].kept or demand.places[i].readers & ~done)
    need = sum(sizes[i] for i in during) + -(-task.scratch // align)
    need -= overlap(task, during - live, sizes, align)
    return _State(done, max(state.peak, need), state.total + need, live, node, state)


def overlap(task: Task, dying: frozenset[int], sizes: tuple[int, ...], align: int) -> int:
    """The most that ``task`` can save by laying its outputs over ``dying`` places, in units of ``align``."""
    pairs = {
        (o, i): max(0, min(sizes[i], sizes[o] - -(-lead // align)))
        for (o, i), lead in task.leads.items()
        if i in dying
    }
    by_output = {o: min(sizes[o], sum(v for (p, _), v in pairs.items() if p == o)) for o, _ in pairs}
    by_input = {i: min(sizes[i], sum(v for (_, p), v in pairs.items() if p == i)) for _, i in pairs}
    return min(sum(by_output.values()), sum(by_input.values()))
