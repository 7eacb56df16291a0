"""Windows that are gathered for Helium: of two lines, of parts of a line, of more rows than registers."""

from pathlib import Path

import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target, applicable
from crtgen.compiler.kernels.mve.gather import GatheredWindows
from crtgen.network.ir import DType, Quant
from crtgen.network.ops import Activation, Conv2d, Padding
from crtgen.network.ops.case import Case, int8s, int16s, make, weights_and_bias
from tests.compiler.kernels.harness import MACHINES, Job, run_jobs

_SHAPES = {
    # input, window, stride, dilation, padding
    "two_lines": ((2, 9, 5, 1), (10, 4), (2, 1), (1, 1), (4, 1)),
    "two_lines_of_an_even_image": ((1, 8, 7, 3), (3, 3), (1, 1), (1, 1), (1, 1)),
    "parts_of_a_line": ((2, 4, 80, 3), (3, 3), (1, 1), (1, 1), (1, 1)),
    "one_pixel_more": ((1, 3, 33, 3), (3, 3), (1, 1), (1, 1), (1, 1)),
    "one_pixel_less": ((1, 3, 63, 3), (3, 3), (1, 1), (1, 1), (1, 1)),
    "many_rows_of_words": ((1, 24, 12, 1), (21, 3), (1, 1), (1, 1), (0, 0)),
    "many_rows_of_vectors": ((1, 24, 12, 2), (12, 5), (2, 2), (1, 1), (3, 2)),
    "vectors_in_a_row": ((1, 6, 9, 8), (5, 5), (1, 2), (1, 1), (2, 2)),
    "far_apart": ((1, 7, 16, 5), (3, 3), (1, 2), (2, 3), (0, 0)),
    "far_steps": ((1, 3, 40, 20), (2, 3), (1, 9), (1, 4), (0, 0)),
}


def _case(name: str, dtype: DType) -> Case:
    shape, window, stride, dilation, (y, x) = _SHAPES[name]
    image = int8s("x", shape, 0.05, -3) if dtype is DType.INT8 else int16s("x", shape)
    op = Conv2d(stride, Padding(y, y, x, x), dilation=dilation)
    return make(name, op, [image, *weights_and_bias(name, image, (6, *window, shape[3]), 0, True)])


@pytest.mark.qemu
@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_windows_are_gathered(tmp_path: Path, optimize: str) -> None:
    target = Target(find_core("cortex-m55"), optimize)
    cases = [_case(name, dtype) for name in _SHAPES for dtype in (DType.INT8, DType.INT16)]
    jobs = [Job(c, k) for c in cases for k in applicable(c.op, c.sig, target) if k.design == "mve gathered"]
    names = {job.case.name for job in jobs}
    results = run_jobs(jobs, tmp_path, MACHINES["cortex-m55"], "-O2")
    assert [(job.case.name, r.wrong) for job, r in zip(jobs, results, strict=True) if r.wrong] == []
    assert optimize == "size" or names == {f"conv2d_{name}" for name in _SHAPES}


@pytest.mark.qemu
def test_strides_over_single_pixels(tmp_path: Path) -> None:
    """The weights stay in registers, and the pixels of a line of outputs are gathered."""
    cases = []
    for channels, outputs, stride, size in (
        (16, 32, (2, 2), (9, 16)),
        (3, 6, (1, 3), (4, 11)),
        (8, 4, (3, 1), (7, 6)),
    ):
        image = int8s("x", (1, *size, channels), 0.05, -3)
        name = f"by_{stride[0]}_{stride[1]}"
        op = Conv2d(stride, activation=Activation.RELU)
        constants = weights_and_bias(name, image, (outputs, 1, 1, channels), 0, False)
        cases.append(make(name, op, [image, *constants], Quant.tensor(0.2, -128)))
    target = Target(find_core("cortex-m55"), "speed")
    found = [(case, kernel) for case in cases for kernel in applicable(case.op, case.sig, target)]
    jobs = [Job(case, kernel) for case, kernel in found if kernel.design == "mve stationary gathered"]
    assert len(jobs) == len(cases)
    results = run_jobs(jobs, tmp_path, MACHINES["cortex-m55"], "-O2")
    assert [(job.case.name, r.wrong) for job, r in zip(jobs, results, strict=True) if r.wrong] == []


@pytest.mark.parametrize(
    ("width", "whole", "rest", "lines"),
    [(2, 0, 2, 1), (5, 0, 5, 2), (32, 0, 32, 1), (33, 0, 33, 1), (34, 1, 2, 1), (97, 2, 33, 1)],
)
def test_parts_of_a_line_are_pairs(width: int, whole: int, rest: int, lines: int) -> None:
    """At most one window more than a kilobyte holds, and never a single one."""
    gather = GatheredWindows.of(3, (0,), 9, 3, width, fast=True)
    assert (gather.most, gather.whole, gather.rest, gather.lines) == (32, whole, rest, lines)
    assert whole * gather.most + rest == width
    assert gather.bytes == max(lines * rest, 32 * (whole > 0)) * 32 + 16
