"""Every transport with the real thing at the other end: pipes, processes, ptys, sockets, pyserial's ports."""

import os
import socket
import subprocess
import sys
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import serial
from serial import rfc2217

from crtgen.base.errors import LinkClosedError, LinkTimeoutError
from crtgen.device.run.streams import PipeStream, PtyStream, SerialStream, SocketStream

ECHO = "import os\nwhile data := os.read(0, 65536):\n    os.write(1, data)"
EVERY_BYTE = bytes(range(256)) * 8


class Line(NamedTuple):
    """A stream, and the other end: how to send, receive and hang up there."""

    stream: Any
    send: Callable[[bytes], object]
    receive: Callable[[], bytes]
    hang_up: Callable[[], None]


@contextmanager
def pipe_line() -> Iterator[Line]:
    (ours_in, theirs_out), (theirs_in, ours_out) = os.pipe(), os.pipe()

    def hang_up() -> None:
        os.close(theirs_out)
        os.close(theirs_in)

    with PipeStream(ours_in, ours_out, write_timeout=0.2) as stream:
        yield Line(
            stream, lambda data: os.write(theirs_out, data), lambda: os.read(theirs_in, 65536), hang_up
        )


@contextmanager
def pty_line() -> Iterator[Line]:
    """The device's end of a new pair is opened as a device would."""
    stream, path = PtyStream.pair(write_timeout=0.2)
    fd = os.open(path, os.O_RDWR | os.O_NOCTTY)
    with stream:
        yield Line(stream, lambda data: os.write(fd, data), lambda: os.read(fd, 65536), lambda: os.close(fd))


@contextmanager
def tty_line() -> Iterator[Line]:
    """The stream opens a path, somebody else has the master."""
    master, slave = os.openpty()
    path = os.ttyname(slave)
    os.close(slave)
    with PtyStream.open(path, write_timeout=0.2) as stream:
        yield Line(
            stream,
            lambda data: os.write(master, data),
            lambda: os.read(master, 65536),
            lambda: os.close(master),
        )


@contextmanager
def serial_line() -> Iterator[Line]:
    """A tty path through pyserial."""
    master, slave = os.openpty()
    tty.setraw(slave)
    path = os.ttyname(slave)
    with SerialStream(path, write_timeout=0.2) as stream:
        os.close(slave)
        yield Line(
            stream,
            lambda data: os.write(master, data),
            lambda: os.read(master, 65536),
            lambda: os.close(master),
        )


@contextmanager
def socket_line(address: str, connect: Callable[[str], Any]) -> Iterator[Line]:
    family = socket.AF_UNIX if "/" in address else socket.AF_INET
    with socket.socket(family) as listener:
        listener.bind(address if family == socket.AF_UNIX else ("127.0.0.1", 0))
        listener.listen(1)
        name = address if family == socket.AF_UNIX else f"127.0.0.1:{listener.getsockname()[1]}"
        with connect(name) as stream:
            peer, _ = listener.accept()
            with peer:
                yield Line(stream, peer.sendall, lambda: peer.recv(65536), peer.close)


def tcp_line() -> AbstractContextManager[Line]:
    return socket_line("", lambda name: SocketStream.connect(name, write_timeout=0.2))


def pyserial_socket_line() -> AbstractContextManager[Line]:
    return socket_line("", lambda name: SerialStream(f"socket://{name}", write_timeout=0.2))


LINES = {
    "pipe": pipe_line,
    "pty": pty_line,
    "tty": tty_line,
    "serial": serial_line,
    "tcp": tcp_line,
    "socket url": pyserial_socket_line,
}
EVERY_LINE = pytest.mark.parametrize("line", LINES.values(), ids=LINES)


