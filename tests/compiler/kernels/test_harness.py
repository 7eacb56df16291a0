"""What the harness of random layers notices: wrong bytes, writes beside scratch, reads beyond constants."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Const, InPlace, Kernel, Target, applicable
from crtgen.network.ops import Case, all_cases
from tests.compiler.kernels.harness import Job, guarded, run_jobs

pytestmark = pytest.mark.qemu


def _found(core: str, name: str = "conv2d_skew") -> tuple[Case, Kernel]:
    (case,) = (c for c in all_cases() if c.name == name)
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
    right, altered, narrow, beyond, last = run_jobs([Job(case, k) for k in kernels], tmp_path, guarded(core))
    assert not right.wrong
    assert not last.wrong
    assert any("output" in text for text in altered.wrong)
    assert any("arena" in text or "fault" in text for text in narrow.wrong)
    assert any("fault" in text for text in beyond.wrong)


def test_every_output_and_every_permit_is_checked(tmp_path: Path) -> None:
    """A state of two that is wrong afterwards, and an output over one that is still read."""
    case, kernel = _found("cortex-m3", "stacker_own")
    before = replace(case, limits={"n": (1, 1)})
    later = replace(kernel, view=replace(kernel.view, op=replace(kernel.view.op, step=9)))
    layer, whole = _found("cortex-m3", "lstm_int16")
    astray = replace(whole, inplace=(InPlace(input=1, output=0),))
    jobs = [Job(before, kernel), Job(before, later), Job(layer, whole), Job(layer, astray)]
    right, altered, apart, over = run_jobs(jobs, tmp_path, guarded("cortex-m3"))
    assert not right.wrong
    assert altered.wrong == [f"{where}: output 6 at 0" for where in ("apart", "over 1 by 5", "over 2 by 6")]
    assert not apart.wrong
    assert [text.partition(" at ")[0] for text in over.wrong] == ["over 1 by 3: output 3"]
