"""Every leave to lay an output over an input, taken to the last byte."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from crtgen.ir import Graph
from crtgen.kernels import InPlace, Kernel, Target, applicable
from crtgen.ops import all_cases
from crtgen.plan import Plan, Slot, Step
from tests.kernels.program import Run, check_outputs, run_plans_on_host


@dataclass(frozen=True)
class Overlaid:
    run: Run
    plan: Plan


def _overlay(graph: Graph, kernel: Kernel, leave: InPlace) -> Plan:
    """The output at the start of the arena, its input ``lead`` bytes behind (more only to stay aligned)."""
    node = graph.nodes[0]
    values = [graph.values[n] for n in graph.inputs]
    over = node.inputs[leave.input]
    place = -(-leave.lead // graph.values[over].dtype.itemsize) * graph.values[over].dtype.itemsize
    slots = {node.outputs[leave.output]: Slot(0, graph.values[node.outputs[0]].nbytes)}
    slots[over] = Slot(place, graph.values[over].nbytes)
    end = max(s.offset + s.size for s in slots.values())
    for value in values:
        if value.name != over:
            slots[value.name] = Slot(-(-end // 16) * 16, value.nbytes)
            end = slots[value.name].offset + value.nbytes
    scratch = Slot(-(-end // 16) * 16, kernel.scratch) if kernel.scratch else None
    end = scratch.offset + scratch.size if scratch else end
    return Plan(graph, (Step(node, kernel, scratch),), slots, end, 0, False, "by hand")


def _overlays() -> list[Overlaid]:
    found = []
    for case in all_cases():
        for number, kernel in enumerate(applicable(case.op, case.sig, Target())):
            for leave in kernel.inplace:
                graph = replace(case.graph())
                name = f"{case.name} design {number} over input {leave.input}, lead {leave.lead}"
                found.append(Overlaid(Run(name, graph, case.inputs(2)), _overlay(graph, kernel, leave)))
    return found


@pytest.mark.cc
def test_every_leave(tmp_path: Path) -> None:
    overlays = _overlays()
    assert len(overlays) > 100
    outputs = run_plans_on_host(tmp_path, [(o.run, o.plan) for o in overlays])
    wrong = [check_outputs(o.run, out) for o, out in zip(overlays, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
