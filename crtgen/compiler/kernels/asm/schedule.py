"""Instruction scheduling.

Designs write their loops in readable order. Between two labels or branches, a list scheduler reorders the
instructions: among those that may come next it takes one that can begin first, and among these the one with
the longest path to the end. Dependences are kept, and so is the order of stores relative to other memory
accesses. The set of instructions does not change, and neither do bytes, counts and results.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from crtgen.compiler.kernels.asm.effects import Effects, effects
from crtgen.compiler.kernels.asm.isa import follows
from crtgen.compiler.kernels.asm.pipelines import Clock, CorePipeline, Demand
from crtgen.compiler.kernels.asm.routine import BasicBlock, Instruction, Routine, Runs

__all__ = ["cycles", "each_block", "scheduled"]

_Preference = Callable[[int, str], tuple[int, ...]]
# Priorities among instructions that can start at once; all are tried. The last one is the order as written.
_PREFERENCES: Sequence[_Preference] = (
    lambda height, unit: (-height,),
    lambda height, unit: (unit != "multiplier", -height),
    lambda height, unit: (),
)
_SP = "sp"
_Group = tuple[Instruction, ...]


@lru_cache(maxsize=8192)
def scheduled(routine: Routine, pipeline: CorePipeline) -> Routine:
    """Return the routine in an order that suits the pipeline; blocks that gain nothing keep their order."""
    if not pipeline.overlaps:
        return routine
    return replace(routine, blocks=tuple(_block(b, pipeline, routine.no_alias) for b in routine.blocks))


def cycles(runs: Runs, pipeline: CorePipeline) -> float:
    return sum(call.times * _cycles(call.routine, call.loops, pipeline) for call in runs.calls)


@lru_cache(maxsize=8192)
def _cycles(routine: Routine, loops: tuple[tuple[str, float], ...], pipeline: CorePipeline) -> float:
    rounds = dict(loops)
    return sum(block.runs(rounds) * each for block, each in each_block(routine, pipeline))


@lru_cache(maxsize=8192)
def each_block(routine: Routine, pipeline: CorePipeline) -> Sequence[tuple[BasicBlock, int]]:
    """Return the blocks in an order that suits the pipeline, then prologue and epilogue, with the cycles of
    each.
    """
    frame = (BasicBlock(None, lines, (), 1) for lines in (routine.frame.begin, routine.frame.end))
    blocks = (*scheduled(routine, pipeline).blocks, *frame)
    return [(block, pipeline.cycles(block.lines, block.again)) for block in blocks]


def _block(block: BasicBlock, pipeline: CorePipeline, no_alias: bool) -> BasicBlock:
    orders = (block.lines, *((*order, *block.end) for order in _orders(block, pipeline, no_alias)))
    best = min(dict.fromkeys(orders), key=lambda lines: pipeline.cycles(lines, block.again))
    return block if best is block.lines else replace(block, lines=best)


def _orders(block: BasicBlock, pipeline: CorePipeline, no_alias: bool) -> Iterator[tuple[Instruction, ...]]:
    # Those to choose from, without the branch.
    groups = tuple(_groups(block.straight))
    demands = list(map(pipeline.demands, groups))
    units = [first.timing.unit for first, *_ in demands]
    for apart in (False, True) if no_alias else (False,):
        after = _followers(groups, apart)
        heights = _heights(demands, after)
        for prefer in _PREFERENCES:
            order = _ordered(demands, after, list(map(prefer, heights, units)), pipeline.width)
            yield tuple(line for number in order for line in groups[number])


def _groups(lines: Sequence[Instruction]) -> Iterator[_Group]:
    # Instructions one by one, but IT and VPST with those that they govern.
    at = 0
    while at < len(lines):
        end = at + 1 + follows(lines[at].mnemonic)
        yield tuple(lines[at:end])
        at = end


def _effects(group: _Group) -> Effects:
    # Effects of a group; a conditional instruction also reads its destination, which it may leave unchanged.
    all_of = [effects(line) for line in group]
    writes = frozenset[str]().union(*(e.writes for e in all_of))
    reads = frozenset[str]().union(*(e.reads for e in all_of))
    return Effects(
        reads | writes if len(group) > 1 else reads,
        writes,
        loads=any(e.loads for e in all_of),
        stores=any(e.stores for e in all_of),
    )


def _followers(groups: Sequence[_Group], no_alias: bool) -> Sequence[set[int]]:
    # For each group, the later groups that must stay after it; ``no_alias`` is the routine's.
    after: list[set[int]] = [set() for _ in groups]
    writer: dict[str, int] = {}
    readers: defaultdict[str, list[int]] = defaultdict(list)
    stored, loaded = -1, list[int]()
    for number, group in enumerate(groups):
        done = _effects(group)
        for word in done.reads:
            _behind(after, [writer[word]] if word in writer else [], number)
            readers[word].append(number)
        for word in done.writes:
            _behind(after, [writer[word]] if word in writer else [], number)
            _behind(after, readers.pop(word, ()), number)
            writer[word] = number
        if stored >= 0 and (done.stores or (done.loads and not (no_alias and _SP not in done.reads))):
            after[stored].add(number)
        if done.stores:
            _behind(after, loaded, number)
            stored, loaded = number, []
        if done.loads:
            loaded.append(number)
    return after


def _behind(after: list[set[int]], before: Iterable[int], number: int) -> None:
    for other in before:
        if other != number:
            after[other].add(number)


def _ordered(
    demands: Sequence[Sequence[Demand]],
    after: Sequence[set[int]],
    ranks: Sequence[tuple[int, ...]],
    width: int,
) -> Iterator[int]:
    # Numbers of groups: of what can begin first, what has the least rank comes next.
    waits = [0] * len(demands)
    for followers in after:
        for number in followers:
            waits[number] += 1
    ready = [number for number, count in enumerate(waits) if not count]
    clock = Clock(width)
    while ready:
        number = min(ready, key=lambda n: (clock.start(demands[n][0]), ranks[n], n))
        ready.remove(number)
        clock.run(demands[number])
        yield number
        for other in after[number]:
            waits[other] -= 1
            if not waits[other]:
                ready.append(other)


def _heights(demands: Sequence[Sequence[Demand]], after: Sequence[set[int]]) -> Sequence[int]:
    # The cycles from a group to the end, along the longest way.
    heights = [0] * len(demands)
    for number in reversed(range(len(demands))):
        own = max(max(demand.timing.latency, demand.timing.hold) for demand in demands[number])
        heights[number] = own + max((heights[other] for other in after[number]), default=0)
    return heights
