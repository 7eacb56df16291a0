"""The memory planner: from a graph, its schedule and its kernels to a plan."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from crtgen.base import budget
from crtgen.base.errors import UnsupportedError, UsageError
from crtgen.compiler.kernels.engine.kernel import Kernel
from crtgen.compiler.plan.bounded import lay
from crtgen.compiler.plan.check import check_plan
from crtgen.compiler.plan.homes import find_homes
from crtgen.compiler.plan.layout import Problem, find_problem
from crtgen.compiler.plan.order import best_order
from crtgen.compiler.plan.places import find_liveness
from crtgen.compiler.plan.plan import Call, Item, Outside, Plan, Step
from crtgen.compiler.plan.slot import ArenaSlot
from crtgen.network.ir import Graph

__all__ = ["make_plan"]

# Bytes that the check of a plan takes for each of its arena.
_PER_BYTE = 6


def make_plan(
    graph: Graph,
    kernels: Mapping[str, Kernel],
    items: Sequence[Item] | None = None,
    *,
    keep_inputs: bool = False,
    align: int = 16,
    outside: Outside | None = None,
) -> Plan:
    """Decide order, lifetimes and offsets of ``graph``; ``kernels`` has a kernel for each item's name.

    ``items`` are in an executable order, by default a call of each node. ``outside`` is what a subgraph
    shares with its caller; by default it is a model's states. With ``keep_inputs`` the inputs still hold
    their data after a run.

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
    layout = lay(problem)
    _check_arena(graph, layout.arena)
    slots = {
        value: ArenaSlot(offset, place.size)
        for place, offset in zip(liveness.places, layout.offsets, strict=False)
        for value in place.values
    }
    steps = tuple(
        Step(items[task], kernels[items[task].name], _scratch(problem, layout.offsets, step))
        for step, task in enumerate(order)
    )
    plan = Plan(
        graph=graph,
        steps=steps,
        slots=MappingProxyType(slots),
        arena=layout.arena,
        lower_bound=problem.lower_bound,
        optimal=layout.is_least,
        kept_inputs=keep_inputs,
        align=align,
        needs=problem.needs[1:-1],
        states=MappingProxyType(_states(graph, align)),
        outside=outside,
        homes=MappingProxyType(dict(homes.names)),
    )
    check_plan(plan)
    return plan


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


def _scratch(problem: Problem, offsets: tuple[int, ...], step: int) -> ArenaSlot | None:
    item = problem.scratch.get(step)
    return None if item is None else ArenaSlot(offsets[item], problem.sizes[item])
