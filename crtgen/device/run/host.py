"""Runs firmware as a process of this computer; the RPC's line is its standard input and output."""

import subprocess
from pathlib import Path

from crtgen.base.child import Child
from crtgen.base.errors import UsageError
from crtgen.device.run.device import (
    MOST_PRINTED,
    Finished,
    RunningDevice,
    image_name,
    open_console,
    run_program,
)
from crtgen.device.run.streams import PipeStream

__all__ = ["run_on_host", "start_host"]

_BOARD = "host"


def start_host(image: Path) -> RunningDevice:
    command, name = [str(_existing(image))], image_name(image, _BOARD)
    console = open_console()
    process = Child(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=console, most_written=MOST_PRINTED
    )
    return RunningDevice(name, PipeStream.of_process(process, name=name), process, console)


def run_on_host(image: Path, *, timeout: float = 60.0) -> Finished:
    """Run a standalone image until it exits. Raises ``LinkTimeoutError`` after ``timeout`` seconds."""
    return run_program([_existing(image)], image_name(image, _BOARD), timeout)


def _existing(image: Path) -> Path:
    if not image.is_file():
        raise UsageError("there is no such image", where=str(image), hint="build the project first")
    return image.resolve()
