"""Softmax by a table of powers, which portable code has, against the operator's definition."""

from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target, select
from crtgen.network.ir import Quant
from crtgen.network.ops import Softmax
from crtgen.network.ops.case import int8s, make
from tests.compiler.kernels.program import Run, check_outputs, plan_runs, run_plans_on_host, run_plans_on_qemu

_OUTPUT = Quant.tensor(1 / 256, -128)


def _runs() -> list[Run]:
    """Rows of 64 to 900 elements, with powers that vanish at once or not at all."""
    random = np.random.default_rng(3)
    runs = []
    for number in range(40):
        shape = (int(random.integers(1, 4)), int(random.choice([64, 65, 130, 511, 512, 900])))
        scale, beta = float(np.exp(random.uniform(-9, 2))), float(np.float32(random.uniform(0.3, 3)))
        x = int8s("x", shape, scale, int(random.integers(-128, 128)))
        case = make(str(number), Softmax(beta), [x], _OUTPUT)
        runs.append(Run(f"{shape} scale {scale} beta {beta}", case.graph(), case.inputs(number)))
    return runs


def _check(runs: list[Run], outputs: list[bytes]) -> None:
    wrong = [check_outputs(run, out) for run, out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.cc
def test_host(tmp_path: Path) -> None:
    runs = _runs()
    _check(runs, run_plans_on_host(tmp_path, plan_runs(runs, Target(optimize="speed"))))


@pytest.mark.qemu
def test_qemu(tmp_path: Path) -> None:
    runs, core = _runs(), find_core("cortex-m4")
    plans = plan_runs(runs, Target(core, "speed"))
    _check(runs, run_plans_on_qemu(tmp_path, plans, "mps2-an386", core))


@pytest.mark.parametrize(("optimize", "depth", "table"), [
    ("size", 1000, False), ("balanced", 63, False), ("balanced", 64, True), ("speed", 1000, True),
])  # fmt: skip
def test_table_where_it_pays(optimize: str, depth: int, table: bool) -> None:
    case = make("x", Softmax(), [int8s("x", (1, depth), 0.1)], _OUTPUT)
    (kernel,) = select(case.graph(), Target(optimize=optimize)).values()
    assert (kernel.design == "softmax table") is table
