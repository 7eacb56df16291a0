"""What the harness of random layers notices: wrong bytes, writes beside scratch, reads beyond constants."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.kernels import Const, Kernel, Target, applicable
from crtgen.ops import Case, all_cases
from tests.kernels.harness import GUARDED, Job, run_jobs

pytestmark = pytest.mark.qemu


def _found(core: str) -> tuple[Case, Kernel]:
    (case,) = (c for c in all_cases() if c.name == "conv2d_skew")
    return case, applicable(case.op, case.sig, Target(find_core(core)))[0]


@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55"])
def test_what_is_wrong_is_noticed(tmp_path: Path, core: str) -> None:
    case, kernel = _found(core)
    assert kernel.scratch > 64
    first, *others = kernel.consts
    short = Const.of(first.name, first.data[: len(first.data) // 2], first.align)
    rolled = Const.of(first.name, np.roll(first.data, 1), first.align)
    kernels = [
        kernel,
        replace(kernel, consts=(rolled, *others)),
        replace(kernel, scratch=kernel.scratch - 48),
        replace(kernel, consts=(short, *others)),
        kernel,
    ]
    right, altered, narrow, beyond, last = run_jobs([Job(case, k) for k in kernels], tmp_path, GUARDED[core])
    assert not right.wrong
    assert not last.wrong
    assert any("output" in text for text in altered.wrong)
    assert any("arena" in text or "fault" in text for text in narrow.wrong)
    assert any("fault" in text for text in beyond.wrong)
