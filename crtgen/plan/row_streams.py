"""Networks whose image comes by rows: the first layers take them as they come, and no image lies in memory.

How many layers do so, and how many rows the last of them makes at a time, is tried: more layers let smaller
images lie whole, and take more scratch memory and time. What follows runs when the last row has come.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from crtgen.errors import UnsupportedError
from crtgen.ir import Graph, Node
from crtgen.kernels import Kernel, Parts, Target, takes_rows
from crtgen.kernels.known import Known
from crtgen.kernels.row_stream import row_stream
from crtgen.ops import Add
from crtgen.passes import Hit
from crtgen.plan.homes import Outside
from crtgen.plan.plan import Plan
from crtgen.plan.planner import make_plan
from crtgen.plan.row_loops import loop_over_rows
from crtgen.plan.schedule import RowStream, Stage

__all__ = ["feed_by_rows"]

_MOST_ROWS = 16
_WORD = 4  # bytes
_HINT = "leave --feed out"


def feed_by_rows(
    plan: Plan, whole: Plan, target: Target, *, apart: frozenset[str] = frozenset()
) -> tuple[Plan, tuple[Hit, ...]]:
    """``plan`` with its input fed by rows, and with loops over rows after that; a note for each.

    Arena times estimated time is the least: who feeds by rows wants memory, at each level. Layers that are
    ``apart`` take no rows. ``whole`` is the plan with the image in memory. Raises ``UnsupportedError`` where
    the first layer cannot.
    """
    _check(plan.graph, apart)
    others = sum(step.kernel.cost.time for step in plan.steps)
    ways = [((others + way.added(plan)) * way.memory(plan.graph), way) for way in _ways(plan, target, apart)]
    best: tuple[float, Plan, tuple[Hit, ...]] | None = None
    for least, way in sorted(ways, key=lambda pair: pair[0]):
        if best is not None and least >= best[0]:
            break
        found, hits = loop_over_rows(way.planned(plan), target, apart=apart)
        if best is None or _cost(found) * found.arena < best[0]:
            best = _cost(found) * found.arena, found, hits
    if best is None:
        first = plan.graph.consumers(plan.graph.inputs[0])[0]
        raise _refused(plan.graph, f"no kernel computes {first.name} by rows")
    return best[1], (_hit(best[1], whole), *best[2])


@dataclass(frozen=True, eq=False)
class _Way:
    """How the image is taken, and the kernel that does it."""

    item: RowStream
    kernel: Kernel

    def memory(self, graph: Graph) -> int:
        """Bytes that the arena has at least."""
        return self.kernel.scratch + graph.values[self.item.outputs[0]].nbytes

    def added(self, plan: Plan) -> float:
        """The time that it takes more than its layers one after the other."""
        names = {node.name for node in self.item.nodes}
        return self.kernel.cost.time - sum(s.kernel.cost.time for s in plan.steps if s.name in names)

    def planned(self, plan: Plan) -> Plan:
        """``plan`` with the image taken so; it lies outside, and is left as it is."""
        names = {node.name for node in self.item.nodes}
        steps = [step for step in plan.steps if step.name not in names]
        items = (self.item, *(step.item for step in steps))
        kernels = {self.item.name: self.kernel, **{step.name: step.kernel for step in steps}}
        outside = Outside((*plan.outside.values, *plan.graph.inputs), plan.outside.pairs)
        return make_plan(plan.graph, kernels, items, keep_inputs=True, align=plan.align, outside=outside)


def _cost(plan: Plan) -> float:
    return sum(step.kernel.cost.time for step in plan.steps)


def _ways(plan: Plan, target: Target, apart: frozenset[str]) -> Iterator[_Way]:
    """Every number of layers and of rows that has a kernel, and needs less memory than the layers alone."""
    graph, known, described = plan.graph, Parts(target), Known()
    for stages in _beginnings(graph, apart):
        found = [described.once(stage, partial(stage.described, graph)) for stage in stages]
        height = graph.values[stages[-1].node.outputs[0]].shape[1]
        for rows in (n for n in range(1, min(height, _MOST_ROWS) + 1) if height % n == 0):
            kernel = row_stream(found, rows, known)
            if kernel is None or kernel.scratch >= plan.arena:
                break
            yield _Way(RowStream(stages, rows), kernel)


def _beginnings(graph: Graph, apart: frozenset[str]) -> Iterator[tuple[Stage, ...]]:
    """The first layer, the first two, and so on, as long as each takes its image from the one before.

    What is added later is kept by rows, and there is no end between.
    """
    stages: list[Stage] = []
    kept: dict[str, int] = {}
    image = graph.inputs[0]
    while (stage := _next(graph, image, kept)) is not None and stage.node.name not in apart:
        if len(graph.consumers(image)) > 1:
            kept[image] = len(stages) - 1
        stages.append(stage)
        for name in kept.keys() & set(stage.node.inputs) - {image}:
            del kept[name]
        (image,) = stage.node.outputs
        if not kept:
            yield tuple(stages)
        if image in graph.lasting:
            break


def _next(graph: Graph, image: str, kept: Mapping[str, int]) -> Stage | None:
    """The layer that takes the rows of an image, if one does, or one and an addition later."""
    users = graph.consumers(image)
    later = [node for node in users if isinstance(node.op, Add) and not kept.keys() & set(node.inputs)]
    now = [node for node in users if node not in later]
    if len(now) != 1 or len(later) > 1 or (later and image in graph.inputs):
        return None
    (node,) = now
    if not takes_rows(node.op, graph.signature(node)) or list(node.inputs).count(image) != 1:
        return None
    if not isinstance(node.op, Add):
        return Stage(node, image) if node.inputs[0] == image else None
    (other,) = (name for name in node.inputs if name != image)
    return Stage(node, image, since=kept[other])


def _check(graph: Graph, apart: frozenset[str]) -> None:
    """Raise ``UnsupportedError`` unless there is one image, and a first layer that takes rows of it."""
    if len(graph.inputs) != 1:
        raise _refused(graph, f"it has {len(graph.inputs)} inputs; one image comes by rows")
    image = graph.inputs[0]
    users = graph.consumers(image)
    if len(users) != 1 or image in graph.lasting:
        raise _refused(graph, f"{len(users)} layers read {image}; one can take its rows as they come")
    _check_layer(graph, users[0], apart)


def _check_layer(graph: Graph, node: Node, apart: frozenset[str]) -> None:
    image = graph.values[graph.inputs[0]]
    if not takes_rows(node.op, graph.signature(node)) or isinstance(node.op, Add):
        what = f"{node.name}, which reads {image.name}, is {node.op.name}"
        raise _refused(graph, f"{what}; convolutions, poolings and what is element by element take rows")
    if image.shape[0] != 1:
        raise _refused(graph, f"{image.name} has {image.shape[0]} images; one at a time comes by rows")
    if image.nbytes // image.shape[1] % _WORD:
        row = image.nbytes // image.shape[1]
        raise _refused(graph, f"a row of {image.name} has {row} bytes; rows are whole words of {_WORD}")
    if node.name in apart:
        raise UnsupportedError(
            f"the tune file has a kernel for {node.name}, which would read the whole image",
            where=graph.name,
            hint="leave --feed or --tune out",
        )


def _refused(graph: Graph, what: str) -> UnsupportedError:
    return UnsupportedError(f"it cannot be fed by rows: {what}", where=graph.name, hint=_HINT)


def _hit(plan: Plan, whole: Plan) -> Hit:
    item = plan.steps[0].item
    assert isinstance(item, RowStream)
    image, last = plan.graph.values[plan.graph.inputs[0]], plan.graph.values[item.outputs[0]]
    rows = f"{item.rows} row{'s' if item.rows > 1 else ''} at a time"
    never = f"{image.name} of {image.nbytes:,} bytes comes by rows and is never whole"
    made = f"{last.name} of {last.nbytes:,} is, made {rows}"
    saved = f"the arena is {plan.arena:,} bytes instead of {whole.arena:,}"
    return Hit("feed rows", item.name, f"{never}; {made}; {saved}")
