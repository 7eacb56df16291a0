"""Follows a build: reports the steps that it prints, and limits its time."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from crtgen.base.child import Command, run_to_end
from crtgen.base.errors import BuildError

__all__ = ["follow"]

_STEP = re.compile(r"\[(\d+)/(\d+)\] ")


def follow(
    command: Command,
    *,
    what: str,
    where: Path,
    environment: Mapping[str, str],
    time_limit: float,
    progress: Callable[[str], None],
    directory: Path | None = None,
) -> tuple[int, str]:
    """Return the exit code and output of a program, started in ``directory``; Ninja's steps are reported as
    progress.

    Raises ``BuildError`` if it runs for more than ``time_limit`` seconds.
    """

    def step(line: str) -> None:
        if match := _STEP.match(line):
            progress(f"building {match[1]}/{match[2]}")

    status, output = run_to_end(
        command, environment=environment, directory=directory, time_limit=time_limit, each=step
    )
    if status is None:
        raise BuildError(f"{what} took more than {time_limit:.0f} s", where=str(where), log=output)
    return status, output
