"""Reads the output of a standalone image, which runs for ever: its last line says that it is done."""

import re
import time
from collections.abc import Callable

from crtgen.base.errors import LinkTimeoutError
from crtgen.base.text import DeviceText
from crtgen.device.fault import Fault, FaultReader, Symbols, describe
from crtgen.device.run.board import SerialDevice
from crtgen.device.run.device import Finished, RunningDevice

__all__ = ["read_to_end"]

_LAST = re.compile(r"finished: (\d{1,9}) failed")

# Bytes that an image may print.
_MOST = 16 << 20

# Bytes at the end of it that an error takes along.
_SHOWN = 64 << 10


def read_to_end(
    device: RunningDevice | SerialDevice, symbols: Symbols, timeout: float, on_line: Callable[[str], None]
) -> Finished:
    """Read an image's output to its end, passing on each line at once; return the number of models that
    failed.

    Raises ``DeviceFault`` if the image reports a fault, ``LinkTimeoutError`` if its last line does not arrive
    within ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    reader = FaultReader()
    printed = bytearray()
    start = 0
    while True:
        try:
            printed += device.stream.read(max(0.0, deadline - time.monotonic()))
        except LinkTimeoutError as error:
            raise _unfinished(f"within {timeout:g} s", device.name, printed) from error
        while (end := printed.find(b"\n", start)) >= 0:
            line = _text(printed[start : end + 1]).removesuffix("\n")
            start = end + 1
            fault = reader.take(line)
            if isinstance(fault, Fault):
                raise describe(fault, symbols)
            if not fault:
                on_line(line)
            if last := _LAST.fullmatch(line):
                return Finished(_text(printed[:start]), int(last[1]))
        if time.monotonic() > deadline:
            raise _unfinished(f"within {timeout:g} s", device.name, printed)
        if len(printed) > _MOST:
            raise _unfinished(f"in {_MOST >> 20} MiB of text", device.name, printed)


def _unfinished(when: str, name: str, printed: bytearray) -> LinkTimeoutError:
    return LinkTimeoutError(f"the image did not finish {when}", where=name, log=_text(printed[-_SHOWN:]))


def _text(printed: bytearray) -> str:
    return str(DeviceText.of_bytes(bytes(printed).replace(b"\r\n", b"\n")))
