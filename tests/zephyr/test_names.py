"""What boards are called in the Zephyr that is there."""

import subprocess
from functools import cache

import pytest

from crtgen.base.errors import ToolMissingError, UsageError
from crtgen.boards import Board, all_boards
from crtgen.firmware.builder import ZephyrWorkspace, find_workspace

pytestmark = pytest.mark.zephyr


@cache
def names(workspace: ZephyrWorkspace) -> frozenset[str]:
    """Every name of a board: from 3.7 on with qualifiers, with and without a revision."""
    if workspace.version < (3, 7):
        return frozenset(file.stem for file in workspace.zephyr.glob("boards/**/*.yaml"))
    fields = "{name}|{qualifiers}|{revisions}"
    listed = subprocess.run(
        ["west", "boards", "-f", fields],
        cwd=workspace.top,
        env=workspace.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    found = set()
    for line in listed.splitlines():
        name, qualifiers, revisions = line.split("|")
        whole = [name, *(f"{name}@{revision}" for revision in revisions.split())]
        parts = qualifiers.split(",")
        found |= {f"{each}/{part}" for each in whole for part in parts}
        if len({part.split("/")[0] for part in parts}) == 1:  # the only SoC may be left out
            found |= {"/".join([each, *part.split("/")[1:]]) for each in whole for part in parts}
    return frozenset(found)


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
    assert name in names(workspace)
