"""Chains of any length on an image by rows: on the model's input as rows arrive, or on an image in memory.

The number of layers that take rows, and of rows that the last of them computes at a time, are found by
trying: with more layers, smaller images are complete in memory, but more scratch memory and time are needed.
The following layers run when the last row has arrived.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import takewhile

from crtgen.base.errors import UnsupportedError
from crtgen.compiler.byoc import External
from crtgen.compiler.kernels import Kernel, Parts, Target, takes_rows
from crtgen.compiler.kernels.engine.known import Known
from crtgen.compiler.kernels.rows.row_stream import row_stream
from crtgen.compiler.kernels.rows.row_total import sums_up
from crtgen.compiler.level import find_level
from crtgen.compiler.plan.plan import Outside, Plan, RowStream, Stage
from crtgen.compiler.plan.planner import make_plan
from crtgen.compiler.plan.row_loops import loop_over_rows
from crtgen.network.ir import Graph, Node
from crtgen.network.ops import Add
from crtgen.network.passes import Rewrite

__all__ = ["feed_by_rows", "stream_rows"]

_MOST_ROWS = 16
_WORD = 4  # bytes
_HINT = "leave --feed out"


def feed_by_rows(
    plan: Plan, whole: Plan, target: Target, *, apart: frozenset[str] = frozenset()
) -> tuple[Plan, tuple[Rewrite, ...]]:
    """Return ``plan`` with its input fed by rows, and with row loops after that; and a note for each.

    The product of arena and estimated time is minimised, because memory matters to a user who feeds rows; if
    the level permits chains of any length, only the arena is. Layers in ``apart`` take no rows. ``whole`` is
    the plan with the image in memory. Raises ``UnsupportedError`` if the first layer cannot take rows.
    """
    _check(plan.graph, apart)
    others, only_arena = _cost(plan), find_level(target.optimize).streams

    def price(arena: int, time: float) -> float:
        return arena if only_arena else arena * time

    ways = [
        (price(way.memory(plan.graph), others + way.added(plan)), way)
        for way in _ways(plan, target, apart, plan.graph.inputs[0], fed=True)
    ]
    best: tuple[float, Plan, tuple[Rewrite, ...]] | None = None
    for least, way in sorted(ways, key=lambda pair: pair[0]):
        if best is not None and least >= best[0]:
            break
        found, rewrites = loop_over_rows(way.planned(plan), target, apart=apart)
        if best is None or price(found.arena, _cost(found)) < best[0]:
            best = price(found.arena, _cost(found)), found, rewrites
    if best is None:
        first = plan.graph.consumers(plan.graph.inputs[0])[0]
        raise _refused(plan.graph, f"no kernel computes {first.name} by rows")
    return best[1], (_fed(best[1], whole), *best[2])


def stream_rows(
    plan: Plan,
    looped: tuple[Plan, tuple[Rewrite, ...]],
    target: Target,
    *,
    apart: frozenset[str] = frozenset(),
) -> tuple[Plan, tuple[Rewrite, ...]]:
    """Return the plan with the smallest arena: ``looped``, or ``plan`` with a chain of any length that takes
    rows.

    The chain begins after a layer that cannot take rows, and row loops may follow. ``looped`` is ``plan``
    with row loops only. Of plans with equal arenas, the fastest is taken.
    """
    ways = [
        way
        for image in _images(plan.graph, apart)
        for way in _ways(plan, target, apart, image, fed=False)
        if len(way.item.stages) > 1
    ]
    best = looped
    for way in sorted(ways, key=lambda way: way.least(plan)):
        if way.least(plan) > best[0].arena:
            break
        found, rewrites = loop_over_rows(way.planned(plan), target, apart=apart)
        if (found.arena, _cost(found)) < (best[0].arena, _cost(best[0])):
            best = found, (_streamed(found, way.item, plan), *rewrites)
    return best


@dataclass(frozen=True, eq=False)
class _Way:
    # A way to take the image, with its kernel.
    item: RowStream
    kernel: Kernel

    def memory(self, graph: Graph) -> int:
        # Bytes that the arena has at least, beside the image.
        return self.kernel.scratch + graph.values[self.item.outputs[0]].nbytes

    def least(self, plan: Plan) -> int:
        # Bytes that the arena has at least if the image is in memory.
        x, y = (plan.graph.values[name] for name in (self.item.inputs[0], self.item.outputs[0]))
        lead = min((permit.lead for permit in self.kernel.inplace), default=x.nbytes)
        return self.kernel.scratch + max(x.nbytes, y.nbytes, min(x.nbytes + lead, x.nbytes + y.nbytes))

    def added(self, plan: Plan) -> float:
        # The time that it takes more than its layers one after the other.
        names = {node.name for node in self.item.nodes}
        return self.kernel.cost.time - sum(s.kernel.cost.time for s in plan.steps if s.name in names)

    def planned(self, plan: Plan) -> Plan:
        # ``plan`` with the image taken so; one that is fed is outside, and is left as it is.
        names = {node.name for node in self.item.nodes}
        before = list(takewhile(lambda step: step.name not in names, plan.steps))
        after = [step for step in plan.steps[len(before) :] if step.name not in names]
        items = (*(s.item for s in before), self.item, *(s.item for s in after))
        kernels = {self.item.name: self.kernel, **{s.name: s.kernel for s in (*before, *after)}}
        outside = plan.outside
        if self.item.fed:
            outside = Outside((*plan.outside.values, *plan.graph.inputs), plan.outside.pairs)
        kept = self.item.fed or plan.kept_inputs
        return make_plan(plan.graph, kernels, items, keep_inputs=kept, align=plan.align, outside=outside)


def _cost(plan: Plan) -> float:
    return sum(step.kernel.cost.time for step in plan.steps)


def _ways(plan: Plan, target: Target, apart: frozenset[str], image: str, *, fed: bool) -> Iterator[_Way]:
    # Every number of layers and of rows that has a kernel, and needs less memory than the layers alone.
    graph, known, described = plan.graph, Parts(target), Known()
    for stages in _beginnings(graph, apart, image):
        found = [described.once(stage, partial(stage.described, graph)) for stage in stages]
        last = stages[-1].image if found[-1].sums_up else stages[-1].node.outputs[0]
        height = graph.values[last].shape[1]
        for rows in (n for n in range(1, min(height, _MOST_ROWS) + 1) if height % n == 0):
            kernel = row_stream(found, rows, known, fed=fed)
            if kernel is None or kernel.scratch >= plan.arena:
                break
            yield _Way(RowStream(stages, rows, fed), kernel)


def _images(graph: Graph, apart: frozenset[str]) -> Iterator[str]:
    # The images at which chains begin: a layer takes their rows, and none makes them by rows.
    found = set[str]()
    for value in (*graph.inputs, *(name for node in graph.nodes for name in node.outputs)):
        if value not in found:
            chains = [*_beginnings(graph, apart, value)]
            found.update(stage.node.outputs[0] for chain in chains[-1:] for stage in chain)
            if chains:
                yield value


def _beginnings(graph: Graph, apart: frozenset[str], image: str) -> Iterator[tuple[Stage, ...]]:
    # The first layer, the first two, and so on, as long as each takes its image from the one before. What is
    # added later is kept by rows, and there is no end between.
    stages: list[Stage] = []
    kept: dict[str, int] = {}
    while (
        stage := _next(graph, image, kept, begins=not stages)
    ) is not None and stage.node.name not in apart:
        if len(graph.consumers(image)) > 1:
            kept[image] = len(stages) - 1
        stages.append(stage)
        for name in kept.keys() & set(stage.node.inputs) - {image}:
            del kept[name]
        (image,) = stage.node.outputs
        if not kept:
            yield tuple(stages)
        if image in graph.lasting or sums_up(stage.node.op, graph.signature(stage.node)):
            break


def _next(graph: Graph, image: str, kept: Mapping[str, int], *, begins: bool) -> Stage | None:
    # The layer that takes the rows of an image, if one does, or one and an addition later. No rows are kept
    # of the image that a chain ``begins`` with: no stage makes it.
    users = graph.consumers(image)
    later = [node for node in users if isinstance(node.op, Add) and not kept.keys() & set(node.inputs)]
    now = [node for node in users if node not in later]
    if len(now) != 1 or len(later) > 1 or (later and begins):
        return None
    (node,) = now
    if not takes_rows(node.op, graph.signature(node)) or list(node.inputs).count(image) != 1:
        return None
    if not isinstance(node.op, Add):
        return Stage(node, image) if node.inputs[0] == image else None
    (other,) = (name for name in node.inputs if name != image)
    return Stage(node, image, since=kept[other])


def _check(graph: Graph, apart: frozenset[str]) -> None:
    # Raise ``UnsupportedError`` unless there is one image, and a first layer that takes rows of it.
    if len(graph.inputs) != 1:
        raise _refused(graph, f"it has {len(graph.inputs)} inputs; one image comes by rows")
    image = graph.inputs[0]
    users = graph.consumers(image)
    if len(users) != 1 or image in graph.lasting:
        raise _refused(graph, f"{len(users)} layers read {image}; one can take its rows as they come")
    _check_layer(graph, users[0], apart)


def _check_layer(graph: Graph, node: Node, apart: frozenset[str]) -> None:
    image = graph.values[graph.inputs[0]]
    if isinstance(node.op, External):
        by = node.op.generator.name
        raise UnsupportedError(
            f"the network cannot be fed by rows: {node.name}, which reads {image.name}, is computed by {by}, "
            "whose code reads its whole input",
            where=graph.name,
            hint=f"leave out --feed, or what gives layers to {by} (--npu, --codegen)",
        )
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
    return UnsupportedError(f"the network cannot be fed by rows: {what}", where=graph.name, hint=_HINT)


def _fed(plan: Plan, whole: Plan) -> Rewrite:
    item = plan.steps[0].item
    assert isinstance(item, RowStream)
    image, last = plan.graph.values[plan.graph.inputs[0]], plan.graph.values[item.outputs[0]]
    never = f"{image.name} of {image.nbytes:,} bytes comes by rows and is never whole"
    made = f"{last.name} of {last.nbytes:,} is, made {_at_a_time(item)}"
    return Rewrite("feed rows", item.name, f"{never}; {made}; {_saved(plan, whole)}")


def _streamed(plan: Plan, item: RowStream, whole: Plan) -> Rewrite:
    most = max((plan.graph.values[name] for name in item.inner), key=lambda value: value.nbytes)
    never = f"{len(item.inner)} images up to {most.name} of {most.nbytes:,} bytes are never whole"
    more = f"{_cost(plan) / _cost(whole) - 1:+.0%} of estimated time"
    return Rewrite("stream rows", item.name, f"{_at_a_time(item)}, {never}; {_saved(plan, whole)}, {more}")


def _at_a_time(item: RowStream) -> str:
    return f"{item.rows} row{'s' if item.rows > 1 else ''} at a time"


def _saved(plan: Plan, whole: Plan) -> str:
    return f"the arena is {plan.arena:,} bytes instead of {whole.arena:,}"
