"""Runs a program: followed line by line, ended when it takes too long, its output kept."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Timer

from crtgen.errors import BuildError

__all__ = ["follow", "run_to_end"]

_STEP = re.compile(r"\[(\d+)/(\d+)\] ")


def follow(
    command: Sequence[str | os.PathLike[str]],
    *,
    what: str,
    where: Path,
    environment: Mapping[str, str],
    time_limit: float,
    progress: Callable[[str], None],
) -> tuple[int, str]:
    """Exit code and output; Ninja's steps are the progress.

    Raises ``BuildError`` when it runs for more than ``time_limit`` seconds.
    """

    def step(line: str) -> None:
        if match := _STEP.match(line):
            progress(f"building {match[1]}/{match[2]}")

    status, output = run_to_end(command, environment=environment, time_limit=time_limit, each=step)
    if status is None:
        raise BuildError(f"{what} took more than {time_limit:.0f} s", where=str(where), log=output)
    return status, output


def run_to_end(
    command: Sequence[str | os.PathLike[str]],
    *,
    environment: Mapping[str, str],
    time_limit: float,
    each: Callable[[str], None] = lambda line: None,
) -> tuple[int | None, str]:
    """Exit code and output of a program; ``each`` gets every line of it as it comes.

    The exit code is None if the program, with all that it started, was ended after ``time_limit`` seconds.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=environment,
        start_new_session=True,
    )
    late = Event()
    timer = Timer(time_limit, _stop, (process, late))
    timer.start()
    lines = []
    try:
        for line in process.stdout or ():
            lines.append(line)
            each(line)
        status = process.wait()
    except BaseException:
        _stop(process, late)
        raise
    finally:
        timer.cancel()
    return None if late.is_set() else status, "".join(lines)


def _stop(process: "subprocess.Popen[str]", late: Event) -> None:
    """End the program and everything that it started."""
    late.set()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
