"""Transports to a device: pipes, ptys, sockets and serial ports, each as a stream of bytes.

A stream has ``read(timeout)``, ``write(data)``, ``close()`` and says whether it is ``flow_controlled``, that
is, whether bytes wait until the device takes them. A read or write that lasts too long is a
``LinkTimeoutError``, a peer that is gone a ``LinkClosedError``, at once.
"""

import os
import select
import socket
import subprocess
import time
from contextlib import suppress
from typing import Self

import serial

from crtgen.base.errors import LinkClosedError, LinkTimeoutError, UnsupportedError

__all__ = ["PipeStream", "PtyStream", "SerialStream", "SocketStream", "check_pipes"]

WRITE_TIMEOUT = 10.0
"""Seconds for which a write waits for a peer that does not read."""

# Bytes a second that a write takes at the longest, besides.
_SLOWEST = 250

_CHUNK = 65536
_CONNECT_INTERVAL = 0.02
_POLL_INTERVAL = 0.001
# Milliseconds that the operating system can wait.
_POLL_MAX = (1 << 31) - 1


def _timed_out(what: str, timeout: float, where: str) -> LinkTimeoutError:
    return LinkTimeoutError(f"{what} for {timeout:g} s", where=where)


def _closed(why: str, where: str) -> LinkClosedError:
    return LinkClosedError(f"the line is closed: {why}", where=where, hint="check that the device still runs")


def check_pipes() -> None:
    """Raise ``UnsupportedError`` on a system that cannot wait for pipes and sockets alike: Windows."""
    if not hasattr(select, "poll"):
        raise UnsupportedError(
            "simulated boards and programs of this computer run on Linux and macOS only",
            hint="use WSL, or connect a board",
        )


