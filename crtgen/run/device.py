"""A device that runs as a process of this computer: started, listened to, and always ended."""

import atexit
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Self

from crtgen.errors import CrtgenError, LinkTimeoutError
from crtgen.run.streams import PipeStream, SocketStream

__all__ = ["Finished", "RunningDevice", "end_process", "image_name", "open_console", "run_to_end"]

GRACE = 2.0
"""Seconds that a process has to end by itself before it is killed."""


@dataclass(slots=True, eq=False)
class RunningDevice:
    """A process that serves the RPC on ``stream``; ``console`` is what it prints besides.

    It is a context manager. A ``CrtgenError`` that leaves it takes the console's text along as its log.
    """

    name: str
    stream: PipeStream | SocketStream
    process: "subprocess.Popen[bytes]"
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
        """What the process has printed so far."""
        return _text(self.console)

    def wait(self, timeout: float) -> int:
        """The exit code, once the process ends by itself. Raises ``LinkTimeoutError``."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise LinkTimeoutError(f"it still runs after {timeout:g} s", where=self.name) from error

    def close(self) -> None:
        """Close the line and end the process, if it has not ended. More than once is fine."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        self.stream.close()
        end_process(self.process)


@dataclass(frozen=True, slots=True)
class Finished:
    """A program that ran to its end: what it printed, and its exit code."""

    output: str
    code: int


def open_console() -> BinaryIO:
    """A file without a name, gone with the process that has it open."""
    return tempfile.TemporaryFile()


def run_to_end(command: Sequence[str | os.PathLike[str]], name: str, timeout: float) -> Finished:
    """Run a program that needs no input. Raises ``LinkTimeoutError`` after ``timeout`` seconds."""
    with open_console() as console:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True
        )
        try:
            return Finished(code=process.wait(timeout), output=_text(console))
        except subprocess.TimeoutExpired as error:
            raise LinkTimeoutError(
                f"it still runs after {timeout:g} s", where=name, log=_text(console)
            ) from error
        finally:
            end_process(process, grace=0)


def end_process(process: "subprocess.Popen[bytes]", grace: float = GRACE) -> None:
    """End a process that leads its own group, with everything it started, and wait for it."""
    for number, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, GRACE)):
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(wait)


def image_name(image: Path, board: str) -> str:
    """How errors name a running image."""
    return f"{image.name} on {board}"


def _text(console: BinaryIO) -> str:
    size = os.fstat(console.fileno()).st_size
    return os.pread(console.fileno(), size, 0).decode(errors="replace")
