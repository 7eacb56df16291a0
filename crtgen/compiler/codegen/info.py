"""Description of a compiled model: interface, arithmetic and memory figures."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from crtgen.compiler.byoc import constants_of
from crtgen.compiler.codegen.module import Interface, LayerInfo, ModelInfo, OperatorInfo
from crtgen.compiler.codegen.names import unique_identifiers
from crtgen.compiler.kernels import Part
from crtgen.compiler.plan import Plan, RowLoop, Step
from crtgen.network.ir import Graph

__all__ = ["loop_operators", "model_info"]


def model_info(plan: Plan, name: str, layers: Sequence[LayerInfo] = ()) -> ModelInfo:
    """Return the description of ``plan``; ``weights`` are the bytes of the graph's constants before
    packing.
    """
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
        state=plan.state_bytes,
        parts={name: part.size for name, part in plan.parts.items()},
    )


def _interfaces(graph: Graph, names: Sequence[str]) -> tuple[Interface, ...]:
    identifiers = unique_identifiers(names)
    values = ((graph.values[n], identifiers[n]) for n in names)
    return tuple(Interface(v.name, c, v.shape, v.dtype, v.quant, v.nbytes) for v, c in values)


def loop_operators(graph: Graph, step: Step) -> Iterator[OperatorInfo]:
    if not isinstance(step.item, RowLoop):
        return
    parts = [part for whole in step.kernel.parts for part in _parts(whole)]
    costs = [part.kernel.cost.time * part.calls for part in parts]
    for node, part, cost in zip(step.item.nodes, parts, costs, strict=True):
        macs = node.op.macs(graph.signature(node))
        yield OperatorInfo(node.name, node.op.name, part.kernel.design, macs, cost / sum(costs))


def _parts(part: Part) -> tuple[Part, ...]:
    # The functions that compute operators: an addition with a layer beside it is two.
    return tuple(replace(p, calls=p.calls * part.calls) for p in part.kernel.parts) or (part,)
