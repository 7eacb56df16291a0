"""Chains of layers by rows: where they lower the peak, and where they stay apart."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Cost, Target, select
from crtgen.compiler.level import LEVELS
from crtgen.compiler.plan import Plan, RowLoop, loop_over_rows, make_plan, row_loops
from crtgen.network.frontends import load
from crtgen.network.ir import Graph, Quant, Value
from crtgen.network.ops import (
    Activation,
    Add,
    Concat,
    Conv2d,
    DepthwiseConv2d,
    MaxPool2d,
    Padding,
    Relu,
    ResizeBilinear,
    ResizeNearest,
    Sub,
)
from crtgen.network.passes import DEFAULT_PASSES, Rewrite, run_passes
from tests.compiler.kernels.program import Run, check_outputs, run_plans_on_host
from tests.network.passes.networks import Network, draw
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


def _looped(
    graph: Graph, target: Target | None = None, keep: bool = False
) -> tuple[Plan, Plan, list[Rewrite]]:
    target = target or Target()
    whole = make_plan(graph, select(graph, target), keep_inputs=keep)
    plan, rewrites = loop_over_rows(whole, target)
    assert plan.kept_inputs is keep
    return whole, plan, list(rewrites)


def _loops(plan: Plan) -> list[RowLoop]:
    return [step.item for step in plan.steps if isinstance(step.item, RowLoop)]


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("core", [None, "cortex-m4", "cortex-m55"])
def test_the_wide_tensor_goes(core: str | None, real: bool) -> None:
    net = Network(real)
    graph = net.graph(_pair(net, net.input("x", 1, 24, 24, 8), "a", 8, 32))
    whole, plan, rewrites = _looped(graph, Target(find_core(core)) if core else None)
    size = 4 if real else 1
    assert whole.arena >= 24 * 24 * 32 * size > plan.arena
    assert "a_widen_out" not in plan.slots
    assert [step.name for step in plan.steps] == ["a_widen+a_halve", "a_narrow"]
    (loop,) = _loops(plan)
    what = f"{loop.rows} rows at a time, a_widen_out of {24 * 24 * 32 * size:,} bytes is never whole"
    saved = f"the arena is {plan.arena:,} bytes instead of {whole.arena:,}"
    assert rewrites == [Rewrite("loop over rows", "a_widen+a_halve", f"{what}; {saved}")]


def test_two_equal_peaks_both_go() -> None:
    net = Network()
    x = net.input("x", 1, 24, 24, 8)
    for name in "ab":
        middle = net.layer(f"{name}_widen", POINTWISE, net.node(f"{name}_clamp", Relu(), x), (32, 1, 1, 8))
        x = net.layer(f"{name}_narrow", AROUND, middle, (8, 3, 3, 32))
    whole, plan, rewrites = _looped(net.graph(x))
    assert whole.needs.count(whole.lower_bound) == 2
    assert [rewrite.node for rewrite in rewrites] == ["a_widen+a_narrow", "b_widen+b_narrow"]
    assert [step.name for step in plan.steps] == ["a_clamp", rewrites[0].node, "b_clamp", rewrites[1].node]
    assert plan.arena < whole.arena


def test_a_network_without_operators() -> None:
    net = Network()
    whole, plan, rewrites = _looped(net.graph(net.input("x", 1, 4)))
    assert (plan, rewrites) == (whole, [])
    assert plan.arena == 4


def test_no_gain_no_change() -> None:
    """Where the input is larger than anything, nothing is streamed."""
    net = Network()
    x = net.input("x", 1, 32, 32, 16)
    small = net.layer("shrink", Conv2d((4, 4)), x, (4, 1, 1, 16))
    whole, plan, rewrites = _looped(net.graph(_pair(net, small, "a", 4, 8)))
    assert plan is whole
    assert rewrites == []


def test_a_value_that_something_else_reads_stays() -> None:
    net = Network()
    x = net.input("x", 1, 16, 16, 8)
    middle = net.layer("widen", POINTWISE, x, (32, 1, 1, 8))
    y = net.layer("same", SAME, middle, (1, 3, 3, 32), 3)
    whole, plan, _ = _looped(net.graph(net.node("sub", Sub(), middle, y)))
    assert plan is whole
    both = net.graph("widen_out", "same_out")
    assert _looped(both)[1].graph is both


def _block(net: Network, x: str, name: str, channels: int) -> str:
    """Two 3x3 layers, and what went in added to what comes out."""
    weights = (channels, 3, 3, channels)
    y = net.layer(f"{name}_1", AROUND, net.layer(f"{name}_0", AROUND, x, weights), weights)
    return net.node(f"{name}_add", Add(), y, x)


@pytest.mark.parametrize("core", [None, "cortex-m4", "cortex-m55"])
def test_a_residual_block_needs_little_beside_its_input(core: str | None) -> None:
    net = Network()
    graph = net.graph(_block(net, net.input("x", 1, 32, 32, 16), "a", 16))
    whole, plan, rewrites = _looped(graph, Target(find_core(core)) if core else None)
    assert whole.arena > 2 * 32 * 32 * 16
    assert plan.arena < 1.75 * 32 * 32 * 16
    (step,) = plan.steps
    assert step.name == "a_0+a_1+a_add"
    assert plan.slots["x"].offset == plan.slots["a_add_out"].offset
    (rewrite,) = rewrites
    assert "a_0_out of 16,384 bytes and a_1_out of 16,384 bytes are never whole" in rewrite.text


def test_an_operand_may_come_first() -> None:
    """The image of the stage before is an addition's second operand."""
    net = Network()
    x = net.input("x", 1, 32, 32, 16)
    y = net.layer("b", AROUND, net.layer("a", AROUND, x, (16, 3, 3, 16)), (16, 3, 3, 16))
    graph = net.graph(net.node("add", Add(), x, y))
    _, plan, _ = _looped(graph)
    (step,) = plan.steps
    assert step.inputs[0] == step.inputs[-1] == "x"


