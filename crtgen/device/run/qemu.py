"""Runs firmware in QEMU. The RPC's UART is one end of a socket pair; a mailbox can be added."""

import shutil
import socket
from contextlib import suppress
from pathlib import Path

from crtgen.base.child import Child
from crtgen.base.errors import ToolMissingError, UsageError
from crtgen.base.installing import how_to_install
from crtgen.boards import Board, Qemu
from crtgen.device.run.device import MOST_PRINTED, RunningDevice, image_name, open_console
from crtgen.device.run.mailbox import MailboxStream, has_mailbox, has_npu
from crtgen.device.run.streams import SocketStream

__all__ = ["find_qemu", "start_qemu"]

_PROGRAM = "qemu-system-arm"
# One instruction takes one nanosecond of the simulated clock, whatever this computer is busy with.
_COUNTING = ("-icount", "shift=0,align=off,sleep=off")
_QUIET = ("-nographic", "-monitor", "none")


def find_qemu() -> Path:
    """Find QEMU. Raises ``ToolMissingError`` if it is not installed."""
    path = shutil.which(_PROGRAM)
    if path is None:
        raise ToolMissingError(f"{_PROGRAM} is not installed", hint=how_to_install(_PROGRAM))
    return Path(path)


def start_qemu(image: Path, board: Board, *, counting: bool = True) -> RunningDevice:
    """Start an image.

    With ``counting`` the device's clock counts executed instructions; without it the clock is this
    computer's, and an idle device sleeps.
    """
    command = _command(image, board, counting)
    name = image_name(image, board.name)
    console = open_console()
    ours, theirs = socket.socketpair()
    line = SocketStream(ours, name=name)
    mailbox = _mailbox(line, image, board)
    memory = mailbox.arguments() if mailbox is not None else []
    with theirs:
        process = Child(
            [*command, *memory, "-chardev", "socket,id=serial,fd=0", "-serial", "chardev:serial"],
            stdin=theirs.fileno(),
            stdout=console,
            stderr=console,
            most_written=MOST_PRINTED,
            shared=(mailbox.descriptor,) if mailbox is not None else (),
        )
    return RunningDevice(name, mailbox or line, process, console)


def _mailbox(line: SocketStream, image: Path, board: Board) -> MailboxStream | None:
    # None where the image looks for none, or no file of that size can be made: the UART does it, too.
    shared, npu = _machine(board).memory, has_npu(image)
    if shared is None or not has_mailbox(image):
        return None
    with suppress(OSError):
        return MailboxStream(line, shared.size, npu=npu)
    return None


def _command(image: Path, board: Board, counting: bool) -> list[str]:
    qemu = _machine(board)
    if not image.is_file():
        raise UsageError("there is no such image", where=str(image), hint="build the project first")
    return [
        str(find_qemu()),
        "-machine",
        qemu.machine,
        *qemu.args,
        *_QUIET,
        *(_COUNTING if counting or qemu.counts else ()),
        "-kernel",
        str(image),
    ]


def _machine(board: Board) -> Qemu:
    if board.qemu is None:
        raise UsageError(
            "QEMU does not simulate this board",
            where=board.name,
            hint="crtgen boards lists those that run in QEMU",
        )
    return board.qemu
