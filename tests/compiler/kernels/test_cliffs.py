"""Layers that took several times what they had to: what their fastest kernels take, counted or measured."""

from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target
from crtgen.compiler.kernels.engine.registry import applicable
from crtgen.network.ir import DType, Quant, Value
from crtgen.network.ops import Activation, Case, Conv2d, DepthwiseConv2d, FullyConnected, Padding, Quantize
from crtgen.network.ops.arithmetic import SquaredDifference
from crtgen.network.ops.case import floats, int8s, make, weights_and_bias
from tests.compiler.kernels.harness import Job, guarded, run_jobs


def _row(depth: int, outputs: int) -> Case:
    """A fully connected layer of one row."""
    x = int8s("x", (1, depth), 0.05, -7)
    constants = weights_and_bias("row", x, (outputs, depth), 0, False)
    return make("row", FullyConnected(), [x, *constants], Quant.tensor(4.0, 3))


def _window(taps: int) -> Case:
    """A depthwise layer of which the only window is the whole image."""
    x = int8s("x", (1, taps, 1, 64), 0.05, -7)
    constants = weights_and_bias("window", x, (1, taps, 1, 64), 3, True)
    return make(
        "window", DepthwiseConv2d(activation=Activation.RELU), [x, *constants], Quant.tensor(0.3, -128)
    )


def _bytes(scale: float, zero_point: int) -> Case:
    """Numbers of uint8 as int8."""
    x = Value("x", (1000,), DType.UINT8, Quant.tensor(0.033, 77))
    return make("bytes", Quantize(DType.INT8), [x], Quant.tensor(scale, zero_point))


def _spread(kind: str, activation: Activation, most: float = 0.5931) -> Case:
    """A layer with a scale for each channel, whose factors go from 0.0013 to ``most``."""
    op, axis = (DepthwiseConv2d, 3) if kind == "depthwise" else (Conv2d, 0)
    x, out = int8s("x", (1, 10, 9, 16), 0.05, -7), Quant.tensor(0.1, 3)
    out = out if activation is Activation.NONE else Quant.tensor(0.1, -128)
    padding = Padding(1, 1, 1, 1) if kind == "depthwise" else Padding(0, 0, 0, 0)
    weights, bias = weights_and_bias(
        kind, x, (1, 3, 3, 16) if kind == "depthwise" else (16, 1, 1, 16), axis, True
    )
    scales = np.geomspace(0.0013, most, 16).astype(np.float32) * np.float32(out.scale / 0.05)
    quant = Quant(tuple(scales.tolist()), (0,) * 16, axis)
    weights = Value.constant("w", weights.array(), quant)
    return make(kind, op((1, 1), padding, activation=activation), [x, weights, bias], out)


def _square(columns: int, scale: float) -> Case:
    """Squares of what rows have more than others, or more than one number each, as in a LayerNorm."""
    others = int8s("b", (40, columns), scale, -3)
    return make(
        "square", SquaredDifference(), [int8s("a", (40, 64), 0.05, 7), others], Quant.tensor(0.4, -128)
    )


_FLOATS = make("floats", Quantize(), [floats("x", (640,))], Quant.tensor(0.03, -4))
_MOST = [
    (_FLOATS, {"cortex-m0plus": 45, "cortex-m3": 25, "cortex-m4": 8.5, "cortex-m7": 8.5, "cortex-m33": 8.5}),
    (_bytes(0.033, -51), {"cortex-m0plus": 6.1, "cortex-m3": 0.9, "cortex-m4": 0.9, "cortex-m55": 0.25}),
    (_bytes(0.05, -51), {"cortex-m0plus": 6.1, "cortex-m3": 5.1, "cortex-m4": 5.1, "cortex-m55": 0.25}),
    (_spread("depthwise", Activation.NONE), {"cortex-m3": 4.9, "cortex-m4": 2.8, "cortex-m55": 2.8}),
    (_spread("depthwise", Activation.RELU6), {"cortex-m4": 3.1, "cortex-m55": 1.2}),
    (_spread("convolution", Activation.NONE), {"cortex-m3": 2.6, "cortex-m4": 1.7, "cortex-m55": 0.7}),
    (_square(64, 0.05), {"cortex-m55": 3.7}),
    (_square(64, 0.021), {"cortex-m55": 5.2}),
    (_square(1, 0.05), {"cortex-m55": 3.3}),
    (_square(1, 0.021), {"cortex-m55": 3.7}),
    (_row(7104, 1), {"cortex-m0plus": 4.9, "cortex-m4": 1.9, "cortex-m55": 0.22}),
    (_row(7104, 2), {"cortex-m0plus": 4.2, "cortex-m4": 1.5, "cortex-m55": 0.18}),
    (_row(7104, 3), {"cortex-m0plus": 3.9, "cortex-m4": 1.4, "cortex-m55": 0.17}),
    (_window(23), {"cortex-m0plus": 6.6, "cortex-m3": 3.6, "cortex-m4": 2.0}),
    (_window(15), {"cortex-m0plus": 7.4, "cortex-m3": 3.9, "cortex-m4": 2.2}),
]
"""Layers, and instructions for a multiplication, or an element, by core."""


@pytest.mark.parametrize(
    ("case", "core", "most"), [(c, core, n) for c, of in _MOST for core, n in of.items()]
)
def test_the_fastest_kernel(case: Case, core: str, most: float) -> None:
    fastest = applicable(case.op, case.sig, Target(find_core(core), "speed"))[0]
    units = case.op.macs(case.sig) or case.sig.y.elements
    assert fastest.cost.instructions / units < most, fastest.design


@pytest.mark.qemu
@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m55"])
def test_factors_of_a_half_and_more(core: str, tmp_path: Path) -> None:
    """All kernels of layers whose channels differ so much, whether outputs are cut off or not."""
    target = Target(find_core(core), "speed")
    cases = [
        _spread(kind, activation, most)
        for kind in ("depthwise", "convolution")
        for activation in (Activation.NONE, Activation.RELU6)
        for most in (0.5931, 0.97)
    ]
    jobs = [Job(case, kernel) for case in cases for kernel in applicable(case.op, case.sig, target)]
    results = run_jobs(jobs, tmp_path, guarded(core))
    assert [(j.kernel.design, r.wrong) for j, r in zip(jobs, results, strict=True) if r.wrong] == []
