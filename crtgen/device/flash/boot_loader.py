"""Boards with a native USB serial port: a command over the port makes them show the boot loader's drive."""

import time

import serial

from crtgen.base.errors import FlashError
from crtgen.boards import Board
from crtgen.device.flash.drives import drives_of

__all__ = ["show_drive"]

# Nobody talks at this rate: firmware whose host sets it starts the boot loader, as Arduino's began to.
_RATE = 1200

_SECONDS = 10.0
_INTERVAL = 0.1


def show_drive(board: Board, port: str) -> None:
    """Make the firmware at a port start the boot loader, and wait until its drive is mounted.

    Raises ``FlashError``.
    """
    try:
        serial.Serial(port, _RATE).close()
    except serial.SerialException as error:
        hint = "hold BOOTSEL while you plug the board in"
        raise FlashError(f"the port cannot be opened: {error}", where=port, hint=hint) from error
    names = board.flash_with.target("uf2") if board.flash_with else ()
    deadline = time.monotonic() + _SECONDS
    while not any(map(drives_of, names)):
        if time.monotonic() > deadline:
            raise FlashError(
                f"no drive {' or '.join(names)} is mounted {_SECONDS:g} s after the board was asked for it",
                where=port,
                hint="mount it, or hold BOOTSEL while you plug the board in",
            )
        time.sleep(_INTERVAL)
