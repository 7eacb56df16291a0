"""``crtgen flash``: write an image to a connected board."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen import api
from crtgen.boards import find_board
from crtgen.cli import options
from crtgen.cli.output import Debug, Json, guarded
from crtgen.device.flash import GDB_SERVER, write_connected

__all__ = ["command"]


def command(
    directory: Annotated[Path, typer.Argument(help="A generated project.", show_default=False)],
    runner: options.Runner = None,
    serial: options.Serial = None,
    gdb_server: Annotated[
        str, typer.Option(help="Host and port of the gdb server, for the runner gdb.")
    ] = GDB_SERVER,
    hardware_map: options.HardwareMap = None,
    timeout: Annotated[
        float, typer.Option(help="End a runner that takes longer than this many seconds.")
    ] = 180.0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Build what has changed, and write the image to the board."""
    with guarded(as_json, debug) as out:
        with out.stage() as say:
            image = api.open_project(directory).build(say=say)
            board = find_board(image.board)
            done = write_connected(
                image.path,
                board,
                serial=serial,
                runner=runner,
                gdb_server=gdb_server,
                hardware_map=hardware_map,
                timeout=timeout,
                say=say,
            )
        data = {"board": board.name, "runner": done.runner, "seconds": done.seconds, "log": done.output}

        def render(console: Console) -> None:
            console.print(done.output.rstrip())
            console.print(f"{image.path.name} is on {board.name}: {done.runner}, {done.seconds:.1f} s")

        out.result(data, render)
