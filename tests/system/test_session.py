"""A session with a real image: memory, calls, wrong use, and devices that die or hang."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import crtgen
from crtgen.base.errors import LinkClosedError, LinkTimeoutError, RemoteError, UsageError
from crtgen.device.rpc import Client, Timeouts
from crtgen.device.run import RunningDevice
from crtgen.device.session import Session
from tests.firmware.project.building import toy_project
from tests.support import ROOT, require_tool

BLOCK = 256 * 1024


@pytest.fixture(params=["host", "mps2_an386"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    if request.param != "host":
        require_tool("qemu-system-arm")
    compiled = crtgen.load(ROOT / "demo" / "digits.tflite").compile(request.param)
    image = compiled.generate(pool=2 * BLOCK).build()
    with image.run(counting=False) as running:
        yield running


pytestmark = [pytest.mark.cc, pytest.mark.qemu]

DIGIT = np.load(ROOT / "demo" / "digit.npz")["image"]
EXPECTED = np.load(ROOT / "demo" / "digits.npz")["case7_output0"]


def process_of(session: Session) -> "subprocess.Popen[bytes]":
    assert isinstance(session.device, RunningDevice)
    return session.device.process


def test_a_block_goes_there_and_back_and_a_thousand_calls_are_answered(session: Session) -> None:
    block = np.random.default_rng(0).integers(0, 256, BLOCK, dtype=np.uint8)
    with session.client.allocate(block.shape, block.dtype) as tensor:
        tensor.write(block)
        np.testing.assert_array_equal(tensor.read(), block)
    packet = session.client.function("tvm.rpc.server.GetCRTMaxPacketSize")
    assert {packet() for _ in range(1000)} == {session.client.max_packet}


def test_more_memory_than_there_is(session: Session) -> None:
    with pytest.raises(RemoteError, match=r"no room for \d+ bytes"):
        session.client.allocate((64 * BLOCK,), np.uint8)
    np.testing.assert_array_equal(session.infer(DIGIT)[0], EXPECTED)


def test_wrong_inputs_are_refused_before_anything_is_sent(session: Session) -> None:
    with pytest.raises(UsageError, match="1x8x8x1 int8, not 8x8x1 int8"):
        session.infer(DIGIT[0])
    with pytest.raises(UsageError, match="2 inputs were given, the model has 1"):
        session.infer(DIGIT, DIGIT)
    with pytest.raises(UsageError, match="no model vww"):
        session.infer(DIGIT, model="vww")
    np.testing.assert_array_equal(session.infer(DIGIT)[0], EXPECTED)


def test_a_run_without_new_inputs_is_refused(session: Session) -> None:
    session.infer(DIGIT)
    executor = session.client.aot_executor("digits")
    with pytest.raises(RemoteError, match="input"):
        executor.run()
    np.testing.assert_array_equal(session.infer(DIGIT)[0], EXPECTED)


def test_a_device_that_dies_in_a_call(session: Session) -> None:
    session.infer(DIGIT)
    process_of(session).kill()
    process_of(session).wait(60)
    with pytest.raises(LinkClosedError):
        session.infer(DIGIT)


def test_a_device_that_hangs(session: Session) -> None:
    client = Client(session.device.stream, timeouts=Timeouts(0.2, 0.5, 0.5))
    process = process_of(session).pid
    os.killpg(process, signal.SIGSTOP)
    os.waitid(os.P_PID, process, os.WSTOPPED)
    try:
        with pytest.raises(LinkTimeoutError):
            client.connect()
    finally:
        os.killpg(process, signal.SIGCONT)


def test_an_inference_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crtgen.device.session.RUN_TIMEOUT", 0.5)
    toy_project("host", "server", body="for (volatile int forever = 1; forever;) { }").extract(tmp_path)
    with crtgen.open_project(tmp_path).build().run() as running:
        start = time.monotonic()
        with pytest.raises(LinkTimeoutError, match=r"within 0\.5 s"):
            running.infer(np.zeros((1, 4), np.int8))
        process = process_of(running)
    assert time.monotonic() - start < 60
    assert process.poll() is not None


def test_kept_inputs_can_run_again() -> None:
    digits = crtgen.load(ROOT / "demo" / "digits.tflite")
    with crtgen.compile([digits], "host", keep_inputs=True).generate().build().run() as running:
        executor = running.client.aot_executor("digits")
        executor.set_input(0, DIGIT)
        for _ in range(3):
            executor.run()
            np.testing.assert_array_equal(executor.get_output(0), EXPECTED)
