"""The memory planner: from a graph, its schedule and its kernels to a plan."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from crtgen.base import budget
from crtgen.base.errors import UnsupportedError, UsageError
from crtgen.compiler.kernels.engine.kernel import Kernel
from crtgen.compiler.plan.bounded import Layout, lay
from crtgen.compiler.plan.check import check_plan
from crtgen.compiler.plan.homes import find_homes
from crtgen.compiler.plan.layout import Problem, find_problem, problem_of_part
from crtgen.compiler.plan.order import best_order
from crtgen.compiler.plan.places import Liveness, find_liveness
from crtgen.compiler.plan.plan import Call, Item, Outside, Plan, Step
from crtgen.compiler.plan.slot import NPU_PART, ArenaPart, ArenaSlot
from crtgen.network.ir import Graph

__all__ = ["Spread", "make_plan"]

# Bytes that the check of a plan takes for each of its arena.
_PER_BYTE = 6


@dataclass(frozen=True, slots=True)
class Spread:
    """The part of the arena for each value, and for the scratch of each step, by name.

    A value takes along all values that share its place. Everything that is not named is in the arena itself.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    scratch: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> "Spread":
        return cls(
            {name: slot.part for name, slot in plan.slots.items() if slot.part},
            {step.name: step.scratch.part for step in plan.steps if step.scratch and step.scratch.part},
        )


def make_plan(
    graph: Graph,
    kernels: Mapping[str, Kernel],
    items: Sequence[Item] | None = None,
    *,
    keep_inputs: bool = False,
    align: int = 16,
    outside: Outside | None = None,
    spread: Spread | None = None,
) -> Plan:
    """Decide order, lifetimes and offsets of ``graph``; ``kernels`` has a kernel for each item's name.

    ``items`` are in an executable order, by default a call of each node. ``outside`` are values that a
    subgraph shares with its caller; by default they are a model's states. With ``keep_inputs`` the inputs
    still hold their data after a run. ``spread`` places values in parts of the arena; without it, all are in
    the arena.

    ``align`` is the alignment of every offset, in bytes. Sizes are not rounded, so the last tensor of the
    arena costs nothing more. The int8 kernels need 4; 16 suits Helium and DMA best, and activations are
    mostly multiples of 16, so that it is free as a rule. The lower bound takes it into account.
    """
    if align < 1 or align & (align - 1):
        raise UsageError(f"the alignment of the arena is {align}", hint="it has to be a power of two")
    items = [Call(node) for node in graph.nodes] if items is None else items
    outside = Outside.of(graph) if outside is None else outside
    homes = find_homes(graph, items, kernels, outside)
    liveness = find_liveness(graph, items, kernels, keep_inputs, homes)
    order = best_order(liveness, align)
    problem = find_problem(liveness, order, align)
    where = _where(problem, liveness, order, items, spread or Spread())
    layouts = dict(_layouts(problem, liveness, order, where))
    _check_arena(graph, sum(layout.arena for layout, _ in layouts.values()))
    offsets = {
        i: o for layout, inside in layouts.values() for i, o in zip(inside, layout.offsets, strict=True)
    }
    slots = {
        value: ArenaSlot(offsets[i] + start, graph.values[value].nbytes, where[i])
        for i, place in enumerate(liveness.places)
        for value, start in zip(place.values, place.starts, strict=True)
    }
    steps = tuple(
        _step(items[task], kernels[items[task].name], problem.scratch.get(step), offsets, where)
        for step, task in enumerate(order)
    )
    layout, inside = layouts[""]
    whole = problem if len(layouts) == 1 else problem_of_part(problem, liveness, order, inside)
    plan = Plan(
        graph=graph,
        steps=steps,
        slots=MappingProxyType(slots),
        arena=layout.arena,
        lower_bound=whole.lower_bound,
        optimal=layout.is_least,
        kept_inputs=keep_inputs,
        align=align,
        needs=problem.needs[1:-1],
        states=MappingProxyType(_states(graph, align)),
        outside=outside,
        homes=MappingProxyType(dict(homes.names)),
        parts=MappingProxyType(_parts(problem, liveness, order, layouts) | _apart(steps)),
    )
    check_plan(plan)
    return plan


def _where(
    problem: Problem, liveness: Liveness, order: Sequence[int], items: Sequence[Item], spread: Spread
) -> list[str]:
    # The part of each item of the problem. Values that share a place have one part, which any may name.
    where = [
        next((spread.values[value] for value in place.values if value in spread.values), "")
        for place in liveness.places
    ]
    where += [""] * (len(problem.sizes) - len(where))
    for step, item in problem.scratch.items():
        where[item] = spread.scratch.get(items[order[step]].name, "")
    return where


def _layouts(
    problem: Problem, liveness: Liveness, order: Sequence[int], where: Sequence[str]
) -> Iterator[tuple[str, tuple[Layout, Sequence[int]]]]:
    # The layout of each part, the arena's first, with the items of the problem that are in it.
    for part in dict.fromkeys(("", *where)):
        inside = [i for i, there in enumerate(where) if there == part]
        alone = problem if len(inside) == len(where) else problem_of_part(problem, liveness, order, inside)
        yield part, (lay(alone), inside)


def _parts(
    problem: Problem,
    liveness: Liveness,
    order: Sequence[int],
    layouts: Mapping[str, tuple[Layout, Sequence[int]]],
) -> dict[str, ArenaPart]:
    return {
        part: ArenaPart(
            layout.arena, problem_of_part(problem, liveness, order, inside).lower_bound, layout.is_least
        )
        for part, (layout, inside) in layouts.items()
        if part
    }


def _apart(steps: Sequence[Step]) -> dict[str, ArenaPart]:
    # The part of the NPU: its calls run one after the other, so the largest decides.
    size = max((step.apart.size for step in steps if step.apart is not None), default=0)
    return {NPU_PART: ArenaPart(size, size, True)} if size else {}


def _check_arena(graph: Graph, arena: int) -> None:
    # ``UnsupportedError`` for an arena that no board holds, which would be checked byte by byte.
    most = budget.memory_limit(_PER_BYTE)
    if arena > most:
        reason = f"the arena needs {arena:,} bytes; plans are made of up to {most:,}"
        hint = "no board has as many: make its inputs smaller"
        raise UnsupportedError(reason, where=graph.name, hint=hint)


def _states(graph: Graph, align: int) -> dict[str, ArenaSlot]:
    # The places of states, one after another.
    slots, end = dict[str, ArenaSlot](), 0
    for name, _ in graph.states:
        slots[name] = ArenaSlot(-(-end // align) * align, graph.values[name].nbytes)
        end = slots[name].offset + slots[name].size
    return slots


def _step(
    item: Item, kernel: Kernel, scratch: int | None, offsets: Mapping[int, int], where: Sequence[str]
) -> Step:
    # ``scratch`` is the number of the problem's item with the step's scratch memory.
    slot = None if scratch is None else ArenaSlot(offsets[scratch], kernel.scratch, where[scratch])
    return Step(item, kernel, slot, ArenaSlot(0, kernel.apart, NPU_PART) if kernel.apart else None)
