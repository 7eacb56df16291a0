"""The client over real transports: the Python device behind pipes, ptys, sockets and a serial port."""

import os
import socket
import subprocess
import sys
import threading
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from crtgen.base.errors import LinkClosedError, LinkTimeoutError
from crtgen.device.rpc.client import Client, Timeouts
from crtgen.device.rpc.server import Server
from crtgen.device.rpc.stream import Stream
from crtgen.device.run.streams import PipeStream, PtyStream, SerialStream, SocketStream

PATIENT = Timeouts(2.0, 60.0, 60.0)
HANGING = "import sys, time\nsys.stdout.buffer.write(b'\\xfe')\nsys.stdout.flush()\ntime.sleep(60)"
DEVICE = """
import os, sys
from crtgen.device.rpc.server import Server
server = Server({"echo": lambda value: value, "die": lambda: os._exit(3), "hang": lambda: sys.stdin.read()})
os.write(1, server.boot())
while not server.stopped and (data := os.read(0, 65536)):
    os.write(1, server.receive(data))
"""


def serve(read_fd: int, write_fd: int) -> None:
    """Be the device until the other end hangs up."""
    server = Server({"echo": lambda value: value})
    try:
        output = server.boot()
        while True:
            while output:
                output = output[os.write(write_fd, output) :]
            data = os.read(read_fd, 65536)
            if not data:
                return
            output = server.receive(data)
    except OSError:
        return


@contextmanager
def served(stream: Stream, read_fd: int, write_fd: int) -> Iterator[Stream]:
    device = threading.Thread(target=serve, args=(read_fd, write_fd))
    device.start()
    try:
        yield stream
    finally:
        stream.close()
        device.join(60)
        for fd in {read_fd, write_fd}:
            os.close(fd)
        assert not device.is_alive()


@contextmanager
def line(kind: str) -> Iterator[Stream]:
    """A stream of that kind with a device at its other end."""
    stream: Stream
    if kind == "pipe":
        (ours_in, theirs_out), (theirs_in, ours_out) = os.pipe(), os.pipe()
        stream, ends = PipeStream(ours_in, ours_out), (theirs_in, theirs_out)
    elif kind == "pty":
        stream, path = PtyStream.pair()
        ends = (os.open(path, os.O_RDWR | os.O_NOCTTY),) * 2
    elif kind == "socket":
        ours, theirs = socket.socketpair()
        stream, ends = SocketStream(ours), (theirs.detach(),) * 2
    else:
        master, slave = os.openpty()
        tty.setraw(slave)
        stream, ends = SerialStream(os.ttyname(slave)), (master,) * 2
        os.close(slave)
    with served(stream, *ends) as connected:
        yield connected


@pytest.mark.parametrize("kind", ["pipe", "pty", "socket", "serial"])
def test_256_kib_and_a_thousand_calls(kind: str) -> None:
    data = np.random.default_rng(3).integers(0, 256, 262_144, dtype=np.uint8)
    with line(kind) as stream, Client(stream, timeouts=PATIENT) as client:
        with client.allocate(data.shape, data.dtype) as tensor:
            tensor.write(data)
            assert np.array_equal(tensor.read(), data)
        echo = client.function("echo")
        assert [echo(index) for index in range(1000)] == list(range(1000))


@contextmanager
def process(script: str) -> Iterator[PipeStream]:
    command = [sys.executable, "-c", script]
    device = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        with PipeStream.of_process(device) as stream:
            yield stream
    finally:
        device.kill()
        device.wait(60)


def test_a_process_that_hangs_before_the_session() -> None:
    with process(HANGING) as stream, pytest.raises(LinkTimeoutError, match="did not accept a session"):
        Client(stream, timeouts=Timeouts(0.1, 0.3, 1.0)).connect()


def test_a_device_that_misses_the_first_request_is_asked_again() -> None:
    with process("import os\nos.read(0, 65536)\n" + DEVICE) as stream:
        start = time.monotonic()
        with Client(stream, timeouts=Timeouts(0.05, 60.0, 60.0)) as client:
            assert client.function("echo")(1) == 1
        assert time.monotonic() - start < 60


def test_a_process_that_dies_in_mid_call() -> None:
    with process(DEVICE) as stream, Client(stream, timeouts=PATIENT) as client:
        die = client.function("die")
        start = time.monotonic()
        with pytest.raises(LinkClosedError, match="end of file"):
            die()
        assert time.monotonic() - start < 60


def test_a_process_that_hangs_in_mid_call() -> None:
    with process(DEVICE) as stream, Client(stream, timeouts=PATIENT) as client:
        hang = client.function("hang")
        start = time.monotonic()
        with pytest.raises(LinkTimeoutError, match=r"within 0\.2 s"):
            hang(timeout=0.2)
        assert time.monotonic() - start < 60


def test_a_process_that_is_not_there_any_more() -> None:
    with process("") as stream, pytest.raises(LinkClosedError):
        Client(stream, timeouts=PATIENT).connect()
