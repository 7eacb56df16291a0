"""Moves transposes behind later operators until they meet their inverse.

Networks with channels first have a transpose before and after each convolution. Between two convolutions, one
of them is moved past activations, sums and concatenations until it meets the other, and both are removed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from crtgen.network.ir import Graph, Node, Op, Value
from crtgen.network.ops import (
    Concat,
    Dequantize,
    FullyConnected,
    Identity,
    Pad,
    Quantize,
    Relu,
    Reshape,
    Softmax,
)
from crtgen.network.ops.elementwise import Elementwise
from crtgen.network.ops.logsoftmax import LogSoftmax
from crtgen.network.ops.lookup_softmax import LookupSoftmax
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.normalize import CumSum
from crtgen.network.ops.reduce import ArgReduction, Reduction
from crtgen.network.ops.shape import StridedSlice, Transpose
from crtgen.network.ops.spread import MirrorPad, PadWith
from crtgen.network.ops.traits import Tabulated
from crtgen.network.passes.core import Change, GraphLike, Pass, Rewrite, Rule
from crtgen.network.passes.simplify import RemoveDead

__all__ = ["MoveTransposes", "TurnOperands"]

Perm = tuple[int, ...]
Moved = tuple[Op, Perm]
"""An operator that now reads data before a transpose, and the transpose that now follows it."""


@dataclass(frozen=True, slots=True)
class MoveTransposes(Pass):
    """Lets operators read the data before a transpose, and transposes their outputs instead.

    Values do not change. A network is left unchanged if the total volume of its transposes would not
    decrease.
    """

    name: ClassVar[str] = "move transposes"

    def rewrite(self, graph: Graph) -> tuple[Graph, tuple[Rewrite, ...]]:
        if not any(isinstance(node.op, Transpose) for node in graph.nodes):
            return graph, ()
        made, rewrites = min(
            (_swept(graph, reshapes) for reshapes in (True, False)), key=lambda found: _transposed(found[0])
        )
        return (made, rewrites) if _transposed(made) < _transposed(graph) else (graph, ())


@dataclass(frozen=True, slots=True)
class TurnOperands(Rule):
    """Lets a product of matrices exchange the last two axes of an operand instead of a transpose.

    Attention multiplies by the transposed keys: ``[1, 8, 2, 16]`` is transposed by (0, 2, 3, 1). As (0, 2, 1,
    3) and an operand with exchanged axes, 16 elements move at once, and terms of a sum are neighbours. If
    only these axes were exchanged, no transpose is left.
    """

    name: ClassVar[str] = "turn operands"

    def match(self, graph: GraphLike, node: Node) -> Change | None:
        if not isinstance(node.op, BatchMatMul) or any(v.is_constant for v in graph.signature(node).inputs):
            return None
        for number, name in enumerate(node.inputs):
            first = graph.producer(name)
            if first is None or not isinstance(first.op, Transpose) or name in graph.lasting:
                continue
            perm = first.op.perm
            turned = (*perm[:-2], perm[-1], perm[-2])
            gone = turned == tuple(range(len(perm)))
            nearer = number == 1 and perm[-1] != len(perm) - 1 == turned[-1]
            if len(graph.consumers(name)) == 1 and node.inputs.count(name) == 1 and (gone or nearer):
                return _turned(graph, node, first, number, turned)
        return None


def _turned(graph: GraphLike, node: Node, first: Node, number: int, perm: Perm) -> Change:
    assert isinstance(node.op, BatchMatMul)
    op = node.op
    made = replace(op, adj_y=not op.adj_y) if number else replace(op, adj_x=not op.adj_x)
    sig = graph.signature(first)
    shape = tuple(sig.x.shape[axis] for axis in perm)
    value = replace(sig.y, name=f"{sig.y.name}_turned", shape=shape)
    inputs = tuple(value.name if i == number else name for i, name in enumerate(node.inputs))
    return Change(
        f"operand {number + 1} is read with exchanged axes",
        {
            first.name: replace(first, op=Transpose(perm), outputs=(value.name,)),
            node.name: replace(node, op=made, inputs=inputs),
        },
        values=(value,),
    )


def _swept(graph: Graph, reshapes: bool) -> tuple[Graph, tuple[Rewrite, ...]]:
    # Move transposes behind the operators that follow them; behind reshapes only if ``reshapes`` is set.
    sweep = _Sweep(graph, {v.name: v for v in graph.values.values()}, reshapes)
    for node in graph.nodes:
        sweep.add(node)
    if not sweep.rewrites:
        return graph, ()
    values = list(sweep.values.values())
    made = Graph.build(graph.name, values, sweep.nodes, graph.inputs, graph.outputs, graph.states)
    return RemoveDead().run(made), tuple(sweep.rewrites)


def _transposed(graph: Graph) -> int:
    found = ((node.op, graph.signature(node)) for node in graph.nodes)
    return sum(sig.x.elements for op, sig in found if isinstance(op, Transpose) and not op.is_identity(sig))


@dataclass(slots=True)
class _Sweep:
    """One pass over the nodes, from first to last.

    ``reshapes``: transposes are also moved behind reshapes. ``views`` maps the output of a transpose to its
    input and permutation; ``flat`` maps reshaped rows to the transposed value from which they are made.
    """

    graph: Graph
    values: dict[str, Value]
    reshapes: bool
    nodes: list[Node] = field(default_factory=list)
    rewrites: list[Rewrite] = field(default_factory=list)
    views: dict[str, tuple[str, Perm]] = field(default_factory=dict)
    flat: dict[str, str] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        # The node, or what takes its place.
        if isinstance(node.op, Transpose):
            self._transpose(node, node.op)
        elif isinstance(node.op, FullyConnected) and node.inputs[0] in self.flat:
            self._dense(node)
        elif not self._move(node):
            self.nodes.append(node)
            self._remember_rows(node)

    def _transpose(self, node: Node, op: Transpose) -> None:
        source, perm = node.inputs[0], op.perm
        if source in self.views:
            source, first = self.views[source]
            perm = tuple(first[p] for p in perm)
            node = replace(node, op=Transpose(perm), inputs=(source,))
            self.rewrites.append(
                Rewrite(MoveTransposes.name, node.name, "it is one with the transpose before it")
            )
        self.nodes.append(node)
        if not self.values[source].is_state:
            self.views[node.outputs[0]] = (source, perm)

    def _move(self, node: Node) -> bool:
        # Put the node before the transposes of its inputs, if it can be.
        perms = {self.views[name][1] for name in node.inputs if name in self.views}
        if len(perms) != 1 or len(node.outputs) != 1 or not _whole(self.values[node.outputs[0]]):
            return False
        (perm,) = perms
        if isinstance(node.op, Reshape):
            moved = _reshape(node, self.values, perm) if self.reshapes else None
        else:
            moved = _moved(node.op, perm)
        if moved is None:
            return False
        operands = [self._before(name, perm) for name in node.inputs]
        if any(operand is None for operand in operands):
            return False
        op, back = moved
        inputs = tuple(self._operand(v, node) for v in operands if v is not None)
        self.rewrites.append(Rewrite(MoveTransposes.name, node.name, "it reads what is not yet transposed"))
        if back == tuple(range(len(back))):
            self.nodes.append(replace(node, op=op, inputs=inputs))
            return True
        output = self.values[node.outputs[0]]
        shape = tuple(np.array(output.shape, int)[list(_inverse(back))].tolist())
        inner = replace(output, name=self._unique(f"{output.name}_moved"), shape=shape, data=None)
        self.values[inner.name] = inner
        self.nodes.append(replace(node, op=op, inputs=inputs, outputs=(inner.name,)))
        self.nodes.append(Node(f"{inner.name}_back", Transpose(back), (inner.name,), node.outputs))
        self.views[output.name] = (inner.name, back)
        return True

    def _before(self, name: str, perm: Perm) -> Value | None:
        # The value that becomes ``name`` when it is transposed; None if that takes moving elements.
        if name in self.views:
            return self.values[self.views[name][0]]
        value = self.values[name]
        if not _whole(value) or len(value.shape) > len(perm):
            return None
        shape = (1,) * (len(perm) - len(value.shape)) + value.shape
        inverse = _inverse(perm)
        moving = [axis for axis in inverse if shape[axis] > 1]
        if value.is_constant:
            data = value.array().reshape(shape).transpose(inverse)
            return replace(value, shape=data.shape, data=np.ascontiguousarray(data))
        if moving != sorted(moving) or value.is_state:
            return None
        return replace(value, shape=tuple(shape[axis] for axis in inverse))

    def _operand(self, value: Value, node: Node) -> str:
        # The name of an operand, which is another constant or has another shape now.
        old = self.values[value.name]
        if old is value or (old.shape == value.shape and not value.is_constant):
            return value.name
        made = replace(value, name=self._unique(f"{value.name}_moved"))
        self.values[made.name] = made
        if not made.is_constant:
            self.nodes.append(Node(f"{made.name}_shape", Reshape(made.shape), (old.name,), (made.name,)))
        return made.name

    def _remember_rows(self, node: Node) -> None:
        # A reshape of a transposed value to rows of which each is an image.
        name = node.inputs[0] if node.inputs else ""
        if isinstance(node.op, Reshape) and name in self.views and self.views[name][1][:1] == (0,):
            shape = self.values[name].shape
            if len(node.op.shape) == 2 and node.op.shape[0] == shape[0]:
                self.flat[node.outputs[0]] = name

    def _dense(self, node: Node) -> None:
        # Change the order of a layer's weights instead of that of its input.
        rows, weights = self.values[node.inputs[0]], self.values[node.inputs[1]]
        name = self.flat[rows.name]
        source, perm = self.views[name]
        shape = self.values[name].shape
        if not weights.is_constant or weights.shape[1] != rows.shape[1]:
            self.nodes.append(node)
            return
        inverse = _inverse(perm)
        columns = np.arange(weights.shape[1]).reshape(1, *shape[1:]).transpose(inverse).reshape(-1)
        turned = np.ascontiguousarray(weights.array()[:, columns])
        made = replace(weights, name=self._unique(f"{weights.name}_moved"), data=turned)
        flat = replace(rows, name=self._unique(f"{rows.name}_moved"))
        self.values.update({made.name: made, flat.name: flat})
        self.nodes.append(Node(f"{flat.name}_rows", Reshape(flat.shape), (source,), (flat.name,)))
        self.nodes.append(replace(node, inputs=(flat.name, made.name, *node.inputs[2:])))
        self.rewrites.append(
            Rewrite(MoveTransposes.name, node.name, "its weights have the order of its input")
        )

    def _unique(self, name: str) -> str:
        # A name that no value has, and no node for that reason.
        number, candidate = 1, name
        while candidate in self.values:
            number, candidate = number + 1, f"{name}_{number}"
        return candidate


def _whole(value: Value) -> bool:
    # True for per-tensor quantisation.
    return value.quant is None or value.quant.axis is None


def _inverse(perm: Perm) -> Perm:
    return tuple(int(i) for i in np.argsort(perm))


def _moved(op: Op, perm: Perm) -> Moved | None:
    # The operator on values that ``perm`` was not yet applied to; None if it cannot be.
    if isinstance(op, Elementwise | Tabulated | Relu | Identity | Quantize | Dequantize):
        return op, perm
    if isinstance(op, Softmax | LogSoftmax | LookupSoftmax):
        return (op, perm) if perm[-1] == len(perm) - 1 else None
    convert = next((made for kind, made in _WITH_AXES.items() if isinstance(op, kind)), None)
    return convert(op, perm) if convert is not None else None


def _spread(items: Sequence[int], perm: Perm) -> tuple[int, ...]:
    # Numbers of axes of the output as numbers of axes of the input.
    return tuple(items[i] for i in _inverse(perm))


def _pad(op: Op, perm: Perm) -> Moved:
    assert isinstance(op, Pad | PadWith | MirrorPad)
    return replace(op, before=_spread(op.before, perm), after=_spread(op.after, perm)), perm


def _slice(op: Op, perm: Perm) -> Moved | None:
    assert isinstance(op, StridedSlice)
    if op.shrink:
        return None
    parts = (_spread(part, perm) for part in (op.begin, op.end, op.stride))
    return StridedSlice(*parts), perm


def _one_axis(op: Op, perm: Perm) -> Moved:
    assert isinstance(op, Concat | CumSum)
    return replace(op, axis=perm[op.axis]), perm


def _reshape(node: Node, values: Mapping[str, Value], perm: Perm) -> Moved | None:
    # Only for a reshape that adds or removes axes of length 1; they come first in the new one.
    x, y = (values[name].shape for name in (node.inputs[0], node.outputs[0]))
    long, made = ([axis for axis, length in enumerate(shape) if length != 1] for shape in (x, y))
    if [x[axis] for axis in long] != [y[axis] for axis in made]:
        return None
    before = sorted(zip(long, made, strict=True), key=lambda axes: perm[axes[0]])
    order = [*(axis for axis in range(len(y)) if y[axis] == 1), *(axis for _, axis in before)]
    return Reshape(tuple(y[axis] for axis in order)), tuple(order.index(axis) for axis in range(len(y)))


def _place(op: Op, perm: Perm) -> Moved:
    assert isinstance(op, ArgReduction)
    made: Op = replace(op, axis=perm[op.axis])  # type: ignore[type-var]
    return made, _without(perm, (op.axis,))


def _reduction(op: Op, perm: Perm) -> Moved:
    assert isinstance(op, Reduction)
    axes = tuple(sorted(perm[a] for a in op.axes))
    made: Op = replace(op, axes=axes)  # type: ignore[type-var]
    return made, perm if op.keep_dims else _without(perm, op.axes)


def _without(perm: Perm, axes: Sequence[int]) -> Perm:
    # The permutation of the axes that are left.
    kept = [p for a, p in enumerate(perm) if a not in axes]
    order = sorted(kept)
    return tuple(order.index(p) for p in kept)


_WITH_AXES: Mapping[Any, Callable[[Op, Perm], Moved | None]] = {
    Pad: _pad,
    PadWith: _pad,
    MirrorPad: _pad,
    StridedSlice: _slice,
    Concat: _one_axis,
    CumSum: _one_axis,
    ArgReduction: _place,
    Reduction: _reduction,
}
