"""Temporary directories: removed at the end, and after a crash by the next crtgen."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crtgen.base.temporary import TemporaryFolder
from tests.support import ROOT


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's directory for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def make_old(path: Path) -> None:
    os.utime(path, (time.time() - 3600,) * 2)


def test_it_is_private_and_removed_at_the_end(temporary: Path) -> None:
    with TemporaryFolder() as path:
        (path / "file").write_text("x")
        assert path.parent == temporary.resolve()
        assert path.stat().st_mode & 0o777 == 0o700
    assert not list(temporary.iterdir())
    folder = TemporaryFolder()
    folder.close()
    folder.close()
    assert not folder.path.exists()


def test_the_next_one_removes_what_a_killed_process_left(temporary: Path) -> None:
    script = (
        "import tempfile, time; tempfile.tempdir = " + repr(str(temporary)) + "\n"
        "from crtgen.base.temporary import TemporaryFolder\n"
        "folder = TemporaryFolder(); (folder.path / 'big').write_text('x'); print(folder.path, flush=True)\n"
        "time.sleep(300)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        make_old(left)
        with TemporaryFolder():
            assert left.exists()  # its owner lives
        other.send_signal(signal.SIGKILL)
        other.wait(60)
    assert left.exists()
    with TemporaryFolder() as mine:
        assert list(temporary.iterdir()) == [mine]


def test_links_files_and_young_directories_are_left_alone(
    temporary: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "mine").write_text("x")
    (temporary / "crtgen-work-link").symlink_to(elsewhere)
    (temporary / "crtgen-work-file").write_text("x")
    (temporary / "crtgen-work-young").mkdir()
    make_old(elsewhere)
    make_old(temporary / "crtgen-work-file")
    with TemporaryFolder():
        pass
    assert (elsewhere / "mine").exists()
    assert sorted(p.name for p in temporary.iterdir()) == [
        "crtgen-work-file",
        "crtgen-work-link",
        "crtgen-work-young",
    ]
