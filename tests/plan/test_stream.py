"""Chains of layers by rows: where they lower the peak, and where they stay apart."""

from dataclasses import replace

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.frontends import load
from crtgen.ir import Graph
from crtgen.kernels import Target, select
from crtgen.ops import Activation, Add, Conv2d, DepthwiseConv2d, MaxPool2d, Padding, Relu, RowStream, Sub
from crtgen.passes import DEFAULT_PASSES, Hit, run_passes
from crtgen.plan import Plan, make_plan, stream, stream_rows
from tests.passes.networks import Network, draw
from tests.support import model_path

POINTWISE = Conv2d(activation=Activation.RELU)
HALF = DepthwiseConv2d((2, 2), Padding(0, 1, 0, 1), activation=Activation.RELU)
AROUND = Conv2d((1, 1), Padding(1, 1, 1, 1))
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
    for name in "ab":
        middle = net.layer(f"{name}_widen", POINTWISE, net.node(f"{name}_clamp", Relu(), x), (32, 1, 1, 8))
        x = net.layer(f"{name}_narrow", AROUND, middle, (8, 3, 3, 32))
    whole, plan, hits = _stream(net.graph(x))
    assert whole.needs.count(whole.lower_bound) == 2
    assert [hit.node for hit in hits] == ["a_widen+a_narrow", "b_widen+b_narrow"]
    assert [step.node.name for step in plan.steps] == ["a_clamp", hits[0].node, "b_clamp", hits[1].node]
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
    whole, plan, _ = _stream(net.graph(net.node("sub", Sub(), middle, y)))
    assert plan is whole
    both = net.graph("widen_out", "same_out")
    assert _stream(both)[1].graph is both


def _block(net: Network, x: str, name: str, channels: int) -> str:
    """Two 3x3 layers, and what went in added to what comes out."""
    weights = (channels, 3, 3, channels)
    y = net.layer(f"{name}_1", AROUND, net.layer(f"{name}_0", AROUND, x, weights), weights)
    return net.node(f"{name}_add", Add(), y, x)


@pytest.mark.parametrize("core", [None, "cortex-m4", "cortex-m55"])
def test_a_residual_block_needs_little_beside_its_input(core: str | None) -> None:
    net = Network()
    graph = net.graph(_block(net, net.input("x", 1, 32, 32, 16), "a", 16))
    whole, plan, hits = _stream(graph, Target(find_core(core)) if core else None)
    assert whole.arena > 2 * 32 * 32 * 16
    assert plan.arena < 1.75 * 32 * 32 * 16
    (step,) = plan.steps
    assert step.node.name == "a_0+a_1+a_add"
    assert plan.slots["x"].offset == plan.slots["a_add_out"].offset
    _assert_same(graph, plan.graph)
    (hit,) = hits
    assert "a_0_out of 16,384 bytes and a_1_out of 16,384 bytes are never whole" in hit.text


def test_an_operand_may_come_first() -> None:
    """The image of the stage before is an addition's second operand."""
    net = Network()
    x = net.input("x", 1, 32, 32, 16)
    y = net.layer("b", AROUND, net.layer("a", AROUND, x, (16, 3, 3, 16)), (16, 3, 3, 16))
    graph = net.graph(net.node("add", Add(), x, y))
    _, plan, _ = _stream(graph)
    (step,) = plan.steps
    assert step.node.inputs[0] == step.node.inputs[-1] == "x"
    _assert_same(graph, plan.graph)


def test_a_difference_is_not_streamed() -> None:
    net = Network()
    x = net.input("x", 1, 32, 32, 16)
    y = net.layer("b", AROUND, net.layer("a", AROUND, x, (16, 3, 3, 16)), (16, 3, 3, 16))
    _, plan, _ = _stream(net.graph(net.node("sub", Sub(), y, x)))
    assert isinstance(plan.steps[-1].node.op, Sub)


@pytest.mark.parametrize("shape", [(64,), (4, 64), (4, 8, 8), (2, 2, 2, 2, 4)])
@pytest.mark.parametrize("core", [None, "cortex-m4", "cortex-m55"])
def test_sums_of_what_is_no_image_stay(core: str | None, shape: tuple[int, ...]) -> None:
    net = Network()
    x = net.input("x", *shape)
    graph = net.graph(net.node("second", Add(), net.node("first", Add(), x, x), x))
    whole, plan, hits = _stream(graph, Target(find_core(core)) if core else None)
    assert plan is whole
    assert hits == []


