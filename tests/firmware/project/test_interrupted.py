"""A kill or a power cut at every call of the file layer: the same command again repairs everything."""

import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from crtgen.base import files
from crtgen.base.errors import UsageError
from crtgen.device.local_boards import board_lock
from crtgen.firmware.builder import build_project
from tests.firmware.project.building import toy_project

POWER_CUT, KILL = "power cut", "kill"


def content(directory: Path) -> dict[str, bytes]:
    """What is there, but for what is written over anyway."""
    return {
        str(f.relative_to(directory)): f.read_bytes()
        for f in directory.rglob("*")
        if f.is_file() and not f.name.endswith(files.LEFTOVER)
    }


def broken_off(action: Callable[[], object], number: int, how: str) -> bool:
    """Do it in a process that dies before its call ``number``; whether it came to that.

    A power cut empties what was written since and not brought to the disk.
    """
    process = os.fork()
    if process == 0:
        unsynced: set[Path] = set()
        calls = count()

        def die(operation: str, path: Path) -> None:
            if next(calls) == number:
                for file in unsynced if how == POWER_CUT else ():
                    if file.exists():
                        file.write_bytes(b"")
                os._exit(7)
            beside = path.with_name(f".{path.name}{files.LEFTOVER}")
            if operation == "write":
                unsynced.add(path)
            elif operation == "sync":
                unsynced.discard(path)
            elif operation == "rename" and beside in unsynced:
                unsynced.add(path)

        files.step = die
        action()
        os._exit(0)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 7)
    return os.waitstatus_to_exitcode(status) == 7


@pytest.mark.parametrize("how", [KILL, POWER_CUT])
@pytest.mark.parametrize(
    ("start", "step"),
    [
        ("nothing", 58),
        ("another type", 58),
        ("an edit", 1),
        pytest.param("nothing", 1, marks=pytest.mark.nightly),
        pytest.param("another type", 1, marks=pytest.mark.nightly),
    ],
)
def test_generate(tmp_path: Path, how: str, start: str, step: int) -> None:
    target = toy_project("mps2_an386", "server", pool=1024)

    def prepare(directory: Path) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        if start != "nothing":
            before = toy_project("mps2_an386", "standalone" if start == "another type" else "server")
            before.extract(directory)
        if start == "an edit":
            (directory / "platform" / "main.c").write_text("int mine;\n")

    prepare(tmp_path / "whole")
    target.extract(tmp_path / "whole")
    expected = content(tmp_path / "whole")
    directory = tmp_path / "p"
    for number in count(0, step):
        prepare(directory)
        if not broken_off(lambda: target.extract(directory), number, how):
            break
        target.extract(directory)
        assert content(directory) == expected, f"{how} at call {number}"
    assert number >= 5


@pytest.mark.parametrize("how", [KILL, POWER_CUT])
@pytest.mark.parametrize("earlier", [None, b"an older archive"])
def test_an_archive_is_whole_or_as_it_was(tmp_path: Path, how: str, earlier: bytes | None) -> None:
    path = tmp_path / "m.tar"
    for number in count():
        path.unlink(missing_ok=True)
        if earlier is not None:
            path.write_bytes(earlier)
        if not broken_off(lambda: files.write(path, b"new" * 1000), number, how):
            break
        now = path.read_bytes() if path.exists() else None
        assert now in (earlier, b"new" * 1000)
        files.write(path, b"new" * 1000)
        assert content(tmp_path) == {"m.tar": b"new" * 1000}
    assert number >= 3


def test_a_lock_that_was_broken_off_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def hold() -> None:
        with board_lock("board"):
            files.step("lock", tmp_path)

    for number in range(2):
        assert broken_off(hold, number, KILL)
        with board_lock("board", timeout=60):
            pass


def test_an_unfinished_project_is_not_built(tmp_path: Path) -> None:
    target = toy_project("host", "server")
    assert broken_off(lambda: target.extract(tmp_path / "p"), 12, KILL)
    with pytest.raises(UsageError, match="not written completely") as caught:
        build_project(tmp_path / "p")
    assert caught.value.hint == "generate the project again"
