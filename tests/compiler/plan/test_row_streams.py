"""Images that come by rows: what takes them, what memory that needs, and that the outputs are the same."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crtgen.base.errors import CrtgenError, UnsupportedError
from crtgen.base.resources import runtime_dir
from crtgen.boards.core import find_core
from crtgen.compiler.codegen import generate_c
from crtgen.compiler.kernels import Target, select
from crtgen.compiler.plan import Plan, check_plan, make_plan, plan_model, row_streams
from crtgen.compiler.plan.plan import RowLoop, RowStream
from crtgen.network.frontends import load
from crtgen.network.ir import Array, DType, Graph, Quant, Value
from crtgen.network.ops import (
    Add,
    AveragePool2d,
    Conv2d,
    DepthwiseConv2d,
    MaxPool2d,
    Mean,
    Padding,
    Quantize,
    Relu,
    Reshape,
    Sub,
    Tanh,
)
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.compiler.kernels.program import Run, check_outputs, run_plans_on_host, run_plans_on_qemu
from tests.network.passes.networks import Network, draw
from tests.support import BRIEF, CHECKED, compile_each, model_path, nightly, require_tool

AROUND = Conv2d((1, 1), Padding(1, 1, 1, 1))
HALVED = Conv2d((2, 2), Padding(0, 1, 0, 1))
SAME = DepthwiseConv2d((1, 1), Padding(1, 1, 1, 1))
POINTWISE = Conv2d()


def _fed(graph: Graph, core: str = "cortex-m4", level: str = "balanced") -> tuple[Plan, Plan]:
    """With the image in memory, and by rows."""
    target = Target(find_core(core), level)
    return plan_model(graph, target)[0], plan_model(graph, target, feed="rows")[0]


def _stream(plan: Plan) -> RowStream:
    item = plan.steps[0].item
    assert isinstance(item, RowStream)
    return item


def _mobile(real: bool = False, height: int = 32) -> Graph:
    """A layer that halves, and pairs of depthwise and pointwise ones."""
    net = Network(real)
    x = net.layer("first", HALVED, net.input("x", 1, height, 32, 3), (8, 3, 3, 3))
    for n, (channels, op) in enumerate(((8, SAME), (16, DepthwiseConv2d((2, 2), Padding(0, 1, 0, 1))))):
        x = net.layer(f"deep{n}", op, x, (1, 3, 3, channels), 3)
        x = net.layer(f"wide{n}", POINTWISE, x, (16, 1, 1, channels))
    return net.graph(net.node("pool", AveragePool2d((8, 8), (8, 8)), x))


def _residual(real: bool = False) -> Graph:
    """Inverted residuals, one after the other, as in MobileNetV2."""
    net = Network(real)
    x = net.layer("first", AROUND, net.input("x", 1, 48, 48, 4), (8, 3, 3, 4))
    for n in range(2):
        y = net.layer(f"widen{n}", POINTWISE, x, (24, 1, 1, 8))
        y = net.layer(f"deep{n}", SAME, y, (1, 3, 3, 24), 3)
        y = net.layer(f"narrow{n}", POINTWISE, y, (8, 1, 1, 24))
        x = net.node(f"add{n}", Add(), *((y, x) if n else (x, y)))
    return net.graph(net.layer("last", HALVED, x, (8, 3, 3, 8)))


def _pooled(real: bool = False) -> Graph:
    net = Network(real)
    x = net.node("pool", MaxPool2d((2, 2), (2, 2)), net.input("x", 1, 20, 12, 4))
    x = net.layer("tall", Conv2d((1, 1), Padding(2, 2, 0, 0)), x, (8, 5, 1, 4))
    return net.graph(net.node("relu", Relu(), x))


def _camera(real: bool = False) -> Graph:
    """What a camera has, bytes or real numbers, is quantised first."""
    net = Network()
    pixels = Quant.tensor(1 / 255, 0)
    kind = Value("x", (1, 24, 20, 3), DType.FLOAT32 if real else DType.UINT8, None if real else pixels)
    net.inputs.append(net.add_value(kind))
    x = net.node("quantize", Quantize(), "x", quant=Quant.tensor(1 / 255 if not real else 0.05, -128))
    x = net.node("tanh", Tanh(), net.layer("first", HALVED, x, (8, 3, 3, 3)), quant=Quant.tensor(1 / 128, 0))
    return net.graph(net.layer("last", HALVED, x, (8, 3, 3, 8)))


GRAPHS = {"mobile": _mobile, "residual": _residual, "pooled": _pooled, "camera": _camera}


def _chunks(images: Sequence[Array], most: int, seed: int) -> Iterator[tuple[int, bytes]]:
    """Rows of images one after the other, up to ``most`` at a time."""
    random = np.random.default_rng(seed)
    for image in images:
        first = 0
        while first < image.shape[1]:
            count = min(int(random.integers(1, most, endpoint=True)), image.shape[1] - first)
            yield count, image[:, first : first + count].tobytes()
            first += count


def _program(folder: Path, plan: Plan) -> Path:
    """The host program that pushes rows, under sanitizers."""
    folder.mkdir(exist_ok=True)
    module = generate_c(plan, "net")
    for file, text in module.files.items():
        (folder / file).write_text(text)
    x, y = (plan.graph.values[names[0]] for names in (plan.graph.inputs, plan.graph.outputs))
    flags = ['-DMODEL_HEADER="net.h"', "-DMODEL=net", f"-DOUTPUT={module.info.outputs[0].c_name}"]
    flags += [f"-DROW_BYTES={x.nbytes // x.shape[1]}", f"-DOUTPUT_BYTES={y.nbytes}"]
    sources = [folder / file for file in module.files if file.endswith(".c") and "registry" not in file]
    sources.append(Path(__file__).with_name("by_rows.c"))
    command = [require_tool("gcc"), *CHECKED, *BRIEF, *flags, f"-I{folder}", f"-I{runtime_dir() / 'include'}"]
    return compile_each(command, sources, folder / "program", ["-lm"])


def _said(program: Path, calls: Sequence[tuple[int, bytes]]) -> tuple[list[int], list[bytes]]:
    """What each push returns, and outputs."""
    sent = b"".join(np.int32(count).tobytes() + rows for count, rows in calls)
    done = subprocess.run([program], input=sent, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    returned, outputs = list[int](), list[bytes]()
    for line in done.stdout.decode().splitlines():
        numbers = list(map(int, line.split()))
        if returned and returned[-1] == 1 and len(outputs) < returned.count(1):
            outputs.append(bytes(numbers))
        else:
            returned += numbers
    return returned, outputs


def _check(graph: Graph, outputs: Sequence[bytes], expected: Sequence[bytes]) -> None:
    """int8 is the same bit for bit; float32 is added up in another order than numpy's."""
    dtype = graph.values[graph.outputs[0]].dtype.numpy
    found, wanted = (np.frombuffer(b"".join(each), dtype) for each in (outputs, expected))
    assert [*map(len, outputs)] == [*map(len, expected)]
    most = 0.0 if dtype == np.int8 else 1e-5 * float(np.abs(wanted).max())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=most)


