"""Layers of int16 with the DSP extension: what they cost, and where 32 bits do not hold their sums."""

from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Kernel, Target, applicable
from crtgen.network.ir import DType, Op, Quant, Value
from crtgen.network.ops import Case, Conv2d, DepthwiseConv2d, FullyConnected, Logistic, Padding, Softmax, Tanh
from crtgen.network.ops.case import int16s, make, weights_and_bias
from crtgen.network.ops.fft import Irfft, Rfft
from tests.compiler.kernels.program import Run, check_outputs, plan_runs, run_plans_on_qemu

_TARGET = Target(find_core("cortex-m4"), "speed")
_SAME = Padding(1, 1, 1, 1)


def _kernel(case: Case) -> Kernel:
    return applicable(case.op, case.sig, _TARGET)[0]


@pytest.mark.parametrize(
    ("op", "shape", "weights", "axis", "most"),
    [
        (Conv2d((1, 1), _SAME), (1, 16, 16, 16), (16, 3, 3, 16), 0, 1.0),
        (Conv2d((2, 2), Padding(4, 5, 1, 1)), (1, 49, 10, 1), (64, 10, 4, 1), 0, 1.0),
        (Conv2d(), (1, 25, 5, 64), (64, 1, 1, 64), 0, 0.95),
        (DepthwiseConv2d((1, 1), _SAME), (1, 25, 5, 64), (1, 3, 3, 64), 3, 1.7),
        (DepthwiseConv2d((1, 1), _SAME, multiplier=2), (1, 9, 9, 8), (1, 3, 3, 16), 3, 4.5),
        (FullyConnected(), (1, 256), (128, 256), 0, 1.0),
    ],
)
def test_instructions_of_a_multiplication(
    op: Op, shape: tuple[int, ...], weights: tuple[int, ...], axis: int, most: float
) -> None:
    """At most half of CMSIS-NN's."""
    x = int16s("x", shape, 0.0004)
    parts = weights_and_bias("int16", x, weights, axis, not isinstance(op, FullyConnected))
    case = make("int16", op, [x, *parts], Quant.tensor(0.02))
    kernel = _kernel(case)
    macs = op.macs(case.sig)
    assert macs
    assert kernel.design.startswith("dsp_")
    assert kernel.cost.instructions / macs < most


@pytest.mark.parametrize(("depth", "design"), [(516, "dsp_dense"), (517, "gemm 1x4")])
def test_sums_that_need_more_than_32_bits_stay_portable(depth: int, design: str) -> None:
    """Of -32768 times 127, 32 bits hold 516."""
    x = int16s("x", (1, depth), 0.0001)
    weights = Value.constant("w", np.full((8, depth), 127, np.int8), Quant.tensor(0.01))
    bias = Value.constant("b", np.zeros(8, np.int64), Quant.tensor(0.000001))
    case = make("deep", FullyConnected(), [x, weights, bias], Quant.tensor(1.0))
    assert _kernel(case).design == design


@pytest.mark.parametrize(("op", "most"), [(Logistic(), 11.6), (Tanh(), 11.6), (Softmax(), 25.5)])
def test_instructions_of_an_element(op: Op, most: float) -> None:
    """At most half of CMSIS-NN's: two elements at a time, and a place of a table in one load."""
    case = make("int16", op, [int16s("x", (20, 12), 2.0**-12)], Quant.tensor(1 / 32768))
    kernel = _kernel(case)
    assert kernel.design == f"dsp {op.name}"
    assert kernel.cost.instructions / case.sig.y.elements < most


@pytest.mark.parametrize(("op", "inputs"), [(Rfft(512), 512), (Irfft(512), 514)])
def test_instructions_of_a_transform(op: Op, inputs: int) -> None:
    """A third of what the portable kernel takes."""
    case = make("int16", op, [Value("x", (inputs,), DType.INT16)])
    kernel = _kernel(case)
    assert kernel.design == "dsp radix 4"
    assert kernel.cost.instructions < 29.2 * 512


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("machine", "op"),
    [
        ("mps2-an386", Rfft(64)),
        ("mps2-an386", Irfft(64)),
        ("mps3-an547", Rfft(128)),
        ("mps3-an547", Rfft(512)),
    ],
)
@pytest.mark.parametrize("dtype", [DType.INT16, DType.INT32])
def test_transforms_of_extremes(tmp_path: Path, machine: str, op: Rfft | Irfft, dtype: DType) -> None:
    """Sums and conjugates wrap around as those of TFLite Micro."""
    limits = np.iinfo(dtype.value)
    low, high = int(limits.min), int(limits.max)
    count = op.length if isinstance(op, Rfft) else op.length + 2
    target = _TARGET if machine == "mps2-an386" else Target(find_core("cortex-m55"), "speed")
    graph = make("ends", op, [Value("x", (count,), dtype)]).graph()
    ends = [np.where(np.arange(count) % n < k, low, high) for n, k in ((1, 1), (2, 1), (7, 3), (9, 8))]
    ends += [np.random.default_rng(n).choice([low, high], count) for n in range(4)]
    runs = [Run(f"{n}", graph, {"x": x.astype(dtype.numpy)}) for n, x in enumerate(ends)]
    outputs = run_plans_on_qemu(tmp_path, plan_runs(runs, target), machine, target.core)
    wrong = [check_outputs(run, out) for run, out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
