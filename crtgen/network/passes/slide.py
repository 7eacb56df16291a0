"""Sliding windows: for networks on overlapping windows, a run computes only what is new and keeps the rest.

A run gets the ``step`` positions that arrived since the previous run, along an axis of the input. A layer
that treats all positions of this axis alike, such as a convolution, would recompute most of its output, with
the same values ``step`` positions further on. Here it only computes the positions that depend on new input,
and those near a border of the window, where padding replaces other values than before. Layers that mix all
positions are computed in full.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count

import numpy as np

from crtgen.base.errors import UsageError
from crtgen.network.ir import Array, AxisMap, Graph, Node, Op, Value
from crtgen.network.ops import Concat, StridedSlice
from crtgen.network.passes.core import Rewrite

__all__ = ["Sliding", "slide", "start_of_signal"]

_RULE = "slide"
_WORD = 4

Ranges = tuple[tuple[int, int], ...]
"""Ranges of positions of a value, each from its first to before its last."""


@dataclass(frozen=True, slots=True)
class Sliding:
    """A window that advances by ``step`` positions along ``axis`` of the input from run to run."""

    axis: int
    step: int


@dataclass(frozen=True, slots=True)
class _Lane:
    # Motion of a value along its ``axis``: by ``step`` of ``length`` positions in each run. Positions from
    # ``low`` to ``high - 1`` depend on no border. Positions before ``left`` and from ``right`` on are
    # computed in each run.
    axis: int
    length: int
    step: int
    low: int
    high: int
    left: int

    @property
    def right(self) -> int:
        return self.high - self.step


@dataclass(frozen=True, slots=True)
class _Flow:
    """Values that move with the window, and which of their positions nodes compute."""

    lanes: Mapping[str, _Lane]
    nodes: Mapping[str, AxisMap]

    def seam(self, node: Node) -> tuple[int, int, int]:
        # Positions of the inputs that a node needs: those before the first, and those from the second on. Of
        # what it makes of both in a row, the part for the second begins at the third.
        lane, along = self.lanes[node.outputs[0]], self.nodes[node.name]
        again = lane.left - 1 + -(-along.extent // along.stride) if lane.left else 0
        return again * along.stride - along.before, lane.right * along.stride - along.before, again

    def wanted(self, graph: Graph) -> Mapping[str, list[Ranges]]:
        found: dict[str, list[Ranges]] = {name: [] for name in self.lanes}
        for node in graph.nodes:
            for name in filter(self.lanes.__contains__, node.inputs):
                found[name].append(self.read(node, name))
        for name in filter(self.lanes.__contains__, graph.outputs):
            found[name].append(((0, self.lanes[name].length),))
        return found

    def read(self, node: Node, name: str) -> Ranges:
        length = self.lanes[name].length
        if node.name not in self.nodes:
            return ((0, length),)
        before, behind, _ = self.seam(node)
        return ((0, before), (behind, length)) if before else ((behind, length),)


def start_of_signal(value: Value) -> int:
    """Return the stored value of an input before the signal starts: zero, in its type."""
    return 0 if value.quant is None else value.quant.zero_point


def slide(graph: Graph, sliding: Sliding, *, frugal: bool = False) -> tuple[Graph, tuple[Rewrite, ...]]:
    """Return the network whose input is the new part of the window, and a note for each layer.

    Each run has the outputs of the network on the current window, bit for bit; before the first run the
    signal is zero. ``frugal`` keeps fewer positions and computes more near the front border. Raises
    ``UsageError`` for an input without such an axis, and if nothing would be saved.
    """
    _check(graph, sliding)
    flow = _settled(graph, sliding, frugal)
    made = _Rewriting(graph, flow).run()
    if not flow.nodes or _work(made) >= _work(graph):
        what = f"nothing is won by sliding along axis {sliding.axis} by {sliding.step}"
        hint = "run it on whole windows, without --sliding"
        raise UsageError(f"{what}: {_obstacle(graph, flow)}", where=graph.name, hint=hint)
    return made, tuple(_notes(graph, flow))


def _check(graph: Graph, sliding: Sliding) -> None:
    if len(graph.inputs) != 1 or graph.states:
        what = "it keeps state already" if graph.states else f"it has {len(graph.inputs)} inputs"
        raise UsageError(
            f"{what}: sliding needs a network with one input",
            where=graph.name,
            hint="leave --sliding out",
        )
    shape = graph.values[graph.inputs[0]].shape
    if not 0 <= sliding.axis < len(shape):
        raise UsageError(
            f"the input {graph.inputs[0]} has no axis {sliding.axis}",
            where=graph.name,
            hint=f"it has {len(shape)}, counted from 0",
        )
    if not 0 < sliding.step < shape[sliding.axis]:
        raise UsageError(
            f"a step of {sliding.step} along an axis of {shape[sliding.axis]} positions",
            where=graph.name,
            hint=f"windows overlap at steps of 1 to {shape[sliding.axis] - 1}",
        )


def _settled(graph: Graph, sliding: Sliding, frugal: bool) -> _Flow:
    # The flow without nodes that would compute as much as before.
    stopped: set[str] = set()
    while True:
        flow = _flow(graph, sliding, frugal, stopped)
        useless = (n.name for n in graph.nodes if n.name in flow.nodes and not _saves(flow, n))
        first = next(useless, None)
        if first is None:
            return flow
        stopped.add(first)


def _saves(flow: _Flow, node: Node) -> bool:
    before, behind, _ = flow.seam(node)
    return before < behind


def _flow(graph: Graph, sliding: Sliding, frugal: bool, stopped: set[str]) -> _Flow:
    (name,) = graph.inputs
    length = graph.values[name].shape[sliding.axis]
    lanes = {name: _Lane(sliding.axis, length, sliding.step, 0, length, 0)}
    nodes: dict[str, AxisMap] = {}
    for node in graph.nodes:
        found = _moves(graph, node, lanes) if node.name not in stopped else None
        if found is not None:
            nodes[node.name], lanes[node.outputs[0]] = found
    flow = _Flow(lanes, nodes)
    for node in reversed(graph.nodes) if frugal else ():
        for read in node.inputs if node.name in nodes else ():
            if read in lanes and read != name:
                lanes[read] = replace(lanes[read], left=max(lanes[read].left, flow.seam(node)[0]))
    return flow


def _moves(graph: Graph, node: Node, lanes: Mapping[str, _Lane]) -> tuple[AxisMap, _Lane] | None:
    # Access pattern of a node along the axis, and the motion of its output; None if it runs in full.
    sig = graph.signature(node)
    inputs = [lanes[name] for name in node.inputs if name in lanes]
    if not inputs or len(node.outputs) != 1 or len({(x.length, x.step) for x in inputs}) > 1:
        return None
    along = node.op.axis_map(sig, [lanes[n].axis if n in lanes else None for n in node.inputs])
    if along is None or inputs[0].step % along.stride or (sig.y.quant and sig.y.quant.axis is not None):
        return None
    low = max(-(-(x.low + along.before) // along.stride) for x in inputs)
    high = min((x.high - along.extent + along.before) // along.stride + 1 for x in inputs)
    lane = _Lane(along.axis, sig.y.shape[along.axis], inputs[0].step // along.stride, low, high, low)
    return (along, lane) if lane.left < lane.right else None


def _work(graph: Graph) -> int:
    # Products, or words where there are none.
    signatures = ((node.op, graph.signature(node)) for node in graph.nodes)
    return sum(op.macs(sig) or -(-sig.y.nbytes // _WORD) for op, sig in signatures)


def _obstacle(graph: Graph, flow: _Flow) -> str:
    # The first layer that needs whole windows.
    moving = flow.lanes.keys()
    for node in graph.nodes:
        if node.name not in flow.nodes and moving & set(node.inputs):
            return f"{node.name} ({node.op.name}) needs the whole window"
    return "borders are all there is"


def _notes(graph: Graph, flow: _Flow) -> Iterable[Rewrite]:
    for node in graph.nodes:
        if node.name in flow.nodes:
            lane = flow.lanes[node.outputs[0]]
            size = lane.left + lane.length - lane.right
            yield Rewrite(_RULE, node.name, f"{size} of {lane.length} positions are computed in a run")
        elif flow.lanes.keys() & set(node.inputs):
            yield Rewrite(_RULE, node.name, "it needs the whole window")


@dataclass(slots=True, eq=False)
class _Rewriting:
    """The graph under construction.

    ``fresh`` maps each moving value to the value with the positions that a run computes: those before
    ``left`` and those from ``right`` on, concatenated. ``kept`` is the state with the positions from
    ``starts`` to ``right``.
    """

    graph: Graph
    flow: _Flow
    values: dict[str, Value] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    states: list[tuple[str, str]] = field(default_factory=list)
    fresh: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    known: dict[tuple[tuple[str, int, int], ...], str] = field(default_factory=dict)

    def run(self) -> Graph:
        graph = self.graph
        self.values.update(graph.values)
        self._keep()
        (name,) = graph.inputs
        self.values[name] = self._resized(name, name, self.flow.lanes[name].step)
        self._made(name, name)
        for node in graph.nodes:
            self._node(node)
        for name in filter(self.flow.lanes.__contains__, graph.outputs):
            self._whole(name)
        values = list(self.values.values())
        return Graph.build(graph.name, values, self.nodes, graph.inputs, graph.outputs, self.states)

    def _keep(self) -> None:
        # Make the states; at first they hold what the network makes of zeros.
        initial: Mapping[str, Array] = {}
        for name, wanted in self.flow.wanted(self.graph).items():
            lane = self.flow.lanes[name]
            inside = [max(a, lane.left) for ranges in wanted for a, b in ranges if lane.left < b]
            start = self.starts[name] = min((a for a in inside if a < lane.right), default=lane.right)
            if start < lane.right:
                initial = initial or self._of_zeros()
                positions = np.arange(start, lane.right)
                data = np.take(initial[name], positions, lane.axis)
                state = Value.state(self._new(f"{name}_kept"), data, self.values[name].quant)
                self.values[state.name] = state
                self.kept[name] = state.name

    def _of_zeros(self) -> Mapping[str, Array]:
        (name,) = self.graph.inputs
        value = self.graph.values[name]
        return self.graph.evaluate({name: np.full(value.shape, start_of_signal(value), value.dtype.numpy)})

    def _made(self, name: str, fresh: str) -> None:
        # Combines what a run computes of a value with what it keeps, and keeps what the next run needs.
        self.fresh[name] = fresh
        if name in self.kept:
            lane = self.flow.lanes[name]
            after = self._gathered(name, ((self.starts[name] + lane.step, lane.high),))
            self.states.append((self.kept[name], after))

    def _node(self, node: Node) -> None:
        if node.name not in self.flow.nodes:
            inputs = tuple(self._whole(n) if n in self.flow.lanes else n for n in node.inputs)
            self.nodes.append(replace(node, inputs=inputs))
            return
        (name,) = node.outputs
        lane = self.flow.lanes[name]
        again = self.flow.seam(node)[2]
        inputs = tuple(
            self._gathered(n, self.flow.read(node, n)) if n in self.flow.lanes else n for n in node.inputs
        )
        size = again + lane.length - lane.right
        made = self._new(f"{name}_new") if again > lane.left or name in self.graph.outputs else name
        self.values[made] = self._resized(name, made, size)
        op = node.op.lengthened(lane.axis, size)
        self.nodes.append(replace(node, op=op, inputs=inputs, outputs=(made,)))
        if again > lane.left:
            made = self._joined(name, [(made, 0, lane.left), (made, again, size)])
        self._made(name, made)

    def _whole(self, name: str) -> str:
        return self._gathered(name, ((0, self.flow.lanes[name].length),))

    def _gathered(self, name: str, ranges: Ranges) -> str:
        # Positions of a value that moves, in a row.
        lane, fresh = self.flow.lanes[name], self.fresh[name]
        pieces: list[tuple[str, int, int]] = []
        for first, last in ranges:
            for source, begin, end, offset in (
                (fresh, 0, lane.left, 0),
                (self.kept.get(name, ""), lane.left, lane.right, -self.starts[name]),
                (fresh, lane.right, lane.length, lane.left - lane.right),
            ):
                a, b = max(first, begin), min(last, end)
                if a < b:
                    pieces.append((source, a + offset, b + offset))
        return self._joined(name, pieces)

    def _joined(self, name: str, pieces: Sequence[tuple[str, int, int]]) -> str:
        # Pieces of values in a row: positions of each from the first to before the last.
        axis = self.flow.lanes[name].axis
        merged: list[tuple[str, int, int]] = []
        for source, a, b in pieces:
            if merged and merged[-1][0] == source and merged[-1][2] == a:
                source, a, _ = merged.pop()
            if a < b:
                merged.append((source, a, b))
        key = tuple(merged)
        if key not in self.known:
            parts = tuple(self._sliced(name, *piece) for piece in merged)
            size = sum(b - a for _, a, b in merged)
            self.known[key] = parts[0] if len(parts) == 1 else self._add(Concat(axis), name, parts, size)
        return self.known[key]

    def _sliced(self, name: str, source: str, a: int, b: int) -> str:
        axis, shape = self.flow.lanes[name].axis, self.values[source].shape
        if (a, b) == (0, shape[axis]):
            return source
        begin = tuple(a if n == axis else 0 for n in range(len(shape)))
        end = tuple(b if n == axis else d for n, d in enumerate(shape))
        return self._add(StridedSlice(begin, end, (1,) * len(shape)), name, (source,), b - a)

    def _add(self, op: Op, name: str, inputs: tuple[str, ...], size: int) -> str:
        # A node that makes some positions of a value; all of an output have the output's name.
        whole = size == self.flow.lanes[name].length and name in self.graph.outputs
        made = name if whole else self._new(f"{name}_{op.name}")
        self.values[made] = self._resized(name, made, size)
        self.nodes.append(Node(self._new_node(made), op, inputs, (made,)))
        return made

    def _resized(self, name: str, new: str, size: int) -> Value:
        # A value like another one with so many positions.
        value, axis = self.graph.values[name], self.flow.lanes[name].axis
        return replace(value, name=new, shape=(*value.shape[:axis], size, *value.shape[axis + 1 :]))

    def _new(self, name: str) -> str:
        # A name that no value has.
        return _unique(name, self.values)

    def _new_node(self, name: str) -> str:
        return _unique(name, {node.name for node in (*self.graph.nodes, *self.nodes)})


def _unique(name: str, taken: Iterable[str]) -> str:
    others = set(taken)
    return next(n for n in chain([name], (f"{name}_{i}" for i in count(2))) if n not in others)
