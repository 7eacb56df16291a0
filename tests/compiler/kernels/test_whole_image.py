"""Convolutions of which the only window is the whole image: rows of inputs, as in fully connected layers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target, applicable
from crtgen.network.ir import Quant
from crtgen.network.ops import Case, Conv2d, Padding
from crtgen.network.ops.attrs import Activation
from crtgen.network.ops.case import in_four_bits, int8s, int16s, make, weights_and_bias
from tests.compiler.kernels.harness import MACHINES, Job, run_jobs


def _case(size: tuple[int, int, int], outputs: int, bits: int = 8, padding: Padding | None = None) -> Case:
    x = int8s("x", (1, *size), 0.07, -11) if bits < 16 else int16s("x", (1, *size), 0.0004)
    op = Conv2d((2, 1), padding or Padding(), activation=Activation.RELU)
    out = Quant.tensor(0.9, -20) if bits < 16 else Quant.tensor(0.002)
    case = make("whole", op, [x, *weights_and_bias("whole", x, (outputs, *size), 0, True)], out)
    return in_four_bits(case) if bits == 4 else case


def _cases() -> Iterator[Case]:
    for size, outputs in (((1, 1, 64), 16), ((5, 1, 40), 32), ((3, 2, 7), 5), ((1, 1, 9), 3), ((2, 2, 1), 1)):
        for bits in (8, 16, 4):
            yield _case(size, outputs, bits)


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("core", "least"), [("cortex-m0plus", 5), ("cortex-m3", 5), ("cortex-m4", 9), ("cortex-m55", 9)]
)
def test_outputs(tmp_path: Path, core: str, least: int) -> None:
    target = Target(find_core(core), "speed")
    jobs = [
        Job(case, kernel)
        for case in _cases()
        for kernel in applicable(case.op, case.sig, target)
        if kernel.design.startswith(("dense", "dsp_dense", "mve row"))
    ]
    assert len(jobs) >= least
    results = run_jobs(jobs, tmp_path, MACHINES[core])
    assert [r.wrong for r in results if r.wrong] == []


@pytest.mark.parametrize(
    ("core", "design", "other", "most"),
    [
        ("cortex-m0plus", "dense 8", "gemm 1x4 gathered", 0.7),
        ("cortex-m3", "dense 8", "gemm 1x4 gathered", 0.95),
        ("cortex-m4", "dsp_dense", "dsp_matrix", 0.8),
        ("cortex-m55", "mve row 8", "dsp_matrix", 0.2),
    ],
)
def test_it_is_the_fastest(core: str, design: str, other: str, most: float) -> None:
    """Beside those that compute some pixels at a time, or any kind of window."""
    case = _case((1, 1, 64), 64)
    costs: dict[str, float] = {}
    for kernel in applicable(case.op, case.sig, Target(find_core(core), "speed")):
        costs.setdefault(kernel.design, kernel.cost.instructions)
    assert min(costs, key=lambda name: costs[name]) == design
    assert costs[design] < most * costs[other]


def test_padding_is_no_part_of_a_row() -> None:
    """The only window is as large as the image, but does not lie on it."""
    case = _case((4, 1, 8), 8, padding=Padding(top=1))
    assert case.sig.y.shape == (1, 1, 1, 8)
    for core in ("cortex-m3", "cortex-m55"):
        found = applicable(case.op, case.sig, Target(find_core(core), "speed"))
        assert not any(kernel.design.startswith(("dense", "dsp_dense", "mve row")) for kernel in found)
