"""Chains of layers by rows, in generated C, against one layer after the other."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.codegen import generate_c
from crtgen.compiler.kernels import Kernel, Target, select
from crtgen.compiler.kernels.portable.resize import lines_of
from crtgen.compiler.plan import Plan, loop_over_rows, make_plan
from crtgen.network.ir import Graph, Node, Signature, Value
from crtgen.network.ops import (
    Add,
    AveragePool2d,
    Case,
    Conv2d,
    DepthwiseConv2d,
    MaxPool2d,
    Padding,
    Relu,
    ResizeBilinear,
    ResizeBytes,
    ResizeNearest,
)
from crtgen.network.ops.case import floats, int8s, make
from tests.compiler.kernels.chains import Chain, Joined, Stage, SumBeside, loop_kernels, stream_kernels
from tests.compiler.kernels.overlays import guarded
from tests.compiler.kernels.program import Run, check_outputs, run_plans_on_host, run_plans_on_qemu
from tests.compiler.kernels.row_loop_cases import (
    SAME,
    Beside,
    Constants,
    Layer,
    chain,
    random_case,
    row_loop_cases,
)
from tests.network.passes.networks import Network
from tests.support import nightly

CASES = list(row_loop_cases())
RANDOM = [random_case(number) for number in range(20)]


def _stream(case: Case) -> Chain:
    assert isinstance(case.op, Chain)
    return case.op


def _composition(case: Case) -> Graph:
    """The stages as nodes."""
    op = _stream(case)
    images = ["x", *(value.name for value in op.between), "y"]
    nodes: list[Node] = []
    for number, stage in enumerate(op.stages):
        others = [case.sig.inputs[i].name for i in op.inputs_of(number)]
        if isinstance(stage, SumBeside):
            projected = stage.projected.name
            nodes.append(Node(f"beside{number}", stage.layer, tuple(others), (projected,)))
            stage, others = stage.add, [projected]
        nodes.append(Node(f"n{number}", stage, (images[number], *others), (images[number + 1],)))
    values = {v.name: v for v in (*case.sig.inputs, *op.inner, case.sig.y)}
    return Graph.build("chain", list(values.values()), nodes, case.graph().inputs, ["y"])


def _kernel(case: Case, target: Target) -> Kernel:
    (kernel,) = loop_kernels(case.op, case.sig, target)
    return kernel


def _in_place(cases: Sequence[Case], target: Target) -> Iterator[tuple[Run, Plan]]:
    """Every case with its output over each of its inputs, at the least lead, among guards; streams, too."""
    for seed, case in enumerate(cases):
        graph, drawn = case.graph(), case.inputs(seed)
        streams = stream_kernels(case.op, case.sig, target, fed=False)
        for kernel, over in product((_kernel(case, target), *streams), graph.inputs):
            whole, plan = guarded(graph, kernel, over)
            guards = {name: np.full(64, 0x5A, np.int8) for name in whole.inputs if name not in drawn}
            yield Run(f"{case.name}: {kernel.design} over {over}", whole, {**drawn, **guards}), plan


def _wrong(cases: Sequence[Case], runs: Sequence[tuple[Run, Plan]], outputs: Sequence[bytes]) -> list[str]:
    compositions = {case.name: _composition(case) for case in cases}
    found = []
    for (run, _), output in zip(runs, outputs, strict=True):
        composition = compositions[run.name.split(":")[0]]
        y = composition.evaluate({name: run.inputs[name] for name in composition.inputs})
        found.append(check_outputs(run, output, {**run.inputs, **y}))
    return [text for text in found if text]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_reference_is_one_after_the_other(case: Case) -> None:
    inputs = case.inputs(3)
    expected = _composition(case).evaluate(inputs)["y"]
    assert len(np.unique(expected)) > 5
    np.testing.assert_array_equal(case.graph().evaluate(inputs)["y"], expected)


def _rows_read(stage: Stage, sig: Signature, made: range) -> set[int]:
    """Rows of its image that the windows of a stage span for these rows of its output."""
    if isinstance(stage, Add | Joined | SumBeside):
        return set(made)
    if isinstance(stage, ResizeNearest):
        return {int(row) for row in stage.sources(sig)[0][made.start : made.stop]}
    if isinstance(stage, ResizeBilinear | ResizeBytes):
        lines = lines_of(stage, sig)[0]
        return {int(row) for rows in (lines.lower, lines.upper) for row in rows[made.start : made.stop]}
    taps, spread = (
        (stage.window[0], 1)
        if isinstance(stage, AveragePool2d | MaxPool2d)
        else (sig.inputs[1].shape[1], stage.dilation[0])
    )
    span = range((taps - 1) * spread + 1)
    rows = {y * stage.stride[0] + row - stage.padding.top for y in made for row in span}
    return {row for row in rows if 0 <= row < sig.x.shape[1]}


def _reads(case: Case) -> Iterator[tuple[int, dict[int, set[int]]]]:
    """For each block, the end of its rows, and the rows of each input that are read for it."""
    op = _stream(case)
    done = [0] * len(op.stages)
    for end in range(op.rows, case.sig.y.shape[1] + 1, op.rows):
        reads: dict[int, set[int]] = {}
        wanted = end
        for number, sig in reversed(list(enumerate(op.signatures(case.sig)))):
            made = range(done[number], max(done[number], wanted))
            done[number] = made.stop
            image = _rows_read(op.stages[number], sig, made)
            wanted = max(image, default=-1) + 1
            stage, others = op.stages[number], op.inputs_of(number)
            if isinstance(stage, SumBeside):
                reads[others[0]] = _rows_read(stage.layer, stage.signatures(sig)[0], made)
            elif isinstance(stage, Add | Joined):
                reads[others[0]] = set(made)
        yield end, {**reads, 0: image}


def _hits(case: Case, index: int, lead: int) -> bool:
    """True if a block overwrites a byte of an input's row that a later one reads, or that the block itself
    reads while it writes.
    """
    op, blocks = _stream(case), list(_reads(case))
    own = 0 if isinstance(op.stages[-1], Joined) and index in op.inputs_of(len(op.stages) - 1) else 1
    image, y = case.sig.inputs[index], case.sig.y
    row, out_row = image.nbytes // image.shape[1], y.nbytes // y.shape[1]
    for number, (end, _) in enumerate(blocks):
        later = [r for _, reads in blocks[number + own :] for r in reads[index]]
        if later and end * out_row > lead + min(later) * row:
            return True
    return False


@pytest.mark.parametrize("case", [*CASES, *RANDOM], ids=lambda c: c.name)
def test_lead_is_the_least(case: Case) -> None:
    for leave in _kernel(case, Target()).inplace:
        assert not _hits(case, leave.input, leave.lead)
        assert leave.lead == 0 or _hits(case, leave.input, leave.lead - 1)


def test_what_a_stream_has_taken_is_free() -> None:
    leads = [
        (kernel.inplace[0].lead, _kernel(case, Target()).inplace[0].lead)
        for case in CASES
        for kernel in stream_kernels(case.op, case.sig, Target(), fed=False)
        if kernel.inplace
    ]
    assert all(stream <= loop for stream, loop in leads)
    assert any(stream < loop for stream, loop in leads)


def test_some_lead_and_some_do_not() -> None:
    leads = [leave.lead for case in CASES for leave in _kernel(case, Target()).inplace]
    assert min(leads) == 0 < max(leads)


def test_a_residual_block_lies_over_its_input() -> None:
    """Two 3x3 layers and the addition of the block's input: no row of it is overwritten too early."""
    for case in CASES:
        if "block" in case.name:
            assert {leave.lead for leave in _kernel(case, Target()).inplace} == {0}


