"""Two convolutions by rows, in generated C, against one after the other."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.codegen import generate_c
from crtgen.ir import Graph, Node
from crtgen.kernels import Kernel, Target, applicable, select
from crtgen.ops import Case, Conv2d, DepthwiseConv2d, RowStream
from crtgen.ops.case import int8s
from crtgen.plan import Plan, make_plan, stream_rows
from tests.kernels.overlays import overlay
from tests.kernels.program import Run, check_outputs, run_plans_on_host, run_plans_on_qemu
from tests.kernels.stream_cases import SAME, pair, random_case, stream_cases
from tests.passes.networks import Network

CASES = list(stream_cases())
RANDOM = [random_case(number) for number in range(24)]


def _composition(case: Case) -> Graph:
    """The two operators as two nodes."""
    op = case.op
    assert isinstance(op, RowStream)
    x, w1, b1, w2, b2 = (v.name for v in case.sig.inputs)
    nodes = [
        Node("first", op.first, (x, w1, b1), ("middle",)),
        Node("second", op.second, ("middle", w2, b2), ("y",)),
    ]
    return Graph.build("two", [*case.sig.inputs, op.middle, case.sig.y], nodes, ["x"], ["y"])


def _kernel(case: Case, target: Target) -> Kernel:
    (kernel,) = applicable(case.op, case.sig, target)
    return kernel


def _in_place(cases: Sequence[Case], target: Target) -> list[tuple[Run, Plan]]:
    """Every case with its output over its input, at the least lead."""
    runs = []
    for seed, case in enumerate(cases):
        kernel, graph = _kernel(case, target), case.graph()
        (leave,) = kernel.inplace
        run = Run(f"{case.name}: {kernel.design}, lead {leave.lead}", graph, case.inputs(seed))
        runs.append((run, overlay(graph, kernel, leave)))
    return runs


def _check(cases: Sequence[Case], runs: list[tuple[Run, Plan]], outputs: list[bytes]) -> None:
    expected = [_composition(c).evaluate(r.inputs) for c, (r, _) in zip(cases, runs, strict=True)]
    wrong = [check_outputs(r, o, e) for (r, _), o, e in zip(runs, outputs, expected, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_reference_is_one_after_the_other(case: Case) -> None:
    inputs = case.inputs(3)
    expected = _composition(case).evaluate(inputs)["y"]
    assert len(np.unique(expected)) > 5
    np.testing.assert_array_equal(case.graph().evaluate(inputs)["y"], expected)


def _hits(case: Case, op: RowStream, lead: int) -> bool:
    """Whether a block overwrites a byte of a row that a later one reads, by the definition of a window."""
    (_, height, width, channels), (_, out_height, out_width, outputs) = case.sig.x.shape, case.sig.y.shape
    taps = case.sig.inputs[3].shape[1]
    size = case.sig.x.dtype.itemsize
    loaded: set[int] = set()
    blocks = []
    for first in [min(i, out_height - op.rows) for i in range(0, out_height, op.rows)]:
        rows = range(first, first + op.rows)
        span = range(rows[0] * op.second.stride[0], rows[-1] * op.second.stride[0] + 1)
        extent = (taps - 1) * op.second.dilation[0]
        read = {r - op.second.padding.top for r in range(span[0], span[-1] + extent + 1)}
        read = {r for r in read if 0 <= r < height} - loaded
        loaded |= read
        blocks.append((read, (rows[-1] + 1) * out_width * outputs * size))
    for index, (_, end) in enumerate(blocks):
        later = [row for read, _ in blocks[index + 1 :] for row in read]
        if later and end > lead + min(later) * width * channels * size:
            return True
    return False


@pytest.mark.parametrize("case", [*CASES, *RANDOM], ids=lambda c: c.name)
def test_lead_is_the_least(case: Case) -> None:
    assert isinstance(case.op, RowStream)
    (leave,) = _kernel(case, Target()).inplace
    assert not _hits(case, case.op, leave.lead)
    assert leave.lead == 0 or _hits(case, case.op, leave.lead - 1)


def test_some_lead_and_some_do_not() -> None:
    leads = [_kernel(case, Target()).inplace[0].lead for case in CASES]
    assert min(leads) == 0 < max(leads)


@pytest.mark.cc
def test_host_in_place(tmp_path: Path) -> None:
    cases = [*CASES, *RANDOM]
    runs = _in_place(cases, Target())
    _check(cases, runs, run_plans_on_host(tmp_path, runs))


@pytest.mark.qemu
@pytest.mark.parametrize("optimize", ["balanced", "size"])
@pytest.mark.parametrize(
    ("machine", "core"),
    [("mps2-an385", "cortex-m3"), ("mps2-an386", "cortex-m4"), ("mps3-an547", "cortex-m55")],
)
def test_qemu_in_place(tmp_path: Path, machine: str, core: str, optimize: str) -> None:
    target = Target(find_core(core), optimize)
    cases = [*CASES, *RANDOM]
    runs = _in_place(cases, target)
    _check(cases, runs, run_plans_on_qemu(tmp_path, runs, machine, target.core))


@pytest.mark.parametrize(
    ("core", "designs"),
    [
        ("cortex-m3", "2 rows of gemm 2x4, depthwise ring 2x1"),
        ("cortex-m4", "2 rows of dsp_matrix, dsp_depthwise"),
        ("cortex-m55", "2 rows of mve pixels, mve patches"),
    ],
)
def test_parts_are_the_cores_own_designs(core: str, designs: str) -> None:
    x = int8s("x", (1, 12, 12, 8))
    case = pair("designs", x, 16, DepthwiseConv2d((1, 1), SAME), (1, 3, 3, 16), 2)
    assert _kernel(case, Target(find_core(core))).design == designs


def test_streams_of_one_shape_share_their_functions() -> None:
    """Two in a row, with weights of their own."""
    net = Network()
    x = net.input("x", 1, 24, 24, 8, zero_point=3)
    for name in "ab":
        middle = net.layer(f"{name}_widen", Conv2d(), x, (32, 1, 1, 8))
        x = net.layer(f"{name}_narrow", Conv2d((1, 1), SAME), middle, (8, 3, 3, 32))
    graph, target = net.graph(x), Target()
    plan, _ = stream_rows(make_plan(graph, select(graph, target), exact=False), target, exact=False)
    module = generate_c(plan, "net")
    one, two = module.info.layers
    assert one.function == two.function == "net_row_stream_2"
    assert one.parts == two.parts == ("net_conv2d_0", "net_conv2d_1")
    assert not set(one.consts) & set(two.consts)
    for function in (one.function, *one.parts):
        assert module.files["net_kernels.c"].count(f"void {function}(") == 1


@pytest.mark.parametrize(
    ("shape", "second"),
    [
        ((2, 6, 6, 8), DepthwiseConv2d((1, 1), SAME)),
        ((1, 6, 5, 3), DepthwiseConv2d((1, 1), SAME)),
        ((1, 9, 9, 8), DepthwiseConv2d((4, 1))),
    ],
    ids=["two images", "rows of 15 bytes", "rows that nothing reads"],
)
def test_what_no_stream_computes(shape: tuple[int, ...], second: DepthwiseConv2d) -> None:
    case = pair("none", int8s("x", shape), 8, second, (1, 3, 3, 8), 2)
    assert applicable(case.op, case.sig, Target()) == []