def _expected(graph: Graph, images: Sequence[Array]) -> list[bytes]:
    (name,), (output,) = graph.inputs, graph.outputs
    return [graph.evaluate({name: image})[output].tobytes() for image in images]


@pytest.mark.cc
@pytest.mark.parametrize("real", [False, True], ids=["int8", "float32"])
@pytest.mark.parametrize("name", GRAPHS)
def test_outputs_are_the_same_however_rows_come(tmp_path: Path, name: str, real: bool) -> None:
    graph = GRAPHS[name](real)
    _, plan = _fed(graph, "host")
    program = _program(tmp_path, plan)
    images = [draw(graph.values["x"], seed) for seed in range(2)]
    expected = _expected(graph, images)
    assert expected[0] != expected[1]
    for most in (1, 3, 7, images[0].shape[1]):
        calls = list(_chunks(images, most, most))
        returned, outputs = _said(program, calls)
        _check(graph, outputs, expected)
        assert sum(returned) == 2
        assert len(returned) == len(calls)


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("machine", "core"),
    [
        ("mps2-an386", "cortex-m4"),
        ("mps3-an547", "cortex-m55"),
        nightly("mps2-an385", "cortex-m3"),
        nightly("mps2-an385", "cortex-m0plus"),
    ],
)
def test_on_cores(tmp_path: Path, machine: str, core: str) -> None:
    graphs = {name: build() for name, build in GRAPHS.items()}
    plans = {name: _fed(graph, core)[1] for name, graph in graphs.items()}
    runs = [
        (Run(name, plans[name].graph, {"x": draw(graph.values["x"], seed)}), plans[name])
        for name, graph in graphs.items()
        for seed in range(2)
    ]
    outputs = run_plans_on_qemu(tmp_path, runs, machine, find_core(core))
    wrong = [text for (run, _), out in zip(runs, outputs, strict=True) if (text := check_outputs(run, out))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.cc
def test_rows_too_many_are_refused_and_an_image_can_be_begun_anew(tmp_path: Path) -> None:
    graph = _mobile()
    program = _program(tmp_path, _fed(graph, "host")[1])
    image = draw(graph.values["x"], 5)
    (expected,) = _expected(graph, [image])
    rows = [image[:, n : n + 1].tobytes() for n in range(32)]
    calls = [(20, b"".join(rows[:20])), (1013, b""), (0, b""), (12, b"".join(rows[20:])), (1033, b"")]
    returned, outputs = _said(program, calls)
    assert returned == [0, -1, 0, 1, -1]
    assert outputs == [expected]
    again = [(20, b"".join(rows[3:23])), (-1, b""), (32, b"".join(rows))]
    returned, outputs = _said(program, again)
    assert returned == [0, 1]
    assert outputs == [expected]


@pytest.mark.cc
@pytest.mark.parametrize("seed", [*range(4), *map(nightly, range(4, 60))])
def test_random_networks(tmp_path: Path, seed: int) -> None:
    """Windows, strides, paddings, residuals and poolings drawn at random."""
    graph = _random(seed)
    _, plan = _fed(graph, "host", ("speed", "balanced", "size")[seed % 3])
    images = [draw(graph.values["x"], number) for number in range(2)]
    _, outputs = _said(_program(tmp_path, plan), list(_chunks(images, 1 + seed % 9, seed)))
    _check(graph, outputs, _expected(graph, images))


@pytest.mark.cc
@pytest.mark.parametrize("seed", [*range(2), *map(nightly, range(2, 60))])
def test_as_many_layers_as_can_take_rows(tmp_path: Path, seed: int) -> None:
    """Whatever that costs, so that much is kept for additions; one row at a time, and the next number."""
    graph, target = _random(seed), Target()
    whole = make_plan(graph, select(graph, target))
    ways = list(row_streams._ways(replace(whole, arena=1 << 30), target, frozenset(), "x", fed=True))
    longest = [way for way in ways if len(way.item.stages) == max(len(way.item.stages) for way in ways)]
    for number, way in enumerate(longest[:2]):
        images = [draw(graph.values["x"], seed) for seed in range(2)]
        program = _program(tmp_path / str(number), way.planned(whole))
        _, outputs = _said(program, list(_chunks(images, 1 + seed % 9, seed)))
        _check(graph, outputs, _expected(graph, images))


def _random(seed: int) -> Graph:
    random = np.random.default_rng(seed)
    net, channels = Network(bool(seed % 5 == 4)), 4
    x = net.input("x", 1, int(random.integers(9, 40)), 4 * int(random.integers(2, 9)), channels)
    for n in range(int(random.integers(1, 6))):
        taps, stride = int(random.choice([1, 3, 5])), int(random.choice([1, 1, 2]))
        stride = min(taps, stride)
        sides = Padding(*(int(random.integers(0, taps // 2 + 1)) for _ in range(4)))
        if taps == 1 or min(net.values[x].shape[1:3]) < 6:
            x = net.layer(f"p{n}", POINTWISE, x, (channels, 1, 1, channels))
        elif random.integers(2):
            x = net.layer(f"d{n}", DepthwiseConv2d((stride, 1), sides), x, (1, taps, taps, channels), 3)
        else:
            x = net.layer(f"c{n}", Conv2d((stride, 1), sides), x, (channels, taps, taps, channels))
        if random.integers(3) == 0:
            y = net.layer(f"s{n}", AROUND, x, (channels, 3, 3, channels))
            x = net.node(f"a{n}", Add(), x, y)
    return net.graph(x)


@pytest.mark.parametrize("core", ["host", "cortex-m4", "cortex-m55"])
def test_no_image_is_in_the_arena(core: str) -> None:
    whole, plan = _fed(_mobile(height=64), core)
    assert whole.arena > 64 * 32 * 3 > plan.arena
    assert "x" not in plan.slots
    assert plan.fed == ("x",)
    assert plan.kept_inputs, "nothing writes to rows of the application"
    assert _stream(plan).stages[0].node.name == "first"
    assert whole.fed == ()


def test_what_a_residual_adds_is_kept_by_rows() -> None:
    whole, plan = _fed(_residual())
    since = [stage.since for stage in _stream(plan).stages if stage.since is not None]
    assert since == [0, 4]
    assert plan.arena < 0.9 * whole.arena


def test_a_stream_runs_first_and_in_no_loop() -> None:
    """A layer that needs no row could come before it."""
    _, plan = _fed(_mobile())
    assert [step.kernel.fed for step in plan.steps] == [True] + [False] * (len(plan.steps) - 1)
    later = [step.item for step in plan.steps[1:] if isinstance(step.item, RowLoop)]
    assert not any(isinstance(item, RowStream) for item in later)


def test_the_check_knows_that_it_comes_first() -> None:
    net = Network()
    x = net.layer("first", HALVED, net.input("x", 1, 32, 32, 3), (8, 3, 3, 3))
    _, plan = _fed(net.graph(net.node("flat", Reshape((1, 2048)), x)))
    after = replace(plan.steps[1], kernel=replace(plan.steps[1].kernel, fed=True))
    with pytest.raises(CrtgenError, match="is fed by rows, but runs after first"):
        check_plan(replace(plan, steps=(plan.steps[0], after, *plan.steps[2:])))


def _two_inputs(net: Network) -> str:
    x, z = net.input("x", 1, 8, 8, 4), net.input("z", 1, 8, 8, 4)
    return net.node("add", Add(), x, z)


def _two_readers(net: Network) -> str:
    x = net.input("x", 1, 8, 8, 4)
    return net.node("sub", Sub(), net.layer("a", AROUND, x, (4, 3, 3, 4)), x)


def _no_window(net: Network) -> str:
    return net.node("flat", Reshape((1, 256)), net.input("x", 1, 8, 8, 4))


def _odd_rows(net: Network) -> str:
    return net.layer("a", AROUND, net.input("x", 1, 8, 3, 3), (4, 3, 3, 3))


def _two_images(net: Network) -> str:
    return net.layer("a", AROUND, net.input("x", 2, 8, 8, 4), (4, 3, 3, 4))


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (_two_inputs, "it has 2 inputs; one image comes by rows"),
        (_two_readers, "2 layers read x; one can take its rows"),
        (_no_window, "flat, which reads x, is reshape; convolutions, poolings and what is element by"),
        (_odd_rows, "a row of x has 9 bytes; rows are whole words of 4"),
        (_two_images, "x has 2 images; one at a time comes by rows"),
    ],
)
def test_what_cannot_come_by_rows_is_refused(build: Callable[[Network], str], text: str) -> None:
    net = Network()
    with pytest.raises(UnsupportedError, match=text) as caught:
        _fed(net.graph(build(net)))
    assert "leave --feed out" in caught.value.hint


def test_a_kernel_that_is_fixed_takes_no_rows() -> None:
    graph, target = _mobile(), Target(find_core("cortex-m4"))
    fixed = {"first": select(graph, target)["first"]}
    with pytest.raises(UnsupportedError, match="the tune file has a kernel for first"):
        plan_model(graph, target, fixed=fixed, feed="rows")


@pytest.mark.models
@pytest.mark.parametrize(("core", "most"), [("cortex-m4", 17_000), ("cortex-m55", 18_200)])
def test_vww(core: str, most: int) -> None:
    """The image alone has 27,648 bytes."""
    graph, _ = run_passes(load(model_path("vww_int8")), DEFAULT_PASSES)
    whole, plan = _fed(graph, core)
    assert whole.arena > 29_000
    assert plan.arena <= most


def _in_memory(graph: Graph, core: str = "cortex-m4") -> Plan:
    return plan_model(graph, Target(find_core(core), "ram"))[0]


@pytest.mark.models
@pytest.mark.parametrize(
    ("model", "core", "arena"), [("kws_int8", "cortex-m4", 6000), ("kws_int8", "cortex-m0plus", 7000)]
)
def test_memory_before_time(model: str, core: str, arena: int) -> None:
    """Keyword spotting: one chain from the first layer to the pooling of the whole image."""
    graph, _ = run_passes(load(model_path(model)), DEFAULT_PASSES)
    target = Target(find_core(core), "ram")
    plan, (rewrite,) = plan_model(graph, target)
    (stream,) = (step.item for step in plan.steps if isinstance(step.item, RowStream))
    assert (len(stream.stages), stream.fed) == (10, False)
    assert plan.arena < arena < 0.75 * plan_model(graph, replace(target, optimize="balanced"))[0].arena
    assert rewrite.rule == "stream rows"
    assert "9 images up to conv2d of 8,000 bytes are never whole" in rewrite.text
    assert f"the arena is {plan.arena:,} bytes instead of" in rewrite.text


@pytest.mark.cc
@pytest.mark.parametrize("name", GRAPHS)
def test_streams_in_memory_compute_the_same(tmp_path: Path, name: str) -> None:
    """Also where rows of the image are no whole words, and a mean ends the chain."""
    graph = GRAPHS[name]()
    net = Network()
    x = net.layer("first", AROUND, net.input("x", 1, 9, 5, 3), (16, 3, 3, 3))
    x = net.layer("second", SAME, x, (1, 3, 3, 16), 3)
    mean = net.graph(net.node("mean", Mean((1, 2)), x, quant=Quant.tensor(0.02, 3)))
    for number, network in enumerate((graph, mean)):
        plan = _in_memory(network, "host")
        assert network is graph or any(isinstance(step.item, RowStream) for step in plan.steps)
        runs = [(Run(name, network, {"x": draw(network.values["x"], seed)}), plan) for seed in range(3)]
        folder = tmp_path / str(number)
        folder.mkdir()
        for (run, _), output in zip(runs, run_plans_on_host(folder, runs), strict=True):
            assert not check_outputs(run, output, network.evaluate(run.inputs))


def test_no_rows_are_kept_of_the_image_that_a_chain_begins_with() -> None:
    """An addition of it ends the chain before: what is added is in memory, and no stage makes it."""
    net = Network()
    flat = net.node("flat", Reshape((1, 8, 8, 8)), net.input("x", 1, 8, 8, 8))
    other = net.layer("around", AROUND, net.layer("wide", POINTWISE, flat, (16, 1, 1, 8)), (8, 3, 3, 16))
    graph, target = net.graph(net.node("add", Add(), other, flat)), Target(optimize="ram")
    whole = replace(make_plan(graph, select(graph, target)), arena=1 << 30)
    assert not list(row_streams._ways(whole, target, frozenset(), flat, fed=False))