class _DescriptorStream:
    flow_controlled = True

    def __init__(self, read_fd: int, write_fd: int, *, name: str, write_timeout: float) -> None:
        check_pipes()
        self.name = name
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._write_timeout = write_timeout
        self._open = True
        for fd in {read_fd, write_fd}:
            os.set_blocking(fd, False)
        self._readable = select.poll()
        self._readable.register(read_fd, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(write_fd, select.POLLOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def read(self, timeout: float) -> bytes:
        # At least one byte, at most 64 KiB.
        self._check_open()
        if not self._readable.poll(min(timeout * 1000, _POLL_MAX)):
            raise _timed_out("no data arrived", timeout, self.name)
        try:
            data = os.read(self._read_fd, _CHUNK)
        except OSError as error:
            raise _closed(error.strerror or str(error), self.name) from error
        if not data:
            raise _closed("end of file", self.name)
        return data

    def write(self, data: bytes) -> None:
        self._check_open()
        rest = memoryview(data)
        deadline = time.monotonic() + self._write_timeout + len(data) / _SLOWEST
        while rest:
            try:
                rest = rest[os.write(self._write_fd, rest) :]
            except BlockingIOError:
                wait = min(self._write_timeout, deadline - time.monotonic())
                if wait <= 0 or not self._writable.poll(wait * 1000):
                    raise _timed_out("the device accepted no data", self._write_timeout, self.name) from None
            except OSError as error:
                raise _closed(error.strerror or str(error), self.name) from error

    def close(self) -> None:
        if self._open:
            self._open = False
            for fd in {self._read_fd, self._write_fd}:
                os.close(fd)

    def _check_open(self) -> None:
        if not self._open:
            raise _closed("the line was closed by this program", self.name)


class PipeStream(_DescriptorStream):
    """A pair of pipes, usually the standard input and output of a process."""

    def __init__(
        self, read_fd: int, write_fd: int, *, name: str = "pipe", write_timeout: float = WRITE_TIMEOUT
    ) -> None:
        super().__init__(read_fd, write_fd, name=name, write_timeout=write_timeout)

    @classmethod
    def of_process(
        cls,
        process: "subprocess.Popen[bytes]",
        *,
        name: str = "process",
        write_timeout: float = WRITE_TIMEOUT,
    ) -> Self:
        """Take the pipes of a process started with ``stdin=PIPE, stdout=PIPE``. The caller ends the
        process.
        """
        if process.stdin is None or process.stdout is None:
            raise ValueError("the process has to be started with stdin=PIPE and stdout=PIPE")
        read_fd, write_fd = os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno())
        process.stdin.close()
        process.stdout.close()
        return cls(read_fd, write_fd, name=name, write_timeout=write_timeout)


class PtyStream(_DescriptorStream):
    """A terminal without line editing, on POSIX: an existing one, or our end of a new pair."""

    def __init__(
        self,
        fd: int,
        *,
        name: str = "pty",
        write_timeout: float = WRITE_TIMEOUT,
        flow_controlled: bool = False,
    ) -> None:
        super().__init__(fd, fd, name=name, write_timeout=write_timeout)
        self.flow_controlled = flow_controlled

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, write_timeout: float = WRITE_TIMEOUT) -> Self:
        """Open the terminal at a path, for example the one that QEMU names. It may be a real line."""
        name = os.fspath(path)
        try:
            fd = os.open(name, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as error:
            raise _closed(error.strerror or str(error), name) from error
        import termios  # Windows has no terminals of this kind, and imports this file as well
        import tty

        try:
            tty.setraw(fd)
        except termios.error as error:
            os.close(fd)
            raise _closed("not a terminal", name) from error
        return cls(fd, name=name, write_timeout=write_timeout)

    @classmethod
    def pair(cls, *, write_timeout: float = WRITE_TIMEOUT) -> tuple[Self, str]:
        """Return our end of a new pseudo-terminal, and the path of the other end.

        Reading raises ``LinkClosedError`` while no process has the other end open.
        """
        import tty

        ours, theirs = os.openpty()
        tty.setraw(theirs)
        path = os.ttyname(theirs)
        os.close(theirs)
        return cls(ours, name=path, write_timeout=write_timeout, flow_controlled=True), path


class SocketStream(_DescriptorStream):
    def __init__(
        self, connected: socket.socket, *, name: str = "socket", write_timeout: float = WRITE_TIMEOUT
    ) -> None:
        check_pipes()
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        fd = connected.detach()
        super().__init__(fd, fd, name=name, write_timeout=write_timeout)

    @classmethod
    def connect(
        cls, address: str | os.PathLike[str], *, timeout: float = 10.0, write_timeout: float = WRITE_TIMEOUT
    ) -> Self:
        """Connect to ``host:port`` or the path of a Unix socket, and retry for ``timeout`` seconds."""
        name = os.fspath(address)
        deadline = time.monotonic() + timeout
        while True:
            try:
                return cls(_connect(name, timeout), name=name, write_timeout=write_timeout)
            except OSError as error:
                if time.monotonic() + _CONNECT_INTERVAL > deadline:
                    raise LinkTimeoutError(
                        f"no connection within {timeout:g} s: {error.strerror or error}",
                        where=name,
                        hint="check that something listens there",
                    ) from error
            time.sleep(_CONNECT_INTERVAL)


def _connect(address: str, timeout: float) -> socket.socket:
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        return socket.create_connection((host.strip("[]"), int(port)), timeout)
    unix = socket.socket(socket.AF_UNIX)
    try:
        unix.settimeout(timeout)
        unix.connect(address)
    except OSError:
        unix.close()
        raise
    return unix


class SerialStream:
    """A serial port, as anything that pyserial understands: a path, ``rfc2217://``, ``socket://``,
    ``loop://``.
    """

    flow_controlled = False

    def __init__(self, url: str, *, baudrate: int = 115200, write_timeout: float = WRITE_TIMEOUT) -> None:
        self.name = url
        limit = None if url.startswith("rfc2217:") else write_timeout  # pyserial has a fixed one there
        try:
            self._port = serial.serial_for_url(url, baudrate=baudrate, timeout=0, write_timeout=limit)
        except (OSError, ValueError) as error:
            raise LinkClosedError(
                f"the port cannot be opened: {error}",
                where=url,
                hint="check the name, the cable, and that you may use it (group dialout)",
            ) from error
        self._write_timeout = write_timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def read(self, timeout: float) -> bytes:
        """Read at least one byte, at most 64 KiB."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                data = self._available()
                left = deadline - time.monotonic()
                if data:
                    return data
                if left <= 0:
                    raise _timed_out("no data arrived", timeout, self.name)
                self._wait(left)
            except OSError as error:
                raise _closed(str(error), self.name) from error

    def write(self, data: bytes) -> None:
        try:
            self._port.write(data)
        except serial.SerialTimeoutException as error:
            raise _timed_out("the device accepted no data", self._write_timeout, self.name) from error
        except OSError as error:
            raise _closed(str(error), self.name) from error

    def close(self) -> None:
        with suppress(OSError):
            self._port.close()

    def _available(self) -> bytes:
        # Some ports return one byte at a time; bytes before a hang-up still count.
        data = bytearray()
        try:
            while len(data) < _CHUNK and (piece := self._port.read(_CHUNK)):
                data += piece
        except OSError:
            if not data:
                raise
        return bytes(data)

    def _wait(self, timeout: float) -> None:
        # Until bytes may be there. Ports without a descriptor can only be asked again and again.
        try:
            descriptor = self._port.fileno()
        except OSError:
            time.sleep(min(_POLL_INTERVAL, timeout))
        else:
            select.select([descriptor], [], [], timeout)
