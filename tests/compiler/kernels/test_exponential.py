"""Exponentials and softmax of float32 in assembly against float64, up to the ends of their range."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target, applicable
from crtgen.compiler.plan import make_plan
from crtgen.network.ops import Case, Exp, Softmax
from crtgen.network.ops.case import floats, make
from tests.compiler.kernels.program import Run, run_plans_on_qemu

Floats = npt.NDArray[np.float32]
_BOARDS = {
    "cortex-m4": ("mps2-an386", "vfp"),
    "cortex-m7": ("mps2-an500", "vfp"),
    "cortex-m33": ("mps2-an505", "vfp"),
    "cortex-m55": ("mps3-an547", "mve"),
}


def _inputs() -> Floats:
    random = np.random.default_rng(8)
    near, far = random.uniform(-2, 2, 1000), random.uniform(-87, 87, 1000)
    beyond = [
        87.5,
        88.7,
        88.73,
        1e30,
        np.inf,
        -87.5,
        -95,
        -103.9,
        -1e30,
        -np.inf,
        np.nan,
        0.0,
        -0.0,
        1e-30,
        1,
    ]
    return np.concatenate([near, far, random.uniform(86, 89, 100), beyond, near[:8]]).astype(np.float32)


def _computed(
    directory: Path, core: str, design: str, cases: Sequence[Case], inputs: Sequence[Floats]
) -> list[Floats]:
    found, runs = find_core(core), []
    for number, (case, x) in enumerate(zip(cases, inputs, strict=True)):
        kernels = applicable(case.op, case.sig, Target(found, "speed"))
        kernel = next(kernel for kernel in kernels if kernel.design == design)
        graph = replace(case.graph(), name=f"net{number}")
        plan = make_plan(graph, {graph.nodes[0].name: kernel})
        runs.append((Run(graph.name, graph, {graph.inputs[0]: x}), plan))
    outputs = run_plans_on_qemu(directory, runs, _BOARDS[core][0], found)
    return [np.frombuffer(output, np.float32) for output in outputs]


@pytest.mark.qemu
@pytest.mark.parametrize("core", _BOARDS)
def test_powers(tmp_path: Path, core: str) -> None:
    x, design = _inputs(), f"{_BOARDS[core][1]} exp"
    case = make("far", Exp(), [floats("x", (len(x),))])
    (y,) = _computed(tmp_path, core, design, [case], [x])
    with np.errstate(over="ignore"):
        exact = np.exp(np.where(np.isnan(x), -np.inf, x).astype(np.float64))
        rounded = exact.astype(np.float32)
    assert np.array_equal(np.isinf(y), np.isinf(rounded))
    normal = (rounded >= np.finfo(np.float32).tiny) & np.isfinite(rounded)
    unit = np.spacing(rounded[normal]).astype(np.float64)
    assert (np.abs(y[normal] - exact[normal]) / unit).max() <= 1.5
    # Helium has no denormal numbers
    assert (np.abs(y[~normal & (exact < 1)] - rounded[~normal & (exact < 1)]) < 1.2e-38).all()
    if design == "vfp exp":
        assert (np.abs(y[exact < 1e-38] - exact[exact < 1e-38]) <= 2 * 2.0**-149).all()


@pytest.mark.qemu
@pytest.mark.parametrize("core", _BOARDS)
def test_softmax(tmp_path: Path, core: str) -> None:
    """Rows with masks of several sizes, of lengths with each remainder of four."""
    random, inputs = np.random.default_rng(9), []
    for depth in (8, 17, 33, 64, 70, 255):
        x = random.normal(0, 4, (3, depth)).astype(np.float32)
        for row, mask in enumerate((-1e4, -1e9, -np.inf)):
            x[row, random.integers(0, depth, depth // 3)] = mask
        x[0, :4], x[1, 0] = (40, -50, -47.5, 0), np.finfo(np.float32).min
        inputs.append(x)
    cases = [make(f"rows{len(x[0])}", Softmax(), [floats("x", x.shape)]) for x in inputs]
    outputs = _computed(tmp_path, core, f"{_BOARDS[core][1]} softmax float", cases, inputs)
    for x, y in zip(inputs, outputs, strict=True):
        powers = np.exp((x - x.max(axis=1, keepdims=True)).astype(np.float64))
        exact = powers / powers.sum(axis=1, keepdims=True)
        near = np.abs(y.reshape(x.shape) - exact)
        assert (near <= 1e-6 * exact + 1.2e-38).all()
        assert not y.reshape(x.shape)[x < -1000].any()
