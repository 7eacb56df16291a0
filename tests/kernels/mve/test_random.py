"""Random layers with Helium on QEMU, apart and in place: every output byte, and the guards around them."""

import os
from pathlib import Path

import pytest

from crtgen.boards.core import find_core
from crtgen.kernels import Target, applicable
from tests.kernels.dsp.harness import Job, run_jobs
from tests.kernels.mve.random_cases import MAKERS, draw_cases

pytestmark = pytest.mark.qemu

_COUNT = int(os.environ.get("CRTGEN_RANDOM_LAYERS", "40"))
_AT_LEAST = {
    "pointwise": 0.8,
    "convolution": 0.8,
    "depthwise": 0.8,
    "dense": 0.9,
    "binary": 1.0,
    "pool": 0.95,
    "unary": 0.8,
    "move": 0.3,
}
_NOT_FOR_SIZE = {"softmax"}  # tables take more than they save
_TIGHTLY_COUPLED = (0x20000000, 0x20080000)  # with nothing before and behind it


@pytest.mark.parametrize("optimize", ["speed", "balanced", "size"])
@pytest.mark.parametrize("kind", MAKERS)
def test_random_layers(tmp_path: Path, kind: str, optimize: str) -> None:
    target = Target(find_core("cortex-m55"), optimize)
    cases = list(draw_cases(kind, _COUNT, seed=len(optimize)))
    jobs = []
    for case in cases:
        for kernel in applicable(case.op, case.sig, target):
            if kernel.design.startswith("mve"):
                jobs.append(Job(case, kernel))
                jobs += [Job(case, kernel, inplace=True)] if kernel.inplace else []
    if optimize == "size" and kind in _NOT_FOR_SIZE:
        assert not jobs
        return
    assert len({job.case.name for job in jobs}) >= _AT_LEAST.get(kind, 0.8) * len(cases)
    _check(jobs, tmp_path)


@pytest.mark.parametrize("kind", MAKERS)
def test_nothing_is_read_beyond_inputs(tmp_path: Path, kind: str) -> None:
    target = Target(find_core("cortex-m55"))
    jobs = []
    for case in draw_cases(kind, _COUNT, seed=3):
        for kernel in applicable(case.op, case.sig, target):
            if kernel.design.startswith("mve"):
                jobs += [Job(case, kernel, memory=_TIGHTLY_COUPLED, last=last) for last in (False, True)]
    _check(jobs, tmp_path)


def _check(jobs: list[Job], folder: Path) -> None:
    results = run_jobs(jobs, folder, "cortex-m55")
    wrong = [
        f"{job.case.name} {job.kernel.design} in place: {job.inplace} {result}"
        for job, result in zip(jobs, results, strict=True)
        if not (result.right and result.whole)
    ]
    assert not wrong, "\n".join(wrong)
