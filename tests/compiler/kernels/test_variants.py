"""Variants of kernels: all are right, each has a name, and they are longer or shorter as these say."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from crtgen.boards.core import find_core
from crtgen.compiler.kernels import Target
from crtgen.compiler.kernels.engine.variants import VARIANTS, Candidate, candidates
from crtgen.network.ops import Case, Conv2d, all_cases
from tests.compiler.kernels.harness import MACHINES, Job, batches, describe, run_jobs
from tests.support import few, nightly

_PLAIN = ("speed", "size")
_CORES = ("cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m55")


def _of(case: Case, core: str) -> tuple[Candidate, ...]:
    return candidates(case.op, case.sig, Target(find_core(core), "speed"))


def _jobs(core: str) -> Iterator[Job]:
    """What other tests have not: neither as it is for speed nor for size."""
    for case in all_cases():
        for candidate in _of(case, core):
            if candidate.variant.split()[0] not in _PLAIN:
                yield Job(case, candidate.kernel)


@pytest.mark.qemu
@pytest.mark.parametrize(("core", "each"), [("cortex-m4", 1), *(nightly(core, 10_000) for core in _CORES)])
def test_every_variant_is_right(tmp_path: Path, core: str, each: int) -> None:
    """So many of each design for an operator."""
    jobs = few(_jobs(core), lambda job: [(type(job.case.op), job.kernel.design)], each)
    wrong = []
    for number, batch in enumerate(batches(jobs)):
        folder = tmp_path / str(number)
        folder.mkdir()
        for job, result in zip(batch, run_jobs(batch, folder, MACHINES[core]), strict=True):
            wrong += [f"{describe(job.case)}, {job.kernel.design}: {text}" for text in result.wrong]
    assert jobs
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("core", ["cortex-m0plus", nightly("cortex-m55")])
def test_each_candidate_has_a_name_of_its_own(core: str) -> None:
    cases = few(
        all_cases(), lambda case: [(type(case.op), case.sig.y.dtype)], 10_000 if core == "cortex-m55" else 2
    )
    for case in cases:
        found = _of(case, core)
        assert len({candidate.key for candidate in found}) == len(found)
        assert {c.variant.split()[0] for c in found} <= set(VARIANTS)


def test_candidates_are_the_same_at_each_level() -> None:
    case = next(case for case in all_cases() if isinstance(case.op, Conv2d))
    keys = [
        [c.key for c in candidates(case.op, case.sig, Target(find_core("cortex-m4"), level))]
        for level in ("speed", "balanced", "size")
    ]
    assert keys[0] == keys[1] == keys[2]
