"""Bilinear resizing with the DSP extension, beside the portable kernel."""

from collections.abc import Callable
from pathlib import Path

import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target, applicable
from crtgen.compiler.kernels.portable.resize import spare_bits
from crtgen.network.ir import Value
from crtgen.network.ops.case import int8s, int16s, make
from crtgen.network.ops.resize import ResizeBilinear
from tests.compiler.kernels.harness import Job, guarded, run_jobs

_TARGET = Target(find_core("cortex-m4"), "speed")


@pytest.mark.parametrize(("channels", "most"), [(16, 0.6), (3, 0.6), (1, 0.8)])
@pytest.mark.parametrize("values", [int8s, int16s])
def test_instructions(values: Callable[..., Value], channels: int, most: float) -> None:
    case = make("twice", ResizeBilinear((16, 16)), [values("x", (1, 8, 8, channels))])
    costs = {k.design: k.cost.instructions for k in applicable(case.op, case.sig, _TARGET)}
    assert costs["dsp bilinear"] / costs["bilinear"] < most


@pytest.mark.qemu
def test_outputs(tmp_path: Path) -> None:
    """Channels and rows that fill no word, larger and smaller ones, each of TFLite's ways to find pixels."""
    jobs = []
    for number, (shape, size) in enumerate(
        (((2, 3, 5, 3), (7, 4)), ((1, 9, 2, 5), (4, 9)), ((1, 1, 3, 2), (3, 8)))
    ):
        for how in ({}, {"align_corners": True}, {"half_pixel_centers": True}):
            case = make(f"{number}", ResizeBilinear(size, **how), [int8s("x", shape)])
            jobs += [
                Job(case, k) for k in applicable(case.op, case.sig, _TARGET) if k.design == "dsp bilinear"
            ]
    results = run_jobs(jobs, tmp_path, guarded("cortex-m4"))
    assert len(results) == 9
    assert [r.wrong for r in results if r.wrong] == []


@pytest.mark.parametrize(
    ("size", "spare"),
    [((16, 16), 9), ((16, 32), 8), ((16, 128), 6), ((16, 24), 0), ((8, 7), 0), ((3, 8), 9), ((24, 16), 9)],
)
def test_spare_bits(size: tuple[int, int], spare: int) -> None:
    """Shares of columns that are multiples of a power of two leave sums of 32 bits; those of rows do not
    matter.
    """
    op = ResizeBilinear(size)
    assert spare_bits(op, make("of", op, [int16s("x", (1, 8, 8, 1))]).sig) == spare
    assert spare_bits(op, make("of", op, [int8s("x", (1, 8, 8, 1))]).sig) == 0
