"""The byte stream to and from an image, in the form that ``tvm.micro.Session`` takes.

::

with tvm.micro.Session(crtgen.api.tvm.transport(image)) as session:
        executor = tvm.micro.create_local_aot_executor(session)
"""

import sys
from dataclasses import dataclass
from typing import Self

from crtgen.api import Image
from crtgen.base.errors import LinkClosedError, LinkTimeoutError, UsageError
from crtgen.boards import Board, find_board
from crtgen.device.run import Device, SerialDevice, Site, start_device

__all__ = ["IoTimeoutError", "Transport", "TransportClosedError", "TransportTimeouts", "transport"]

# Seconds of a wait that TVM says has no end: then it begins again.
_WAIT = 3600.0


class IoTimeoutError(Exception):
    """Nothing arrived, or not everything could be sent, in time."""


class TransportClosedError(Exception):
    """The device is gone, or the transport was never opened."""


@dataclass(frozen=True, slots=True)
class TransportTimeouts:
    """Seconds until a start is repeated, until it is given up, and for later answers; 0 waits for ever."""

    session_start_retry_timeout_sec: float
    session_start_timeout_sec: float
    session_established_timeout_sec: float


_SERIAL = TransportTimeouts(2.0, 5.0, 60.0)
# A simulator may be slow; the end of its process is noticed at once.
_PROCESS = TransportTimeouts(2.0, 10.0, 0.0)


class Transport:
    """A device that starts when the transport is opened. The interface is that of TVM's ``Transport``."""

    def __init__(self, image: Image, site: Site | None = None) -> None:
        self._image = image
        self._site = site
        self._device: Device | None = None
        self._inbox = b""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def board(self) -> Board:
        return find_board(self._image.board)

    def timeouts(self) -> TransportTimeouts:
        """Return the timeouts that TVM should use, in seconds."""
        return _SERIAL if isinstance(self._device, SerialDevice) else _PROCESS

    def open(self) -> None:
        """Start the image, or connect to the board that runs it. An open transport stays open."""
        kind = self._image.built.manifest.type
        if kind != "server":
            raise UsageError(f"a {kind} image does not communicate", hint="generate it with --type server")
        if self._device is None:
            self._device = start_device(self._image.path, self.board, site=self._site)

    def close(self) -> None:
        """Stop the device. Calling it again has no effect."""
        if self._device is not None:
            self._device.close()
        self._device, self._inbox = None, b""

    def read(self, n: int, timeout_sec: float | None) -> bytes:
        """Read 1 to ``n`` bytes. Raises ``IoTimeoutError``, ``TransportClosedError``."""
        while not self._inbox:
            try:
                self._inbox = self._open().stream.read(_WAIT if timeout_sec is None else timeout_sec)
            except LinkTimeoutError as error:
                if timeout_sec is not None:
                    raise _of_tvm(IoTimeoutError) from error
            except LinkClosedError as error:
                raise _of_tvm(TransportClosedError) from error
        data, self._inbox = self._inbox[:n], self._inbox[n:]
        return data

    def write(self, data: bytes, timeout_sec: float | None) -> int:
        """Send all bytes and return their count. Raises the same errors as ``read``. The stream's own timeout
        applies.
        """
        try:
            self._open().stream.write(data)
        except LinkTimeoutError as error:
            raise _of_tvm(IoTimeoutError) from error
        except LinkClosedError as error:
            raise _of_tvm(TransportClosedError) from error
        return len(data)

    def _open(self) -> Device:
        if self._device is None:
            raise _of_tvm(TransportClosedError)
        return self._device


def transport(image: Image, *, site: Site | None = None) -> Transport:
    """Make the transport to an image for ``tvm.micro.Session``; ``site`` as for ``Image.run``."""
    return Transport(image, site)


def _of_tvm(kind: type[Exception]) -> Exception:
    # The error that TVM's session knows, where TVM is loaded; it has the same name.
    module = sys.modules.get("tvm.micro.project_api.server")
    found = getattr(module, kind.__name__, kind)
    return found() if issubclass(found, Exception) else kind()
