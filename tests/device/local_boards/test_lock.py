"""The lock of a board: one process at a time, whatever becomes of it."""

import os
import signal
import subprocess
import sys
import time
from select import select

import pytest

from crtgen.base.errors import LinkTimeoutError
from crtgen.device.local_boards import board_lock

HOLD = """
import sys, time
from crtgen.device.local_boards import board_lock
with board_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
    print("left", flush=True)
"""


def hold(key: str, seconds: float) -> "subprocess.Popen[str]":
    """A process that has the lock by now."""
    command = [sys.executable, "-c", HOLD, key, str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.fixture
def key() -> str:
    return f"test/{os.getpid()}-{time.monotonic_ns()}"


def test_the_second_waits_for_the_first(key: str) -> None:
    """What the first says before it leaves is there once the second has the lock."""
    with hold(key, 0.5) as first, board_lock(key, timeout=60):
        assert first.stdout is not None
        assert select([first.stdout], [], [], 0)[0]
        assert first.stdout.readline() == "left\n"


def test_it_gives_up_and_names_the_process(key: str) -> None:
    with hold(key, 60) as process:
        with (
            pytest.raises(LinkTimeoutError, match=f"process {process.pid} has used the board"),
            board_lock(key, timeout=0.2),
        ):
            pass
        process.kill()


def test_it_ends_with_a_process_that_is_killed(key: str) -> None:
    with hold(key, 60) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with board_lock(key, timeout=60):
            pass


def test_two_boards_have_two_locks(key: str) -> None:
    with board_lock(key), board_lock(f"{key}x", timeout=1):
        pass
