"""Row loops: chains of operators that run a few rows at a time to lower the peak of the arena.

Joining a chain changes the memory between its first and its last step, and nowhere else. So a chain is tried
by planning this stretch of the schedule alone, and the time for a network grows linearly with its length.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate
from math import inf

from crtgen.compiler.kernels import (
    InPlace,
    Kernel,
    Outline,
    Parts,
    RowStage,
    Target,
    find_outline,
    makes_operand,
    runs_in_loops,
)
from crtgen.compiler.kernels.engine.known import Known
from crtgen.compiler.kernels.rows.row_loop import row_loop
from crtgen.compiler.level import Level, find_level
from crtgen.compiler.plan.bounded import lay
from crtgen.compiler.plan.homes import Homes
from crtgen.compiler.plan.layout import find_needs, find_problem
from crtgen.compiler.plan.order import overlap
from crtgen.compiler.plan.places import BufferUse, Liveness, find_leads, find_liveness
from crtgen.compiler.plan.plan import Call, Item, Plan, RowLoop, RowStream, Stage
from crtgen.compiler.plan.planner import make_plan
from crtgen.network.ir import Graph
from crtgen.network.ops import Add, Concat
from crtgen.network.passes import Rewrite

__all__ = ["loop_over_rows"]

_MOST_ROWS = 16
_MOST_STAGES = 4
# Steps before and after a loop that are laid out with it where it is tried.
_AROUND = 16


def loop_over_rows(
    plan: Plan, target: Target, *, apart: frozenset[str] = frozenset()
) -> tuple[Plan, tuple[Rewrite, ...]]:
    """Return ``plan`` with chains at the peak joined into row loops as long as that lowers the peak, and a
    note for each.

    In total, they add at most as much estimated time as the level permits, and improve the level's objective.
    For speed, at least an eighth of the arena must be saved, otherwise nothing is changed. Layers in
    ``apart`` are in no chain.
    """
    if not plan.steps:
        return plan, ()
    level = find_level(target.optimize)
    start = best = current = _ItemLine.of(plan, apart)
    loops = _Loops(plan.graph, target)
    while True:
        within = [line for line in current.lowered(loops) if line.added(start) <= level.slower]
        if not within:
            break
        current = _best(within, start, loops, level)
        saved = 1 - current.arena / best.arena
        gain = -level.objective(current.added(best), memory=-saved)
        if saved > 0 and gain > 0 and saved >= level.saves:
            best = current
    if best is start:
        return plan, ()
    kernels = {item.name: kernel for item, kernel in zip(best.items, best.kernels, strict=True)}
    made = make_plan(
        plan.graph,
        kernels,
        best.items,
        keep_inputs=plan.kept_inputs,
        align=plan.align,
        outside=plan.outside,
    )
    return (made, tuple(_rewrites(plan, made))) if made.arena < plan.arena else (plan, ())


def _best(lines: Sequence["_ItemLine"], start: "_ItemLine", loops: "_Loops", level: Level) -> "_ItemLine":
    # The best by the objective of the level. The peak is known at once, and the arena is no less.
    def rank(line: _ItemLine, arena: int) -> float:
        return level.objective(line.added(start), memory=arena / start.arena)

    found: tuple[float, _ItemLine] | None = None
    for line in sorted(lines, key=lambda line: rank(line, line.peak)):
        if found is not None and rank(line, line.peak) >= found[0]:
            break
        if found is not None and rank(line, loops.bound(line)) >= found[0]:
            continue
        if found is None or rank(line, line.arena) < found[0]:
            found = rank(line, line.arena), line
    assert found is not None
    return found[1]


def _rewrites(before: Plan, after: Plan) -> Iterator[Rewrite]:
    saved = f"the arena is {after.arena:,} bytes instead of {before.arena:,}"
    for step in after.steps:
        loop = step.item
        if isinstance(loop, RowLoop) and not isinstance(loop, RowStream):
            inner = [after.graph.values[name] for name in loop.inner]
            values = " and ".join(f"{value.name} of {value.nbytes:,} bytes" for value in inner)
            verb = "is" if len(inner) == 1 else "are"
            text = f"{loop.rows} rows at a time, {values} {verb} never whole; {saved}"
            yield Rewrite("loop over rows", loop.name, text)


@dataclass(frozen=True, eq=False)
class _ItemLine:
    """Items in the order in which they run, the kernel of each, and the bytes that each step needs.

    ``alive`` are, for each item, the values that exist before it and are still needed. ``joined`` is the
    position of the last loop, ``whole`` the arena of a line without loops. Items in ``apart`` are in no
    chain. ``arenas`` caches the arenas of stretches, since many are alike.
    """

    graph: Graph
    kept: frozenset[str]
    homes: Homes
    align: int
    items: tuple[Item, ...]
    kernels: tuple[Kernel, ...]
    needs: tuple[int, ...]
    alive: tuple[frozenset[str], ...]
    cost: float
    whole: int
    apart: frozenset[str]
    joined: int | None = None
    arenas: Known = field(default_factory=Known)

    @classmethod
    def of(cls, plan: Plan, apart: frozenset[str] = frozenset()) -> "_ItemLine":
        kept = frozenset((*plan.graph.lasting, *(plan.graph.inputs if plan.kept_inputs else ())))
        kernels = tuple(step.kernel for step in plan.steps)
        cost = sum(step.kernel.cost.time for step in plan.steps)
        items = tuple(step.item for step in plan.steps)
        alive, homes = _alive(plan.graph, items, kept), Homes(plan.homes)
        align, arena = plan.align, plan.arena
        return cls(plan.graph, kept, homes, align, items, kernels, plan.needs, alive, cost, arena, apart)

    @cached_property
    def peak(self) -> int:
        return max(self.needs)

    @cached_property
    def before(self) -> Sequence[int]:
        # The greatest need before each item, and before the end.
        return tuple(accumulate(self.needs, max, initial=0))

    @cached_property
    def behind(self) -> Sequence[int]:
        # The greatest need from each item on, and from the end on.
        return tuple(accumulate(reversed(self.needs), max, initial=0))[::-1]

    @property
    def last(self) -> Kernel:
        # The kernel of what was joined last.
        assert self.joined is not None
        return self.kernels[self.joined]

    @cached_property
    def arena(self) -> int:
        # Bytes of an arena in which what was joined last has its place, with the steps around it.
        if self.joined is None:
            return self.whole
        return max(self.peak, self.laid(self.joined - _AROUND, self.joined + _AROUND + 1, self.peak))

    def laid(self, first: int, end: int, enough: int = 0) -> int:
        # Bytes of the arena of what is there while the items from ``first`` to before ``end`` run.
        first, end = max(first, 0), min(end, len(self.items))
        if first >= end:
            return 0
        liveness = self._liveness(self.items[first:end], self.kernels[first:end], first, end - 1)
        problem = find_problem(liveness, range(end - first), self.align)
        key = problem.sizes, problem.spans, tuple(problem.gaps.items()), enough
        return self.arenas.once(key, lambda: lay(problem, enough).arena)

    def added(self, before: "_ItemLine") -> float:
        # The share of estimated instructions that were added.
        return self.cost / before.cost - 1

    @cached_property
    def places(self) -> Mapping[str, int]:
        return {node.name: i for i, item in enumerate(self.items) for node in item.nodes}

    def maker(self, value: str) -> int | None:
        # The item that makes a value; None for an input or a constant.
        node = self.graph.producer(value)
        return None if node is None else self.places[node.name]

    def reader(self, value: str) -> int | None:
        # The item that reads a value, if only one does, and once.
        nodes = self.graph.consumers(value)
        return self.places[nodes[0].name] if len(nodes) == 1 and nodes[0].inputs.count(value) == 1 else None

    def lowered(self, loops: "_Loops") -> Iterator["_ItemLine"]:
        # The ways to lower the first peak by running a chain that is there by rows. Fewer rows at a time need
        # less memory, and more time as a rule. Where as much is needed elsewhere, fewer are not tried once
        # they take more time, which a loop that only constants tell apart tells.
        for chain in dict.fromkeys(_chains(self, self.needs.index(self.peak))):
            elsewhere = max(self.before[min(chain.items)], self.behind[max(chain.items) + 1])
            around, enough = self._around(chain), inf
            for loop, outline in reversed(self._within(chain, around, loops)):
                alike = loops.alike(outline)
                if alike is not None and alike.cost.time >= enough:
                    break
                kernel = loops.of(loop, outline)
                line = None if kernel is None else self._joined(chain, around, loop, kernel)
                if line is not None:
                    yield line
                    enough = line.last.cost.time if line.peak == elsewhere else inf

    def _within(
        self, chain: "_StageChain", around: "_Around", loops: "_Loops"
    ) -> list[tuple[RowLoop, Outline]]:
        # The loops of a chain, fewest rows first, that promise to stay below the peak.
        found = list[tuple[RowLoop, Outline]]()
        for rows in _rows(self, chain):
            loop = RowLoop(chain.stages, rows)
            outline = loops.outline(loop)
            if outline is None:
                break
            alike = loops.alike(outline)
            scratch = sum(outline.stripes) if alike is None else alike.scratch
            if around.need(loop, outline.inplace, scratch) >= self.peak:
                break
            found.append((loop, outline))
        return found

    def _joined(
        self, chain: "_StageChain", around: "_Around", loop: RowLoop, kernel: Kernel
    ) -> "_ItemLine | None":
        # With a chain as one loop; None if that does not lower the peak.
        first, last = min(chain.items), max(chain.items)
        if around.need(loop, kernel.inplace, kernel.scratch) >= self.peak:
            return None
        others = [i for i in range(first, last) if i not in chain.items]
        items = (*(self.items[i] for i in others), loop)
        kernels = (*(self.kernels[i] for i in others), kernel)
        needs = find_needs(self._liveness(items, kernels, first, last), range(len(items)), self.align)[1:-1]
        if max(needs) >= self.peak:
            return None
        cost = kernel.cost.time - sum(self.kernels[i].cost.time for i in chain.items)
        alive = _alive(self.graph, items, self._after(last))
        return replace(
            self,
            items=(*self.items[:first], *items, *self.items[last + 1 :]),
            kernels=(*self.kernels[:first], *kernels, *self.kernels[last + 1 :]),
            needs=(*self.needs[:first], *needs, *self.needs[last + 1 :]),
            alive=(*self.alive[:first], *alive, *self.alive[last + 1 :]),
            cost=self.cost + cost,
            joined=first + len(others),
        )

    def _around(self, chain: "_StageChain") -> "_Around":
        first, after, loop = min(chain.items), self._after(max(chain.items)), RowLoop(chain.stages, 1)
        (alive,) = _alive(self.graph, (loop,), after)
        names = [name for name in (*alive, *loop.outputs) if self._has_place(name, first)]
        where = {name: i for i, name in enumerate(names)}
        ending = frozenset(where[name] for name in alive - after if name in where)
        return _Around(where, tuple(self.graph.values[name].nbytes for name in names), ending, self.align)

    def _has_place(self, value: str, first: int) -> bool:
        # True if a value that exists from ``first`` on, or is made later, certainly has memory of its own.
        if value in self.homes.names:
            return False
        at = self.maker(value)
        if at is None or at < first:
            return True
        kernel = self.kernels[at]
        joins = (self.kernels[self.places[node.name]].joins for node in self.graph.consumers(value))
        return not (kernel.is_alias or any(joins) or any(permit.exact for permit in kernel.inplace))

    def _liveness(self, items: Sequence[Item], kernels: Sequence[Kernel], first: int, last: int) -> Liveness:
        # Liveness while ``items`` run instead of the items from ``first`` to ``last``.
        before, after = self.alive[first], self._after(last)
        stretch = Graph(self.graph.name, self.graph.values, (), tuple(sorted(before)), tuple(sorted(after)))
        by_name = {item.name: kernel for item, kernel in zip(items, kernels, strict=True)}
        return find_liveness(stretch, items, by_name, keep_inputs=False, homes=self.homes)

    def _after(self, last: int) -> frozenset[str]:
        # The values that are needed after an item.
        return self.alive[last + 1] if last + 1 < len(self.items) else self.kept


@dataclass(frozen=True, slots=True)
class _Around:
    # Data that certainly has memory while a chain runs as one loop: positions, bytes, and values that end
    # with it.
    where: Mapping[str, int]
    sizes: tuple[int, ...]
    ending: frozenset[int]
    align: int

    def need(self, loop: RowLoop, inplace: Sequence[InPlace], scratch: int) -> int:
        # Bytes that are needed at least, with so much scratch and with outputs over inputs.
        sizes = (*self.sizes, scratch)
        units = tuple(-(-size // self.align) for size in sizes)
        task = BufferUse(self.ending, (), 0, 0, find_leads(loop, inplace, self.where))
        own = sum(units) - overlap(task, self.ending, units, self.align)
        return own * self.align - max(-size % self.align for size in sizes)


def _alive(graph: Graph, items: Sequence[Item], after: frozenset[str]) -> tuple[frozenset[str], ...]:
    # For each item, the values needed before it, given those needed after the last one.
    alive = []
    for item in reversed(items):
        read = (n for n in item.inputs if graph.producer(n) is not None or n in graph.inputs)
        after = after.difference(item.outputs).union(read)
        alive.append(after)
    return tuple(alive[::-1])


class _Loops:
    """Cache of loops' kernels, since the chains around one peak often occur around the next, and of the
    arenas before and after a loop, which many loops share.
    """

    def __init__(self, graph: Graph, target: Target) -> None:
        self._graph, self._parts = graph, Parts(target)
        self._stages, self._kernels, self._arenas = Known(), Known(), Known()
        self._alike: dict[Outline, Kernel] = {}

    def of(self, loop: RowLoop, outline: Outline) -> Kernel | None:
        # None where no kernel computes it.
        find = partial(row_loop, self._described(loop), loop.rows, self._parts)
        kernel = self._kernels.once(loop, find)
        if kernel is not None:
            self._alike.setdefault(outline, kernel)
        return kernel

    def outline(self, loop: RowLoop) -> Outline | None:
        return find_outline(self._described(loop), loop.rows, self._parts)

    def alike(self, outline: Outline) -> Kernel | None:
        # The first kernel of this outline that was found; those of others have other constants.
        return self._alike.get(outline)

    def bound(self, line: _ItemLine) -> int:
        # Bytes of the arena of a line at least: those of what runs before and after its last loop.
        assert line.joined is not None
        after = line.joined + 1
        stretches = (max(line.joined - _AROUND, 0), line.joined), (after, after + _AROUND)
        return max(line.peak, *(self._arena(line, *stretch) for stretch in stretches))

    def _arena(self, line: _ItemLine, first: int, end: int) -> int:
        return self._arenas.once(line.kernels[first:end], lambda: line.laid(first, end))

    def _described(self, loop: RowLoop) -> list[RowStage]:
        return [self._stages.once(stage, partial(stage.described, self._graph)) for stage in loop.stages]


@dataclass(frozen=True, slots=True)
class _StageChain:
    """Consecutive stages, the items of the line that contain them, and the last item."""

    stages: tuple[Stage, ...]
    items: frozenset[int]
    last: int

    def then(self, other: "_StageChain") -> "_StageChain":
        # Both, one after the other; ``other`` takes its image from this one.
        first, *more = other.stages
        (image,) = self.stages[-1].node.outputs
        stages = (*self.stages, replace(first, image=image), *more)
        return _StageChain(stages, self.items | other.items, other.last)


def _rows(line: _ItemLine, chain: _StageChain) -> Iterator[int]:
    # Numbers of rows that divide the height, fewer than now for what is a loop already.
    height = line.graph.values[chain.stages[-1].node.outputs[0]].shape[1]
    item = line.items[chain.last]
    most = item.rows - 1 if isinstance(item, RowLoop) and len(chain.items) == 1 else _MOST_ROWS
    return (rows for rows in range(1, min(most, height) + 1) if height % rows == 0)


def _chains(line: _ItemLine, peak: int) -> Iterator[_StageChain]:
    # Chains of few stages with the item at ``peak`` among them.
    links = [*_ending(line, peak)]
    after = _next(line, peak)
    links += [] if after is None else [link for link in _shortcuts(line, after) if peak in link.items]
    for link in links:
        for chain in _backward(line, link):
            yield from (whole for whole in _forward(line, chain) if len(whole.stages) > 1)


def _ending(line: _ItemLine, at: int) -> Iterator[_StageChain]:
    # The stages that the item is, and an addition also with a layer beside it.
    item = line.items[at]
    if isinstance(item, RowStream):
        return
    if isinstance(item, RowLoop):
        yield _StageChain(item.stages, frozenset((at,)), at)
    elif _runs_by_rows(line, item):
        yield _StageChain((Stage(item.node, item.node.inputs[0]),), frozenset((at,)), at)
        yield from _shortcuts(line, at)


def _shortcuts(line: _ItemLine, at: int) -> Iterator[_StageChain]:
    # An addition with the layer that makes one of its operands, if nothing else reads that.
    item = line.items[at]
    if not (isinstance(item, Call) and isinstance(item.node.op, Add)):
        return
    for operand, image in (item.node.inputs, item.node.inputs[::-1]):
        maker = line.maker(operand)
        is_image = len(line.graph.values[image].shape) == len(line.graph.values[operand].shape)
        if maker is None or _next(line, maker) != at or not is_image:
            continue
        layer = line.items[maker]
        if isinstance(layer, Call) and makes_operand(layer.node.op):
            yield _StageChain((Stage(item.node, image, layer.node),), frozenset((at, maker)), at)


def _backward(line: _ItemLine, chain: _StageChain) -> Iterator[_StageChain]:
    # The chain, and every longer one that ends as it does.
    yield chain
    first = chain.stages[0]
    either = (
        isinstance(first.node.op, Add | Concat)
        and first.layer is None
        and len(chain.items) == len(chain.stages)
    )
    for image in dict.fromkeys(first.node.inputs if either else (first.image,)):
        maker = line.maker(image)
        if maker is None or _next(line, maker) not in chain.items:
            continue
        for link in _ending(line, maker):
            if len(link.stages) + len(chain.stages) <= _MOST_STAGES:
                yield from _backward(line, link.then(chain))


def _forward(line: _ItemLine, chain: _StageChain) -> Iterator[_StageChain]:
    # The chain, and every longer one that begins as it does.
    yield chain
    after = _next(line, chain.last)
    if after is None:
        return
    (image,) = line.items[chain.last].outputs
    for link in _ending(line, after):
        first = link.stages[0]
        fits = first.layer is None or first.image == image
        if fits and len(link.stages) + len(chain.stages) <= _MOST_STAGES:
            yield from _forward(line, chain.then(link))


def _next(line: _ItemLine, at: int) -> int | None:
    # The item that reads the output of this one as its image, if nothing else reads it.
    item = line.items[at]
    (output, *more) = item.outputs
    reader = line.reader(output)
    if more or reader is None or output in line.graph.lasting:
        return None
    use = line.items[reader]
    if isinstance(use, RowLoop):
        images = use.inputs[:1]
    else:
        images = use.inputs if isinstance(use.node.op, Add | Concat) else use.inputs[:1]
    return reader if output in images and _runs_by_rows(line, item) and _runs_by_rows(line, use) else None


def _runs_by_rows(line: _ItemLine, item: Item) -> bool:
    if isinstance(item, RowLoop):
        return not isinstance(item, RowStream)
    return item.name not in line.apart and runs_in_loops(item.node.op, line.graph.signature(item.node))
