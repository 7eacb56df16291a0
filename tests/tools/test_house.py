"""The picture of the house, and the tests that a change needs, follow from the contracts."""

import pytest

from tests.support import ROOT
from tools.house import FACES, PAGE, contracts, is_affected, page


def test_the_page_shows_the_house_of_today() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "run: python -m tools.house"


@pytest.mark.parametrize("package", ["crtgen", *(p for p in contracts() if p != "crtgen")])
def test_every_module_has_a_place_in_a_contract(package: str) -> None:
    """A module that no layer names could import anything."""
    folder = ROOT / package.replace(".", "/")
    found = {p.stem for p in folder.glob("*.py")} | {p.parent.name for p in folder.glob("*/__init__.py")}
    placed = {name for floor in contracts()[package] for name in floor}
    free = {"__init__", "__main__"} | ({"lazy", "contents"} if package == "crtgen.base" else set())
    assert found - free == placed


def test_the_house_has_few_rooms_and_floors() -> None:
    floors = contracts()["crtgen"]
    assert len(floors) <= 9
    assert sum(map(len, floors)) <= 17


def test_faces_hold_no_code() -> None:
    for face in FACES:
        assert len((ROOT / "crtgen" / f"{face}.py").read_text().splitlines()) < 12


@pytest.mark.parametrize(
    ("tests", "changed", "affected"),
    [
        ("tests/proof/checker", "crtgen/lab/report.py", False),
        ("tests/proof/checker", "crtgen/cli/prove.py", False),
        ("tests/proof/checker", "crtgen/errors.py", False),
        ("tests/proof/checker", "docs/prove.md", False),
        ("tests/proof/checker", "tests/lab/test_x.py", False),
        ("tests/proof/checker", "README.md", False),
        ("tests/proof/checker", "crtgen/proof/checker/algebra/words.py", True),
        ("tests/proof/checker", "crtgen/compiler/level.py", True),
        ("tests/proof/checker", "crtgen/runtime/src/crt_server.c", True),
        ("tests/proof/checker", "templates/model.c.j2", True),
        ("tests/proof/checker", "tests/support.py", True),
        ("tests/network", "crtgen/boards/core.py", False),
        ("tests/network", "crtgen/base/files.py", True),
        ("tests/system", "crtgen/cli/run.py", True),
    ],
)
def test_a_change_runs_the_tests_of_what_imports_it(tests: str, changed: str, affected: bool) -> None:
    assert is_affected(tests, [changed]) is affected
