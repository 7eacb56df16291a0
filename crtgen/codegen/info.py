"""What a compiled model is: its interface, its arithmetic and its memory in figures."""

from collections.abc import Sequence

from crtgen.byoc import constants_of
from crtgen.codegen.module import Interface, LayerInfo, ModelInfo
from crtgen.codegen.names import unique_identifiers
from crtgen.ir import Graph
from crtgen.plan import Plan

__all__ = ["model_info"]


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
        weights=sum(v.nbytes for v in constants_of(graph)),
        macs=sum(map(plan.macs, plan.steps)),
        layers=tuple(layers),
    )


def _interfaces(graph: Graph, names: Sequence[str]) -> tuple[Interface, ...]:
    identifiers = unique_identifiers(names)
    values = ((graph.values[n], identifiers[n]) for n in names)
    return tuple(Interface(v.name, c, v.shape, v.dtype, v.quant, v.nbytes) for v, c in values)
