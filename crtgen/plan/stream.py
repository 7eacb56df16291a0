"""Row streaming: pairs of convolutions run by rows where that lowers the peak of the arena."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from crtgen.ir import Graph, Node
from crtgen.kernels import Kernel, Target, applicable
from crtgen.ops import Conv2d, DepthwiseConv2d, RowStream
from crtgen.passes import Change, Hit
from crtgen.plan.plan import Plan
from crtgen.plan.planner import make_plan

__all__ = ["stream_rows"]

_ROWS = (16, 8, 4, 2, 1)
_MOST_ADDED = 0.05  # of instructions
_WORTH = {"speed": 10.0, "balanced": 1.0, "size": 0.5}
"""How many percent of the arena one percent of instructions has to save."""


def stream_rows(plan: Plan, target: Target, *, exact: bool | None = None) -> tuple[Plan, tuple[Hit, ...]]:
    """``plan`` with pairs at the peak run by rows as long as the arena becomes smaller, and a note for each.

    All of it adds 5 % of estimated instructions at most. A percent of instructions saves at least a percent
    of the arena, for speed ten, for size half a percent. ``exact`` is that of ``make_plan``.
    """
    worth = _WORTH[target.optimize]
    best = current = plan
    while True:
        trials = [p for p in _trials(current, target) if _peak(p) < _peak(current)]
        within = [p for p in trials if _added(plan, p) <= _MOST_ADDED]
        if not within:
            return best, tuple(_hits(plan, best))
        current = min(within, key=lambda p: p.arena / plan.arena + worth * _added(plan, p))
        if not current.optimal and exact is not False:
            current = _planned(current, current.graph, {}, exact)
        if 1 - current.arena / best.arena > max(0.0, worth * _added(best, current)):
            best = current


def _peak(plan: Plan) -> tuple[int, int]:
    """How high it is, and how many steps reach it."""
    return plan.lower_bound, plan.needs.count(plan.lower_bound)


def _added(before: Plan, after: Plan) -> float:
    """The share of estimated instructions."""
    one, other = (sum(step.kernel.cost for step in plan.steps) for plan in (before, after))
    return other / one - 1


def _hits(before: Plan, after: Plan) -> Iterator[Hit]:
    saved = f"the arena is {after.arena:,} bytes instead of {before.arena:,}"
    for step in after.steps:
        op = step.node.op
        if isinstance(op, RowStream):
            never = f"{op.middle.name} of {op.middle.nbytes:,} bytes is never whole"
            yield Hit("stream rows", step.node.name, f"{op.rows} rows at a time, {never}; {saved}")


def _trials(plan: Plan, target: Target) -> Iterator[Plan]:
    """Every way to run a step at the peak by rows."""
    needs = zip(plan.steps, plan.needs, strict=True)
    peak = [step.node for step, need in needs if need == plan.lower_bound]
    changes = {change.text: change for node in peak for change in _changes(plan.graph, node)}
    for change in changes.values():
        graph = change.apply(plan.graph)
        (fused,) = (node for node in change.nodes.values() if node is not None)
        found = applicable(fused.op, graph.signature(fused), target)
        if found:
            yield _planned(plan, graph, {fused.name: found[0]}, exact=False)


def _planned(plan: Plan, graph: Graph, kernels: Mapping[str, Kernel], exact: bool | None) -> Plan:
    """The plan of ``graph`` with the kernels of ``plan`` and others."""
    known = {step.node.name: step.kernel for step in plan.steps}
    return make_plan(graph, {**known, **kernels}, keep_inputs=plan.kept_inputs, exact=exact, align=plan.align)


def _changes(graph: Graph, node: Node) -> Iterator[Change]:
    """``node`` with the convolution behind it or before it, or by fewer rows than now."""
    if isinstance(node.op, RowStream):
        for rows in (r for r in _ROWS if r < node.op.rows):
            fewer = replace(node, op=replace(node.op, rows=rows))
            yield Change(f"{node.name} by {rows} rows", {node.name: fewer})
        return
    producer = graph.producer(node.inputs[0])
    pairs = [(node, after) for after in graph.consumers(node.outputs[0])]
    pairs += [(producer, node)] if producer is not None else []
    for first, second in pairs:
        for op in _streams(graph, first, second):
            inputs = (*first.inputs, *second.inputs[1:])
            fused = Node(f"{first.name}+{second.name}", op, inputs, second.outputs)
            yield Change(f"{fused.name} by {op.rows} rows", {first.name: None, second.name: fused})


def _streams(graph: Graph, first: Node, second: Node) -> Iterator[RowStream]:
    """The operators that compute both; none if they are no such pair, or more is read of what is between."""
    one, two = first.op, second.op
    if not isinstance(one, Conv2d) or not isinstance(two, Conv2d | DepthwiseConv2d):
        return
    middle = first.outputs[0]
    uses = [name for node in graph.nodes for name in node.inputs if name == middle]
    if second.inputs[0] != middle or len(uses) > 1 or middle in graph.outputs:
        return
    if RowStream.streams(one, graph.values[first.inputs[1]]):
        height = graph.values[second.outputs[0]].shape[1]
        yield from (RowStream(one, two, graph.values[middle], rows) for rows in _ROWS if rows <= height)
