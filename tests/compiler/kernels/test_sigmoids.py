"""Logistic and tanh of int16 with the DSP extension, of every number."""

from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target
from crtgen.network.ir import Quant
from crtgen.network.ops import Logistic, Tanh
from crtgen.network.ops.case import int16s, make
from tests.compiler.kernels.program import Run, check_outputs, plan_runs, run_plans_on_qemu

_SCALES = (2.0**-12, 2.0**-11, 2.0**-10, 0.0003, 0.002)
"""Of 12 fractional bits; with arguments at the very end of the table, and beyond it; rounded ones."""


@pytest.mark.qemu
@pytest.mark.parametrize("op", [Logistic(), Tanh()])
def test_every_number(tmp_path: Path, op: Logistic | Tanh) -> None:
    numbers = np.arange(-(1 << 15), 1 << 15, dtype=np.int16)
    runs = []
    for scale in _SCALES:
        x = int16s("x", numbers.shape, scale)
        case = make(f"{scale}", op, [x], Quant.tensor(1 / 32768))
        runs.append(Run(case.name, case.graph(), {"x": numbers}))
    core = find_core("cortex-m4")
    plans = plan_runs(runs, Target(core, "speed"))
    outputs = run_plans_on_qemu(tmp_path, plans, "mps2-an386", core)
    wrong = [check_outputs(run, out) for run, out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
