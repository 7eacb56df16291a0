"""Random float32 layers with Helium on QEMU, each laid over its input as far as it may."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.ir import Array, Quant, Value
from crtgen.kernels import Target, applicable
from crtgen.ops import Case, Conv2d, FullyConnected, Quantize
from crtgen.ops.case import floats, make
from tests.kernels.mve.random_cases import Draw
from tests.kernels.overlays import overlay
from tests.kernels.program import Run, check_outputs, run_plans_on_qemu

pytestmark = pytest.mark.qemu

_CORE = find_core("cortex-m55")


def _constants(draw: Draw, shape: tuple[int, ...]) -> list[Value]:
    weights, bias = draw.random.uniform(-1, 1, shape), draw.random.uniform(-1, 1, shape[0])
    return [Value.constant(n, a.astype(np.float32)) for n, a in (("w", weights), ("b", bias))]


def _convolution(draw: Draw, name: str) -> Case:
    window, channels, outputs = (draw.int(1, 4), draw.int(1, 4)), draw.int(1, 9), draw.int(1, 19)
    dilation = (draw.pick(1, 1, 2), draw.pick(1, 1, 2))
    extent = [(t - 1) * d + 1 for t, d in zip(window, dilation, strict=True)]
    x = floats("x", (draw.pick(1, 2), extent[0] + draw.int(0, 4), extent[1] + draw.int(0, 4), channels))
    op = Conv2d(draw.stride(), draw.padding(window), dilation, draw.activation())
    return make(name, op, [x, *_constants(draw, (outputs, *window, channels))])


def _dense(draw: Draw, name: str) -> Case:
    depth, outputs = draw.int(1, 40), draw.int(1, 40)
    x = floats("x", (draw.pick(1, 1, 3, 6), depth))
    return make(name, FullyConnected(draw.activation()), [x, *_constants(draw, (outputs, depth))])


def _cases() -> Iterator[Case]:
    draw = Draw(5)
    for number in range(25):
        for kind in (_convolution, _dense):
            yield kind(draw, str(number))


def _steps(scale: float) -> Array:
    """Where quotients by the scale round to another number, floats around that, and large ones."""
    x = ((np.arange(-260, 260) - 0.5) * float(np.float32(scale))).astype(np.float32)
    values = [x, np.array([0.0, -0.0, 1e9, -1e9, 1e35, -1e35], np.float32)]
    for direction in (-np.inf, np.inf):
        near = x
        for _ in range(3):
            near = np.nextafter(near, np.float32(direction))
            values.append(near)
    return np.concatenate(values)


def test_quantize_at_every_step(tmp_path: Path) -> None:
    plans = []
    for scale, zero_point in ((1 / 255, -128), (0.0784, -1), (0.5, 3), (0.0235, 127), (0.0039, 64)):
        x = _steps(scale)
        case = make("steps", Quantize(), [floats("x", x.shape)], Quant.tensor(scale, zero_point))
        kernel = applicable(case.op, case.sig, Target(_CORE))[0]
        assert kernel.design == "mve quantize"
        run = Run(f"{scale}", case.graph(), {"x": x})
        plans.append((run, overlay(run.graph, kernel, kernel.inplace[0])))
    outputs = run_plans_on_qemu(tmp_path, plans, "mps3-an547", _CORE)
    wrong = [check_outputs(run, out) for (run, _), out in zip(plans, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_random_layers(tmp_path: Path) -> None:
    plans = []
    for number, case in enumerate(_cases()):
        found = [k for k in applicable(case.op, case.sig, Target(_CORE)) if k.design.startswith("mve float")]
        assert found, case.name
        for kernel in found:
            graph = case.graph()
            name = f"{case.name} {case.op.attributes()} {kernel.design}"
            plans.append((Run(name, graph, case.inputs(number)), overlay(graph, kernel, kernel.inplace[0])))
    outputs = run_plans_on_qemu(tmp_path, plans, "mps3-an547", _CORE)
    wrong = [check_outputs(run, out) for (run, _), out in zip(plans, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
