"""Pairs of convolutions by rows: where they lower the peak, and where they stay apart."""

from dataclasses import replace

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.frontends import load
from crtgen.ir import Graph
from crtgen.kernels import Target, select
from crtgen.ops import Activation, Add, Conv2d, DepthwiseConv2d, Padding, RowStream
from crtgen.passes import DEFAULT_PASSES, Hit, run_passes
from crtgen.plan import Plan, make_plan, stream_rows
from tests.passes.networks import Network, draw
from tests.support import model_path

POINTWISE = Conv2d(activation=Activation.RELU)
HALF = DepthwiseConv2d((2, 2), Padding(0, 1, 0, 1), activation=Activation.RELU)
SAME = DepthwiseConv2d((1, 1), Padding(1, 1, 1, 1))


def _pair(net: Network, x: str, name: str, channels: int, wide: int) -> str:
    """From ``channels`` to ``wide`` at full size, which is then halved, and back."""
    middle = net.layer(f"{name}_widen", POINTWISE, x, (wide, 1, 1, channels))
    y = net.layer(f"{name}_halve", HALF, middle, (1, 3, 3, wide), 3)
    return net.layer(f"{name}_narrow", POINTWISE, y, (channels, 1, 1, wide))


def _stream(graph: Graph, target: Target | None = None, keep: bool = False) -> tuple[Plan, Plan, list[Hit]]:
    target = target or Target()
    whole = make_plan(graph, select(graph, target), keep_inputs=keep, exact=False)
    plan, hits = stream_rows(whole, target, exact=False)
    assert plan.kept_inputs is keep
    return whole, plan, list(hits)


def _assert_same(before: Graph, after: Graph) -> None:
    inputs = {name: draw(before.values[name], 1) for name in before.inputs}
    expected, actual = before.evaluate(inputs), after.evaluate(inputs)
    for name in before.outputs:
        np.testing.assert_array_equal(actual[name], expected[name])


def _streams(plan: Plan) -> list[RowStream]:
    return [step.node.op for step in plan.steps if isinstance(step.node.op, RowStream)]


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("core", [None, "cortex-m4", "cortex-m55"])
def test_the_wide_tensor_goes(core: str | None, real: bool) -> None:
    net = Network(real)
    graph = net.graph(_pair(net, net.input("x", 1, 24, 24, 8), "a", 8, 32))
    whole, plan, hits = _stream(graph, Target(find_core(core)) if core else None)
    size = 4 if real else 1
    assert whole.arena >= 24 * 24 * 32 * size > plan.arena
    assert "a_widen_out" not in plan.graph.values
    assert [step.node.name for step in plan.steps] == ["a_widen+a_halve", "a_narrow"]
    _assert_same(graph, plan.graph)
    (op,) = _streams(plan)
    what = f"{op.rows} rows at a time, a_widen_out of {24 * 24 * 32 * size:,} bytes is never whole"
    saved = f"the arena is {plan.arena:,} bytes instead of {whole.arena:,}"
    assert hits == [Hit("stream rows", "a_widen+a_halve", f"{what}; {saved}")]


def test_two_equal_peaks_both_go() -> None:
    net = Network()
    x = net.input("x", 1, 24, 24, 8)
    around = Conv2d((1, 1), Padding(1, 1, 1, 1))
    for name in "ab":
        middle = net.layer(f"{name}_widen", POINTWISE, x, (32, 1, 1, 8))
        x = net.layer(f"{name}_narrow", around, middle, (8, 3, 3, 32))
    whole, plan, hits = _stream(net.graph(x))
    assert whole.needs.count(whole.lower_bound) == 2
    assert [step.node.name for step in plan.steps] == ["a_widen+a_narrow", "b_widen+b_narrow"]
    assert [hit.node for hit in hits] == [step.node.name for step in plan.steps]
    assert plan.arena < whole.arena
    _assert_same(whole.graph, plan.graph)


def test_no_gain_no_change() -> None:
    """Where the input is larger than anything, nothing is streamed."""
    net = Network()
    x = net.input("x", 1, 32, 32, 16)
    small = net.layer("shrink", Conv2d((4, 4)), x, (4, 1, 1, 16))
    whole, plan, hits = _stream(net.graph(_pair(net, small, "a", 4, 8)))
    assert plan is whole
    assert hits == []


def test_a_value_that_something_else_reads_stays() -> None:
    net = Network()
    x = net.input("x", 1, 16, 16, 8)
    middle = net.layer("widen", POINTWISE, x, (32, 1, 1, 8))
    y = net.layer("same", SAME, middle, (1, 3, 3, 32), 3)
    whole, plan, _ = _stream(net.graph(net.node("add", Add(), middle, y)))
    assert plan is whole
    both = net.graph("widen_out", "same_out")
    assert _stream(both)[1].graph is both


def test_a_first_window_of_many_rows_stays() -> None:
    net = Network()
    x = net.input("x", 1, 16, 16, 8)
    middle = net.layer("widen", Conv2d((1, 1), Padding(1, 1, 1, 1)), x, (32, 3, 3, 8))
    whole, plan, _ = _stream(net.graph(net.layer("halve", HALF, middle, (1, 3, 3, 32), 3)))
    assert plan is whole


def test_kept_inputs_stay_kept() -> None:
    net = Network()
    graph = net.graph(_pair(net, net.input("x", 1, 24, 24, 8), "a", 8, 32))
    whole, plan, _ = _stream(graph, keep=True)
    assert plan.arena < whole.arena
    assert len(_streams(plan)) == 1


@pytest.mark.parametrize("optimize", ["speed", "balanced", "size"])
def test_a_price_that_is_too_high_is_not_paid(optimize: str) -> None:
    """Other layers that cost nothing make the added share larger than what may be added."""
    net = Network()
    graph = net.graph(_pair(net, net.input("x", 1, 24, 24, 8), "a", 8, 32))
    target = Target(optimize=optimize)
    kernels = {name: replace(kernel, cost=1.0) for name, kernel in select(graph, target).items()}
    whole = make_plan(graph, kernels, exact=False)
    plan, hits = stream_rows(whole, target, exact=False)
    assert plan is whole
    assert hits == ()


@pytest.mark.models
@pytest.mark.parametrize("optimize", ["speed", "balanced", "size"])
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55", "cortex-m3"])
def test_vww(core: str, optimize: str) -> None:
    """conv2d_1 alone writes 36,864 bytes; with its successor by rows the input of 27,648 is the peak."""
    graph, _ = run_passes(load(model_path("vww_int8")), DEFAULT_PASSES)
    whole, plan, hits = _stream(graph, Target(find_core(core), optimize))
    assert whole.arena > 36_864
    assert 27_648 <= plan.arena <= 36_000
    assert "conv2d_1+depthwise_conv2d_1" in {hit.node for hit in hits}
    cost = [sum(step.kernel.cost for step in p.steps) for p in (whole, plan)]
    assert cost[1] <= 1.05 * cost[0]


@pytest.mark.models
@pytest.mark.parametrize("name", ["kws_int8", "ic01_int8", "ad01_int8", "hello_world_int8"])
def test_models_without_such_a_peak_stay(name: str) -> None:
    graph, _ = run_passes(load(model_path(name)), DEFAULT_PASSES)
    whole, plan, _ = _stream(graph, Target(find_core("cortex-m4")))
    assert plan is whole
