"""Float32 on an FPU: which instructions, how much is written out, and the order of sums."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Kernel, Target, applicable
from crtgen.compiler.plan import make_plan
from crtgen.network.ir import Array, DType, Signature
from crtgen.network.ops import Activation, Case, Conv2d, DepthwiseConv2d, FullyConnected, Padding
from crtgen.network.ops.case import floats, make, weights_and_bias
from tests.compiler.kernels.program import Run, run_plans_on_qemu

_Layer = Conv2d | DepthwiseConv2d | FullyConnected
_AROUND = Padding(1, 1, 1, 1)


def _case(op: _Layer, x: tuple[int, ...], weights: tuple[int, ...]) -> Case:
    image, axis = floats("x", x), 3 if isinstance(op, DepthwiseConv2d) else 0
    return make(op.name, op, [image, *weights_and_bias("vfp", image, weights, axis, True)])


_CASES = (
    _case(FullyConnected(), (1, 131), (19, 131)),
    _case(FullyConnected(Activation.RELU), (5, 24), (7, 24)),
    _case(Conv2d((1, 1), _AROUND, activation=Activation.RELU6), (1, 7, 6, 5), (10, 3, 3, 5)),
    _case(DepthwiseConv2d((1, 1), _AROUND), (1, 5, 7, 12), (1, 3, 3, 12)),
)


def _kernel(case: Case, core: str, level: str) -> Kernel:
    found = applicable(case.op, case.sig, Target(find_core(core), level))
    return next(kernel for kernel in found if kernel.design.startswith("vfp"))


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case.name)
@pytest.mark.parametrize(
    ("core", "level", "fused"),
    [
        ("cortex-m4", "speed", False),  # three cycles there, a product and a sum apart are two
        ("cortex-m33", "speed", False),
        ("cortex-m4", "size", True),
        ("cortex-m7", "speed", True),
    ],
)
def test_fused_where_that_is_fast_or_small(case: Case, core: str, level: str, fused: bool) -> None:
    (products, *_) = _kernel(case, core, level).routines
    found = {line.mnemonic for block in products.blocks for line in block.lines}
    assert ("vfma.f32" in found, "vmul.f32" in found) == (fused, not fused)


@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m7", "cortex-m33"])
@pytest.mark.parametrize("shape", [(1, 512), (8, 512)])
def test_loops_fit_into_small_caches(core: str, shape: tuple[int, ...]) -> None:
    case = _case(FullyConnected(Activation.RELU), shape, (32, 512))
    bytes_ = [_kernel(case, core, level).routines[0].code_bytes for level in ("speed", "size")]
    assert bytes_[0] < 800
    assert bytes_[1] < 400


def _one_by_one(sig: Signature, op: _Layer, x: Array) -> Array:
    """Bias, then product by product in the order of the weights, each rounded to float32."""
    w, bias = (v.array() for v in sig.inputs[1:])
    windows, weights = _windows(op, x, w)
    sums = np.broadcast_to(bias, (len(windows), len(bias))).astype(np.float32)
    for step in range(weights.shape[0]):
        sums = sums + windows[:, step] * weights[step]
    low, high = op.activation.float_range()
    return np.clip(sums, np.float32(low), np.float32(high)).ravel()


def _windows(op: _Layer, x: Array, w: Array) -> tuple[Array, Array]:
    """``[pixel, step, 1 or channel]`` of inputs and ``[step, output]`` of weights."""
    if isinstance(op, FullyConnected):
        return x.reshape(-1, w.shape[1])[:, :, None], w.T
    padded = np.pad(x[0], [(1, 1), (1, 1), (0, 0)])
    height, width, channels = x.shape[1:]
    taps = [padded[i : i + height, j : j + width].reshape(-1, channels) for i in range(3) for j in range(3)]
    if isinstance(op, DepthwiseConv2d):
        return np.stack(taps, axis=1), w.reshape(9, channels)
    return np.concatenate(taps, axis=1)[:, :, None], w.reshape(len(w), -1).T


@pytest.mark.qemu
def test_order_of_sums(tmp_path: Path) -> None:
    """Every bit, on a core where products are rounded before they are added."""
    core, runs = find_core("cortex-m4"), []
    for number, case in enumerate(_CASES):
        graph = replace(case.graph(), name=f"net{number}")
        (node,) = graph.nodes
        inputs = {name: case.inputs(number)[name] for name in graph.inputs}
        plan = make_plan(graph, {node.name: _kernel(case, core.name, "speed")})
        runs.append((Run(case.name, graph, inputs), plan))
    outputs = run_plans_on_qemu(tmp_path, runs, "mps2-an386", core)
    for case, (run, _), output in zip(_CASES, runs, outputs, strict=True):
        assert isinstance(case.op, _Layer)
        assert case.sig.x.dtype is DType.FLOAT32
        (x,) = run.inputs.values()
        wanted = _one_by_one(case.sig, case.op, x)
        np.testing.assert_array_equal(np.frombuffer(output, np.float32), wanted, err_msg=case.name)
