"""Reads what a standalone Zephyr image prints: it never ends, but its last line says that it is done."""

import re
import time

from crtgen.errors import LinkTimeoutError
from crtgen.run.board import SerialDevice
from crtgen.run.device import Finished, RunningDevice

__all__ = ["read_to_end"]

_LAST = re.compile(rb"^finished: (\d{1,9}) failed\r?$", re.MULTILINE)
_LONGEST_LAST = 64
"""Bytes within which the last line fits."""

_MOST = 16 << 20
"""Bytes that an image may print."""

_SHOWN = 64 << 10
"""Bytes at the end of it that an error takes along."""


def read_to_end(device: RunningDevice | SerialDevice, timeout: float) -> Finished:
    """What the image prints; the code is the number of models that failed.

    Raises ``LinkTimeoutError`` if the last line does not come within ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    printed = bytearray()
    searched = 0
    while not (last := _LAST.search(printed, searched)):
        searched = max(0, len(printed) - _LONGEST_LAST)
        try:
            printed += device.stream.read(max(0.0, deadline - time.monotonic()))
        except LinkTimeoutError as error:
            raise _unfinished(f"within {timeout:g} s", device.name, printed) from error
        if time.monotonic() > deadline:
            raise _unfinished(f"within {timeout:g} s", device.name, printed)
        if len(printed) > _MOST:
            raise _unfinished(f"in {_MOST >> 20} MiB of text", device.name, printed)
    return Finished(_text(printed[: last.end()]) + "\n", int(last[1]))


def _unfinished(when: str, name: str, printed: bytearray) -> LinkTimeoutError:
    return LinkTimeoutError(f"it did not finish {when}", where=name, log=_text(printed[-_SHOWN:]))


def _text(printed: bytearray) -> str:
    return printed.decode(errors="replace").replace("\r\n", "\n")