@pytest.mark.cc
@pytest.mark.parametrize("cases", [CASES, nightly(RANDOM)], ids=["cases", "random"])
def test_host_in_place(tmp_path: Path, cases: list[Case]) -> None:
    runs = list(_in_place(cases, Target()))
    assert not _wrong(cases, runs, run_plans_on_host(tmp_path, runs))


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("machine", "core", "optimize"),
    [
        nightly("mps2-an385", "cortex-m3", "balanced"),
        nightly("mps2-an386", "cortex-m4", "speed"),
        nightly("mps2-an386", "cortex-m4", "size"),
        nightly("mps2-an505", "cortex-m33", "balanced"),
        ("mps3-an547", "cortex-m55", "balanced"),
        nightly("mps3-an547", "cortex-m55", "size"),
    ],
)
@pytest.mark.parametrize("cases", [CASES, nightly(RANDOM)], ids=["cases", "random"])
def test_qemu_in_place(tmp_path: Path, machine: str, core: str, optimize: str, cases: list[Case]) -> None:
    target = Target(find_core(core), optimize)
    runs = list(_in_place(cases, target))
    assert not _wrong(cases, runs, run_plans_on_qemu(tmp_path, runs, machine, target.core))


@pytest.mark.cc
def test_guards_see_scratch_that_is_too_short(tmp_path: Path) -> None:
    case = next(c for c in CASES if c.name.endswith("block_by_3"))
    kernel = _kernel(case, Target())
    graph, plan = guarded(case.graph(), replace(kernel, scratch=kernel.scratch - 64), "x")
    guards = {name: np.full(64, 0x5A, np.int8) for name in graph.inputs if name != "x"}
    runs = [(Run(f"{case.name}: short", graph, {**case.inputs(0), **guards}), plan)]
    (text,) = _wrong([case], runs, run_plans_on_host(tmp_path, runs))
    assert "guard2[" in text


