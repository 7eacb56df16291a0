"""Passes that remove unnecessary parts: constant operators, identities, reshapes, unused values."""

from dataclasses import dataclass, replace
from typing import ClassVar

from crtgen.network.ir import Node, Quant, Value, shape_text
from crtgen.network.ops import Identity, Reshape, Transpose
from crtgen.network.ops.cost import ask_for
from crtgen.network.passes.core import Change, GraphLike, Rule, bypass

__all__ = ["FoldConstants", "MergeReshapes", "RemoveDead", "RemoveIdentities", "ReshapeTransposes"]


@dataclass(frozen=True, slots=True)
class FoldConstants(Rule):
    """Evaluates operators on constants with their references.

    Outputs of the network are still computed at run time. A copy of a constant is kept if it must be in
    memory.
    """

    name: ClassVar[str] = "fold constants"

    def match(self, graph: GraphLike, node: Node) -> Change | None:
        sig = graph.signature(node)
        if not all(v.is_constant for v in sig.inputs) or set(node.outputs) & set(graph.lasting):
            return None
        if isinstance(node.op, Identity):
            return None
        ask_for(node.op, sig)
        results = node.op.reference(sig, [v.array() for v in sig.inputs])
        values = tuple(
            Value.constant(v.name, array, v.quant) for v, array in zip(sig.outputs, results, strict=True)
        )
        return Change(f"{node.op.name} of constants is computed now", {node.name: None}, values=values)


@dataclass(frozen=True, slots=True)
class RemoveDead(Rule):
    name: ClassVar[str] = "remove dead"

    def match(self, graph: GraphLike, node: Node) -> Change | None:
        if any(v in graph.lasting or graph.consumers(v) for v in node.outputs):
            return None
        return Change(f"nobody reads {', '.join(node.outputs)}", {node.name: None})


@dataclass(frozen=True, slots=True)
class RemoveIdentities(Rule):
    """Removes reshapes, transposes, pads, slices, concatenations and requantisations that change nothing."""

    name: ClassVar[str] = "remove identities"

    def match(self, graph: GraphLike, node: Node) -> Change | None:
        sig = graph.signature(node)
        same = (sig.x.shape, sig.x.dtype, sig.x.quant) == (sig.y.shape, sig.y.dtype, sig.y.quant)
        if not same or sig.x.is_constant or not node.op.is_identity(sig):
            return None
        return bypass(graph, node, f"{node.op.name} changes nothing")


def _plain(quant: Quant | None) -> bool:
    # True for per-tensor quantisation; a reshape would renumber axes.
    return quant is None or quant.axis is None


@dataclass(frozen=True, slots=True)
class ReshapeTransposes(Rule):
    """Turns a transpose that only moves axes of length 1 into a reshape, which costs nothing."""

    name: ClassVar[str] = "transpose to reshape"

    def match(self, graph: GraphLike, node: Node) -> Change | None:
        sig = graph.signature(node)
        if not isinstance(node.op, Transpose) or not _plain(sig.x.quant):
            return None
        if not node.op.is_identity(sig):
            return None
        reshape = replace(node, op=Reshape(sig.y.shape))
        return Change("it only moves axes of length 1", {node.name: reshape})


@dataclass(frozen=True, slots=True)
class MergeReshapes(Rule):
    name: ClassVar[str] = "merge reshapes"

    def match(self, graph: GraphLike, node: Node) -> Change | None:
        first = graph.producer(node.inputs[0])
        if not isinstance(node.op, Reshape) or first is None or not isinstance(first.op, Reshape):
            return None
        shape = shape_text(graph.signature(first).y.shape)
        merged = replace(node, inputs=first.inputs)
        return Change(f"it reads past the reshape to {shape}", {node.name: merged})
