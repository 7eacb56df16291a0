"""Depthwise convolutions in fields: exact, at the ends of ranges too, and what they cost."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Kernel, Target, applicable
from crtgen.network.ir import Quant, Signature
from crtgen.network.ops import Case, DepthwiseConv2d, Padding
from crtgen.network.ops.attrs import Activation
from crtgen.network.ops.case import in_four_bits, int8s, make, weights_and_bias
from tests.compiler.kernels.harness import MACHINES, Job, run_jobs
from tests.support import nightly


def _case(
    size: tuple[int, int, int, int],
    window: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    padding: Padding | None = None,
    out: Quant | None = None,
    activation: Activation = Activation.NONE,
    zero_point: int = 7,
) -> Case:
    x = int8s("x", size, 0.05, zero_point)
    parts = weights_and_bias("fields", x, (1, *window, size[3]), 3, True)
    rows, columns = window
    same = Padding(rows // 2, rows // 2, columns // 2, columns // 2)
    op = DepthwiseConv2d(stride, same if padding is None else padding, activation=activation)
    return make("fields", op, [x, *parts], out or Quant.tensor(0.25, -7))


def _extreme(window: tuple[int, int], low: int) -> Case:
    """Weights and inputs that are as great as there are."""
    case = _case((1, 6, 7, 4), window, out=Quant.tensor(20.0, 3))
    x, w, b = case.sig.inputs
    drawn = np.random.default_rng(3).choice(np.array([low, 127], np.int8), w.shape)
    drawn[..., 0], drawn[..., 1] = low, 127
    sig = Signature((x, replace(w, data=drawn), b), case.sig.outputs)
    return replace(case, sig=sig, limits={"x": (-128, -127)})


def _cases() -> Iterator[Case]:
    for width in range(2, 10):  # all that can be left of a block of four
        yield _case((1, 5, width, 3), (5, 5))
    for window in ((3, 3), (1, 7), (7, 7), (2, 5), (5, 3), (3, 7)):
        yield _case((1, 9, 11, 6), window)
        yield _case((2, 9, 12, 5), window, padding=Padding())
    for window in ((3, 3), (5, 5), (7, 7), (5, 4)):
        yield _case((1, 11, 13, 6), window, (2, 2))
        yield _case((1, 12, 14, 5), window, (2, 2), Padding(1, 2, 1, 2))
    yield _case((1, 8, 8, 4), (5, 5), (1, 2), Padding(0, 0, 1, 0))
    yield _case((1, 8, 8, 4), (5, 5), (2, 1), Padding(2, 2, 3, 1))
    yield _case((1, 6, 5, 300), (5, 5), activation=Activation.RELU)
    yield _case((1, 6, 6, 8), (5, 5), out=Quant.tensor(0.02, 0))
    yield _case((1, 6, 6, 8), (5, 5), out=Quant.tensor(0.9, 100), activation=Activation.RELU6)
    yield _case((1, 6, 6, 8), (5, 5), zero_point=-128)
    yield _case((1, 6, 6, 8), (5, 5), zero_point=127)
    yield in_four_bits(_case((1, 6, 7, 6), (5, 5)))
    yield in_four_bits(_case((2, 9, 8, 5), (7, 7), (2, 2)))
    yield from (_extreme((5, 5), -127), _extreme((7, 7), -128), _extreme((3, 3), 120))


def _kernel(case: Case, core: str, level: str = "speed") -> Kernel:
    found = applicable(case.op, case.sig, Target(find_core(core), level))
    return next(kernel for kernel in found if kernel.design.endswith("_depthwise_fields"))


@pytest.mark.qemu
@pytest.mark.parametrize("core", ["cortex-m3", "cortex-m4", nightly("cortex-m7"), nightly("cortex-m33")])
def test_outputs(tmp_path: Path, core: str) -> None:
    """In place, too, and at the ends of memory, as the harness runs all."""
    kernels = ((case, _kernel(case, core, level)) for case in _cases() for level in ("speed", "size"))
    results = run_jobs([Job(*both) for both in kernels], tmp_path, MACHINES[core])
    assert [r.wrong for r in results if r.wrong] == []


@pytest.mark.parametrize(
    ("size", "window", "stride", "per_mac"),
    [
        ((24, 24, 32), (5, 5), (1, 1), 1.19),
        ((24, 24, 32), (7, 7), (1, 1), 0.84),
        ((24, 24, 32), (7, 7), (2, 2), 1.30),
    ],
)
def test_instructions(
    size: tuple[int, int, int], window: tuple[int, int], stride: tuple[int, int], per_mac: float
) -> None:
    """The kernel for any window takes 2.16 and more; it is not chosen for these."""
    case = _case((1, *size), window, stride, activation=Activation.RELU6)
    kernels = applicable(case.op, case.sig, Target(find_core("cortex-m4"), "speed"))
    kernel = _kernel(case, "cortex-m4")
    assert kernel.cost.instructions <= per_mac * case.sig.y.elements * window[0] * window[1]
    assert kernel.cost.time == min(k.cost.time for k in kernels)


def test_sums_that_leave_their_fields() -> None:
    """64 products of -128 are as much as a field holds; its outer ones hold a half of that."""
    for window, fits in (((7, 7), True), ((9, 7), False)):
        case = _extreme(window, -128)
        found = applicable(case.op, case.sig, Target(find_core("cortex-m4"), "speed"))
        assert any(k.design.endswith("_depthwise_fields") for k in found) == fits
