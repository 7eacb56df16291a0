"""Values in several memories: which part of an arena goes where, because the core waits less there or because
one memory cannot hold all of it.

The problem. A chip has a small RAM for which the core never waits, and a large one behind a cache or a bus.
Each value and each scratch buffer goes into one of them; within each memory they are laid out as in any
arena.

The cost. A step waits for its inputs, outputs and scratch in a memory, once for each of their bytes: a cache
reads a line before it is written. Outputs and scratch are written back later, which may make it wait, too. If
all of them fit into the data cache, the previous step left them there, and the step does not wait.

The search. First the fastest memory takes the items with the most accesses relative to their lifetimes, as
long as the layout of everything in it fits; then the next memory does. If the rest is too large for its
memory, values that are live at its peak move to any memory with room, the largest first. Both steps only
choose a memory for each item: ``make_plan`` lays out each memory, with a lower bound of its own, and
``check_plan`` proves all of them.

Example: at step 5 an input of 200 KB and scratch of 100 KB are live, and the memories have 256 KB and 128 KB.
The input does not fit into the smaller one, so the scratch moves there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from crtgen.boards.board import FlashReads
from crtgen.compiler.plan.homes import find_homes
from crtgen.compiler.plan.layout import arena_of, find_problem, lay_first_fit, problem_of_part
from crtgen.compiler.plan.order import best_order
from crtgen.compiler.plan.places import find_liveness
from crtgen.compiler.plan.plan import Plan, Step
from crtgen.compiler.plan.planner import Spread, make_plan
from crtgen.compiler.plan.resident import FreeMemory
from crtgen.compiler.plan.slot import NPU_PART
from crtgen.network.passes import Rewrite

__all__ = ["faster_memory", "spread_arena", "with_waits"]

_WORTH = 1 / 50  # share of a run that another memory has to save
_SCRATCH_USES = 2  # scratch is written and read


def with_waits(plan: Plan, reads: Mapping[str, FlashReads | None]) -> Plan:
    """Return the plan with the waits of its steps; ``reads`` has the read timing of each part of the arena,
    and of the arena itself under an empty name.
    """
    steps = tuple(replace(step, waits=_waits(plan, step, reads)) for step in plan.steps)
    return replace(plan, steps=steps)


def _waits(plan: Plan, step: Step, reads: Mapping[str, FlashReads | None]) -> float:
    if step.kernel.is_alias or step.kernel.estimate is not None:
        return 0.0
    touched: dict[str, int] = {}
    written: dict[str, int] = {}
    slots = {name: plan.slots[name] for name in (*step.inputs, *step.outputs) if name in plan.slots}
    own = (step.scratch,) if step.scratch else ()
    for slot in (*slots.values(), *own):
        touched[slot.part] = touched.get(slot.part, 0) + slot.size
    for slot in (*(slots[name] for name in dict.fromkeys(step.outputs) if name in slots), *own):
        written[slot.part] = written.get(slot.part, 0) + slot.size
    return sum(_wait(nbytes, written.get(part, 0), reads.get(part)) for part, nbytes in touched.items())


def _wait(nbytes: int, written: int, reads: FlashReads | None) -> float:
    return 0.0 if reads is None or nbytes <= reads.data_cache else reads.waits(nbytes, written)


def faster_memory(plans: Sequence[Plan], nbytes: int, main: FreeMemory, others: Sequence[FreeMemory]) -> str:
    """Return the memory that should hold all arenas, ``nbytes`` in total; empty if they stay in ``main``."""
    total = sum(_cycles(plan) + _sum(plan, {"": main.reads}) for plan in plans)
    for memory in sorted(others, key=_speed):
        saved = sum(_sum(plan, {"": main.reads}) - _sum(plan, {"": memory.reads}) for plan in plans)
        if nbytes <= memory.nbytes and saved > total * _WORTH:
            return memory.name
    return ""


def spread_arena(
    plan: Plan, main: FreeMemory, others: Sequence[FreeMemory]
) -> tuple[Plan, tuple[Rewrite, ...]]:
    """Move values of a plan to ``others`` if that saves cycles, or if ``main`` has too little room.

    Otherwise, and if all memories together are too small, the plan is returned unchanged. Kernels, order and
    subgraphs do not change.
    """
    search = _Search(plan, main, [memory for memory in others if memory.name != NPU_PART])
    search.speed_up()
    if not search.is_worth_it:
        search.clear()
    search.relieve()
    if not search.moved:
        return plan, ()
    made = make_plan(
        plan.graph,
        {step.name: step.kernel for step in plan.steps},
        [step.item for step in plan.steps],
        keep_inputs=plan.kept_inputs,
        align=plan.align,
        outside=plan.outside,
        spread=search.spread(),
    )
    reads = {memory.name: memory.reads for memory in others} | {"": main.reads}
    before = _sum(plan, {"": main.reads})
    made = with_waits(made, reads)
    return made, tuple(_notes(made, main.name, before))


def _notes(made: Plan, main: str, before: float) -> Iterator[Rewrite]:
    saved = before - sum(step.waits for step in made.steps)
    effect = f"; a run takes {saved:,.0f} cycles less by estimate" if saved > 0 else ""
    for name, part in made.parts.items():
        yield Rewrite("spread the arena", name, f"{part.size:,} bytes of it are there, not in {main}{effect}")
        effect = ""


def _cycles(plan: Plan) -> float:
    return sum(step.kernel.cycles or 0.0 for step in plan.steps)


def _sum(plan: Plan, reads: Mapping[str, FlashReads | None]) -> float:
    return sum(_waits(plan, step, reads) for step in plan.steps)


def _speed(memory: FreeMemory) -> tuple[float, int]:
    return (memory.reads.waits(1) if memory.reads else 0.0, memory.nbytes)


@dataclass(frozen=True, slots=True)
class _ArenaItem:
    # A place or scratch buffer: bytes, how often it is written and read, moments of its life.
    nbytes: int
    uses: int
    moments: int

    @property
    def rank(self) -> tuple[float, int]:
        return -self.uses / self.moments, -self.nbytes


class _Search:
    """A memory for each item of the layout problem; an empty name is the arena itself."""

    def __init__(self, plan: Plan, main: FreeMemory, others: Sequence[FreeMemory]) -> None:
        self.plan, self.main = plan, main
        self.others = sorted(others, key=_speed)
        self.steps = [step.item for step in plan.steps]
        kernels = {step.name: step.kernel for step in plan.steps}
        homes = find_homes(plan.graph, self.steps, kernels, plan.outside)
        self.liveness = find_liveness(plan.graph, self.steps, kernels, plan.kept_inputs, homes)
        self.order = best_order(self.liveness, plan.align)
        self.problem = find_problem(self.liveness, self.order, plan.align)
        self.items = list(self._items())
        self.where = [""] * len(self.items)

    def _items(self) -> Iterator[_ArenaItem]:
        problem = self.problem
        moments = [last - first + 1 for first, last in problem.spans]
        for i, place in enumerate(self.liveness.places):
            yield _ArenaItem(place.size, 1 + place.readers.bit_count(), moments[i])
        for i in range(len(self.liveness.places), len(problem.sizes)):
            yield _ArenaItem(problem.sizes[i], _SCRATCH_USES, 1)

    @property
    def moved(self) -> bool:
        return any(self.where)

    @property
    def is_worth_it(self) -> bool:
        """True if the moves save at least a fiftieth of a run."""
        before, after = (self._total(where) for where in ([""] * len(self.items), self.where))
        return before - after > (before + _cycles(self.plan)) * _WORTH

    def clear(self) -> None:
        self.where = [""] * len(self.items)

    def speed_up(self) -> None:
        """Fill each memory that waits less than the arena's memory, starting with the fastest."""
        for memory in self.others:
            if _speed(memory)[0] >= _speed(self.main)[0]:
                continue
            for i in sorted(self._inside(""), key=lambda i: self.items[i].rank):
                self._move(i, memory)

    def relieve(self) -> None:
        """Move items out of the arena until it fits its memory; if it cannot, move nothing."""
        while not self._fits():
            if not self._relieved():
                self.clear()
                return

    def _fits(self) -> bool:
        # What fits as a whole, by a layout that may be better than first fit, fits without a part, too.
        return self.plan.arena <= self.main.nbytes or self._size("") <= self.main.nbytes

    def _relieved(self) -> bool:
        # Move one item that is alive at the peak of the arena.
        inside = self._inside("")
        needs = problem_of_part(self.problem, self.liveness, self.order, inside).needs
        peak = needs.index(max(needs))
        live = [i for i in inside if self.problem.spans[i][0] <= peak <= self.problem.spans[i][1]]
        ranked = sorted(live, key=lambda i: -self.items[i].nbytes)
        return any(self._move(i, memory) for i in ranked for memory in self.others)

    def _move(self, i: int, memory: FreeMemory) -> bool:
        # Move an item if the layout of all that is in the memory still fits.
        if self.items[i].nbytes > memory.nbytes:
            return False
        before, self.where[i] = self.where[i], memory.name
        if self._size(memory.name) <= memory.nbytes:
            return True
        self.where[i] = before
        return False

    def _inside(self, part: str) -> list[int]:
        return [i for i, there in enumerate(self.where) if there == part]

    def _size(self, part: str) -> int:
        inside = self._inside(part)
        if not inside:
            return 0
        problem = problem_of_part(self.problem, self.liveness, self.order, inside)
        return arena_of(problem, lay_first_fit(problem))

    def _total(self, where: Sequence[str]) -> float:
        # The waits of all steps if the items are there.
        reads = {memory.name: memory.reads for memory in self.others} | {"": self.main.reads}
        touched: dict[tuple[int, str], int] = {}
        written: dict[tuple[int, str], int] = {}
        for moment, task in enumerate(self.order, start=1):
            use = self.liveness.tasks[task]
            items = {*use.reads, *use.writes} if use.writes or use.scratch else set()
            scratch = self.problem.scratch.get(moment - 1)
            own = () if scratch is None else (scratch,)
            for i in (*items, *own):
                key = moment, where[i]
                touched[key] = touched.get(key, 0) + self.items[i].nbytes
            for i in (*use.writes, *own):
                key = moment, where[i]
                written[key] = written.get(key, 0) + self.items[i].nbytes
        return sum(_wait(nbytes, written.get(key, 0), reads[key[1]]) for key, nbytes in touched.items())

    def spread(self) -> Spread:
        places = self.liveness.places
        values = {place.values[0]: self.where[i] for i, place in enumerate(places) if self.where[i]}
        scratch = {
            self.steps[self.order[moment]].name: self.where[item]
            for moment, item in self.problem.scratch.items()
            if self.where[item]
        }
        return Spread(values, scratch)
