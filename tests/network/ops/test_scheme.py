"""Number schemes: limits, saturation, and that nobody else spells them out."""

import io
import tokenize
from pathlib import Path

import numpy as np
import pytest

from crtgen.network.ir import DType, Quant, Value
from crtgen.network.ops import FLOAT32, INT8, scheme_of
from tests.support import ROOT


def test_limits() -> None:
    assert INT8.limits == (-128, 127)
    assert (INT8.is_real, FLOAT32.is_real) == (False, True)
    assert (INT8.magnitude(0), INT8.magnitude(-128), INT8.magnitude(100)) == (128, 255, 228)
    np.testing.assert_array_equal(INT8.every_number(), np.arange(-128, 128, dtype=np.int8))


def test_results_saturate() -> None:
    found = INT8.saturated(np.array([-300, -128, 5, 127, 128]))
    assert found.dtype == np.int8
    assert found.tolist() == [-128, -128, 5, 127, 127]
    assert INT8.saturated(np.array([-300, 300]), -5, 6).tolist() == [-5, 6]


def test_what_has_no_scheme() -> None:
    assert scheme_of(Value("x", (1,), DType.FLOAT32)) is FLOAT32
    assert scheme_of(Value("x", (1,), DType.INT8, Quant.tensor(0.1))) is INT8
    with pytest.raises(ValueError, match="x is int64"):
        scheme_of(Value("x", (1,), DType.INT64))


_ROOMS = (
    *("network/ops", "network/passes", "network/frontends", "compiler/plan", "compiler/codegen"),
    *(f"compiler/kernels/{room}" for room in ("arithmetic", "engine", "portable", "rows", "shared")),
)


def _literals(path: Path) -> list[str]:
    """Numbers in the code of a file that are limits of int8, test cases apart."""
    text = path.read_text().split("\ndef cases()")[0]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [
        f"{path.name}:{t.start[0]}"
        for t in tokens
        if t.type == tokenize.NUMBER and t.string in ("127", "128")
    ]


@pytest.mark.parametrize("room", _ROOMS)
def test_limits_are_spelled_in_one_place(room: str) -> None:
    """Kernels of one core's instructions may: their offsets and lanes have such numbers, too."""
    folder = ROOT / "crtgen" / room
    files = [p for p in sorted(folder.glob("*.py")) if p.name not in ("scheme.py", "case.py")]
    assert files
    assert [place for path in files for place in _literals(path)] == []
