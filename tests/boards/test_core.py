"""Cores that nobody measured: what there is, by their features alone."""

from pathlib import Path

import numpy as np
import pytest

from crtgen.base.errors import UnsupportedError
from crtgen.boards.core import CORES, Core
from crtgen.compiler.kernels import Kernel, Target, applicable
from crtgen.compiler.kernels.asm import Function, pipeline_of
from crtgen.compiler.kernels.engine.registry import RegisteredDesign
from crtgen.network.ir import Quant, Signature, Value
from crtgen.network.ops import Case, Conv2d
from crtgen.network.ops.case import int8s, make
from tests.compiler.kernels.program import Run, check_outputs, plan_runs, run_plans_on_host

RV32 = Core("rv32imc", "rv32imc", unaligned=False)
MADE_UP = {
    "armv6-m": Core("cortex-m1", "armv6-m", unaligned=False),
    "armv8-m.base": Core("cortex-m24", "armv8-m.base", unaligned=False),
    "armv7-m": Core("cortex-m5", "armv7-m"),
    "armv7e-m": Core("cortex-m6", "armv7e-m", dsp=True),
    "armv8-m.main": Core("cortex-m36", "armv8-m.main", dsp=True, fpu="sp"),
    "armv8.1-m.main": Core("cortex-m53", "armv8.1-m.main", dsp=True, mve=True, fpu="sp"),
    "without Helium": Core("cortex-m53+nomve", "armv8.1-m.main", dsp=True, fpu="sp"),
    "rv32imc": RV32,
}


def _convolution() -> Case:
    rng = np.random.default_rng(1)
    weights = Value.constant("w", rng.integers(-127, 128, (8, 3, 3, 4)).astype(np.int8), Quant.tensor(0.01))
    bias = Value.constant("b", rng.integers(-500, 500, 8).astype(np.int32))
    return make("conv", Conv2d(), [int8s("x", (1, 6, 6, 4), 0.02, -5), weights, bias], Quant.tensor(0.1, 3))


@pytest.mark.parametrize(
    ("arch", "design", "like"),
    [
        ("armv6-m", "pairs", "cortex-m0plus"),
        ("armv8-m.base", "pairs", "cortex-m0plus"),
        ("armv7-m", "pairs", "cortex-m3"),
        ("armv7e-m", "dsp_matrix", "cortex-m4"),
        ("armv8-m.main", "dsp_matrix", "cortex-m33"),
        ("armv8.1-m.main", "mve rows", "cortex-m55"),
        ("without Helium", "dsp_matrix", "cortex-m33"),
        ("rv32imc", "gemm 2x4", "cortex-m3"),
    ],
)
def test_made_up_cores_have_kernels_and_figures(arch: str, design: str, like: str) -> None:
    case, core = _convolution(), MADE_UP[arch]
    known = Core(like, core.arch, core.dsp, core.mve, core.fpu, core.unaligned)
    best, same = (applicable(case.op, case.sig, Target(c))[0] for c in (core, known))
    assert best.design.startswith(design)
    assert core.measured == like
    if core.thumb:
        assert (best.design, best.cost, best.cycles) == (same.design, same.cost, same.cycles)
    else:
        assert (best.routines, pipeline_of(core)) == ((), None)


def test_a_core_of_another_architecture_runs_portable_c(tmp_path: Path) -> None:
    case = _convolution()
    run = Run(case.name, case.graph(), {"x": case.inputs(3)["x"]})
    plans = plan_runs([run], Target(RV32))
    assert not any(step.kernel.routines for _, plan in plans for step in plan.steps)
    (out,) = run_plans_on_host(tmp_path, plans)
    assert check_outputs(run, out) == ""


def test_assembly_is_refused_by_name() -> None:
    def design(op: object, sig: Signature, target: Target) -> Kernel:
        return Kernel("in assembly", "", None, routines=(Function("nothing").done(),))

    case = _convolution()
    entry = RegisteredDesign(design, (), None, None, None, False)
    assert entry.kernel(case.op, case.sig, Target(CORES["cortex-m4"])) is not None
    with pytest.raises(
        UnsupportedError, match="rv32imc cannot execute the Thumb code of the design in assembly"
    ):
        entry.kernel(case.op, case.sig, Target(RV32))


def test_compilers_that_do_not_know_a_core_get_one_that_executes_the_same() -> None:
    assert CORES["cortex-m52"].gcc_flags == CORES["cortex-m55"].gcc_flags
    assert CORES["cortex-m52"].zig_flags[-1] == "-mcpu=cortex_m52+fp_armv8d16+dsp+mve_fp"
    assert RV32.gcc_flags == RV32.zig_flags == ()
