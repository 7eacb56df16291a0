"""Depthwise layers with a byte a weight in flash: exact and smaller."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Kernel, Target, applicable
from crtgen.network.ir import Quant
from crtgen.network.ops import Case, DepthwiseConv2d, Padding
from crtgen.network.ops.case import int8s, int16s, make, weights_and_bias
from tests.compiler.kernels.harness import MACHINES, Job, run_jobs
from tests.support import nightly


def _case(window: int, channels: int, stride: int = 1, wide: bool = False, multiplier: int = 1) -> Case:
    shape, around = (1, 9, 8, channels // multiplier), window // 2
    x = int16s("x", shape, 0.0004) if wide else int8s("x", shape, 0.02, -7)
    op = DepthwiseConv2d((stride, stride), Padding(around, around, around, around), multiplier=multiplier)
    constants = weights_and_bias("wide", x, (1, window, window, channels), 3, True)
    out = Quant.tensor(0.002) if wide else Quant.tensor(0.4, 3)
    return make("widened", op, [x, *constants], out)


def _cases() -> Iterator[Case]:
    for window in (4, 5, 7):
        yield from (
            _case(window, 8),
            _case(window, 13, 2),
            _case(window, 6, 1, True),
            _case(window, 8, 1, False, 2),
        )


def _kernel(case: Case, core: str, design: str, optimize: str = "speed") -> Kernel | None:
    found = applicable(case.op, case.sig, Target(find_core(core), optimize))
    return next((kernel for kernel in found if kernel.design == design), None)


@pytest.mark.qemu
@pytest.mark.parametrize("optimize", ["speed", "size"])
@pytest.mark.parametrize("core", ["cortex-m4", nightly("cortex-m33")])
def test_outputs(tmp_path: Path, core: str, optimize: str) -> None:
    made = [(case, _kernel(case, core, "dsp_depthwise_any, widened", optimize)) for case in _cases()]
    jobs = [Job(case, kernel) for case, kernel in made if kernel is not None]
    assert len(jobs) == len(made)
    results = run_jobs(jobs, tmp_path, MACHINES[core])
    assert [r.wrong for r in results if r.wrong] == []


def test_weights_have_a_byte() -> None:
    """Of 64 channels of 49 taps; with them are start, multiplier, constant and shift of each channel."""
    case = _case(7, 64)
    plain, widened = (
        _kernel(case, "cortex-m4", f"dsp_depthwise_any{ending}") for ending in ("", ", widened")
    )
    assert plain is not None
    assert widened is not None
    assert plain.cost.constants == 64 * (2 * 49 + 16)
    assert widened.cost.constants == 64 * (49 + 16)
    assert widened.cost.instructions < plain.cost.instructions * 1.02
    assert widened.cost.scratch - plain.cost.scratch == plain.cost.constants


def test_small_windows_stay() -> None:
    assert _kernel(_case(3, 8), "cortex-m4", "dsp_depthwise_any, widened") is None
