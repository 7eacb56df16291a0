"""Deep layers, of which no register holds two sums, and what is further apart than an offset reaches."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target, applicable
from crtgen.network.ir import Quant, Signature
from crtgen.network.ops import Case, Conv2d, DepthwiseConv2d, FullyConnected, Padding
from crtgen.network.ops.attrs import Activation
from crtgen.network.ops.case import int8s, int16s, make, weights_and_bias
from tests.compiler.kernels.harness import MACHINES, Job, run_jobs
from tests.support import nightly


def _with_weights(case: Case, low: int, share: float = 0.1) -> Case:
    """The same with great weights, ``low`` or positive, and inputs for which their sums are great as well."""
    x, w, b = case.sig.inputs
    drawn = np.random.default_rng(5).choice(
        np.array([low, 100, 120, 127], np.int8), w.shape, p=(share, *[(1 - share) / 3] * 3)
    )
    sig = Signature((x, replace(w, data=drawn), b), case.sig.outputs)
    return replace(case, sig=sig, limits={"x": (-128, -40)})


def _cases() -> Iterator[tuple[Case, str]]:
    """Some of more than 24 bits, some in which -128 is beside a negative weight, and one channel alone."""
    same = Padding(1, 1, 1, 1)
    for depth, outputs, low, per_channel in (
        (1200, 8, -127, True),
        (1203, 7, -127, False),
        (2050, 5, -128, True),
    ):
        if low > -128:
            x = int8s("x", (1, depth), 0.05, -3)
            weights = weights_and_bias("deep", x, (outputs, depth), 0, per_channel)
            made = make("deep", FullyConnected(), [x, *weights], Quant.tensor(60.0, 5))
            yield _with_weights(made, low), "dsp_dense"
        x = int8s("x", (1, 3, 4, depth // 9), 0.05, 7)
        weights = weights_and_bias("deep", x, (outputs, 3, 3, depth // 9), 0, per_channel)
        yield (
            _with_weights(make("deep", Conv2d((1, 1), same), [x, *weights], Quant.tensor(60.0, -7)), low),
            "dsp_matrix",
        )
    x = int8s("x", (1, 5, 3, 6), 0.05, 7)
    weights = weights_and_bias("low", x, (6, 1, 1, 6), 0, True)
    yield _with_weights(make("low", Conv2d(), [x, *weights], Quant.tensor(0.1, -7)), -128, 0.5), "dsp_matrix"
    for step in range(10):  # whose requantisation adds something to sums, before or after
        x = int8s("x", (1, 16, 16, 9), 1.0)
        weights = weights_and_bias("scales", x, (1, 1, 1, 9), 0, False)
        op = Conv2d(activation=Activation.RELU)
        yield make("scales", op, [x, *weights], Quant.tensor(500.0 + 50 * step)), "dsp_matrix"
    for taps in (1, 3):
        for depth, width in ((5, 4), (64, 5), (70, 3), (3, 1)):
            x = int8s("x", (2, 3, width, depth), 0.05, 7)
            weights = weights_and_bias("alone", x, (1, taps, taps, depth), 0, True)
            op = Conv2d((1, 1), Padding(*[taps // 2] * 4))
            yield make("alone", op, [x, *weights], Quant.tensor(0.3, -7)), "dsp_matrix"


@pytest.mark.qemu
@pytest.mark.parametrize("core", ["cortex-m4", nightly("cortex-m7"), nightly("cortex-m33")])
@pytest.mark.parametrize("level", ["speed", "balanced"])
def test_outputs(tmp_path: Path, core: str, level: str) -> None:
    jobs = []
    for case, design in _cases():
        kernel = applicable(case.op, case.sig, Target(find_core(core), level))[0]
        assert kernel.design == design
        jobs.append(Job(case, kernel))
    results = run_jobs(jobs, tmp_path, MACHINES[core])
    assert [r.wrong for r in results if r.wrong] == []


@pytest.mark.qemu
@pytest.mark.parametrize("level", ["speed", "balanced"])
def test_far_pixels(tmp_path: Path, level: str) -> None:
    """With Helium pixels of inputs, windows and pixels of outputs may be further apart than ADD steps."""
    jobs = []
    for taps, depth, outputs, bits in (
        (3, 260, 6, 8),
        (3, 512, 4, 8),
        (1, 4100, 5, 8),
        (1, 12, 4100, 8),
        (3, 2, 2051, 8),
        (1, 20, 2060, 16),
    ):
        x = int8s("x", (1, 3, 5, depth), 0.05, 7) if bits == 8 else int16s("x", (1, 3, 5, depth), 0.0001)
        weights = weights_and_bias("far", x, (outputs, taps, taps, depth), 0, True)
        same = Padding(*[taps // 2] * 4)
        out = Quant.tensor(0.3, -7) if bits == 8 else Quant.tensor(0.0005)
        case = make(f"far_{bits}", Conv2d((1, 1), same), [x, *weights], out)
        kernels = applicable(case.op, case.sig, Target(find_core("cortex-m55"), level))
        assert kernels[0].design.startswith("mve ")
        jobs += [Job(case, kernel) for kernel in kernels if kernel.design.startswith("mve ")]
    results = run_jobs(jobs, tmp_path, MACHINES["cortex-m55"])
    assert [r.wrong for r in results if r.wrong] == []


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("core", "designs"),
    [("cortex-m4", {"dsp_depthwise", "dsp_depthwise_line"}), ("cortex-m55", {"mve lines", "mve patches"})],
)
def test_long_lines(tmp_path: Path, core: str, designs: set[str]) -> None:
    """Depthwise, along one axis and in wide images; Keras gives a step along one axis to both."""
    jobs = []
    for size, taps, stride, bits in (
        ((1, 1000), (1, 5), (1, 1), 8),
        ((1, 1401), (1, 4), (2, 2), 8),
        ((800, 1), (3, 1), (1, 1), 16),
        ((1, 40), (1, 9), (2, 2), 16),
        ((3, 300), (3, 3), (1, 1), 8),
        ((5, 601), (3, 3), (2, 2), 8),
        ((4, 260), (3, 3), (1, 1), 16),
        ((4, 83), (5, 5), (1, 1), 8),
        ((200, 1), (3, 3), (1, 1), 8),
        ((400, 2), (3, 3), (1, 1), 8),
    ):
        shape = (1, *size, 6)
        x = int8s("x", shape, 0.05, 7) if bits == 8 else int16s("x", shape, 0.0001)
        weights = weights_and_bias("line", x, (1, *taps, 6), 3, True)
        padding = Padding(*(n // 2 for n in (taps[0], taps[0], taps[1], taps[1])))
        out = Quant.tensor(0.3, -7) if bits == 8 else Quant.tensor(0.0005)
        case = make(f"line_{bits}", DepthwiseConv2d(stride, padding), [x, *weights], out)
        kernels = applicable(case.op, case.sig, Target(find_core(core), "speed"))
        found = [kernel for kernel in kernels if kernel.design in designs]
        assert found or bits > 8 or (core, taps) == ("cortex-m4", (5, 5))
        jobs += [Job(case, kernel) for kernel in found]
    assert {job.kernel.design for job in jobs} == designs
    results = run_jobs(jobs, tmp_path, MACHINES[core])
    assert [r.wrong for r in results if r.wrong] == []


@pytest.mark.parametrize(("number", "most"), [(0, 1.11), (1, 1.02)])
def test_instructions_of_a_multiplication(number: int, most: float) -> None:
    """About half of what the portable kernel takes."""
    case = list(_cases())[number][0]
    best, *_, portable = applicable(case.op, case.sig, Target(find_core("cortex-m4"), "speed"))
    macs = case.op.macs(case.sig)
    assert macs
    assert best.cost.instructions / macs < most
    assert portable.cost.instructions > 1.9 * best.cost.instructions
