"""Random layers on QEMU: every output byte, the guards around arena and scratch, in place, and the cost."""

import os
from pathlib import Path

import pytest

from crtgen.boards.core import find_core
from crtgen.kernels import Kernel, Target, applicable
from tests.kernels.dsp.harness import Job, run_jobs
from tests.kernels.dsp.random_cases import MAKERS, draw_cases

pytestmark = pytest.mark.qemu

_COUNT = int(os.environ.get("CRTGEN_RANDOM_LAYERS", "40"))
_BATCH = 50  # layers in one image
_LEVEL = {"speed": "-O3", "balanced": "-O2", "size": "-Os"}
_AT_LEAST = {
    "convolution": 0.8,
    "depthwise": 0.8,
    "windowed": 0.8,
    "dense": 0.8,
    "binary": 0.4,
    "pool": 0.9,
    "clamp": 1,
}


def _dsp(job_case: object, kernels: list[Kernel]) -> list[Kernel]:
    return [k for k in kernels if k.design.startswith("dsp_")]


@pytest.mark.timeout(300 + 3 * _COUNT)
@pytest.mark.parametrize(
    ("core", "optimize"), [("cortex-m4", "speed"), ("cortex-m7", "balanced"), ("cortex-m33", "size")]
)
@pytest.mark.parametrize("kind", MAKERS)
def test_random_layers(tmp_path: Path, kind: str, core: str, optimize: str) -> None:
    target = Target(find_core(core), optimize)
    cases = list(draw_cases(kind, _COUNT, seed=len(core)))
    jobs = []
    for case in cases:
        for kernel in _dsp(case, applicable(case.op, case.sig, target)):
            jobs.append(Job(case, kernel))
            if kernel.inplace:
                jobs.append(Job(case, kernel, inplace=True))
    covered = {job.case.name for job in jobs}
    assert len(covered) >= _AT_LEAST[kind] * len(cases)
    results = [
        result
        for first in range(0, len(jobs), _BATCH)
        for result in run_jobs(jobs[first : first + _BATCH], tmp_path, core, _LEVEL[optimize])
    ]
    wrong = [
        f"{job.case.name} {job.kernel.design} in place: {job.inplace} {result}"
        for job, result in zip(jobs, results, strict=True)
        if not (result.right and result.whole)
    ]
    assert not wrong, "\n".join(wrong)