def _halving_block(net: Network, x: str, beside: Conv2d | None = None, taps: int = 1) -> str:
    """A residual block that halves 32x32x16: two 3x3 layers, and the input through a layer of its own."""
    y = net.layer("a", Conv2d((2, 2), Padding(0, 1, 0, 1)), x, (32, 3, 3, 16))
    y = net.layer("b", AROUND, y, (32, 3, 3, 32))
    shortcut = net.layer("c", beside or Conv2d((2, 2)), x, (32, taps, taps, 16))
    return net.node("add", Add(Activation.RELU), shortcut, y)


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("core", [None, "cortex-m4", "cortex-m55"])
def test_a_shortcut_through_a_layer_is_made_by_rows(core: str | None, real: bool) -> None:
    """Of a block that halves, nothing is whole but its input, and its output over that."""
    net = Network(real)
    graph = net.graph(_halving_block(net, net.input("x", 1, 32, 32, 16)))
    whole, plan, rewrites = _looped(graph, Target(find_core(core)) if core else None)
    size = 4 if real else 1
    assert whole.arena >= 1.5 * 32 * 32 * 16 * size > plan.arena
    assert [step.name for step in plan.steps] == ["a+b+c+add"]
    assert plan.slots["x"].offset == plan.slots["add_out"].offset
    (loop,) = _loops(plan)
    assert list(loop.inner) == ["a_out", "b_out", "c_out"]
    each = f"of {8192 * size:,} bytes"
    (rewrite,) = rewrites
    assert f"a_out {each} and b_out {each} and c_out {each} are never whole" in rewrite.text


@pytest.mark.parametrize("at", ["a", "b", "c", "add"])
def test_a_block_is_found_wherever_its_peak_is(at: str) -> None:
    net = Network()
    graph = net.graph(_halving_block(net, net.input("x", 1, 32, 32, 16)))
    target = Target()
    kernels = dict(select(graph, target))
    kernels[at] = replace(kernels[at], scratch=50_000)
    whole = make_plan(graph, kernels)
    (peak,) = [step.name for step in whole.steps if step.kernel.scratch == 50_000]
    assert peak == at
    plan, _ = loop_over_rows(whole, target)
    assert [step.name for step in plan.steps] == ["a+b+c+add"]


def test_a_shortcut_with_padding_is_a_layer_of_its_own() -> None:
    net = Network()
    beside = Conv2d((2, 2), Padding(0, 1, 0, 1))
    graph = net.graph(_halving_block(net, net.input("x", 1, 32, 32, 16), beside, taps=3))
    _, plan, _ = _looped(graph)
    assert all(stage.layer is None for loop in _loops(plan) for stage in loop.stages)


def test_a_shortcut_that_something_else_reads_stays() -> None:
    net = Network()
    y = _halving_block(net, net.input("x", 1, 32, 32, 16))
    graph = net.graph(y, "c_out")
    _, plan, _ = _looped(graph)
    assert "c_out" in plan.slots


