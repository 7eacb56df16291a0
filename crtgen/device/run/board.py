"""A real board: flashed, locked while in use, and reached over its serial port."""

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from crtgen.base.errors import LinkTimeoutError, UsageError
from crtgen.base.text import DeviceText
from crtgen.boards import Board
from crtgen.device.flash import GDB_SERVER, FlashJob, flash, show_drive
from crtgen.device.local_boards import LocalBoard, board_lock, choose_unit, connected_units, is_connected
from crtgen.device.run.streams import PipeStream, SerialStream, SocketStream

__all__ = ["SerialDevice", "connect_board", "start_board", "start_usb_board"]

# Seconds that a board may take to show its own serial port.
_APPEARS = 10.0

# Seconds in which the system gives a new port its permissions.
_SETTLES = 0.5

_INTERVAL = 0.1

_BAUD = 115200


@dataclass(slots=True, eq=False)
class SerialDevice:
    """A board that serves the RPC on a serial port; the context manager releases the port and the lock."""

    name: str
    stream: SerialStream | SocketStream | PipeStream
    _held: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the port. Calling it again has no effect."""
        self.stream.close()
        self._held.close()


def connect_board(
    board: Board, port: str, baud: int | None = None, hardware_map: Path | None = None
) -> SerialDevice:
    """Connect to a board that already runs its image, waiting while another process uses it."""
    known = (unit for unit in connected_units(hardware_map) if unit.port == port)
    unit = next(known, LocalBoard((board.name,), DeviceText(), port))
    with ExitStack() as held:
        held.enter_context(board_lock(unit.key))
        return _open(board, unit, baud, held)


def start_board(
    image: Path,
    board: Board,
    unit: LocalBoard,
    *,
    runner: str | None = None,
    baud: int | None = None,
) -> SerialDevice:
    """Flash the connected board, waiting while another process uses it, and open its serial port.

    Raises ``FlashError``, or ``UsageError`` if the serial port is unknown.
    """
    with ExitStack() as held:
        held.enter_context(board_lock(unit.key))
        job = FlashJob(image, board, unit.serial, unit.gdb_server or GDB_SERVER, usb=unit.usb)
        flash(job, runner or unit.runner or None)
        return _open(board, unit, baud, held)


def start_usb_board(
    image: Path,
    board: Board,
    *,
    serial: str | None = None,
    runner: str | None = None,
    hardware_map: Path | None = None,
) -> SerialDevice:
    """Flash a board whose serial port is its own USB device, and open that port once it appears.

    A board that runs such firmware is asked to show the boot loader's drive; otherwise the drive must be
    there. Raises the errors of ``start_board``, and ``LinkTimeoutError`` if the port does not appear.
    """
    with ExitStack() as held:
        held.enter_context(board_lock(board.name))
        if is_connected(board, hardware_map):
            show_drive(board, choose_unit(board, connected_units(hardware_map), serial).port)
        flash(FlashJob(image, board), runner)
        deadline = time.monotonic() + _APPEARS
        while not is_connected(board, hardware_map):
            if time.monotonic() > deadline:
                message = f"its serial port did not appear within {_APPEARS:g} s"
                raise LinkTimeoutError(message, where=board.name, hint="check the cable, and look at `dmesg`")
            time.sleep(_INTERVAL)
        time.sleep(_SETTLES)
        return _open(board, choose_unit(board, connected_units(hardware_map), serial), None, held)


def _line(port: str, baud: int) -> SerialStream | SocketStream:
    # The line at a port; the path of a Unix socket is one, too, as a simulator may have made it.
    return SocketStream.connect(port) if Path(port).is_socket() else SerialStream(port, baudrate=baud)


def _open(board: Board, unit: LocalBoard, baud: int | None, held: ExitStack) -> SerialDevice:
    if not unit.port:
        several = f": the probe has {', '.join(unit.ports)}" if unit.ports else ""
        hint = "name it in a hardware map, or with --port once the image runs"
        raise UsageError(f"the serial port of the board is not known{several}", where=board.name, hint=hint)
    rate = baud or unit.baud or (board.serial.baud if board.serial else _BAUD)
    stream = _line(unit.port, rate)
    return SerialDevice(f"{board.name} at {unit.port}", stream, held.pop_all())
