"""Runs firmware in an Arm Fixed Virtual Platform. The RPC's UART is a TCP port on which the FVP listens."""

import os
import re
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from crtgen.base.child import Child
from crtgen.base.errors import LinkClosedError, LinkTimeoutError, ToolMissingError, UsageError
from crtgen.boards import Board
from crtgen.device.run.device import MOST_PRINTED, RunningDevice, console_text, image_name, open_console
from crtgen.device.run.streams import PipeStream, SocketStream

__all__ = ["VARIABLE", "find_fvp", "start_fvp", "start_printing_fvp"]

VARIABLE = "CRTGEN_FVP"
"""Environment variable with the FVP's program, if it is not in the PATH."""

START_TIMEOUT = 60.0
"""Seconds that the FVP has to begin listening: the first start of a large program is slow."""

_LISTENS = re.compile(r"telnetterminal0: Listening for serial connection on port (\d+)")
_INTERVAL = 0.02
_NPU_CONFIG = re.compile(rb"\0crt_npu_for_ethos_u\d\d_(\d+)\0")
# Without windows. In raw mode the terminal passes every byte as it is; the mode telnet would interpret 0xff.
_OPTIONS = (
    "visualisation.disable-visualisation=1",
    "telnetterminal0.start_telnet=0",
    "telnetterminal0.mode=raw",
    "telnetterminal1.start_telnet=0",
    "telnetterminal2.start_telnet=0",
    "telnetterminal5.start_telnet=0",
)
_PRINTING = ("uart0.out_file=-", "uart0.unbuffered_output=1")
# The NPU by the board of the FVP.
_NPUS = {"mps3_board": "ethosu", "mps4_board": "mps4_board.subsystem.ethosu"}


def find_fvp(board: Board, program: Path | None = None) -> Path:
    """Return the FVP of the board: ``program``, or else ``CRTGEN_FVP``, or else from the PATH.

    Raises ``ToolMissingError`` if it is not found, ``UsageError`` if the board has no FVP.
    """
    if board.fvp is None:
        raise UsageError(
            "no FVP simulates this board",
            where=board.name,
            hint="choose a board that has one, such as corstone300_fvp",
        )
    named = str(program) if program else os.environ.get(VARIABLE)
    path = shutil.which(named or board.fvp.program)
    if path is None:
        raise ToolMissingError(
            f"there is no program {named or board.fvp.program}",
            where=board.name,
            hint=f"install Arm's FVP, then name the program with --fvp-path or in {VARIABLE}",
        )
    return Path(path)


def start_fvp(image: Path, board: Board, program: Path | None = None) -> RunningDevice:
    name = image_name(image, board.name)
    options = (*_OPTIONS, f"telnetterminal0.start_port={_free_port()}")
    command = _command(image, find_fvp(board, program), board, options)
    console = open_console()
    process = Child(command, stdout=console, stderr=console, most_written=MOST_PRINTED)
    try:
        port = _port(process, console, name)
        stream = SocketStream.connect(f"127.0.0.1:{port}", timeout=START_TIMEOUT)
    except BaseException:
        process.end()
        console.close()
        raise
    stream.name = name
    return RunningDevice(name, stream, process, console)


def start_printing_fvp(image: Path, board: Board, program: Path | None = None) -> RunningDevice:
    """Start a standalone image. Its output goes through the FVP's own stdout, since a port would lose the
    beginning.
    """
    name = image_name(image, board.name)
    command = _command(image, find_fvp(board, program), board, (*_OPTIONS, *_PRINTING))
    console = open_console()
    process = Child(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=console, most_written=MOST_PRINTED
    )
    return RunningDevice(name, PipeStream.of_process(process, name=name), process, console)


def _command(image: Path, program: Path, board: Board, options: tuple[str, ...]) -> list[str]:
    if not image.is_file():
        raise UsageError("there is no such image", where=str(image), hint="build the project first")
    name = board.fvp.board if board.fvp is not None else ""
    chosen = [f"{_NPUS[name]}.num_macs={macs}"] if (macs := _macs(image)) else []
    chosen += [f"{name}.{option}" for option in options]
    return [str(program), "-a", str(image), *(word for option in chosen for word in ("-C", option))]


def _macs(image: Path) -> int:
    # Multiplications a cycle of the NPU that the image's streams are for; 0 if it has none.
    with image.open("rb") as file, suppress(ELFError):
        names = ELFFile(file).get_section_by_name(".strtab")
        found = _NPU_CONFIG.search(names.data()) if names is not None else None
        return int(found[1]) if found else 0
    return 0


def _free_port() -> int:
    # A port that nobody listens at now; the FVP takes the next free one if somebody does by then.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _port(process: Child, console: BinaryIO, name: str) -> int:
    # The port that the FVP says it listens at.
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        log = console_text(console)
        if found := _LISTENS.search(log):
            return int(found[1])
        if process.poll() is not None:
            hint = "check that it runs on its own, and its licence"
            raise LinkClosedError(f"the FVP ended with code {process.poll()}", where=name, hint=hint, log=log)
        if time.monotonic() > deadline:
            raise LinkTimeoutError(f"the FVP opened no port within {START_TIMEOUT:g} s", where=name, log=log)
        time.sleep(_INTERVAL)