def read_all(stream: Any, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = stream.read(60)
        assert piece
        data += piece
    return data


def ask(stream: Any) -> None:
    """A request; some transports only tell on reading that nobody took it."""
    stream.write(b"anybody there?")
    stream.read(60)


@EVERY_LINE
def test_every_byte_passes_both_ways(line: Callable[[], AbstractContextManager[Line]]) -> None:
    with line() as (stream, send, receive, _):
        stream.write(EVERY_BYTE)
        received = b""
        while len(received) < len(EVERY_BYTE):
            received += receive()
        assert received == EVERY_BYTE
        send(EVERY_BYTE)
        assert read_all(stream, len(EVERY_BYTE)) == EVERY_BYTE


@EVERY_LINE
def test_a_silent_peer_is_a_timeout(line: Callable[[], AbstractContextManager[Line]]) -> None:
    with line() as (stream, send, _, _):
        for timeout in (0, 0.05):
            start = time.monotonic()
            with pytest.raises(LinkTimeoutError) as caught:
                stream.read(timeout)
            assert timeout * 0.9 <= time.monotonic() - start
            assert caught.value.where == stream.name
        send(b"late")
        assert read_all(stream, 4) == b"late"


@EVERY_LINE
def test_a_peer_that_goes_is_noticed_at_once(line: Callable[[], AbstractContextManager[Line]]) -> None:
    with line() as (stream, send, _, hang_up):
        send(b"bye")
        assert read_all(stream, 3) == b"bye"
        threading.Timer(0.05, hang_up).start()
        start = time.monotonic()
        with pytest.raises(LinkClosedError):
            stream.read(60)
        assert time.monotonic() - start < 60
        with pytest.raises(LinkClosedError):
            ask(stream)


@pytest.mark.parametrize(
    "line", [pipe_line, tcp_line, pyserial_socket_line], ids=["pipe", "tcp", "socket url"]
)
def test_last_words_come_before_the_end(line: Callable[[], AbstractContextManager[Line]]) -> None:
    with line() as (stream, send, _, hang_up):
        send(b"last words")
        hang_up()
        time.sleep(0.05)
        assert read_all(stream, 10) == b"last words"
        with pytest.raises(LinkClosedError):
            stream.read(60)


@pytest.mark.parametrize("line", [pipe_line, pty_line, tty_line, tcp_line], ids=["pipe", "pty", "tty", "tcp"])
def test_a_peer_that_takes_nothing_is_a_timeout(line: Callable[[], AbstractContextManager[Line]]) -> None:
    with (
        line() as (stream, _, _, _),
        pytest.raises(LinkTimeoutError, match="the device accepted no data"),
    ):
        stream.write(bytes(16 << 20))


@EVERY_LINE
def test_a_closed_stream_is_closed(line: Callable[[], AbstractContextManager[Line]]) -> None:
    with line() as (stream, _, _, _):
        stream.close()
        stream.close()
        with pytest.raises(LinkClosedError):
            stream.read(0)
        with pytest.raises(LinkClosedError):
            stream.write(b"x")


def test_a_megabyte_through_a_process() -> None:
    data = os.urandom(1 << 20)
    process = subprocess.Popen([sys.executable, "-c", ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process, PipeStream.of_process(process, name="echo") as stream:
        received = b""
        for at in range(0, len(data), 32768):
            stream.write(data[at : at + 32768])
            received += read_all(stream, 32768)
        assert received == data
        process.kill()
        with pytest.raises(LinkClosedError, match="end of file"):
            stream.read(60)
        assert stream.flow_controlled


def test_closing_the_stream_lets_the_process_end() -> None:
    process = subprocess.Popen([sys.executable, "-c", ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    PipeStream.of_process(process).close()
    assert process.wait(60) == 0


def test_a_unix_socket(tmp_path: Path) -> None:
    with socket_line(str(tmp_path / "line"), SocketStream.connect) as (stream, send, receive, _):
        send(b"down")
        stream.write(b"up")
        assert (read_all(stream, 4), receive()) == (b"down", b"up")
        assert stream.flow_controlled


def test_connecting_waits_for_a_listener(tmp_path: Path) -> None:
    path = str(tmp_path / "late")
    with socket.socket(socket.AF_UNIX) as listener:

        def listen() -> None:
            listener.bind(path)
            listener.listen(1)

        threading.Timer(0.1, listen).start()
        SocketStream.connect(path, timeout=60).close()


def test_connecting_to_nobody_is_a_timeout(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        for address in (f"127.0.0.1:{unused.getsockname()[1]}", str(tmp_path / "nobody")):
            with pytest.raises(LinkTimeoutError, match="no connection within") as caught:
                SocketStream.connect(address, timeout=0.1)
            assert caught.value.where == address


def test_loop_gives_back_what_was_written() -> None:
    with SerialStream("loop://") as stream:
        stream.write(EVERY_BYTE)
        assert read_all(stream, len(EVERY_BYTE)) == EVERY_BYTE
        with pytest.raises(LinkTimeoutError):
            stream.read(0.02)
        assert not stream.flow_controlled


class Connection:
    """What pyserial's port manager writes to."""

    def __init__(self, peer: socket.socket) -> None:
        self.write = peer.sendall


def serve_rfc2217(listener: socket.socket) -> None:
    """Share a port that echoes, as a terminal server does."""
    peer, _ = listener.accept()
    with peer, serial.serial_for_url("loop://", timeout=0) as port:
        manager = rfc2217.PortManager(port, Connection(peer))
        while data := peer.recv(4096):
            port.write(b"".join(manager.filter(data)))
            peer.sendall(b"".join(manager.escape(port.read(65536))))


def test_rfc2217_through_a_terminal_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve_rfc2217, args=(listener,))
        server.start()
        with SerialStream(f"rfc2217://127.0.0.1:{listener.getsockname()[1]}", baudrate=9600) as stream:
            stream.write(EVERY_BYTE)
            assert read_all(stream, len(EVERY_BYTE)) == EVERY_BYTE
            with pytest.raises(LinkTimeoutError):
                stream.read(0.02)
        server.join(60)
        assert not server.is_alive()


@pytest.mark.parametrize("url", ["/dev/nothing-here", "nothing://here", "socket://127.0.0.1:1"])
def test_a_port_that_cannot_be_opened(url: str) -> None:
    with pytest.raises(LinkClosedError, match="cannot be opened") as caught:
        SerialStream(url)
    assert caught.value.where == url


def test_a_path_that_is_no_terminal(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    with pytest.raises(LinkClosedError, match="not a terminal"):
        PtyStream.open(file)
    with pytest.raises(LinkClosedError, match="No such file"):
        PtyStream.open(tmp_path / "absent")


def test_reading_takes_what_is_there_up_to_64_kib() -> None:
    with pipe_line() as (stream, send, _, _):
        send(bytes(50_000))
        assert len(stream.read(1)) == 50_000


def test_a_process_without_pipes_is_refused() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    with process, pytest.raises(ValueError, match="stdin=PIPE"):
        closing(PipeStream.of_process(process))


def test_a_terminal_that_is_opened_may_be_a_real_line() -> None:
    """Only of a new pair it is known that no byte gets lost."""
    ours, path = PtyStream.pair()
    with ours, PtyStream.open(path) as theirs:
        assert (ours.flow_controlled, theirs.flow_controlled) == (True, False)
