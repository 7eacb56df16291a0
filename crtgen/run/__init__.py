"""Runs firmware: QEMU and host processes, and the lines to them and to real devices."""

from pathlib import Path

from crtgen.boards import Board
from crtgen.run.device import Finished, RunningDevice
from crtgen.run.host import run_on_host, start_host
from crtgen.run.printed import read_to_end
from crtgen.run.qemu import find_qemu, run_in_qemu, start_qemu

__all__ = [
    "Finished",
    "RunningDevice",
    "find_qemu",
    "read_to_end",
    "run_in_qemu",
    "run_on_host",
    "run_standalone",
    "start_device",
    "start_host",
    "start_qemu",
]


def start_device(image: Path, board: Board, *, counting: bool = True) -> RunningDevice:
    """Start a server image where its board says: as a process, or in QEMU."""
    return start_host(image) if board.is_host else start_qemu(image, board, counting=counting)


def run_standalone(
    image: Path, board: Board, *, platform: str = "", counting: bool = True, timeout: float = 60.0
) -> Finished:
    """Run a standalone image to its end: as a process, or in QEMU.

    One of the platform ``zephyr`` prints on the serial port, and its last line says how it went.
    """
    if platform == "zephyr":
        with start_device(image, board, counting=counting) as device:
            return read_to_end(device, timeout)
    if board.is_host:
        return run_on_host(image, timeout=timeout)
    return run_in_qemu(image, board, counting=counting, timeout=timeout)
