"""Exact constant folding of channels: constant channels move into the biases of the next layers, and their
weights are removed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from crtgen.network.ir import Array, Graph, Node, Quant, Signature, Value
from crtgen.network.ops import Weighted
from crtgen.network.passes.channels import Selection, select_channels
from crtgen.network.passes.core import Pass, Rewrite
from crtgen.network.passes.ranges import Interval, Mask, intervals, is_affordable

__all__ = ["FoldChannels", "FoldedLayer", "RemovedChannel"]


@dataclass(frozen=True, slots=True)
class RemovedChannel:
    """A removed output channel.

    ``value`` is its constant value, proven over all inputs and pixels from the interval ``low..high`` of its
    accumulators. It is None for a channel that varies but is never read.
    """

    channel: int
    value: int | None
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class FoldedLayer(Rewrite):
    """The record of a layer that lost channels: which ones, why, and the saving."""

    operator: str
    removed: tuple[RemovedChannel, ...]
    macs_before: int
    macs_after: int
    weight_bytes_before: int
    weight_bytes_after: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class FoldChannels(Pass):
    """Removes channels that are constant for every input, and those that are never read.

    The number of channels of each value stays a multiple of ``multiple``; 2 is the fastest for vww on
    Cortex-M4, and within 0.3 % of the fastest on Cortex-M55. ``inputs`` narrows the range of int8 inputs by
    name. It is a promise by the user: outside of that range results differ. A network that is too large to
    analyse is left unchanged.
    """

    name: ClassVar[str] = "fold channels"

    multiple: int = 2
    inputs: Mapping[str, tuple[int, int]] = field(default_factory=lambda: MappingProxyType({}))

    def rewrite(self, graph: Graph) -> tuple[Graph, tuple[Rewrite, ...]]:
        if not is_affordable(graph):
            return graph, ()
        known = intervals(graph, self.inputs)
        selection = select_channels(graph, known, self.multiple)
        touched = {n.name for n in graph.nodes if any(map(selection.shrinks, (*n.inputs, *n.outputs)))}
        if not touched:
            return graph, ()
        folded = _rebuild(graph, selection, touched)
        rewrites = [
            _certify(self.name, (graph, old), (folded, new), selection, known)
            for old, new in zip(graph.nodes, folded.nodes, strict=True)
            if old.name in touched and old.op.macs(graph.signature(old))
        ]
        return folded, tuple(rewrites)


def _rebuild(graph: Graph, selection: Selection, touched: set[str]) -> Graph:
    # The network with the selected channels only.
    values = {name: _narrow(value, selection.kept[name]) for name, value in graph.values.items()}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.name not in touched:
            nodes.append(node)
            continue
        constants = _constants(graph, node, selection)
        values |= {value.name: value for value in constants}
        operands = node.inputs[: len(node.inputs) - len(constants)]
        op = node.op.resized(_signature(node, values))
        nodes.append(replace(node, op=op, inputs=(*operands, *(v.name for v in constants))))
    return Graph.build(graph.name, list(values.values()), nodes, graph.inputs, graph.outputs, graph.states)


def _narrow(value: Value, kept: Mask) -> Value:
    if kept.all():
        return value
    if value.data is not None:
        return Value.constant(value.name, value.data[..., kept], value.quant, value.dtype)
    return replace(value, shape=(*value.shape[:-1], int(kept.sum())))


def _signature(node: Node, values: Mapping[str, Value]) -> Signature:
    return Signature(tuple(values[n] for n in node.inputs), tuple(values[n] for n in node.outputs))


def _constants(graph: Graph, node: Node, selection: Selection) -> Sequence[Value]:
    # Weights and bias of a layer without what goes; none for another operator.
    outputs = selection.kept[node.outputs[0]]
    if node.name in selection.mixings:
        inputs, mixing = selection.kept[node.inputs[0]], selection.mixings[node.name]
        weights, bias = (graph.values[n] for n in node.inputs[1:])
        w = weights.array()
        columns = np.tile(inputs, w.shape[-1] // len(inputs))
        gone = mixing.share[:, ~inputs[mixing.constant]].sum(axis=1)
        full = (bias.array().astype(np.int64) + gone.astype(np.int64)).astype(np.int32)
        return (
            _constant(graph, node, 1, w[outputs][..., columns], outputs),
            _constant(graph, node, 2, full[outputs], outputs),
        )
    if isinstance(node.op, Weighted):
        arrays = [graph.values[n].array()[..., outputs] for n in node.inputs[1:]]
        return [_constant(graph, node, 1 + i, array, outputs) for i, array in enumerate(arrays)]
    return ()


def _constant(graph: Graph, node: Node, position: int, data: Array, outputs: Mask) -> Value:
    # The constant at a position of the node, anew; under a name of its own where others read it.
    old = graph.values[node.inputs[position]]
    name = old.name if len(graph.consumers(old.name)) == 1 else f"{old.name} of {node.name}"
    return Value.constant(name, data, old.quant and _select(old.quant, outputs), old.dtype)


def _select(quant: Quant, outputs: Mask) -> Quant:
    # The quantisation of the kept output channels.
    if quant.axis is None or len(quant.scales) == 1:
        return quant
    kept = np.flatnonzero(outputs).tolist()
    return Quant(tuple(quant.scales[c] for c in kept), tuple(quant.zero_points[c] for c in kept), quant.axis)


def _certify(
    rule: str,
    before: tuple[Graph, Node],
    after: tuple[Graph, Node],
    selection: Selection,
    known: Mapping[str, Interval],
) -> FoldedLayer:
    node, name = before[1], before[1].outputs[0]
    removed = _removed(known[name], ~selection.kept[name])
    macs = [n.op.macs(g.signature(n)) for g, n in (before, after)]
    sizes = [sum(g.values[i].nbytes for i in n.inputs[1:]) for g, n in (before, after)]
    saved = f"{macs[0] - macs[1]:,} of {macs[0]:,} MACs and {sizes[0] - sizes[1]:,} bytes saved"
    text = f"{_losses(removed, len(selection.kept[name]))}; {saved}"
    return FoldedLayer(rule, node.name, text, node.op.name, removed, *macs, *sizes)


def _losses(removed: Sequence[RemovedChannel], count: int) -> str:
    constant = sum(r.value is not None for r in removed)
    if not removed:
        return "it reads fewer channels"
    text = f"{constant} of {count} channels are constant and go"
    others = len(removed) - constant
    return f"{text}, and {others} that nothing else needs" if others else text


def _removed(interval: Interval, gone: Mask) -> tuple[RemovedChannel, ...]:
    def extremes(low: Array, high: Array) -> tuple[list[int], list[int]]:
        rows = (-1, len(gone))
        return low.reshape(rows).min(axis=0).tolist(), high.reshape(rows).max(axis=0).tolist()

    least, greatest = extremes(interval.low, interval.high)
    sums = extremes(*interval.sums) if interval.sums else (least, greatest)
    return tuple(
        RemovedChannel(c, least[c] if least[c] == greatest[c] else None, int(sums[0][c]), int(sums[1][c]))
        for c in np.flatnonzero(gone).tolist()
    )
