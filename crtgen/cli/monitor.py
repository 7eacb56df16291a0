"""``crtgen monitor``: shows the output of a device."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from crtgen import api
from crtgen.base.errors import LinkTimeoutError
from crtgen.base.text import printable
from crtgen.boards import find_board
from crtgen.cli.groups import Connecting, flattened
from crtgen.cli.output import Debug, guarded
from crtgen.device.fault import Fault, FaultReader, Symbols, describe
from crtgen.device.rpc.listener import Listener
from crtgen.device.run import Device, run_standalone, start_device

__all__ = ["command"]

_DAY = 86_400.0
# The largest exit code of a program.
_LARGEST = 255


@flattened
def command(
    directory: Annotated[Path, typer.Argument(help="A generated project.", show_default=False)],
    connecting: Connecting,
    seconds: Annotated[float | None, typer.Option(help="End after this many seconds.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each line as one JSON object.")] = False,
    debug: Debug = False,
) -> None:
    """Start a project's image and show its log.

    A standalone image ends by itself; the exit code is the number of models that failed.
    """
    with guarded(as_json, debug) as out:
        with out.stage() as say:
            project = api.open_project(directory)
            image = (project.built() if connecting.port else None) or project.build(say=say)
        board, site = find_board(image.board), connecting.site()
        show = _show_json if as_json else _show
        if image.built.manifest.type == "standalone":
            finished = run_standalone(image.path, board, site=site, timeout=seconds or _DAY, on_line=show)
            raise typer.Exit(min(finished.code, _LARGEST))
        with start_device(image.path, board, site=site) as device:
            for line in _explained(_lines(device, Listener(), seconds), Symbols(image.path)):
                show(line)


def _show(line: str) -> None:
    typer.echo(printable(line))


def _show_json(line: str) -> None:
    typer.echo(json.dumps({"line": line}))


def _explained(lines: Iterator[str], symbols: Symbols) -> Iterator[str]:
    # The lines, with what a report of a fault says instead of its memory.
    reader = FaultReader()
    for line in lines:
        fault = reader.take(line)
        if isinstance(fault, Fault):
            yield f"fault: {describe(fault, symbols).message}"
        elif not fault:
            yield line


def _lines(device: Device, listener: Listener, seconds: float | None) -> Iterator[str]:
    end = time.monotonic() + seconds if seconds is not None else None
    while end is None or time.monotonic() < end:
        try:
            yield from listener.feed(device.stream.read(0.2))
        except LinkTimeoutError:
            continue
