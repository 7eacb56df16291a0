"""Which design a layer gets, and what is said where there is none."""

from dataclasses import replace

import numpy as np
import pytest

from crtgen.base.errors import UnsupportedError
from crtgen.boards.core import find_core
from crtgen.compiler.codegen import generate_c
from crtgen.compiler.kernels import Const, Kernel, Target, applicable, select
from crtgen.compiler.kernels.engine.registry import registered
from crtgen.compiler.level import LEVELS
from crtgen.compiler.plan import loop_over_rows, make_plan
from crtgen.network.frontends import load
from crtgen.network.ir import Array, DType, Graph, Node, Quant, Value
from crtgen.network.ops import Add, Conv2d, FullyConnected, Padding, Relu, all_cases
from crtgen.network.ops.case import int8s, weights_and_bias
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.support import model_path


def test_cheapest_first() -> None:
    for case in all_cases():
        costs = [k.cost.instructions for k in applicable(case.op, case.sig, Target())]
        assert costs, case.name
        assert costs == sorted(costs)


@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m3", "host"])
def test_every_case_has_a_design(core: str) -> None:
    for case in all_cases():
        assert select(case.graph(), Target(core=find_core(core)))


def test_addition_is_linear_where_it_can_be() -> None:
    quants = Quant.tensor(0.1, 3), Quant.tensor(0.07, -5), Quant.tensor(0.15, 1)
    values = [Value(n, (1, 8), DType.INT8, q) for n, q in zip("aby", quants, strict=True)]
    graph = Graph.build("net", values, [Node("add", Add(), ("a", "b"), ("y",))], ["a", "b"], ["y"])
    assert select(graph, Target())["add"].design == "linear"


def test_no_design() -> None:
    values = [Value("x", (1, 2), DType.FLOAT32), Value("w", (3, 2), DType.FLOAT32)]
    values += [Value.constant("b", np.zeros(3, np.float32)), Value("y", (1, 3), DType.FLOAT32)]
    nodes = [Node("dense", FullyConnected(), ("x", "w", "b"), ("y",))]
    graph = Graph.build("net", values, nodes, ["x", "w"], ["y"])
    with pytest.raises(UnsupportedError, match="no kernel computes fully_connected of 1x2 float32") as caught:
        select(graph, Target())
    assert caught.value.where == "net: dense"


def test_parameters_out_of_range() -> None:
    values = [
        Value("x", (1, 2), DType.INT8, Quant.tensor(1e10)),
        Value("y", (1, 2), DType.INT8, Quant.tensor(1e-10)),
    ]
    graph = Graph.build("net", values, [Node("relu", Relu(), ("x",), ("y",))], ["x"], ["y"])
    with pytest.raises(UnsupportedError, match="relu: the ratio of its scales"):
        select(graph, Target())


def _pointwise(strides: list[int], target: Target) -> list[Kernel]:
    """The kernels of pointwise layers of 32 channels with these strides, on an image of 24x24."""
    values, nodes, side = [int8s("x0", (1, 24, 24, 32))], [], 24
    for number, stride in enumerate(strides):
        weights, bias = weights_and_bias("pointwise", values[0], (32, 1, 1, 32), 0, True)
        constants = [replace(v, name=f"{v.name}{number}") for v in (weights, bias)]
        side = -(-side // stride)
        values += [*constants, int8s(f"x{number + 1}", (1, side, side, 32), 0.4)]
        inputs = (f"x{number}", f"w{number}", f"b{number}")
        nodes.append(Node(f"n{number}", Conv2d((stride, stride), Padding()), inputs, (f"x{number + 1}",)))
    graph = Graph.build("net", values, nodes, ["x0"], [f"x{len(nodes)}"])
    return list(select(graph, target).values())


@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
def test_balanced_is_no_worse_than_either(core: str) -> None:
    """By its objective, than all kernels for speed, and than all for size, but for what memory is worth."""
    target = Target(find_core(core), "balanced")
    chosen = _pointwise([1, 6, 1], target)
    of_one_kind = [_pointwise([1, 6, 1], target.of_kernels(kind)) for kind in ("speed", "size")]
    instructions, flash = (sum(k.cost.instructions for k in of_one_kind[0]), _flash(of_one_kind[0]))
    objectives = [
        LEVELS["balanced"].objective(
            sum(k.cost.instructions for k in kernels) / instructions, _flash(kernels) / flash
        )
        for kernels in (chosen, *of_one_kind)
    ]
    assert objectives[0] <= 1.05 * min(objectives)


def _flash(kernels: list[Kernel]) -> float:
    code = {kernel.function: kernel.cost.code for kernel in kernels}
    return sum(code.values()) + sum(kernel.cost.constants for kernel in kernels)


@pytest.mark.models
@pytest.mark.parametrize("core", ["cortex-m3", "cortex-m4", "cortex-m55"])
def test_what_is_chosen_is_packed_as_it_is_written(monkeypatch: pytest.MonkeyPatch, core: str) -> None:
    packed: list[str] = []

    def count(const: Const) -> Array:
        packed.append(const.name)
        return const.pack()

    monkeypatch.setattr(Const, "data", property(count))
    target = Target(find_core(core))
    graph, _ = run_passes(load(model_path("kws_int8")), DEFAULT_PASSES)
    plan, _ = loop_over_rows(make_plan(graph, select(graph, target)), target)
    module = generate_c(plan, "kws")
    assert not packed
    for name in module.files:
        assert module.files[name]
    assert sorted(packed) == sorted(const.name for step in plan.steps for const in step.kernel.consts)


def test_a_constant_that_is_not_what_it_was_said_to_be() -> None:
    const = Const("weights", "int8", (3,), lambda: np.zeros(4, np.int8))
    with pytest.raises(ValueError, match="weights is int8"):
        _ = const.data


@pytest.mark.parametrize(
    ("core", "rooms"),
    [
        ("cortex-m3", {"portable", "base"}),
        ("cortex-m4", {"portable", "dsp"}),
        ("cortex-m55", {"portable", "dsp", "mve"}),
    ],
)
def test_a_design_says_what_it_is_for(core: str, rooms: set[str]) -> None:
    case = next(c for c in all_cases() if c.name == "conv2d_3x3")
    found = [e for e in registered(Conv2d) if e.applies(case.sig, find_core(core))]
    assert {e.function.__module__.split(".")[3] for e in found} == rooms
    assert all(DType.INT8 in e.types for e in found)


def test_functions_in_assembly_alone_are_told_apart() -> None:
    """Sums of 64 elements and of 4,096."""
    values, nodes = [int8s("a", (1, 64)), int8s("b", (1, 4096))], []
    for name, shape in (("a", (1, 64)), ("b", (1, 4096))):
        values += [int8s(f"{name}2", shape), int8s(f"{name}3", shape, 0.1)]
        nodes.append(Node(name, Add(), (name, f"{name}2"), (f"{name}3",)))
    graph = Graph.build("net", values, nodes, ["a", "a2", "b", "b2"], ["a3", "b3"])
    fast, small = (select(graph, Target(find_core("cortex-m55"), level)) for level in ("speed", "size"))
    assert fast["a"].function != fast["b"].function
    assert fast["b"].function != small["b"].function
