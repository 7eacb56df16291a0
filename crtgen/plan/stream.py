"""Row streaming: chains of layers run by rows where that lowers the peak of the arena."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from crtgen.ir import Graph, Node, Value
from crtgen.kernels import Kernel, Target, applicable
from crtgen.ops import Add, AddProjection, RowStream, Stage, Windowed
from crtgen.passes import Change, Hit
from crtgen.plan.plan import Plan
from crtgen.plan.planner import make_plan

__all__ = ["stream_rows"]

_MOST_ROWS = 16
_MOST_STAGES = 4
_IMAGE = 4
"""Axes of an image."""


@dataclass(frozen=True, slots=True)
class _Price:
    """``most`` is the share of instructions that may be added; 1 of it has to save ``worth`` of the arena.

    What saves less than the share ``least`` of the arena is not done.
    """

    most: float
    worth: float
    least: float


_PRICES = {"speed": _Price(0.03, 10, 0.125), "balanced": _Price(0.05, 1, 0), "size": _Price(0.05, 0.5, 0)}


def stream_rows(plan: Plan, target: Target, *, exact: bool | None = None) -> tuple[Plan, tuple[Hit, ...]]:
    """``plan`` with chains at the peak run by rows as long as the arena becomes smaller, and a note for each.

    All of it adds 5 % of estimated instructions at most, for speed 3 %. A percent of instructions saves at
    least a percent of the arena, for speed ten, for size half a percent. For speed an eighth of the arena is
    saved, or nothing is done. ``exact`` is that of ``make_plan``.
    """
    price = _PRICES[target.optimize]
    best = current = plan
    while True:
        within = [p for p in _trials(current, target) if _added(plan, p) <= price.most]
        if not within:
            return best, tuple(_hits(plan, best))
        current = min(within, key=lambda p: p.arena / plan.arena + price.worth * _added(plan, p))
        if not current.optimal and exact is not False:
            current = _planned(current, current.graph, {}, exact)
        saved = 1 - current.arena / best.arena
        if saved > max(0.0, price.worth * _added(best, current)) and saved >= price.least:
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
            values = " and ".join(f"{value.name} of {value.nbytes:,} bytes" for value in op.inner)
            verb = "is" if len(op.inner) == 1 else "are"
            text = f"{op.rows} rows at a time, {values} {verb} never whole; {saved}"
            yield Hit("stream rows", step.node.name, text)


def _trials(plan: Plan, target: Target) -> Iterator[Plan]:
    """Every way to lower the peak by running one of its steps by rows, with its neighbours.

    More rows at a time need more memory: where a few are no gain, more are not tried.
    """
    needs = zip(plan.steps, plan.needs, strict=True)
    peak = [step.node for step, need in needs if need == plan.lower_bound]
    for graph, chain in _candidates(plan.graph, peak):
        for rows in _rows(graph, chain):
            trial = _trial(plan, target, graph, chain, rows)
            if trial is None or _peak(trial) >= _peak(plan):
                break
            yield trial


def _trial(plan: Plan, target: Target, graph: Graph, chain: tuple[Node, ...], rows: int) -> Plan | None:
    """The plan with a chain of ``graph`` run by so many rows; None if no kernel does that."""
    fused = _fused(graph, chain, rows)
    graph = Change("", {**{node.name: None for node in chain}, chain[-1].name: fused}).apply(graph)
    found = applicable(fused.op, graph.signature(fused), target)
    return _planned(plan, graph, {fused.name: found[0]}, exact=False) if found else None


def _planned(plan: Plan, graph: Graph, kernels: Mapping[str, Kernel], exact: bool | None) -> Plan:
    """The plan of ``graph`` with the kernels of ``plan`` and others."""
    known = {step.node.name: step.kernel for step in plan.steps}
    return make_plan(graph, {**known, **kernels}, keep_inputs=plan.kept_inputs, exact=exact, align=plan.align)


def _rows(graph: Graph, chain: tuple[Node, ...]) -> Iterator[int]:
    """Numbers of rows that divide the height, fewer than now for what is streamed already."""
    height = graph.values[chain[-1].outputs[0]].shape[1]
    op = chain[0].op
    most = op.rows - 1 if len(chain) == 1 and isinstance(op, RowStream) else _MOST_ROWS
    return (rows for rows in range(1, min(most, height) + 1) if height % rows == 0)


def _candidates(graph: Graph, peak: Sequence[Node]) -> Iterator[tuple[Graph, tuple[Node, ...]]]:
    """Chains with a node at the peak, each with the graph that it is of.

    That is ``graph``, or the same with an addition and the layer that makes one of its operands as one node.
    """
    for chain in dict.fromkeys(chain for node in peak for chain in _chains(graph, node)):
        yield graph, chain
    for layer in graph.nodes:
        addition = _next(graph, layer)
        if addition is not None and isinstance(layer.op, Windowed) and isinstance(addition.op, Add):
            op = AddProjection(layer.op, graph.values[layer.outputs[0]], addition.op)
            inputs = (*(name for name in addition.inputs if name not in layer.outputs), *layer.inputs)
            both = Node(f"{layer.name}+{addition.name}", op, inputs, addition.outputs)
            joined = Change("", {layer.name: None, addition.name: both}).apply(graph)
            for chain in _chains(joined, both):
                if any(node in peak for node in (layer, addition, *chain)):
                    yield joined, chain


def _chains(graph: Graph, node: Node) -> Iterator[tuple[Node, ...]]:
    """Nodes that follow each other, ``node`` among them, that make a stream of few stages."""
    if not _stages(graph, node):
        return
    for before in _before(graph, node, _MOST_STAGES - 1):
        for after in _after(graph, node, _MOST_STAGES - 1):
            chain = (*before, node, *after)
            if 2 <= sum(len(_stages(graph, n)) for n in chain) <= _MOST_STAGES:
                yield chain


def _before(graph: Graph, node: Node, most: int) -> Iterator[tuple[Node, ...]]:
    """Chains of up to ``most`` nodes that end before ``node``, the empty one first."""
    yield ()
    for producer in map(graph.producer, node.inputs if most else ()):
        if producer is not None and _next(graph, producer) == node:
            yield from ((*chain, producer) for chain in _before(graph, producer, most - 1))


def _after(graph: Graph, node: Node, most: int) -> Iterator[tuple[Node, ...]]:
    """Chains of up to ``most`` nodes that begin after ``node``, the empty one first."""
    yield ()
    follower = _next(graph, node) if most else None
    if follower is not None:
        yield from ((follower, *chain) for chain in _after(graph, follower, most - 1))


def _next(graph: Graph, node: Node) -> Node | None:
    """The node that reads the output of ``node`` as its image, if nothing else does."""
    (output, *more) = node.outputs
    uses = [after for after in graph.nodes for name in after.inputs if name == output]
    if more or len(uses) != 1 or output in graph.outputs:
        return None
    (use,) = uses
    images = use.inputs if isinstance(use.op, Add) else use.inputs[:1]
    streams = _stages(graph, node) and _stages(graph, use)
    return use if streams and output in images else None


def _stages(graph: Graph, node: Node) -> tuple[Stage, ...]:
    """The stages that a node is, of a stream; none if it cannot be streamed, or is not on images."""
    if isinstance(node.op, RowStream):
        return node.op.stages
    if not isinstance(node.op, Stage):
        return ()
    sig = graph.signature(node)
    return (node.op,) if len(sig.x.shape) == len(sig.y.shape) == _IMAGE else ()


def _fused(graph: Graph, chain: tuple[Node, ...], rows: int) -> Node:
    """The chain as one node; an addition takes the image from the stage before as its first operand."""
    inputs = list(chain[0].inputs)
    between: list[Value] = []
    for number, node in enumerate(chain):
        if number > 0:
            image = chain[number - 1].outputs[0]
            between.append(graph.values[image])
            inputs += [name for name in node.inputs if name != image]
        if isinstance(node.op, RowStream):
            between += node.op.between
    op = RowStream(tuple(s for node in chain for s in _stages(graph, node)), tuple(between), rows)
    return Node("+".join(node.name for node in chain), op, tuple(inputs), chain[-1].outputs)
