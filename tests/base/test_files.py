"""The layer of file operations: bounded, atomic, and nowhere but where it should be."""

import os
import stat
from pathlib import Path

import pytest

from crtgen.base import budget, files
from crtgen.base.errors import UsageError
from crtgen.base.temporary import TemporaryFolder


@pytest.fixture
def small_memory() -> object:
    budget.limit_memory(16 << 20)
    yield
    budget.limit_memory()


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert files.read(tmp_path / "a") == b"abc"


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, Path("/dev/zero")):
        with pytest.raises(UsageError, match="the model is not a regular file"):
            files.read(path, "the model")


@pytest.mark.usefixtures("small_memory")
def test_a_sparse_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(8 << 30)
    with pytest.raises(UsageError, match="has 8,589,934,592 bytes; at most 4,194,304 are read") as caught:
        files.read(tmp_path / "sparse")
    assert caught.value.hint == f"crtgen --limit-memory {32 << 30} allows it"
    with pytest.raises(UsageError, match="too few"):
        budget.limit_memory(1)


_ELSEWHERE = ("", ".", "/a", "../a", "a/../b", "a\\b", "C:/a", "c:a", "a\0b", "a\nb", "\x1b[2J")
_DEVICES = ("nul", "COM1.c", "a/aux.h", "a.", "a ", "x" * 201)


@pytest.mark.parametrize("path", [*_ELSEWHERE, *_DEVICES])
def test_paths_that_lead_elsewhere(path: str) -> None:
    with pytest.raises(ValueError, match=r"path|file|director"):
        files.relative_path(path)


def test_paths_are_normalised() -> None:
    assert files.relative_path("./a//b.c") == "a/b.c"


def test_links_on_the_way_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "model").symlink_to(tmp_path / "real")
    with pytest.raises(UsageError, match="the path is a link"):
        files.inside(tmp_path, ["model/a/b.c"])
    assert files.inside(tmp_path, ["real/a"]) == {"real/a": tmp_path / "real" / "a"}


def test_writing_replaces_a_link_and_not_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"mine")
    for name in ("a", f".a{files.LEFTOVER}"):
        (tmp_path / name).symlink_to(tmp_path / "victim")
    files.write(tmp_path / "a", b"new")
    assert (tmp_path / "victim").read_bytes() == b"mine"
    assert (tmp_path / "a").read_bytes() == b"new"
    assert not (tmp_path / "a").is_symlink()


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def full(operation: str, path: Path) -> None:
        if operation == "sync":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "step", full)
    with pytest.raises(UsageError, match="the file cannot be written: No space left on device"):
        files.write(tmp_path / "a", b"new")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a": b"old"}


def test_a_place_that_cannot_be_written_is_known_before(tmp_path: Path) -> None:
    files.check_writable(tmp_path / "a.tar")
    for path in (tmp_path / "absent" / "a.tar", tmp_path):
        with pytest.raises(UsageError, match="director"):
            files.check_writable(path)


def test_a_private_directory_is_ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    directory = files.private_directory("crtgen")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert files.private_directory("crtgen") == directory
    directory.chmod(0o770)
    with pytest.raises(UsageError, match="not owned by you alone"):
        files.private_directory("crtgen")
    directory.rmdir()
    (tmp_path / "theirs").mkdir(mode=0o700)
    directory.symlink_to(tmp_path / "theirs")
    with pytest.raises(UsageError, match="not owned by you alone"):
        files.private_directory("crtgen")


def test_a_directory_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    first = files.hold(tmp_path)
    assert first is not None
    assert files.hold(tmp_path, wait=False) is None
    os.close(first)
    second = files.hold(tmp_path, wait=False)
    assert second is not None
    os.close(second)
    (tmp_path / "link").symlink_to(tmp_path)
    assert files.hold(tmp_path / "link") is None
    assert files.hold(tmp_path / "absent") is None


def test_without_locks_nothing_is_held_and_nothing_is_taken_for_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows: a directory that nobody has locked may be another process's."""
    monkeypatch.setattr(files, "fcntl", None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / "crtgen-work-left"
    left.mkdir()
    os.utime(left, (0, 0))
    assert files.hold(tmp_path) is None
    with files.locked(tmp_path), TemporaryFolder() as path:
        assert path.is_dir()
    assert list(tmp_path.iterdir()) == [left]


def test_a_lock_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(UsageError, match="the lock cannot be opened"), files.opened_lock(tmp_path / "lock"):
        pass
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UsageError, match="not a regular file"), files.opened_lock(tmp_path / "fifo"):
        pass
    assert (tmp_path / "victim").read_text() == "mine"
