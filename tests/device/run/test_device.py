"""Processes as devices: started, listened to, and always ended; what is missing is said."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from crtgen.base.errors import LinkClosedError, LinkError, LinkTimeoutError, ToolMissingError, UsageError
from crtgen.boards import find_board
from crtgen.device.rpc.client import Client
from crtgen.device.run import RunningDevice, find_qemu, run_standalone, start_device, start_host, start_qemu
from tests.firmware.project.building import build_toy
from tests.support import ROOT, is_gone, require_tool

HOST = find_board("host")
X = np.array([[1, -2, -128, 5]], np.int8)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_tool("cc", "apt install gcc")
    return build_toy("host", "server", tmp_path_factory.mktemp("host"))


def script(directory: Path, text: str) -> Path:
    """An executable that stands for an image of the host."""
    file = directory / "image"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


@pytest.mark.cc
def test_the_host_server_computes_and_ends(server: Path) -> None:
    with start_host(server) as device, Client(device.stream) as client:
        executor = client.aot_executor("toy")
        executor.set_input(0, X)
        executor.run()
        assert executor.get_output(0).tolist() == [[-1, 2, 127, -5]]
        client.shutdown()
        assert device.wait(60) == 0


@pytest.mark.cc
def test_the_host_server_ends_with_its_line(server: Path) -> None:
    device = start_host(server)
    device.stream.close()
    assert device.wait(60) == 0
    device.close()


@pytest.mark.cc
def test_a_standalone_program_runs_on_the_host(tmp_path: Path) -> None:
    image = build_toy("host", "standalone", tmp_path, samples={"toy": [X]})
    result = run_standalone(image, HOST, timeout=120)
    assert result.code == 0
    assert result.output.splitlines()[1] == "y -1 2 127 -5"


def test_the_exit_code_and_the_output_are_kept(tmp_path: Path) -> None:
    result = run_standalone(script(tmp_path, "echo one; echo two >&2; exit 3"), HOST)
    assert (result.output, result.code) == ("one\ntwo\n", 3)


def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    image = script(
        tmp_path, f"echo busy; echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; sleep 600"
    )
    for seconds in (0.5, 5, 50):  # that a busy machine may take to start it
        with pytest.raises(LinkTimeoutError, match=f"still runs after {seconds} s") as caught:
            run_standalone(image, HOST, timeout=seconds)
        if (tmp_path / "pid").exists():
            break
    assert caught.value.log == "busy\n"
    assert is_gone(int((tmp_path / "pid").read_text()))


def test_closing_ends_the_process_and_its_children(tmp_path: Path) -> None:
    image = script(tmp_path, f"trap '' TERM; sleep 60 & echo $! > {tmp_path}/child; echo up; wait; sleep 60")
    device = start_host(image)
    assert device.stream.read(60) == b"up\n"
    assert device.process.poll() is None
    device.close()
    device.close()
    assert device.process.returncode == -signal.SIGKILL
    assert is_gone(int((tmp_path / "child").read_text()))


def test_an_error_takes_the_console_along(tmp_path: Path) -> None:
    image = script(tmp_path, "echo the reason >&2; exec >&-; sleep 60")
    with pytest.raises(LinkClosedError) as caught, start_host(image) as device:
        device.stream.read(60)
    assert caught.value.log == "the reason\n"


def test_waiting_for_a_process_that_runs_on_fails(tmp_path: Path) -> None:
    with pytest.raises(LinkTimeoutError), start_host(script(tmp_path, "sleep 60")) as device:
        device.wait(0.05)


def test_the_process_ends_with_an_interpreter_that_forgot_it(tmp_path: Path) -> None:
    image = script(tmp_path, "sleep 60")
    program = (
        "import sys; from pathlib import Path; from crtgen.device.run import start_host\n"
        "print(start_host(Path(sys.argv[1])).process.pid)\n"
        "keep = start_host(Path(sys.argv[1])); print(keep.process.pid)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(image)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        check=True,
    )
    for pid in done.stdout.split():
        assert is_gone(int(pid))


@pytest.mark.cc
def test_a_killed_device_is_a_closed_line_at_once(server: Path) -> None:
    with start_host(server) as device, Client(device.stream) as client:
        os.kill(device.process.pid, signal.SIGKILL)
        begin = time.monotonic()
        with pytest.raises(LinkClosedError):
            client.info()
        assert time.monotonic() - begin < 60


def test_a_missing_image_is_refused(tmp_path: Path) -> None:
    for board in (HOST, find_board("mps2_an386")):
        with pytest.raises(UsageError, match="no such image"):
            start_device(tmp_path / "firmware", board)


def test_a_board_that_qemu_does_not_simulate_is_refused(server: Path) -> None:
    with pytest.raises(UsageError, match="does not simulate"):
        start_qemu(server, HOST)


def test_a_missing_qemu_is_named_with_what_installs_it(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for attempt in (find_qemu, lambda: start_qemu(server, find_board("mps2_an386"))):
        with pytest.raises(ToolMissingError) as caught:
            attempt()
        assert caught.value.hint == "apt install qemu-system-arm"


def failing_qemu(directory: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (directory / "qemu-system-arm").write_text(f"#!/bin/sh\n{text}\n")
    (directory / "qemu-system-arm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def test_what_a_failing_simulator_says_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_qemu(tmp_path, monkeypatch, "echo unsupported machine type >&2; exit 1")
    image = script(tmp_path, "")

    def attempt() -> RunningDevice:
        with start_qemu(image, find_board("mps2_an386")) as device, Client(device.stream):
            return device

    with pytest.raises(LinkError) as caught:
        attempt()
    assert "unsupported machine type" in caught.value.log


def test_counting_is_asked_of_the_simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_qemu(tmp_path, monkeypatch, 'echo "$@"')
    image = script(tmp_path, "")
    board = find_board("mps2_an386")
    said = {}
    for counting in (True, False):
        with start_qemu(image, board, counting=counting) as device:
            device.wait(60)
            said[counting] = device.output()
    assert "-machine mps2-an386 " in said[True]
    assert "-icount shift=0,align=off,sleep=off" in said[True]
    assert "-icount" not in said[False]
    assert "semihosting" not in said[True] + said[False]
