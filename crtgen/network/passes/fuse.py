"""Passes that merge an operator into its neighbour, if that is exact."""

from dataclasses import dataclass, replace
from typing import ClassVar

from crtgen.network.ir import Node
from crtgen.network.ops import Activation, Clamping, Pad, Padding, Relu, Windowed
from crtgen.network.passes.core import Change, GraphLike, Rule

__all__ = ["FoldPadding", "FuseActivations"]


@dataclass(frozen=True, slots=True)
class FuseActivations(Rule):
    """Clamp in the operator that computes a value, instead of in a following relu.

    Exact for float32, and for int8 if the relu does not requantise, because both clamps follow the rounding.
    """

    name: ClassVar[str] = "fuse activations"

    def match(self, graph: GraphLike, node: Node) -> Change | None:
        producer = graph.producer(node.inputs[0])
        if not isinstance(node.op, Relu) or producer is None or not isinstance(producer.op, Clamping):
            return None
        between = node.inputs[0]
        if between in graph.lasting or len(graph.consumers(between)) != 1:
            return None
        sig = graph.signature(node)
        if sig.x.quant != sig.y.quant:
            return None
        both = _intersection(producer.op.activation, node.op.kind)
        fused = replace(producer, op=producer.op.clamped(both), outputs=node.outputs)
        return Change(f"{producer.name} clamps by itself", {producer.name: fused, node.name: None})


def _intersection(a: Activation, b: Activation) -> Activation:
    # The activation that clamps as both do. There is one for each pair.
    (low_a, high_a), (low_b, high_b) = a.float_range(), b.float_range()
    wanted = max(low_a, low_b), min(high_a, high_b)
    return next(activation for activation in Activation if activation.float_range() == wanted)


@dataclass(frozen=True, slots=True)
class FoldPadding(Rule):
    """Let an operator with a window pad its input itself, instead of a preceding pad.

    Exact if the pad fills with the value that the operator's own padding assumes. Not done if a window would
    be entirely within the padding, for which kernels are not made.
    """

    name: ClassVar[str] = "fold padding"

    def match(self, graph: GraphLike, node: Node) -> Change | None:
        if not isinstance(node.op, Pad) or node.outputs[0] in graph.lasting:
            return None
        sig = graph.signature(node)
        if sig.x.quant != sig.y.quant or not _in_image(node.op):
            return None
        readers = graph.consumers(node.outputs[0])
        if not readers:
            return None
        nodes: dict[str, Node | None] = {node.name: None}
        for reader in readers:
            padded = _padded(graph, reader, node)
            if padded is None:
                return None
            nodes[reader.name] = padded
        return Change(f"{', '.join(reader.name for reader in readers)} pads by itself", nodes)


def _in_image(pad: Pad) -> bool:
    # True if only rows and columns are padded.
    return len(pad.before) == 4 and not any(p[axis] for p in (pad.before, pad.after) for axis in (0, 3))


def _padded(graph: GraphLike, node: Node, pad: Node) -> Node | None:
    # The node with the pad's rows and columns added to its own, reading the pad's input.
    op, sig = node.op, graph.signature(node)
    if not isinstance(op, Windowed) or not isinstance(pad.op, Pad) or pad.outputs[0] in node.inputs[1:]:
        return None
    if pad.op.fill(graph.signature(pad)) != op.padding_value(sig.x):
        return None
    (_, top, left, _), (_, bottom, right, _) = pad.op.before, pad.op.after
    own = op.padding
    padding = Padding(own.top + top, own.bottom + bottom, own.left + left, own.right + right)
    height, width = ((taps - 1) * spread for taps, spread in zip(op.taps(sig), op.spread, strict=True))
    if max(padding.top, padding.bottom) > height or max(padding.left, padding.right) > width:
        return None
    return replace(node, op=op.padded(padding), inputs=(pad.inputs[0], *node.inputs[1:]))
