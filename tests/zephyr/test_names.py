"""What boards are called in the Zephyr that is there."""

import re
from pathlib import Path

import pytest
import yaml

from crtgen.base.errors import ToolMissingError, UsageError
from crtgen.boards import Board, all_boards
from crtgen.firmware.builder import find_workspace

pytestmark = pytest.mark.zephyr


def described(zephyr: Path) -> dict[str, str]:
    """The text of each ``board.yml`` by the names that it gives; before release 3.7, of each board's own."""
    found: dict[str, str] = {}
    for file in zephyr.glob("boards/**/board.yml"):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        for each in content.get("boards", [content.get("board", {})]):
            found[each.get("name", "")] = yaml.safe_dump(each)
    for file in zephyr.glob("boards/**/*.yaml"):
        found.setdefault(file.stem, "")
    return found


def unknown_part(name: str, known: dict[str, str]) -> str:
    """The part of a board's name that Zephyr does not have; empty if it has them all."""
    base, *qualifiers = name.split("/")
    if base not in known:
        return base
    return next((q for q in qualifiers if not re.search(rf"name: {re.escape(q)}\b", known[base])), "")


def test_a_part_that_is_not_there_is_found() -> None:
    text = yaml.safe_dump({"name": "dk", "socs": [{"name": "soc", "variants": [{"name": "a"}]}]})
    known = {"dk": text}
    assert [unknown_part(name, known) for name in ("dk", "dk/soc/a", "dk/so", "d/soc")] == ["", "", "so", "d"]


@pytest.mark.parametrize("board", [b for b in all_boards() if b.zephyr], ids=lambda board: board.name)
def test_the_workspace_knows_each_board(board: Board) -> None:
    try:
        workspace = find_workspace()
    except ToolMissingError as error:
        pytest.skip(f"no Zephyr workspace: {error.hint}")
    try:
        name = board.zephyr_name(workspace.version)
    except UsageError as error:
        pytest.skip(f"{error}: {error.hint}")
    parts = unknown_part(name, described(workspace.zephyr))
    assert not parts, f"{name}: Zephyr has no {parts}"
