"""``crtgen boards``: lists the boards that crtgen supports, or those connected."""

from typing import Annotated

import typer
from rich.console import Console

from crtgen.boards import all_boards, board_file, board_text, chip_board, family_of, size_text, wrong_boards
from crtgen.cli import options
from crtgen.cli.output import Debug, Json, Output, guarded, note, table
from crtgen.device.local_boards import LocalBoard, connected_units

__all__ = ["command"]


def command(
    connected: Annotated[
        bool, typer.Option("--connected", help="List the boards that are connected to this computer.")
    ] = False,
    hardware_map: options.HardwareMap = None,
    chip: Annotated[
        str | None, typer.Option(help="Print a board's file, or its start, for a chip of a CMSIS pack.")
    ] = None,
    pack: options.Pack = None,
    pins: options.Pins = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the boards that crtgen knows, or those connected."""
    with guarded(as_json, debug) as out:
        if chip is not None:
            board = chip_board(chip, pack)
            whole = pins or family_of(board.name)
            text = board_file(board, pins) if whole else board_text(board)
            out.result({"file": text}, lambda console: typer.echo(text, nl=False))
            return
        if connected:
            _connected(out, connected_units(hardware_map))
            return
        boards = all_boards()
        for error in wrong_boards().values():
            note(f"left out: {error}")
        data = {
            "boards": [
                {
                    "name": b.name,
                    "summary": b.summary,
                    "core": b.core.name,
                    "flash_bytes": b.flash,
                    "ram_bytes": b.ram,
                    "platforms": list(b.platforms),
                    "qemu": b.qemu.machine if b.qemu else None,
                    "later_qemu": b.later_qemu.release if b.later_qemu else None,
                    "fvp": b.fvp.program if b.fvp else None,
                    "rp2040js": b.rp2040js,
                    "runners": list(b.flash_with.runners) if b.flash_with else [],
                    "usb": list(b.serial.usb) if b.serial else [],
                }
                for b in boards
            ]
        }

        def render(console: Console) -> None:
            rows = table("board", "core", "flash", "RAM", "platforms", "runs in", "", right=("flash", "RAM"))
            for b in boards:
                sizes = ("", "") if b.is_host else (size_text(b.flash), size_text(b.ram))
                rows.add_row(b.name, b.core.name, *sizes, ", ".join(b.platforms), b.simulator, b.summary)
            console.print(rows)

        out.result(data, render)


def _connected(out: Output, units: tuple[LocalBoard, ...]) -> None:
    def render(console: Console) -> None:
        rows = table("port", "number", "USB", "boards that it may be", "")
        for u in units:
            rows.add_row(u.port, str(u.serial), u.usb, ", ".join(u.boards) or "unknown", str(u.description))
        console.print(rows if units else "nothing is connected that has a serial port on USB")

    out.result({"connected": [unit.to_dict() for unit in units]}, render)
