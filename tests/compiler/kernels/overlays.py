"""Plans of single layers whose output overwrites an input, as close as the lead allows."""

from dataclasses import replace

from crtgen.compiler.kernels import InPlace, Kernel, Target, applicable
from crtgen.compiler.plan import ArenaSlot, Call, Plan, Step
from crtgen.network.ir import DType, Graph, Value
from crtgen.network.ops import Case
from tests.compiler.kernels.program import Run

_GUARD = 64


def _up(offset: int, align: int) -> int:
    return -(-offset // align) * align


def overlay(graph: Graph, kernel: Kernel, leave: InPlace) -> Plan:
    """The output at the start of the arena, its input ``lead`` bytes behind (more only to stay aligned)."""
    node = graph.nodes[0]
    over = graph.values[node.inputs[leave.input]]
    output = node.outputs[leave.output]
    slots = {output: ArenaSlot(0, graph.values[output].nbytes)}
    slots[over.name] = ArenaSlot(_up(leave.lead, over.dtype.itemsize), over.nbytes)
    end = max(s.offset + s.size for s in slots.values())
    for name in (*graph.inputs, *node.outputs):
        if name not in slots:
            slots[name] = ArenaSlot(_up(end, 8), graph.values[name].nbytes)
            end = slots[name].offset + slots[name].size
    scratch = ArenaSlot(_up(end, 4), kernel.scratch) if kernel.scratch else None
    arena = _up(end, 4) + kernel.scratch
    return Plan(graph, (Step(Call(node), kernel, scratch),), slots, arena, 0, False)


def guarded(graph: Graph, kernel: Kernel, over: str) -> tuple[Graph, Plan]:
    """The output over the value ``over``, at the least lead, with 64 bytes that must stay around all places.

    Those bytes are inputs of the returned graph, and outputs as well.
    """
    node = graph.nodes[0]
    (output,) = node.outputs
    lead = max((p.lead for p in kernel.inplace if node.inputs[p.input] == over), default=0)
    start = _GUARD + _up(lead, 4)
    places = {output: start - lead, over: start}
    end = max(places[name] + graph.values[name].nbytes for name in places)
    guards = {"guard0": ArenaSlot(0, _GUARD)}
    for name in (*graph.inputs, "scratch"):
        if name in places:
            continue
        guards[f"guard{len(guards)}"] = ArenaSlot(_up(end, 4), _GUARD)
        places[name] = _up(end, 4) + _GUARD
        end = places[name] + (kernel.scratch if name == "scratch" else graph.values[name].nbytes)
    guards[f"guard{len(guards)}"] = ArenaSlot(_up(end, 4), _GUARD)
    scratch = ArenaSlot(places.pop("scratch"), kernel.scratch) if kernel.scratch else None
    values = [*graph.values.values(), *(Value(name, (_GUARD,), DType.INT8) for name in guards)]
    whole = Graph.build(graph.name, values, graph.nodes, (*graph.inputs, *guards), (*graph.outputs, *guards))
    slots = {**{name: ArenaSlot(at, graph.values[name].nbytes) for name, at in places.items()}, **guards}
    arena = _up(end, 4) + _GUARD
    return whole, Plan(whole, (Step(Call(node), kernel, scratch),), slots, arena, 0, False)


def overlays(case: Case, seed: int) -> list[tuple[Run, Plan]]:
    """One run for every design of the case and every leave of the design; none where states are outside."""
    found: list[tuple[Run, Plan]] = []
    if case.op.states:
        return found
    for kernel in applicable(case.op, case.sig, Target()):
        for leave in kernel.inplace:
            graph = replace(case.graph())
            name = f"{case.name}: {kernel.design} over input {leave.input}, lead {leave.lead}"
            found.append((Run(name, graph, case.inputs(seed)), overlay(graph, kernel, leave)))
    return found