@pytest.mark.parametrize(
    ("core", "designs"),
    [
        ("cortex-m3", ["pairs 4", "base_depthwise_fields"]),
        ("cortex-m4", ["dsp_matrix", "dsp_depthwise"]),
        ("cortex-m55", ["mve pixels", "mve patches"]),
    ],
)
def test_parts_are_the_cores_own_designs(core: str, designs: list[str]) -> None:
    layers: list[Layer] = [(Conv2d(), (1, 1, 16)), (DepthwiseConv2d((1, 1), SAME), (3, 3, 16))]
    case = chain("designs", int8s("x", (1, 12, 12, 8)), layers, 2)
    kernel = _kernel(case, Target(find_core(core)))
    assert kernel.design == "2 rows at a time"
    assert [part.kernel.design for part in kernel.parts] == designs
    assert [part.calls for part in kernel.parts] == [12, 6]


def test_streams_of_one_shape_share_their_functions() -> None:
    """Two in a row, with weights of their own."""
    net = Network()
    x = net.input("x", 1, 24, 24, 8, zero_point=3)
    for name in "ab":
        middle = net.layer(f"{name}_widen", Conv2d(), x, (32, 1, 1, 8))
        y = net.layer(f"{name}_narrow", Conv2d((1, 1), SAME), middle, (8, 3, 3, 32))
        x = net.node(f"{name}_clamp", Relu(), y)
    graph, target = net.graph(x), Target()
    plan, _ = loop_over_rows(make_plan(graph, select(graph, target)), target)
    module = generate_c(plan, "net")
    one, _, two, _ = module.info.layers
    assert one.function == two.function == "net_row_loop_2"
    assert one.parts == two.parts == ("net_conv2d_0", "net_conv2d_1")
    assert not set(one.consts) & set(two.consts)
    for function in (one.function, *one.parts):
        assert module.files["net_kernels.c"].count(f"void {function}(") == 1


def test_what_a_projection_calls_is_part_of_its_layer() -> None:
    """The parts of a layer are all functions that run, those that parts call among them."""
    net = Network()
    x = net.input("x", 1, 32, 32, 16)
    y = net.layer("halve", Conv2d((2, 2), Padding(0, 1, 0, 1)), x, (32, 3, 3, 16))
    y = net.layer("same", Conv2d((1, 1), SAME), y, (32, 3, 3, 32))
    graph = net.graph(net.node("add", Add(), y, net.layer("beside", Conv2d((2, 2)), x, (32, 1, 1, 16))))
    target = Target()
    plan, _ = loop_over_rows(make_plan(graph, select(graph, target)), target)
    module = generate_c(plan, "net")
    (layer,) = module.info.layers
    assert layer.function == "net_row_loop_5"
    beside = ("net_add_shortcut_4", "net_conv2d_2", "net_add_3")
    assert layer.parts == ("net_conv2d_0", "net_conv2d_1", *beside)
    assert layer.macs == 32 * 16 * 16 * (9 * 16 + 9 * 32 + 16)
    named = [(o.name, o.operator, o.macs) for o in layer.operators]
    each = 32 * 16 * 16
    assert named == [
        ("halve", "conv2d", each * 9 * 16),
        ("same", "conv2d", each * 9 * 32),
        ("beside", "conv2d", each * 16),
        ("add", "add", 0),
    ]
    shares = [o.share for o in layer.operators]
    assert sum(shares) == pytest.approx(1)
    assert shares[1] > shares[0] > shares[2] > shares[3] > 0


POINTWISE: Layer = (Conv2d(), (1, 1, 8))
AROUND: Layer = (DepthwiseConv2d((1, 1), SAME), (3, 3, 8))


