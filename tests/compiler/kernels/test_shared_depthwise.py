"""The depthwise function that layers share: outputs in place and at the ends of memories, and its cost."""

from pathlib import Path

import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Kernel, Target, applicable
from crtgen.compiler.kernels.engine.kernel import InPlace
from crtgen.network.ir import Quant
from crtgen.network.ops import Activation, Case, DepthwiseConv2d, Padding
from crtgen.network.ops.case import int8s, make, weights_and_bias
from tests.compiler.kernels.harness import Job, guarded, run_jobs

pytestmark = pytest.mark.qemu

_PAIR = tuple[int, int]


def _case(
    image: tuple[int, int, int],
    taps: _PAIR = (3, 3),
    stride: _PAIR = (1, 1),
    dilation: _PAIR = (1, 1),
    padding: Padding | None = None,
    activation: Activation = Activation.NONE,
) -> Case:
    """SAME without another padding; outputs use their range."""
    around = padding or Padding.same(image[:2], taps, stride, dilation)
    x = int8s("x", (1, *image), 0.05, -11)
    constants = weights_and_bias(f"{image}{taps}", x, (1, *taps, image[2]), 3, True)
    op = DepthwiseConv2d(stride, around, dilation, 1, activation)
    return make(f"{image} {taps} {stride}", op, [x, *constants], Quant.tensor(0.2, 7))


_ONTO = [
    _case((25, 5, 64)),
    _case((6, 4, 32), activation=Activation.RELU6),
    _case((7, 1, 48), taps=(4, 1)),
    _case((5, 9, 32), taps=(4, 4)),
    _case((4, 6, 32), taps=(1, 3)),
    _case((3, 6, 32), taps=(2, 2), padding=Padding(1, 0, 0, 1)),
    _case((1, 7, 80), taps=(3, 3)),
    _case((2, 3, 32)),
    _case((9, 8, 32), taps=(3, 2), dilation=(1, 3)),
]
"""16 channels at a time."""

_WHOLE = [
    _case((8, 9, 16)),
    _case((7, 5, 24)),
    _case((5, 3, 2), activation=Activation.RELU),
    _case((13, 12, 64), stride=(2, 2)),
    _case((9, 10, 33), stride=(2, 2), activation=Activation.RELU_N1_1),
    _case((12, 8, 32), stride=(3, 1), padding=Padding(0, 0, 0, 0)),
    _case((14, 7, 8), taps=(2, 3), stride=(4, 2), padding=Padding(0, 0, 1, 2)),
    _case((9, 9, 32), dilation=(2, 2)),
    _case((11, 6, 7), taps=(4, 2), dilation=(3, 1), padding=Padding(2, 5, 0, 1)),
    _case((4, 4, 32), padding=Padding(3, 3, 2, 3)),
    _case((2, 2, 32), taps=(4, 4), padding=Padding(3, 3, 3, 3)),
    _case((6, 20, 3), taps=(1, 1)),
]


def _kernel(case: Case) -> Kernel:
    found = applicable(case.op, case.sig, Target(find_core("cortex-m55"), "size"))
    return next(kernel for kernel in found if kernel.design == "mve patches shared")


@pytest.mark.parametrize("cases", [_ONTO, _WHOLE], ids=["onto", "whole"])
def test_outputs_and_cost(tmp_path: Path, cases: list[Case]) -> None:
    """Costs are within 5 %, for every layer of 5,000 instructions or more."""
    kernels = [_kernel(case) for case in cases]
    jobs = [Job(case, kernel) for case, kernel in zip(cases, kernels, strict=True)]
    results = run_jobs(jobs, tmp_path, guarded("cortex-m55"), "-Os")
    wrong = [(c.name, r.wrong) for c, r in zip(cases, results, strict=True) if r.wrong]
    assert not wrong
    pairs = zip(kernels, results, strict=True)
    counted = [(k.cost.instructions, r.instructions) for k, r in pairs if r.instructions > 5_000]
    assert counted
    assert all(abs(cost / count - 1) <= 0.05 for cost, count in counted), counted


def test_memory() -> None:
    """An image of the same size is written onto itself, and scratch is for 16 channels."""
    kws, strided = _kernel(_ONTO[0]), _kernel(_case((13, 12, 64), stride=(2, 2)))
    assert (kws.inplace, kws.scratch) == ((InPlace(exact=True),), 10 * 16 * 4 + 16)
    assert strided.inplace == (InPlace(lead=0),)
    assert all(_kernel(case).inplace == (InPlace(exact=True),) for case in _ONTO)
    assert not any(leave.exact for case in _WHOLE for leave in _kernel(case).inplace)
