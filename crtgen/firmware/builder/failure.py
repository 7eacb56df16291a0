"""Turns the output of a failed build into an error that says what to do."""

import re
from collections.abc import Mapping
from pathlib import Path

from crtgen.base.errors import BuildError, CrtgenError, DoesNotFitError, UsageError
from crtgen.boards import all_boards, boards_that_fit, find_board
from crtgen.firmware.project.manifest import Manifest

__all__ = ["explain_failure"]

_OVERFLOW = re.compile(r"region [`']?(\w+)'?:? overflowed by (\d+) bytes")
_ERROR = re.compile(r"error:|CMake Error|undefined reference|multiple definition|FAILED:|cannot find")
_PROGRESS = re.compile(r"\[\d+/\d+\] Building ")
_SHOWN = 5


def explain_failure(output: str, log: Path, manifest: Manifest, during: str) -> CrtgenError:
    """Return ``DoesNotFitError`` for a linker overflow, otherwise ``BuildError`` with the first lines that
    contain an error.
    """
    overflows: dict[str, int] = {}
    for region, size in _OVERFLOW.findall(output):
        overflows[region] = max(int(size), overflows.get(region, 0))
    if overflows:
        return _does_not_fit(overflows, output, manifest)
    lines = [line.strip() for line in output.splitlines() if _ERROR.search(line)]
    told = (
        [line for line in lines if not line.startswith("FAILED:")] or lines or output.splitlines()[-_SHOWN:]
    )
    text = "\n".join([f"{during} failed", *told[:_SHOWN]])
    return BuildError(text, where=manifest.name, hint=f"the whole output is in {log}", log=output)


def _does_not_fit(overflows: Mapping[str, int], output: str, manifest: Manifest) -> DoesNotFitError:
    name = manifest.board
    parts = ", ".join(f"{region} by {size:,} bytes" for region, size in overflows.items())
    return DoesNotFitError(
        f"the image is larger than the memory: {parts}",
        where=name,
        hint=_advice(overflows, name),
        log="\n".join(line for line in output.splitlines() if not _PROGRESS.match(line)),
    )


def _advice(overflows: Mapping[str, int], name: str) -> str:
    # The boards that certainly hold the image: a memory that did not overflow may be full.
    try:
        board = find_board(name)
    except UsageError:
        return "choose a board with more memory"
    flash = board.flash + overflows.get(board.code, 0)
    ram = board.ram + overflows.get(board.data, 0)
    fitting = [b.name for b in boards_that_fit(flash, ram) if b.name != name]
    if fitting:
        return f"it fits on {', '.join(fitting)}"
    largest = max(all_boards(), key=lambda b: (b.flash, b.ram))
    needed = f"it needs {flash:,} bytes of flash, if not more, and {ram:,} of RAM"
    return f"{needed}; {largest.name}, the largest board, has {largest.flash:,} and {largest.ram:,}"
