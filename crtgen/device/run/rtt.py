"""A real board reached through its memory (RTT), which pyOCD reads and writes through the probe."""

import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from crtgen.base.child import Child
from crtgen.base.errors import CrtgenError, UsageError
from crtgen.boards import Board
from crtgen.device.flash import GDB_SERVER, FlashJob, flash
from crtgen.device.local_boards import LocalBoard, board_lock
from crtgen.device.run.board import SerialDevice
from crtgen.device.run.device import MOST_PRINTED, console_text, open_console
from crtgen.device.run.streams import PipeStream

__all__ = ["RttDevice", "rtt_command", "start_rtt_board"]

_SYMBOL = "crt_rtt"


@dataclass(slots=True, eq=False)
class RttDevice(SerialDevice):
    """A board behind pyOCD. A ``CrtgenError`` that passes through gets pyOCD's output."""

    console: BinaryIO = field(default_factory=open_console)

    def __exit__(self, *exc: object) -> None:
        error = exc[1]
        self.close()
        if isinstance(error, CrtgenError) and not error.log:
            error.log = console_text(self.console)


def start_rtt_board(image: Path, board: Board, unit: LocalBoard, runner: str | None = None) -> RttDevice:
    """Flash a board through the probe and communicate with it over RTT, waiting while another process uses
    the board.

    Raises ``FlashError``, or ``UsageError`` for an image without RTT.
    """
    with ExitStack() as held:
        held.enter_context(board_lock(unit.key or board.name))
        job = FlashJob(image, board, unit.serial, unit.gdb_server or GDB_SERVER, usb=unit.usb)
        command = rtt_command(job)
        flash(job, runner or unit.runner or None)
        name = f"{board.name} by RTT"
        console = open_console()
        process = Child(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=console,
            most_written=MOST_PRINTED,
        )
        held.callback(process.end)
        return RttDevice(name, PipeStream.of_process(process, name=name), held.pop_all(), console)


def rtt_command(job: FlashJob) -> list[str]:
    how = job.board.flash_with
    (target,) = (how.target("pyocd") if how is not None else ()) or ("",)
    if not target:
        raise UsageError("pyOCD does not know this board", where=job.board.name, hint="use its serial port")
    probe = ["--probe", job.probe] if job.probe else []
    place = ["--address", f"{_address(job.image):#x}"]
    return [sys.executable, "-P", "-m", "crtgen.device.run.with_pyocd", "--target", target, *probe, *place]


def _address(image: Path) -> int:
    # Address of the control block of RTT.
    try:
        with image.open("rb") as file:
            table = ELFFile(file).get_section_by_name(".symtab")
            if isinstance(table, SymbolTableSection):
                for symbol in table.get_symbol_by_name(_SYMBOL) or ():
                    return int(symbol["st_value"])
    except (OSError, ELFError) as error:
        raise UsageError(
            f"the file is not an ELF file: {error}", where=str(image), hint="name the .elf of the build"
        ) from error
    raise UsageError("the image has no RTT", where=str(image), hint="generate it with --rtt")
