"""``crtgen flash``: write an image to a connected board."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from crtgen import api
from crtgen.attached import Unit, board_lock, choose_unit, connected_units
from crtgen.boards import Board, find_board
from crtgen.cli import options
from crtgen.cli.output import Debug, Json, guarded
from crtgen.errors import LinkError
from crtgen.flash import GDB_SERVER, Job, flash, show_drive
from crtgen.text import DeviceText

__all__ = ["command"]


def command(
    directory: Annotated[Path, typer.Argument(help="A generated project.", show_default=False)],
    runner: options.Runner = None,
    serial: options.Serial = None,
    gdb_server: Annotated[str, typer.Option(help="For the runner gdb: host and port.")] = GDB_SERVER,
    hardware_map: options.HardwareMap = None,
    timeout: Annotated[float, typer.Option(help="Seconds that the runner may take.")] = 180.0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Build what has changed, and write the image to the board."""
    with guarded(as_json, debug) as out:
        with out.stage() as say:
            image = api.open_project(directory).build(say=say)
            board = find_board(image.board)
            unit = _unit(board, serial, hardware_map, runner)
            say("waiting for the board")
            with board_lock(str(unit.serial) or (gdb_server if runner == "gdb" else board.name)):
                if unit.port and runner != "gdb" and board.is_usb:
                    say("asking for the boot loader")
                    show_drive(board, unit.port)
                say("writing")
                job = Job(image.path, board, unit.serial, gdb_server, unit.usb)
                done = flash(job, runner or unit.runner or None, timeout=timeout)
        data = {"board": board.name, "runner": done.runner, "seconds": done.seconds, "log": done.output}

        def render(console: Console) -> None:
            console.print(done.output.rstrip())
            console.print(f"{image.path.name} is on {board.name}: {done.runner}, {done.seconds:.1f} s")

        out.result(data, render)


def _unit(board: Board, serial: str | None, hardware_map: Path | None, runner: str | None) -> Unit:
    """The connected board.

    A probe without a serial port shows up nowhere: the runner then looks for it, and is told ``serial``.
    """
    unseen = Unit((board.name,), DeviceText(serial or ""), "")
    if runner == "gdb":
        return unseen
    try:
        return choose_unit(board, connected_units(hardware_map), serial)
    except LinkError:
        return unseen