def test_a_difference_is_not_streamed() -> None:
    net = Network()
    x = net.input("x", 1, 32, 32, 16)
    y = net.layer("b", AROUND, net.layer("a", AROUND, x, (16, 3, 3, 16)), (16, 3, 3, 16))
    _, plan, _ = _looped(net.graph(net.node("sub", Sub(), y, x)))
    assert isinstance(plan.steps[-1].item.nodes[-1].op, Sub)


@pytest.mark.parametrize("shape", [(64,), (4, 64), (4, 8, 8), (2, 2, 2, 2, 4)])
@pytest.mark.parametrize("core", [None, "cortex-m4", "cortex-m55"])
def test_sums_of_what_is_no_image_stay(core: str | None, shape: tuple[int, ...]) -> None:
    net = Network()
    x = net.input("x", *shape)
    graph = net.graph(net.node("second", Add(), net.node("first", Add(), x, x), x))
    whole, plan, rewrites = _looped(graph, Target(find_core(core)) if core else None)
    assert plan is whole
    assert rewrites == []


@pytest.mark.parametrize("first", [False, True])
def test_one_number_is_added_to_a_layer(first: bool) -> None:
    """It is no image beside the layer."""
    net = Network()
    middle = net.layer("widen", POINTWISE, net.input("x", 1, 16, 16, 8), (32, 1, 1, 8))
    one = net.add_value(Value.constant("one", np.array(9, np.int8), Quant.tensor(0.05)))
    added = net.node("add", Add(), *((one, middle) if first else (middle, one)))
    whole, plan, _ = _looped(net.graph(net.layer("narrow", POINTWISE, added, (8, 1, 1, 32))))
    assert plan.arena <= whole.arena


def test_a_pool_takes_rows_as_they_come() -> None:
    net = Network()
    x = net.layer("conv", AROUND, net.input("x", 1, 32, 32, 4), (16, 3, 3, 4))
    graph = net.graph(net.node("pool", MaxPool2d((2, 2), (2, 2)), x))
    whole, plan, _ = _looped(graph)
    assert whole.arena > 32 * 32 * 16 > plan.arena
    assert [step.name for step in plan.steps] == ["conv+pool"]


def test_an_inverted_residual_is_one_looped() -> None:
    """Wide images on both sides of the depthwise layer: neither is whole."""
    net = Network()
    x = net.input("x", 1, 24, 24, 8)
    wide = net.layer("widen", POINTWISE, x, (48, 1, 1, 8))
    narrow = net.layer("narrow", Conv2d(), net.layer("deep", SAME, wide, (1, 3, 3, 48), 3), (8, 1, 1, 48))
    graph = net.graph(net.node("add", Add(), narrow, x))
    whole, plan, _ = _looped(graph)
    assert whole.arena > 24 * 24 * 48
    assert plan.arena < 4 * 24 * 24 * 8
    assert [step.name for step in plan.steps] == ["widen+deep+narrow+add"]


def test_streams_have_four_stages_at_most() -> None:
    net = Network()
    x = net.input("x", 1, 24, 24, 4)
    for name in "abcd":
        middle = net.layer(f"{name}_widen", POINTWISE, x, (32, 1, 1, 4))
        x = net.layer(f"{name}_narrow", AROUND, middle, (4, 3, 3, 32))
    _, plan, _ = _looped(net.graph(x))
    lengths = [len(loop.stages) for loop in _loops(plan)]
    assert sum(lengths) == 8
    assert max(lengths) <= 4


def test_kept_inputs_stay_kept() -> None:
    net = Network()
    graph = net.graph(_pair(net, net.input("x", 1, 24, 24, 8), "a", 8, 32))
    whole, plan, _ = _looped(graph, keep=True)
    assert plan.arena < whole.arena
    assert len(_loops(plan)) == 1


@pytest.mark.parametrize("optimize", ["speed", "balanced", "size"])
def test_a_price_that_is_too_high_is_not_paid(optimize: str) -> None:
    """Other layers that cost nothing make the added share larger than what may be added."""
    net = Network()
    graph = net.graph(_pair(net, net.input("x", 1, 24, 24, 8), "a", 8, 32))
    target = Target(optimize=optimize)
    kernels = {
        name: replace(kernel, cost=Cost(1.0, time=1.0)) for name, kernel in select(graph, target).items()
    }
    whole = make_plan(graph, kernels)
    plan, rewrites = loop_over_rows(whole, target)
    assert plan is whole
    assert rewrites == ()


