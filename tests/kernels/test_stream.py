"""Two convolutions by rows, in generated C, against one after the other."""

from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.ir import Graph, Node
from crtgen.kernels import Kernel, Target, applicable
from crtgen.ops import Case, DepthwiseConv2d, RowStream
from crtgen.ops.case import int8s
from crtgen.plan import Plan
from tests.kernels.overlays import overlay
from tests.kernels.program import Run, check_outputs, run_plans_on_host, run_plans_on_qemu
from tests.kernels.stream_cases import SAME, pair, stream_cases

CASES = list(stream_cases())


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


def _in_place(target: Target) -> list[tuple[Run, Plan]]:
    """Every case with its output over its input, at the least lead."""
    runs = []
    for seed, case in enumerate(CASES):
        kernel, graph = _kernel(case, target), case.graph()
        (leave,) = kernel.inplace
        run = Run(f"{case.name}: {kernel.design}, lead {leave.lead}", graph, case.inputs(seed))
        runs.append((run, overlay(graph, kernel, leave)))
    return runs


def _check(runs: list[tuple[Run, Plan]], outputs: list[bytes]) -> None:
    expected = [_composition(c).evaluate(r.inputs) for c, (r, _) in zip(CASES, runs, strict=True)]
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


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
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
    runs = _in_place(Target())
    _check(runs, run_plans_on_host(tmp_path, runs))


@pytest.mark.qemu
@pytest.mark.parametrize("optimize", ["balanced", "size"])
@pytest.mark.parametrize(
    ("machine", "core"),
    [("mps2-an385", "cortex-m3"), ("mps2-an386", "cortex-m4"), ("mps3-an547", "cortex-m55")],
)
def test_qemu_in_place(tmp_path: Path, machine: str, core: str, optimize: str) -> None:
    target = Target(find_core(core), optimize)
    runs = _in_place(target)
    _check(runs, run_plans_on_qemu(tmp_path, runs, machine, target.core))


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
