"""Programs that crtgen starts: their output, their limits, and that none outlives crtgen."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crtgen.base.child import Child, run_to_end
from tests.support import ROOT, is_gone


def shell(text: str) -> list[str]:
    return ["/bin/sh", "-c", text]


def test_output_and_exit_code_are_kept_and_lines_followed() -> None:
    lines: list[str] = []
    code, output = run_to_end(
        shell("echo one; echo two >&2; printf end; exit 3"), time_limit=60, each=lines.append
    )
    assert (code, output, lines) == (3, "one\ntwo\nend", ["one", "two"])


def test_a_program_that_closes_its_output_first_keeps_its_exit_code() -> None:
    assert run_to_end(shell("exec >&- 2>&-; sleep 0.2; exit 7"), time_limit=60) == (7, "")


def test_a_program_that_prints_without_end_is_ended_at_the_limit() -> None:
    code, output = run_to_end(["yes", "x" * 200], time_limit=0.5)
    assert code is None
    assert 0 < len(output) <= 16 << 20


def test_a_line_without_an_end_comes_in_pieces() -> None:
    lengths: list[int] = []
    program = shell("head -c 300000 /dev/zero | tr '\\0' x; echo")
    code, output = run_to_end(program, time_limit=60, each=lambda line: lengths.append(len(line)))
    assert (code, len(output), sum(lengths)) == (0, 300_001, 300_000)
    assert max(lengths) <= 3 << 16


def test_a_daemon_that_holds_the_output_does_not_hold_up(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = shell(
        f"setsid sh -c 'echo $$ >{pid}; exec sleep 60' & while [ ! -s {pid} ]; do :; done; echo up"
    )
    assert run_to_end(program, time_limit=2) == (None, "up\n")
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_temporary_files_of_a_program_are_where_there_can_be_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/proc")
    monkeypatch.setattr(tempfile, "tempdir", None)
    code, name = run_to_end(shell("mktemp"), time_limit=60)
    assert code == 0
    Path(name.strip()).unlink()


def test_a_program_that_writes_too_much_is_ended(tmp_path: Path) -> None:
    with (tmp_path / "printed").open("wb") as file:
        child = Child(["head", "-c", "1000000", "/dev/zero"], stdout=file, stderr=file, most_written=65536)
        assert child.wait(60) != 0
        child.end()
    assert (tmp_path / "printed").stat().st_size == 65536


def test_two_threads_end_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second must not close the pipe again: its number may have become another file's."""
    close, closed = os.close, []

    def slow(descriptor: int) -> None:
        closed.append(descriptor)
        time.sleep(0.2)
        close(descriptor)

    child = Child(["/bin/sleep", "600"])
    monkeypatch.setattr(os, "close", slow)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: child.end(grace=1), range(2)))
    assert len(closed) == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_killed_crtgen(tmp_path: Path, number: signal.Signals) -> None:
    """The program, a child of it that ignores signals, and a program that was not ended after it was left."""
    script = (
        "import sys, time; from crtgen.base.child import Child\n"
        "child = Child(['/bin/sh', '-c', 'trap : TERM HUP; sleep 300 & echo $!; echo $$; wait; sleep 300'])\n"
        "print(child.stdout.readline().decode(), child.stdout.readline().decode(), flush=True)\n"
        "time.sleep(300)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT) as crtgen:
        assert crtgen.stdout is not None
        pids = [int(crtgen.stdout.readline()) for _ in range(2)]
        crtgen.send_signal(number)
        crtgen.wait(60)
    assert all(map(is_gone, pids))