def test_a_pool_takes_rows_as_they_come() -> None:
    net = Network()
    x = net.layer("conv", AROUND, net.input("x", 1, 32, 32, 4), (16, 3, 3, 4))
    graph = net.graph(net.node("pool", MaxPool2d((2, 2), (2, 2)), x))
    whole, plan, _ = _stream(graph)
    assert whole.arena > 32 * 32 * 16 > plan.arena
    assert [step.node.name for step in plan.steps] == ["conv+pool"]
    _assert_same(graph, plan.graph)


def test_an_inverted_residual_is_one_stream() -> None:
    """Wide images on both sides of the depthwise layer: neither is whole."""
    net = Network()
    x = net.input("x", 1, 24, 24, 8)
    wide = net.layer("widen", POINTWISE, x, (48, 1, 1, 8))
    narrow = net.layer("narrow", Conv2d(), net.layer("deep", SAME, wide, (1, 3, 3, 48), 3), (8, 1, 1, 48))
    graph = net.graph(net.node("add", Add(), narrow, x))
    whole, plan, _ = _stream(graph)
    assert whole.arena > 24 * 24 * 48
    assert plan.arena < 3 * 24 * 24 * 8
    assert [step.node.name for step in plan.steps] == ["widen+deep+narrow+add"]
    _assert_same(graph, plan.graph)


def test_streams_have_four_stages_at_most() -> None:
    net = Network()
    x = net.input("x", 1, 24, 24, 4)
    for name in "abcd":
        middle = net.layer(f"{name}_widen", POINTWISE, x, (32, 1, 1, 4))
        x = net.layer(f"{name}_narrow", AROUND, middle, (4, 3, 3, 32))
    _, plan, _ = _stream(net.graph(x))
    lengths = [len(op.stages) for op in _streams(plan)]
    assert sum(lengths) == 8
    assert max(lengths) <= 4


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
    assert any(hit.node.startswith("conv2d_1+depthwise_conv2d_1") for hit in hits)
    cost = [sum(step.kernel.cost for step in p.steps) for p in (whole, plan)]
    assert cost[1] <= 1.05 * cost[0]


@pytest.mark.models
def test_for_speed_a_little_memory_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """On M4, a second stream of vww would save a tenth of the arena for 0.5 % of instructions."""
    graph, _ = run_passes(load(model_path("vww_int8")), DEFAULT_PASSES)
    target = Target(find_core("cortex-m4"), "speed")
    _, plan, hits = _stream(graph, target)
    monkeypatch.setitem(stream._PRICES, "speed", replace(stream._PRICES["speed"], least=0))
    _, smaller, more = _stream(graph, target)
    assert (len(hits), len(more)) == (1, 2)
    assert 0.875 * plan.arena < smaller.arena < plan.arena


@pytest.mark.models
@pytest.mark.parametrize("optimize", ["speed", "balanced", "size"])
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55", "cortex-m3"])
def test_ic01(core: str, optimize: str) -> None:
    """The first residual block is one stream; then conv2d_3 is the peak, which 24,576 bytes live at."""
    graph, _ = run_passes(load(model_path("ic01_int8")), DEFAULT_PASSES)
    whole, plan, hits = _stream(graph, Target(find_core(core), optimize))
    assert whole.arena >= 2 * 16_384
    assert 24_576 <= plan.arena <= 28_200
    assert [hit.node for hit in hits] == ["conv2d_1+conv2d_2+add"]
    cost = [sum(step.kernel.cost for step in p.steps) for p in (whole, plan)]
    assert cost[1] <= 1.03 * cost[0]


@pytest.mark.models
@pytest.mark.parametrize("name", ["kws_int8", "ad01_int8", "hello_world_int8"])
def test_models_without_such_a_peak_stay(name: str) -> None:
    graph, _ = run_passes(load(model_path(name)), DEFAULT_PASSES)
    whole, plan, _ = _stream(graph, Target(find_core("cortex-m4")))
    assert plan is whole
