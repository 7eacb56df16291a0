"""Runs a flash runner, and reports failures as errors."""

import os
import shutil
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from crtgen.base.child import run_to_end
from crtgen.base.errors import FlashError, ToolMissingError
from crtgen.base.temporary import TemporaryFolder
from crtgen.boards import Board
from crtgen.device.flash.failure import explain, says_failed
from crtgen.device.flash.runners import FlashJob, commands
from crtgen.device.flash.table import INSTALL, TABLE
from crtgen.firmware.builder import find_workspace

__all__ = ["Flashed", "flash"]

TIME_LIMIT = 180.0
_PYOCD_MISSING = 127


@dataclass(frozen=True, slots=True)
class Flashed:
    runner: str
    output: str
    seconds: float


def flash(job: FlashJob, runner: str | None = None, *, timeout: float = TIME_LIMIT) -> Flashed:
    """Write the image and start it, with ``runner`` or with the first one that can.

    Raises ``ToolMissingError``, ``UsageError`` for a runner that does not know the board, and ``FlashError``
    with the runner's output for everything else.
    """
    name = runner or job.runners[0]
    if not job.image.is_file():
        raise FlashError("there is no such image", where=str(job.image), hint="build the project first")
    job = replace(job, image=job.image.resolve())
    lines = [[_find(program), *words] for program, *words in commands(name, job)]
    start = time.monotonic()
    environment = find_workspace().environment() if name == "west" else {**os.environ, "LC_ALL": "C"}
    output = ""
    with _neutral_folder(name) as folder:
        for line in lines:
            left = timeout - (time.monotonic() - start)
            status, printed = run_to_end(line, environment=environment, directory=folder, time_limit=left)
            output += printed
            _check(name, job.board, status, output, timeout)
    return Flashed(name, output, time.monotonic() - start)


def _neutral_folder(runner: str) -> AbstractContextManager[Path]:
    # OpenOCD, pyOCD and west execute scripts that they find in the current folder, so they start elsewhere.
    return nullcontext(find_workspace().top) if runner == "west" else TemporaryFolder()


def _check(name: str, board: Board, status: int | None, output: str, timeout: float) -> None:
    # Raise the error of a runner that did not do its work.
    if status is None:
        hint = "check that the board answers; reset it, or plug it in again"
        message = f"{name} did not finish within {timeout:g} s"
        raise FlashError(message, where=board.name, hint=hint, log=output)
    if name == "pyocd" and status == _PYOCD_MISSING:
        raise ToolMissingError("pyocd is not installed", where=board.name, hint=INSTALL["pyocd"])
    if name in TABLE and TABLE[name].done and TABLE[name].done in output:
        return
    if status or says_failed(output):
        raise explain(name, board, output, status)


def _find(program: str) -> str:
    beside = str(Path(sys.executable).parent)
    path = shutil.which(program) or shutil.which(program, path=beside)
    if path is None:
        raise ToolMissingError(f"{program} is not installed", hint=INSTALL.get(program, "install it"))
    return path
