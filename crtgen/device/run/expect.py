"""A scripted conversation with any firmware: wait for its output, and answer."""

import re
import time

from crtgen.base.errors import LinkTimeoutError
from crtgen.base.text import DeviceText
from crtgen.device.run.board import SerialDevice
from crtgen.device.run.device import RunningDevice

__all__ = ["Dut"]

_MOST = 16 << 20
# Bytes that are looked through for a match, and those at the end that an error takes along.
_SHOWN = 64 << 10


class Dut:
    def __init__(self, device: RunningDevice | SerialDevice) -> None:
        self.device = device
        self._printed = bytearray()
        self._start = 0

    @property
    def output(self) -> str:
        """Output so far, up to the last text that was waited for."""
        return _text(self._printed)

    def expect(self, pattern: str, timeout: float = 10.0) -> "re.Match[str]":
        """Wait for a regular expression in the new output, and return the match; ``^`` begins a line.

        Raises ``LinkTimeoutError`` after ``timeout`` seconds, with the output.
        """
        wanted = re.compile(pattern, re.MULTILINE)
        deadline = time.monotonic() + timeout
        while True:
            rest = self._printed[self._start :].decode("latin-1")
            if found := wanted.search(rest.replace("\r\n", "\n")):
                self._start += len(_as_sent(rest, found.end()))
                return found
            try:
                self._printed += self.device.stream.read(max(0.0, deadline - time.monotonic()))
            except LinkTimeoutError as error:
                raise self._never(pattern, timeout) from error
            if time.monotonic() > deadline or len(self._printed) - self._start > _MOST:
                raise self._never(pattern, timeout)

    def write(self, text: str | bytes) -> None:
        self.device.stream.write(text.encode() if isinstance(text, str) else text)

    def _never(self, pattern: str, timeout: float) -> LinkTimeoutError:
        shown = _text(self._printed[-_SHOWN:])
        said = shown.splitlines()[-1] if shown.strip() else "nothing"
        message = f'"{pattern}" did not come within {timeout:g} s; the last line was: {said}'
        return LinkTimeoutError(message, where=self.device.name, log=shown)


def _as_sent(text: str, length: int) -> str:
    # The start of a text that has so many characters once its line ends are single ones.
    end = length
    while len(text[:end].replace("\r\n", "\n")) < length:
        end += 1
    return text[:end]


def _text(printed: bytearray) -> str:
    return str(DeviceText.of_bytes(bytes(printed).replace(b"\r\n", b"\n")))
