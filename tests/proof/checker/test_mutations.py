"""Changed images, by night: each that is accepted gives the network's outputs for all inputs tried."""

from pathlib import Path

import pytest

from tests.proof.checker.mutations import lines_of, outcomes
from tests.support import ROOT, model_path, require_tool

DIGITS = ROOT / "demo" / "digits.tflite"


@pytest.mark.qemu
@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("model", "board", "flips", "changes"),
    [
        ("digits", "bbc_microbit", 40, 10),
        ("digits", "mps2_an385", 30, 10),
        ("digits", "mps2_an386", 40, 10),
        ("digits", "mps2_an505", 30, 10),
        ("digits", "mps3_an547", 40, 10),
        pytest.param("ad01_int8", "mps2_an386", 10, 0, marks=pytest.mark.models),
        pytest.param("ad01_int8", "mps3_an547", 10, 0, marks=pytest.mark.models),
    ],
)
def test_changes(model: str, board: str, flips: int, changes: int, tmp_path: Path) -> None:
    """Changed bits and sources; ``pytest -s`` shows what was neutral.

    A sixth of the bits are in code and texts that do not come before the network's call.
    """
    require_tool("qemu-system-arm")
    path = DIGITS if model == "digits" else model_path(model)
    outcome = outcomes(path, board, flips, changes, 2026, tmp_path)
    print("\n".join(lines_of(outcome)))
    assert outcome.wrong == []
    assert outcome.tried == flips + changes
    assert outcome.rejected >= 0.6 * outcome.tried
    assert outcome.rejected + len(outcome.neutral) == outcome.tried
