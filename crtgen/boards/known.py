"""All boards: crtgen's own, those of folders that the user names, and single files.

The user's own boards are in the folders of ``CRTGEN_BOARDS`` and in ``boards/`` beside the ``crtgen.toml``
that applies (``crtgen.base.folder``). A checkout of crtgen becomes such a folder after ``crtgen init``; its
``boards/`` are crtgen's own, possibly of another version, and are ignored.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from crtgen.base.errors import UsageError
from crtgen.base.folder import current_folder
from crtgen.base.resources import boards_dir
from crtgen.boards.board import Board, ZephyrName
from crtgen.boards.core import CORES, find_core
from crtgen.boards.loader import load_board

__all__ = [
    "all_boards",
    "board_of",
    "board_of_core",
    "boards_that_fit",
    "find_board",
    "is_own",
    "name_board",
    "stand_in",
    "wrong_boards",
]

VARIABLE = "CRTGEN_BOARDS"

# Files that were named in this process, by the name of their board.
_named: dict[str, Path] = {}


def all_boards() -> tuple[Board, ...]:
    """Return every known board by name, without those whose file has an error (``wrong_boards``)."""
    return tuple(board for board in _known().values() if isinstance(board, Board))


def wrong_boards() -> Mapping[str, UsageError]:
    return {name: error for name, error in _known().items() if isinstance(error, UsageError)}


def find_board(name: str) -> Board:
    """Find a board by its name, its name in Zephyr, or its file (``./my_board.toml``).

    Raises ``UsageError`` for an unknown board, and for an error in its file.
    """
    if name.endswith(".toml"):
        return name_board(Path(name))
    found = _known(name).get(name)
    if isinstance(found, UsageError):
        raise found
    if found is not None:
        return found
    known = all_boards()
    boards = {entry.name: board for board in known for entry in board.zephyr}
    if name not in boards:
        boards |= {board.name: board for board in known}
        close = get_close_matches(name, boards, n=1)
        others = "`crtgen boards` lists them; of another chip write a file (boards/README.md)"
        hint = f"did you mean {close[0]}?" if close else f"{others}, or for a library name its --core"
        raise UsageError(f"unknown board {name}", hint=hint)
    return boards[name]


def name_board(file: Path, name: str = "") -> Board:
    """Load a board file and make the board known by its name until this process ends."""
    board = load_board(file, name)
    before = _known(board.name).get(board.name)
    if isinstance(before, Board) and not _is_same(before.file, file):
        raise _twice(board.name, file, before.file)
    _named[board.name] = file
    return board


def is_own(board: Board) -> bool:
    return board.file is not None and board.file.parent.resolve() != boards_dir().resolve()


def board_of_core(core: str) -> Board:
    """Return any Zephyr board with that core; this is enough for a library, since its application knows the
    rest.
    """
    return Board(core, f"a board with a {core}", find_core(core), zephyr=(ZephyrName((3, 0), core),))


def board_of(name: str) -> Board:
    """Return the board of that name; for the name of a core, any board with it."""
    return board_of_core(name) if name in CORES else find_board(name)


def stand_in(board: Board) -> Board | None:
    """Return the emulated board with the same core and the most memory; None if there is none."""
    others = (b for b in all_boards() if b.qemu is not None and b.core == board.core and not is_own(b))
    return max(others, key=lambda b: b.ram, default=None)


def boards_that_fit(flash: int, ram: int) -> tuple[Board, ...]:
    return tuple(board for board in all_boards() if not board.is_host and board.fits(flash, ram))


def _known(only: str = "") -> Mapping[str, Board | UsageError]:
    # Boards and what is wrong with files, by name; of ``only`` one name, if there is one.
    files = [(file.stem, file) for folder in _folders() for file in sorted(folder.glob("*.toml"))]
    found: dict[str, Board | UsageError] = {}
    for name, file in (*files, *_named.items()):
        if only not in ("", name):
            continue
        before = found.get(name)
        if not isinstance(before, Board):
            found[name] = _loaded(name, file, _changed(file))
        elif not _is_same(before.file, file):
            found[name] = _twice(name, file, before.file)
    return found


def _folders() -> list[Path]:
    folders = [boards_dir(), *map(Path, filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)))]
    folder = current_folder()
    if folder is not None and not _is_checkout(folder):
        folders.append(folder / "boards")
    return folders


def _is_checkout(folder: Path) -> bool:
    return (folder / "crtgen" / "version.py").is_file()


def _is_same(one: Path | None, other: Path) -> bool:
    # True for one file under two names, and for copies: an installed crtgen meets those of a checkout.
    if one is None:
        return False
    with suppress(OSError):
        return one.samefile(other) or one.read_bytes() == other.read_bytes()
    return False


def _changed(file: Path) -> int:
    # When the file was written; 0 if it is gone.
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


@cache
def _loaded(name: str, file: Path, changed: int) -> Board | UsageError:
    # A file as it is since it was ``changed``.
    try:
        return load_board(file, name)
    except UsageError as error:
        return error


def _twice(name: str, file: Path, other: Path | None) -> UsageError:
    return UsageError(f"there is a board {name} already: {other}", where=str(file), hint="rename the file")