@pytest.mark.models
@pytest.mark.parametrize("optimize", ["speed", "balanced", "size"])
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55", "cortex-m3"])
def test_vww(core: str, optimize: str) -> None:
    """conv2d_1 alone writes 36,864 bytes; with its successor by rows the input of 27,648 is the peak."""
    graph, _ = run_passes(load(model_path("vww_int8")), DEFAULT_PASSES)
    whole, plan, rewrites = _looped(graph, Target(find_core(core), optimize))
    assert whole.arena > 36_864
    assert 27_648 <= plan.lower_bound <= 36_000
    assert any("conv2d_1+depthwise_conv2d_1" in rewrite.node for rewrite in rewrites)
    cost = [sum(step.kernel.cost.instructions for step in p.steps) for p in (whole, plan)]
    assert cost[1] <= 1.05 * cost[0]


@pytest.mark.models
def test_for_speed_a_little_memory_is_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """On M4, a second stream of vww would save a tenth of the arena for 0.5 % of instructions."""
    graph, _ = run_passes(load(model_path("vww_int8")), DEFAULT_PASSES)
    target = Target(find_core("cortex-m4"), "speed")
    _, plan, rewrites = _looped(graph, target)
    monkeypatch.setitem(LEVELS, "speed", replace(LEVELS["speed"], saves=0.0))
    _, smaller, more = _looped(graph, target)
    assert (len(rewrites), len(more)) == (1, 2)
    assert 0.875 * plan.arena < smaller.arena < plan.arena


@pytest.mark.models
@pytest.mark.parametrize("optimize", ["speed", "balanced", "size"])
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55", "cortex-m3"])
def test_ic01(core: str, optimize: str) -> None:
    """The residual blocks are streams, but for speed those that cost more than 0.75 % of instructions.

    Nor are those then that would do without Winograd's tiles.
    """
    graph, _ = run_passes(load(model_path("ic01_int8")), DEFAULT_PASSES)
    whole, plan, rewrites = _looped(graph, Target(find_core(core), optimize))
    assert whole.arena >= 2 * 16_384
    blocks = ["conv2d_1+conv2d_2+add", "conv2d_3+conv2d_4+conv2d_5+add_1"]
    number = int(core == "cortex-m3") if optimize == "speed" else 2
    assert [rewrite.node for rewrite in rewrites] == blocks[:number]
    assert 16_384 < plan.arena <= (37_568, 28_080, 25_200)[number]
    cost = [sum(step.kernel.cost.instructions for step in p.steps) for p in (whole, plan)]
    assert cost[1] <= {"speed": 1.0075, "balanced": 1.05, "size": 1.08}[optimize] * cost[0]


@pytest.mark.models
@pytest.mark.parametrize("name", ["kws_int8", "ad01_int8", "hello_world_int8"])
def test_models_without_such_a_peak_stay(name: str) -> None:
    graph, _ = run_passes(load(model_path(name)), DEFAULT_PASSES)
    whole, plan, _ = _looped(graph, Target(find_core("cortex-m4")))
    assert plan is whole


def _networks() -> Iterator[tuple[str, Graph]]:
    """Networks of which loops take each kind of chain."""
    for real in (False, True):
        net = Network(real)
        yield f"pair{real:d}", net.graph(_pair(net, net.input("x", 1, 24, 24, 8), "a", 8, 32))
        net = Network(real)
        yield f"shortcut{real:d}", net.graph(_halving_block(net, net.input("x", 1, 32, 32, 16)))
    net = Network()
    x = net.input("x", 1, 24, 24, 8)
    for name in "ab":
        middle = net.layer(f"{name}_widen", POINTWISE, net.node(f"{name}_clamp", Relu(), x), (32, 1, 1, 8))
        x = net.layer(f"{name}_narrow", AROUND, middle, (8, 3, 3, 32))
    yield "two", net.graph(x)
    net = Network()
    yield "block", net.graph(_block(net, net.input("x", 1, 32, 32, 16), "a", 16))
    net = Network()
    x = net.input("x", 1, 32, 32, 16)
    y = net.layer("b", AROUND, net.layer("a", AROUND, x, (16, 3, 3, 16)), (16, 3, 3, 16))
    yield "first_operand", net.graph(net.node("add", Add(), x, y))
    net = Network()
    x = net.layer("conv", AROUND, net.input("x", 1, 32, 32, 4), (16, 3, 3, 4))
    yield "pool", net.graph(net.node("pool", MaxPool2d((2, 2), (2, 2)), x))
    net = Network()
    x = net.input("x", 1, 24, 24, 8)
    wide = net.layer("widen", POINTWISE, x, (48, 1, 1, 8))
    narrow = net.layer("narrow", Conv2d(), net.layer("deep", SAME, wide, (1, 3, 3, 48), 3), (8, 1, 1, 48))
    yield "inverted", net.graph(net.node("add", Add(), narrow, x))


