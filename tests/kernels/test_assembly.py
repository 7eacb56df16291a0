"""A design in assembly, from its registration to a run on QEMU, beside one in C."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.codegen import generate, render
from crtgen.ir import Array, DType, Graph, Node, Op, Quant, Signature, Value
from crtgen.kernels import Const, InPlace, Kernel, Target, design, registry, select
from crtgen.ops import Activation, Relu
from crtgen.plan import make_plan
from tests.kernels.program import Run, check_outputs, run_plans_on_qemu

TEMPLATE = """
    .section .text.{name}, "ax"
    .thumb_func
    .global {name}
    .type {name}, %function
{name}:                         @ r0 = x0, r1 = y0, r2 = bounds, r3 = scratch
    push {{r4, r5, r6, lr}}
    ldrsb r4, [r2]
    str r4, [r3]
    movs r5, #{k.count}
1:  ldrsb r6, [r0], #1
    cmp r6, r4
    it lt
    movlt r6, r4
    strb r6, [r1], #1
    subs r5, #1
    bne 1b
    ldr r4, [r3]
    pop {{r4, r5, r6, pc}}
    .size {name}, . - {name}
"""


@dataclass(frozen=True)
class View:
    count: int


def _clamp(op: Op, sig: Signature, target: Target) -> Kernel | None:
    if target.core.name != "cortex-m3" or sig.x.quant is None or sig.x.quant != sig.y.quant:
        return None
    bound = np.array([sig.x.quant.zero_point], np.int8)
    return Kernel(
        design="clamp in assembly",
        template="clamp.S.j2",
        view=View(sig.x.elements),
        consts=(Const("bounds", bound, 1, "lowest value"),),
        scratch=4,
        inplace=(InPlace(),),
        cost=0,
    )


def _render(template: str, **context: Any) -> str:
    return TEMPLATE.format(**context) if template == "kernels/clamp.S.j2" else render(template, **context)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_DESIGNS", {k: list(v) for k, v in registry._DESIGNS.items()})
    monkeypatch.setattr(generate, "render", _render)
    design(Relu)(_clamp)


def _graph() -> Graph:
    """Two clamps of equal shape and a softer one between them."""
    quants = [Quant.tensor(0.1, 5), Quant.tensor(0.1, 5), Quant.tensor(0.05, 5), Quant.tensor(0.05, 5)]
    values = [Value(f"v{i}", (1, 40), DType.INT8, q) for i, q in enumerate(quants)]
    nodes = [Node(f"n{i}", Relu(Activation.RELU), (f"v{i}",), (f"v{i + 1}",)) for i in range(3)]
    return Graph.build("net", values, nodes, ["v0"], ["v3"])


@pytest.mark.qemu
def test_assembly(tmp_path: Path, registered: None) -> None:
    graph = _graph()
    core = find_core("cortex-m3")
    kernels = select(graph, Target(core=core))
    plan = make_plan(graph, kernels)
    module = generate.generate_c(plan, "net")
    assert module.files["net_kernels.S"].count(".thumb_func") == 1
    x: Array = np.arange(-128, 112, 6, dtype=np.int8).reshape(1, 40)
    run = Run("assembly", graph, {"v0": x})
    (output,) = run_plans_on_qemu(tmp_path, [(run, plan)], "mps2-an385", core)
    assert not check_outputs(run, output)


def test_only_there(registered: None) -> None:
    kernels = select(_graph(), Target(core=find_core("cortex-m4")))
    assert "clamp in assembly" not in [k.design for k in kernels.values()]
