"""From a graph to its plan: chooses kernels, plans subgraphs, and joins chains of layers into row loops."""

from collections.abc import Mapping
from math import inf
from types import MappingProxyType

from crtgen.compiler.kernels import Kernel, Parts, Target, applicable, on_two_cores, select
from crtgen.compiler.kernels.engine.cost import Cost
from crtgen.compiler.level import find_level
from crtgen.compiler.plan.joined import gain_of, join_in_place
from crtgen.compiler.plan.plan import Branch, Call, Outside, Plan, WhileLoop
from crtgen.compiler.plan.planner import make_plan
from crtgen.compiler.plan.row_loops import loop_over_rows
from crtgen.compiler.plan.row_streams import feed_by_rows, stream_rows
from crtgen.network.ir import Graph, Node
from crtgen.network.ops import Identity, Reshape
from crtgen.network.ops.control import ControlFlow, If, While
from crtgen.network.passes import Rewrite

__all__ = ["plan_model"]

_TEMPLATE = "control.c.j2"


def plan_model(
    graph: Graph,
    target: Target,
    *,
    keep_inputs: bool = False,
    fixed: Mapping[str, Kernel] = MappingProxyType({}),
    feed: str = "",
    in_place: bool = True,
) -> tuple[Plan, tuple[Rewrite, ...]]:
    """Return the plan of a model, and a note for each chain that runs by rows.

    A subgraph has a plan of its own, whose arena is scratch memory of the operator that runs it. It reads the
    operator's inputs in place, and writes outputs in place if possible. Layers in ``fixed`` have the given
    kernels, and are in no chain; layers of subgraphs never are. If ``feed`` is ``rows``, the image arrives by
    rows; raises ``UnsupportedError`` if that is impossible. If the level permits chains of any length, the
    plan has the smallest arena that was found. Without ``in_place`` no value is a part of another one, as the
    graph executor requires.
    """
    apart, streams = frozenset(fixed), find_level(target.optimize).streams

    def planned(most: float) -> tuple[Plan, tuple[Rewrite, ...]]:
        plan = _whole(graph, target, keep_inputs, None, fixed, most)
        if not in_place:
            return by_rows(plan)
        joined, notes = join_in_place(plan, target, apart=apart)
        ways = [_joined(by_rows(plan), target, apart)]
        if notes:
            after, others = _joined(by_rows(joined), target, apart)
            ways.append((after, (*notes, *others)))
        level = find_level(target.optimize)
        return max(ways, key=lambda way: gain_of(plan, way[0], level))

    def by_rows(plan: Plan) -> tuple[Plan, tuple[Rewrite, ...]]:
        looped = loop_over_rows(plan, target, apart=apart)
        if feed:
            return feed_by_rows(plan, looped[0], target, apart=apart)
        return stream_rows(plan, looped, target, apart=apart) if streams else looped

    if not streams:
        return planned(inf)
    least = planned(0)
    faster = planned(least[0].arena)  # where kernels need no more than the whole takes anyway
    return faster if faster[0].arena <= least[0].arena else least


def _joined(
    made: tuple[Plan, tuple[Rewrite, ...]], target: Target, apart: frozenset[str] = frozenset()
) -> tuple[Plan, tuple[Rewrite, ...]]:
    # With concatenations in place, as well as those that are so already.
    plan, notes = join_in_place(made[0], target, apart=apart)
    return plan, (*made[1], *notes)


def _whole(
    graph: Graph,
    target: Target,
    keep_inputs: bool,
    outside: Outside | None,
    fixed: Mapping[str, Kernel] = MappingProxyType({}),
    most: float = inf,
) -> Plan:
    # The plan with each layer whole; none needs more than ``most`` bytes if it can do with less.
    items = [_item(node, target) for node in graph.nodes]
    control = {item.name: _kernel(item) for item in items if isinstance(item, Branch | WhileLoop)}
    kernels = {**select(graph, target, fixed, most), **control}
    kernels |= _copies(graph, target, outside or Outside.of(graph))
    if target.cores == 2:
        kernels |= _pairs(graph, target, kernels, fixed)
    return make_plan(graph, kernels, items, keep_inputs=keep_inputs, outside=outside)


def _pairs(
    graph: Graph, target: Target, kernels: Mapping[str, Kernel], fixed: Mapping[str, Kernel]
) -> dict[str, Kernel]:
    # The kernels of layers that two cores compute, a half each.
    parts, nodes = Parts(target), [node for node in graph.nodes if node.name not in fixed]
    return {
        node.name: on_two_cores(node.op, graph.signature(node), kernels[node.name], parts)
        for node in nodes
        if not isinstance(node.op, ControlFlow)
    }


def _copies(graph: Graph, target: Target, outside: Outside) -> dict[str, Kernel]:
    # Kernels of results that are another shape of a value outside, where soon another value may be.
    found, there = {}, set(outside.values)
    results = {*graph.outputs, *(after for _, after in outside.pairs)}
    for node in graph.nodes:
        if isinstance(node.op, Reshape) and node.inputs[0] in there:
            if node.outputs[0] in results:
                found[node.name] = applicable(Identity(), graph.signature(node), target)[0]
            else:
                there.update(node.outputs)
    return found


def _item(node: Node, target: Target) -> Call:
    match node.op:
        case If(then, otherwise):
            plans = [_inner(branch, _branch(branch), target) for branch in (then, otherwise)]
            return Branch(node, plans[0], plans[1])
        case While(condition, body):
            carried = Outside(body.inputs, tuple(zip(body.inputs, body.outputs, strict=False)), True)
            asked = _inner(condition, Outside(condition.inputs, is_inner=True), target)
            return WhileLoop(node, asked, _inner(body, carried, target))
    return Call(node)


def _branch(graph: Graph) -> Outside:
    # The inputs, and an output of the operator for each of the graph's.
    homes = tuple((f"output {i}", name) for i, name in enumerate(graph.outputs))
    return Outside(graph.inputs, homes, True)


def _inner(graph: Graph, outside: Outside, target: Target) -> Plan:
    return _joined(loop_over_rows(_whole(graph, target, False, outside), target), target)[0]


def _kernel(item: Branch | WhileLoop) -> Kernel:
    # Cost of control flow: the dearer side of a branch, one round of a loop.
    costs = [sum(step.kernel.cost.time for step in plan.steps) for plan in item.plans]
    cost = max(costs) if isinstance(item, Branch) else sum(costs)
    scratch = max(plan.arena for plan in item.plans)
    return Kernel(item.operator, _TEMPLATE, None, scratch=scratch, cost=Cost(cost, scratch=scratch))
