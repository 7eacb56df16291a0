"""What a compiled model is: its interface, its arithmetic and its memory in figures."""

from collections.abc import Sequence
from math import prod

from crtgen.codegen.module import Interface, LayerInfo, ModelInfo
from crtgen.codegen.names import unique_identifiers
from crtgen.ir import Graph, Op, Signature
from crtgen.ops import Conv2d, DepthwiseConv2d, FullyConnected
from crtgen.plan import Plan

__all__ = ["count_macs", "model_info"]


def count_macs(op: Op, sig: Signature) -> int:
    """Multiplications of an input with a weight; 0 for an operator without weights."""
    if isinstance(op, DepthwiseConv2d):
        return sig.y.elements * prod(sig.inputs[1].shape[1:3])
    if isinstance(op, Conv2d | FullyConnected):
        return sig.y.elements * prod(sig.inputs[1].shape[1:])
    return 0


def model_info(plan: Plan, name: str, layers: Sequence[LayerInfo] = ()) -> ModelInfo:
    """The figures of ``plan``; ``weights`` are the bytes of the graph's constants, before any packing."""
    graph = plan.graph
    return ModelInfo(
        name=name,
        inputs=_interfaces(graph, graph.inputs),
        outputs=_interfaces(graph, graph.outputs),
        arena=plan.arena,
        lower_bound=plan.lower_bound,
        optimal=plan.optimal,
        kept_inputs=plan.kept_inputs,
        weights=sum(v.nbytes for v in graph.values.values() if v.is_constant),
        macs=sum(count_macs(s.node.op, graph.signature(s.node)) for s in plan.steps),
        layers=tuple(layers),
    )


def _interfaces(graph: Graph, names: Sequence[str]) -> tuple[Interface, ...]:
    identifiers = unique_identifiers(names)
    values = ((graph.values[n], identifiers[n]) for n in names)
    return tuple(Interface(v.name, c, v.shape, v.dtype, v.quant, v.nbytes) for v, c in values)