@pytest.mark.cc
def test_what_loops_compute(tmp_path: Path) -> None:
    runs = []
    for name, graph in _networks():
        _, plan, _ = _looped(graph)
        assert _loops(plan), name
        inputs = {value: draw(graph.values[value], 1) for value in graph.inputs}
        runs.append((Run(name, graph, inputs), plan))
    outputs = run_plans_on_host(tmp_path, runs)
    wrong = [check_outputs(run, out) for (run, _), out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))


def _up_and_down(real: bool, skip_first: bool, up_by: ResizeNearest | ResizeBilinear) -> Graph:
    """A U-Net of one level: its skip connection is joined with the enlarged image."""
    net = Network(real)
    skip = net.layer("down", AROUND, net.input("x", 1, 16, 16, 4), (8, 3, 3, 4))
    low = net.layer("low", AROUND, net.node("pool", MaxPool2d((2, 2), (2, 2)), skip), (12, 3, 3, 8))
    up = net.node("up", up_by, low)
    joined = net.node("join", Concat(3), *((skip, up) if skip_first else (up, skip)))
    return net.graph(net.layer("out", AROUND, joined, (4, 3, 3, 20)))


@pytest.mark.cc
@pytest.mark.parametrize(
    "up_by", [ResizeNearest((16, 16)), ResizeBilinear((16, 16), half_pixel_centers=True)]
)
def test_a_skip_connection_is_joined_row_by_row(
    up_by: ResizeNearest | ResizeBilinear, tmp_path: Path
) -> None:
    """Neither the enlarged image nor the joined one is ever whole."""
    runs = []
    for real, skip_first in product((False, True), repeat=2):
        graph = _up_and_down(real, skip_first, up_by)
        whole, plan, _ = _looped(graph)
        (loop,) = _loops(plan)
        assert loop.inner == ("up_out", "join_out")
        size = 4 if real else 1
        assert whole.arena >= 16 * 16 * (20 + 20) * size
        assert plan.arena < 16 * 16 * 20 * size
        runs.append((Run(f"{real} {skip_first}", graph, {"x": draw(graph.values["x"], 1)}), plan))
    outputs = run_plans_on_host(tmp_path, runs)
    assert not any(check_outputs(run, out) for (run, _), out in zip(runs, outputs, strict=True))


def test_time_grows_about_as_the_network() -> None:
    """Ten times the layers ask for about ten times the trials, not for a hundred times."""
    tried = []
    for blocks in (4, 40):
        net = Network()
        x = net.input("x", 1, 16, 16, 8)
        for n in range(blocks):
            x = _block(net, x, f"b{n}", 8)
        graph = net.graph(x)
        target = Target()
        line = row_loops._ItemLine.of(make_plan(graph, select(graph, target)))
        tried.append(0)
        loops = row_loops._Loops(graph, target)
        while True:
            lines = list(line.lowered(loops))
            tried[-1] += len(lines)
            if not lines:
                break
            line = min(lines, key=lambda line: line.cost)
    assert 5 <= tried[1] / tried[0] <= 20


@pytest.mark.parametrize("core", [None, "cortex-m4", "cortex-m55"])
def test_what_is_rejected_without_a_kernel_does_not_lower_the_peak(core: str | None) -> None:
    net = Network()
    x = net.input("x", 1, 16, 16, 8)
    sides = [net.layer(f"side{n}", POINTWISE, x, (8, 1, 1, 8)) for n in range(4)]
    for n, side in enumerate(sides):
        x = net.node(f"add{n}", Add(), x, side)
    rejected = 0
    for graph in (net.graph(x), *(graph for _, graph in _networks())):
        target = Target(find_core(core)) if core else Target()
        line = row_loops._ItemLine.of(make_plan(graph, select(graph, target)))
        loops = row_loops._Loops(graph, target)
        for chain in row_loops._chains(line, line.needs.index(line.peak)):
            around = line._around(chain)
            within = [loop for loop, _ in line._within(chain, around, loops)]
            for rows in row_loops._rows(line, chain):
                loop = RowLoop(chain.stages, rows)
                if loop not in within:
                    outline = loops.outline(loop)
                    kernel = outline and loops.of(loop, outline)
                    joined = kernel and line._joined(chain, around, loop, kernel)
                    assert joined is None, (graph.name, loop.name, rows)
                    rejected += 1
    assert rejected >= 100
