"""Row streaming: pairs of convolutions run by rows where that lowers the peak of the arena."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True, eq=False)
class _Trial:
    """A plan and the rewrites that led to it."""

    plan: Plan
    hits: tuple[Hit, ...] = ()

    @property
    def cost(self) -> float:
        """Estimated instructions."""
        return sum(step.kernel.cost for step in self.plan.steps)

    @property
    def peak(self) -> tuple[int, int]:
        """How high it is, and how many steps reach it."""
        return self.plan.lower_bound, self.plan.needs.count(self.plan.lower_bound)

    def added(self, start: "_Trial") -> float:
        """The share of instructions that ``start`` has not."""
        return self.cost / start.cost - 1


def stream_rows(plan: Plan, target: Target, *, exact: bool | None = None) -> tuple[Plan, tuple[Hit, ...]]:
    """``plan`` with pairs at the peak run by rows as long as the arena becomes smaller, and what was done.

    All of it adds 5 % of estimated instructions at most. A percent of instructions saves at least a percent
    of the arena, for speed ten, for size half a percent. ``exact`` is that of ``make_plan``.
    """
    worth = _WORTH[target.optimize]
    start = best = current = _Trial(plan)
    while True:
        trials = [t for t in _trials(current, target) if t.peak < current.peak]
        within = [t for t in trials if t.added(start) <= _MOST_ADDED]
        if not within:
            return best.plan, best.hits
        current = min(within, key=lambda t: t.plan.arena / plan.arena + worth * t.added(start))
        if not current.plan.optimal and exact is not False:
            current = replace(current, plan=_again(current.plan, exact))
        saved = 1 - current.plan.arena / best.plan.arena
        if saved > max(0.0, worth * current.added(best)):
            best = current


def _again(plan: Plan, exact: bool | None) -> Plan:
    kernels = {step.node.name: step.kernel for step in plan.steps}
    return make_plan(plan.graph, kernels, keep_inputs=plan.kept_inputs, exact=exact, align=plan.align)


def _trials(start: _Trial, target: Target) -> Iterator[_Trial]:
    """Every way to run a step at the peak by rows, each with its plan."""
    plan = start.plan
    needs = zip(plan.steps, plan.needs, strict=True)
    peak = [step.node for step, need in needs if need == plan.lower_bound]
    for change, fused in {c.text: (c, n) for node in peak for c, n in _changes(plan.graph, node)}.values():
        graph = change.apply(plan.graph)
        found = applicable(fused.op, graph.signature(fused), target)
        if found:
            planned = _plan(plan, graph, fused, found[0])
            saved = f"the peak of the arena is {planned.lower_bound:,} bytes instead of {plan.lower_bound:,}"
            hit = Hit("stream rows", fused.name, f"{change.text}, {saved}")
            yield _Trial(planned, (*start.hits, hit))


def _plan(plan: Plan, graph: Graph, fused: Node, kernel: Kernel) -> Plan:
    kernels = {step.node.name: step.kernel for step in plan.steps} | {fused.name: kernel}
    return make_plan(graph, kernels, keep_inputs=plan.kept_inputs, exact=False, align=plan.align)


def _changes(graph: Graph, node: Node) -> Iterator[tuple[Change, Node]]:
    """``node`` with the convolution behind it or before it, or by fewer rows than now."""
    if isinstance(node.op, RowStream):
        for rows in (r for r in _ROWS if r < node.op.rows):
            fewer = replace(node, op=replace(node.op, rows=rows))
            yield Change(f"by {rows} rows instead of {node.op.rows}", {node.name: fewer}), fewer
        return
    producer = graph.producer(node.inputs[0])
    pairs = [(node, after) for after in graph.consumers(node.outputs[0])]
    pairs += [(producer, node)] if producer is not None else []
    for first, second in pairs:
        for op in _streams(graph, first, second):
            inputs = (*first.inputs, *second.inputs[1:])
            fused = Node(f"{first.name}+{second.name}", op, inputs, second.outputs)
            text = f"{first.name} and {second.name} by {op.rows} rows"
            yield Change(text, {first.name: None, second.name: fused}), fused


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
