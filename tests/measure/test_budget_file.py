"""The committed budget: no reference model became slower or bigger."""

import pytest

import crtgen
from crtgen.measure.benchmark import measure_model
from crtgen.measure.budget import Budget, Entry, compare, read_budget
from tests.support import ROOT, model_path, require_tool


def committed() -> Budget:
    return read_budget(ROOT / "benchmarks" / "budget.toml")


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize("allowed", committed().entries, ids=lambda e: "-".join(e.key))
def test_within_the_budget(allowed: Entry) -> None:
    require_tool("qemu-system-arm")
    model = crtgen.load(model_path(allowed.model))
    measured = measure_model(model.compile(allowed.board, optimize=allowed.optimize))
    worse = compare(allowed, Entry.of(measured), committed().tolerance)
    assert "\n".join(map(str, worse)) == ""
