"""Writes an image to a board that is connected to this computer."""

from collections.abc import Callable
from pathlib import Path

from crtgen.base.errors import LinkError
from crtgen.base.text import DeviceText
from crtgen.boards import Board
from crtgen.device.flash.boot_loader import show_drive
from crtgen.device.flash.flasher import Flashed, flash
from crtgen.device.flash.runners import GDB_SERVER, FlashJob
from crtgen.device.local_boards import LocalBoard, board_lock, choose_unit, connected_units

__all__ = ["write_connected"]


def write_connected(
    image: Path,
    board: Board,
    *,
    serial: str | None = None,
    runner: str | None = None,
    gdb_server: str = GDB_SERVER,
    hardware_map: Path | None = None,
    timeout: float = 180.0,
    say: Callable[[str], None] = lambda text: None,
) -> Flashed:
    """Write the image as soon as no other process uses the board. Raises ``FlashError``.

    ``timeout`` limits the runner, in seconds.
    """
    unit = _unit(board, serial, hardware_map, runner)
    say("waiting for the board")
    with board_lock(str(unit.serial) or (gdb_server if runner == "gdb" else board.name)):
        if unit.port and runner != "gdb" and board.is_usb:
            say("asking for the boot loader")
            show_drive(board, unit.port)
        say("writing")
        job = FlashJob(image, board, unit.serial, gdb_server, unit.usb)
        return flash(job, runner or unit.runner or None, timeout=timeout)


def _unit(board: Board, serial: str | None, hardware_map: Path | None, runner: str | None) -> LocalBoard:
    # The connected board. A probe without a serial port shows up nowhere: the runner then looks for it, and
    # is told ``serial``.
    unseen = LocalBoard((board.name,), DeviceText(serial or ""), "")
    if runner == "gdb":
        return unseen
    try:
        return choose_unit(board, connected_units(hardware_map), serial)
    except LinkError:
        return unseen