@pytest.mark.parametrize(
    ("shape", "layers"),
    [
        ((2, 6, 6, 8), [POINTWISE, AROUND]),
        ((1, 6, 5, 3), [POINTWISE, AROUND]),
        ((1, 9, 9, 8), [POINTWISE, (DepthwiseConv2d((4, 1)), (3, 3, 8))]),
        ((1, 8, 8, 8), [POINTWISE, AveragePool2d((3, 3), (1, 1), SAME)]),
    ],
    ids=["two images", "rows of 15 bytes", "rows that nothing reads", "an average with padding"],
)
def test_what_no_stream_computes(shape: tuple[int, ...], layers: list[Layer]) -> None:
    case = chain("none", int8s("x", shape), layers, 2)
    assert loop_kernels(case.op, case.sig, Target()) == []


def test_no_padding_of_float_maxima() -> None:
    layers: list[Layer] = [POINTWISE, MaxPool2d((3, 3), (1, 1), SAME)]
    case = chain("none", floats("x", (1, 8, 8, 8)), layers, 2)
    assert loop_kernels(case.op, case.sig, Target()) == []


@pytest.mark.parametrize("constant", [True, False])
def test_an_operand_that_is_no_image_is_not_streamed(constant: bool) -> None:
    case = chain("add", int8s("x", (1, 4, 4, 8)), [POINTWISE, Add()], 2)
    x, w, b, other = case.sig.inputs
    operand = (
        Value.constant("c", np.ones(other.shape, np.int8), other.quant) if constant else int8s("c", (8,), 0.1)
    )
    changed = make("other", case.op, [x, w, b, operand], case.sig.y.quant)
    assert loop_kernels(changed.op, changed.sig, Target()) == []


BESIDE: Constants = (Conv2d((2, 2)), (1, 1, 8))
HALVED: Layer = (Conv2d((2, 2), Padding(0, 1, 0, 1)), (3, 3, 8))


@pytest.mark.parametrize(
    ("shape", "beside"),
    [
        ((1, 8, 8, 8), (Conv2d((2, 2), Padding(1, 0, 0, 1)), (3, 3, 8))),
        ((1, 8, 8, 8), (Conv2d((2, 2), Padding(0, 1, 0, 1)), (3, 3, 8))),
        ((1, 8, 8, 8), (Conv2d((2, 2)), (1, 1, 1))),
    ],
    ids=["padding above", "padding below", "one channel for all"],
)
def test_what_is_not_made_beside(shape: tuple[int, ...], beside: Constants) -> None:
    case = chain("beside", int8s("x", shape), [HALVED, Beside(Add(), beside)], 2)
    assert loop_kernels(case.op, case.sig, Target()) == []
    fits = chain("beside", int8s("x", shape), [HALVED, Beside(Add(), BESIDE)], 2)
    assert len(loop_kernels(fits.op, fits.sig, Target())) == 1


@pytest.mark.parametrize("index", [0, 3])
def test_a_constant_image_is_not_streamed(index: int) -> None:
    case = chain("c", int8s("x", (1, 8, 8, 8)), [HALVED, Beside(Add(), BESIDE)], 2)
    image = Value.constant("c", np.ones((1, 8, 8, 8), np.int8), case.sig.x.quant)
    inputs = [image if i == index else value for i, value in enumerate(case.sig.inputs)]
    changed = make("c", case.op, inputs, case.sig.y.quant)
    assert loop_kernels(changed.op, changed.sig, Target()) == []


@pytest.mark.parametrize(("rows", "works"), [(1, True), (5, False), (12, True), (24, False), (0, False)])
def test_rows_divide_the_height(rows: int, works: bool) -> None:
    if works:
        assert chain("rows", int8s("x", (1, 12, 4, 8)), [POINTWISE, AROUND], rows).sig.y.shape[1] == 12
        return
    with pytest.raises(ValueError, match=f"{rows} rows at a time of 12"):
        chain("rows", int8s("x", (1, 12, 4, 8)), [POINTWISE, AROUND], rows)


def test_padding_below_is_known() -> None:
    """Stride 2 on an even height pads at the bottom alone: the last window is copied, the others are not."""
    layers: list[Layer] = [(Conv2d((2, 2), Padding(0, 1, 0, 1)), (3, 3, 8)), POINTWISE]
    case = chain("bottom", int8s("x", (1, 8, 8, 8)), layers, 1)
    (first, _) = _kernel(case, Target()).view.stages
    assert (first.padded, first.top, first.last_top) == (True, 0, 5)
