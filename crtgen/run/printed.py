"""Reads what a standalone Zephyr image prints: it never ends, but its last line says that it is done."""

import re
import time

from crtgen.errors import LinkTimeoutError
from crtgen.run.board import SerialDevice
from crtgen.run.device import Finished, RunningDevice

__all__ = ["read_to_end"]

_LAST = re.compile(rb"^finished: (\d+) failed\r?$", re.MULTILINE)


def read_to_end(device: RunningDevice | SerialDevice, timeout: float) -> Finished:
    """What the image prints; the code is the number of models that failed.

    Raises ``LinkTimeoutError`` if the last line does not come within ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    printed = b""
    while not (last := _LAST.search(printed)):
        try:
            printed += device.stream.read(max(0.0, deadline - time.monotonic()))
        except LinkTimeoutError as error:
            raise LinkTimeoutError(
                f"it did not finish within {timeout:g} s", where=device.name, log=_text(printed)
            ) from error
    return Finished(_text(printed[: last.end()] + b"\n"), int(last[1]))


def _text(printed: bytes) -> str:
    return printed.decode(errors="replace").replace("\r\n", "\n")
