"""The script that changes code to see whether the tests find it."""

from pathlib import Path

from ci.mutants import draw, mutants, near
from tests.support import ROOT

PYTHON = '''"""One + two."""
x: dict[str, 3] = {}
def f(a: int = 4) -> int:
    return a + max(a, 5) if a < 6 else f"{a} + 7"
y = 0.5
def cases() -> list[int]:
    return [8, 9]
'''
C = """/* 1 + 2 */
#include <x.h>
int f(int a) { return a < 3u ? a : "4 + 5"[6]; } // 7
"""


def test_what_is_changed() -> None:
    """Whole numbers and operators of the code; no strings, types, comments, signatures and cases."""
    found = [(m.line, m.old, m.new) for m in mutants(Path("x.py"), PYTHON)]
    assert found == [(3, "+", "-"), (3, "max", "min"), (3, "5", "6"), (3, "<", "<="), (3, "6", "7")]
    found = [(m.line, m.old, m.new) for m in mutants(Path("x.c"), C)]
    assert found == [(2, "<", "<="), (2, "3", "4"), (2, "6", "7")]


def test_one_token_is_changed() -> None:
    minimum = next(m for m in mutants(Path("x.py"), PYTHON) if m.old == "max")
    assert minimum.apply(PYTHON) == PYTHON.replace("max(", "min(")
    assert str(minimum) == "x.py:4:16 max -> min"


def test_the_same_seed_draws_the_same() -> None:
    drawn = draw(20, 3, ["crtgen/network/ops", "templates/kernels"])
    assert drawn == draw(20, 3, ["crtgen/network/ops", "templates/kernels"])
    assert len(set(drawn)) == 20
    assert {m.file.parts[0] for m in drawn} == {"crtgen", "templates"}


def test_tests_are_those_of_the_room() -> None:
    assert near(Path("crtgen/compiler/plan/planner.py")) == ["tests/compiler/plan"]
    assert near(Path("crtgen/compiler/level.py")) == ["tests/compiler/test_level.py"]
    assert near(Path("templates/kernels/gemm.c.j2")) == ["tests/compiler/kernels", "tests/network/ops"]
    words = near(Path("crtgen/proof/checker/algebra/words.py"))
    assert "tests/proof/checker/test_rules.py" in words
    assert all((ROOT / test).is_file() for test in words)
    assert near(Path("crtgen/proof/checker/proof.py")) == ["tests/proof/checker"]
    assert near(Path("crtgen/base/version.py")) == ["tests/api/test_api.py", "tests/cli"]
