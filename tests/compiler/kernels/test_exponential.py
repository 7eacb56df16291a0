"""Exponentials of float32 in assembly against float64, up to the ends of their range."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target, applicable
from crtgen.compiler.plan import make_plan
from crtgen.network.ops import Exp
from crtgen.network.ops.case import floats, make
from tests.compiler.kernels.program import Run, run_plans_on_qemu

Floats = npt.NDArray[np.float32]
_BOARDS = {
    "cortex-m4": ("mps2-an386", "vfp exp"),
    "cortex-m7": ("mps2-an500", "vfp exp"),
    "cortex-m55": ("mps3-an547", "mve exp"),
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


@pytest.mark.qemu
@pytest.mark.parametrize("core", _BOARDS)
def test_powers(tmp_path: Path, core: str) -> None:
    machine, design = _BOARDS[core]
    x, found = _inputs(), find_core(core)
    case = make("far", Exp(), [floats("x", (len(x),))])
    kernel = next(k for k in applicable(case.op, case.sig, Target(found, "speed")) if k.design == design)
    graph = replace(case.graph(), name="far")
    plan = make_plan(graph, {graph.nodes[0].name: kernel})
    (output,) = run_plans_on_qemu(tmp_path, [(Run("far", graph, {graph.inputs[0]: x}), plan)], machine, found)
    y = np.frombuffer(output, np.float32)
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
