"""Networks that windows slide over compute what they compute on each whole window, bit for bit."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pytest
from tflite_micro import runtime

import crtgen
from crtgen.api import Model
from crtgen.base.errors import UsageError
from crtgen.network.ir import Array, Graph, Op
from crtgen.network.ops import (
    Add,
    AveragePool2d,
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    Padding,
    Reshape,
    StridedSlice,
)
from crtgen.network.passes import DEFAULT_PASSES, Sliding, run_passes, slide
from tests.network.passes.networks import Network
from tests.network.passes.sliding import random_network, signal, windows
from tests.support import model_path, nightly, require_tool

SAME = Padding(1, 1, 0, 0)
KWS = Sliding(axis=1, step=2)
RUNS = 29
"""Windows of kws are full of signal after 25 runs."""


def assert_same(graph: Graph, sliding: Sliding, runs: int = 24, frugal: bool = False) -> Graph:
    slid, _ = slide(graph, sliding, frugal=frugal)
    news = signal(graph, sliding, runs)
    for actual, expected in zip(slid.run(news), graph.run(windows(graph, sliding, news)), strict=True):
        assert [a.tobytes() for a in actual] == [e.tobytes() for e in expected]
    return slid


@pytest.mark.parametrize("seeds", [range(12), nightly(range(12, 1000))], ids=str)
def test_random_networks_on_every_window(seeds: range) -> None:
    won = 0
    for seed in seeds:
        graph, axis = random_network(seed)
        for step, frugal in ((1, False), (2, True), (2, False), (4, False)):
            with suppress(UsageError):
                assert_same(graph, Sliding(axis, step), frugal=frugal)
                won += 1
    assert won > len(seeds)


def network(*ops: tuple[Op, tuple[int, ...]], shape: Sequence[int] = (20, 4, 2)) -> Graph:
    """Layers one after another: an operator, and the shape of its weights if it has some."""
    net = Network()
    y = net.input("x", 1, *shape)
    for number, (op, weights) in enumerate(ops):
        axis = 3 if isinstance(op, DepthwiseConv2d) else 0
        y = net.layer(f"n{number}", op, y, weights, axis) if weights else net.node(f"n{number}", op, y)
    return net.graph(y)


@pytest.mark.parametrize(
    ("graph", "step", "share"),
    [
        (network((Conv2d(), (3, 3, 1, 2)), (Conv2d(), (3, 3, 1, 3))), 1, 0.07),
        (network((Conv2d((2, 1)), (3, 4, 1, 2)), (Conv2d(), (3, 3, 1, 3))), 2, 0.16),
        (
            network((Conv2d(padding=SAME), (3, 3, 1, 2)), (DepthwiseConv2d(padding=SAME), (1, 3, 1, 3))),
            1,
            0.4,
        ),
        (network((Reshape((1, 20, 1, 8)), ()), (Conv2d(), (3, 2, 1, 8))), 3, 0.16),
        (
            network((StridedSlice((0, 0, 1, 0), (1, 20, 3, 2), (1,) * 4), ()), (Conv2d(), (3, 3, 2, 2))),
            1,
            0.06,
        ),
        (network((Reshape((20, 8)), ()), (FullyConnected(), (5, 8))), 1, 0.06),
        (network((Reshape((1, 20, 8)), ()), (FullyConnected(keep_dims=True), (5, 8))), 1, 0.06),
    ],
    ids=["valid", "strided", "same", "reshape", "slice", "rows", "frames"],
)
def test_only_what_is_new_and_borders_are_computed(graph: Graph, step: int, share: float) -> None:
    slid = assert_same(graph, Sliding(1, step))
    assert slid.macs <= share * graph.macs
    assert slid.values["x"].shape == (1, step, 4, 2)


def test_a_layer_that_mixes_positions_runs_on_the_whole_window() -> None:
    graph = network((Conv2d(), (3, 3, 1, 2)), (AveragePool2d((18, 4), (1, 1)), ()))
    slid = assert_same(graph, Sliding(1, 1))
    assert [v.shape for n in slid.nodes if n.name == "n1" for v in slid.signature(n).inputs] == [
        (1, 18, 4, 3)
    ]


def test_a_step_that_a_stride_does_not_divide_ends_the_sliding() -> None:
    graph = network((Conv2d(), (3, 3, 1, 2)), (Conv2d((2, 1)), (3, 3, 1, 3)))
    _, rewrites = slide(graph, Sliding(1, 1))
    assert [rewrite.text for rewrite in rewrites] == [
        "1 of 18 positions are computed in a run",
        "it needs the whole window",
    ]


def test_residual_branches_of_different_reach() -> None:
    net = Network()
    x = net.input("x", 1, 20, 3, 2)
    a = net.layer("a", Conv2d(padding=Padding(2, 2, 0, 0)), x, (2, 5, 1, 2))
    b = net.layer("b", Conv2d(padding=SAME), a, (2, 3, 1, 2))
    y = net.node("sum", Add(), a, b)
    assert_same(net.graph(y), Sliding(1, 1))
    assert_same(net.graph(y, a), Sliding(1, 1), frugal=True)


def test_frugal_keeps_less_and_computes_more() -> None:
    graph = network(*((Conv2d(padding=SAME), (2, 3, 1, 2)) for _ in range(3)))
    much, little = (assert_same(graph, Sliding(1, 1), frugal=frugal) for frugal in (False, True))

    def state(slid: Graph) -> int:
        return sum(slid.values[name].nbytes for name, _ in slid.states)

    assert much.macs < little.macs < graph.macs
    assert state(little) < state(much)


def two_inputs() -> Graph:
    net = Network()
    return net.graph(net.node("sum", Add(), net.input("a", 1, 8, 2, 1), net.input("b", 1, 8, 2, 1)))


@pytest.mark.parametrize(
    ("graph", "sliding", "message"),
    [
        (network((Conv2d(), (3, 3, 1, 2))), Sliding(4, 1), "has no axis 4"),
        (network((Conv2d(), (3, 3, 1, 2))), Sliding(1, 20), "a step of 20 along an axis of 20 positions"),
        (network((Conv2d(), (3, 3, 1, 2))), Sliding(1, 0), "a step of 0"),
        (network((Conv2d((3, 1)), (3, 3, 1, 2))), Sliding(1, 2), r"n0 \(conv2d\) needs the whole window"),
        (network((Conv2d(padding=Padding(9, 9, 0, 0)), (3, 19, 1, 2))), Sliding(1, 1), "nothing is won"),
        (network((Reshape((1, 160)), ()), (FullyConnected(), (5, 160))), Sliding(1, 1), "nothing is won"),
        (two_inputs(), Sliding(1, 1), "it has 2 inputs"),
        (slide(network((Conv2d(), (3, 3, 1, 2))), Sliding(1, 1))[0], Sliding(1, 1), "keeps state already"),
    ],
)
def test_what_cannot_slide_is_refused(graph: Graph, sliding: Sliding, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        slide(graph, sliding)


@pytest.mark.models
def test_ad01_is_refused() -> None:
    model = crtgen.load(model_path("ad01_int8"))
    with pytest.raises(
        UsageError, match=r"nothing is won .*: dense \(fully_connected\) needs the whole window"
    ):
        model.compile("mps2_an386", sliding=Sliding(axis=1, step=128))


def kws() -> Graph:
    model = crtgen.load(model_path("kws_int8"))
    assert isinstance(model, Model)
    return run_passes(model.graph, DEFAULT_PASSES)[0]


def by_tflite_micro(graph: Graph, news: Sequence[tuple[Array]]) -> list[Array]:
    """The output of kws for each window."""
    interpreter = runtime.Interpreter.from_file(str(model_path("kws_int8")))
    made = []
    for (window,) in windows(graph, KWS, news):
        interpreter.set_input(window, 0)
        interpreter.invoke()
        made.append(interpreter.get_output(0))
    return made


@pytest.mark.models
@pytest.mark.parametrize("frugal", [False, True])
def test_kws_is_tflite_micros_on_every_window(frugal: bool) -> None:
    graph = kws()
    slid, _ = slide(graph, KWS, frugal=frugal)
    news = signal(graph, KWS, RUNS)
    actual = [outputs[0] for outputs in slid.run(news)]
    assert np.array_equal(actual, by_tflite_micro(graph, news))
    assert slid.macs < (0.6 if frugal else 0.45) * graph.macs


def assert_computed(
    graph: Graph, sliding: Sliding, expected: Sequence[Array], board: str, level: str
) -> None:
    """What the generated code computes in a run after the other."""
    image = Model(graph).compile(board, optimize=level, sliding=sliding).generate().build()
    news = signal(graph, sliding, len(expected))
    with image.run(counting=False) as session:
        assert np.array_equal([session.infer(*new)[0] for new in news], expected)
        session.reset()
        assert np.array_equal(session.infer(*news[0])[0], expected[0])


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("seed", "board", "level"),
    [
        (0, "host", "speed"),
        (21, "mps2_an386", "balanced"),
        nightly(45, "mps3_an547", "speed"),
        *(nightly(n, "mps2_an386", "size") for n in (1, 5, 7, 10, 16)),
        *(nightly(n, "mps3_an547", "balanced") for n in (4, 6, 12, 33, 51)),
    ],
)
def test_generated_code_of_random_networks(seed: int, board: str, level: str) -> None:
    require_tool("cc" if board == "host" else "qemu-system-arm")
    graph, axis = random_network(seed)
    sliding = Sliding(axis, 2)
    news = signal(graph, sliding, 24)
    expected = [outputs[0] for outputs in graph.run(windows(graph, sliding, news))]
    assert_computed(graph, sliding, expected, board, level)


@pytest.mark.cc
def test_a_state_that_becomes_the_input() -> None:
    require_tool("cc")
    graph, sliding = network((Conv2d(), (3, 3, 1, 2))), Sliding(1, 2)
    assert ("x_kept", "x") in slide(graph, sliding)[0].states
    news = signal(graph, sliding, 24)
    expected = [outputs[0] for outputs in graph.run(windows(graph, sliding, news))]
    assert_computed(graph, sliding, expected, "host", "speed")


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["host", nightly("mps2_an386"), nightly("mps3_an547")])
def test_full_windows_of_floats_are_equal_bit_for_bit(board: str) -> None:
    """The same device on whole windows says what is expected: it rounds otherwise than the reference."""
    require_tool("cc" if board == "host" else "qemu-system-arm")
    net = Network(real=True)
    y = net.layer("a", Conv2d((2, 1), padding=SAME), net.input("x", 1, 24, 1, 3), (8, 3, 1, 3))
    y = net.layer("b", Conv2d(), y, (8, 5, 1, 8))
    graph, sliding = net.graph(net.layer("c", FullyConnected(), y, (3, 64))), Sliding(1, 4)
    news = signal(graph, sliding, 12)
    made = []
    for choice, runs in ((None, windows(graph, sliding, news)), (sliding, news)):
        image = Model(graph).compile(board, optimize="speed", sliding=choice).generate().build()
        with image.run(counting=False) as session:
            made.append([session.infer(*given)[0].tobytes() for given in runs])
    full = 24 // sliding.step
    assert made[0][full:] == made[1][full:]


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize(
    ("board", "level"),
    [
        nightly("mps2_an386", "speed"),
        ("mps3_an547", "size"),
        nightly("mps3_an547", "speed"),
        nightly("mps2_an386", "size"),
        nightly("mps2_an385", "balanced"),
    ],
)
def test_kws_on_boards(board: str, level: str) -> None:
    require_tool("qemu-system-arm")
    graph = kws()
    news = signal(graph, KWS, RUNS)
    assert_computed(graph, KWS, by_tflite_micro(graph, news), board, level)
