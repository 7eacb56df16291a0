"""A device that runs as a process on this computer: started, listened to, and always ended."""

import atexit
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Self

from crtgen.base.child import Child, Command, run_to_end
from crtgen.base.errors import CrtgenError, LinkTimeoutError
from crtgen.device.run.mailbox import MailboxStream
from crtgen.device.run.streams import PipeStream, SocketStream, check_pipes

__all__ = [
    "MOST_PRINTED",
    "Finished",
    "RunningDevice",
    "console_text",
    "image_name",
    "open_console",
    "run_program",
]

MOST_PRINTED = 64 << 20
"""Bytes that a device may print; one that prints more is ended."""

# Bytes at the end of what a device printed that an error takes along.
_SHOWN = 64 << 10


@dataclass(slots=True, eq=False)
class RunningDevice:
    """A process that serves the RPC on ``stream``; ``console`` is its other output.

    As a context manager it adds the console's text to a ``CrtgenError`` that passes through.
    """

    name: str
    stream: PipeStream | SocketStream | MailboxStream
    process: Child
    console: BinaryIO
    _closed: bool = field(default=False)

    def __post_init__(self) -> None:
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if isinstance(error, CrtgenError) and not error.log:
            error.log = self.output()

    def output(self) -> str:
        return console_text(self.console)

    def wait(self, timeout: float) -> int:
        """Return the exit code once the process has ended by itself. Raises ``LinkTimeoutError``."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise LinkTimeoutError(f"the image still runs after {timeout:g} s", where=self.name) from error

    def close(self) -> None:
        """Close the line and end the process if it is still running. Calling it again has no effect."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        self.stream.close()
        self.process.end()


@dataclass(frozen=True, slots=True)
class Finished:
    output: str
    code: int


def open_console() -> BinaryIO:
    """Open a nameless file, which disappears with the process.

    Raises ``UnsupportedError`` on a system that cannot run a device's program.
    """
    check_pipes()
    return tempfile.TemporaryFile()


def run_program(command: Command, name: str, timeout: float) -> Finished:
    """Run a program that needs no input. Raises ``LinkTimeoutError`` after ``timeout`` seconds."""
    code, output = run_to_end(command, time_limit=timeout)
    if code is None:
        raise LinkTimeoutError(f"the image still runs after {timeout:g} s", where=name, log=output)
    return Finished(output, code)


def image_name(image: Path, board: str) -> str:
    return f"{image.name} on {board}"


def console_text(console: BinaryIO) -> str:
    size = os.fstat(console.fileno()).st_size
    return os.pread(console.fileno(), _SHOWN, max(0, size - _SHOWN)).decode(errors="replace")
