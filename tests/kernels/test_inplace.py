"""Every output over every input that it may overwrite, as close as the lead allows."""

from pathlib import Path

import pytest

from crtgen.ops import all_cases
from tests.kernels.overlays import overlays
from tests.kernels.program import check_outputs, run_plans_on_host


@pytest.mark.cc
def test_every_leave(tmp_path: Path) -> None:
    runs = [pair for case in all_cases() for pair in overlays(case, 2)]
    assert len(runs) > 100
    outputs = run_plans_on_host(tmp_path, runs)
    wrong = [check_outputs(run, out) for (run, _), out in zip(runs, outputs, strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))
