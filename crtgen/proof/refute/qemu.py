"""Runs the network's function on given inputs in QEMU, through its GDB server, starting from the image's own
reset.
"""

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from subprocess import DEVNULL

from crtgen.base.child import Child
from crtgen.base.errors import LinkError, MismatchError
from crtgen.boards import Board
from crtgen.device.run import find_qemu
from crtgen.proof.checker.binary.image import DecodedImage

__all__ = ["Stopped", "at_compute"]

_SECONDS, _PER_SECOND = 10.0, 10_000_000
"""A run of a network, and all before it, has so long, and a second more for so many instructions."""
_SP, _LR, _PC = 13, 14, 15


@dataclass
class Stopped:
    """A core that is stopped at the first instruction of the network's function."""

    debugger: "_Debugger"
    registers: list[int]
    """r0 to r15 there."""

    def run(self, written: Iterable[tuple[int, bytes]], read: Iterable[tuple[int, int]]) -> list[bytes]:
        """Write memory, run, and return the memory to ``read`` (address, bytes).

        Raises ``LinkError`` if the run does not end, ``MismatchError`` if it does not return 0.
        """
        gdb, back = self.debugger, self.registers[_LR] & ~1
        for at, data in written:
            gdb.write(at, data)
        for number in (_SP, _LR, _PC):
            gdb.ask(f"P{number:x}={self.registers[number].to_bytes(4, 'little').hex()}")
        gdb.stop_at(back)
        status = gdb.registers()[0]
        if status != 0:
            raise MismatchError(f"the image returns status {status}, expected 0")
        return [gdb.read(at, size) for at, size in read]


@contextmanager
def at_compute(image: DecodedImage, board: Board, entry: int, instructions: int) -> Iterator[Stopped]:
    """Run an image in QEMU to the first call of the function at ``entry``.

    Raises ``LinkError`` if it does not get there.
    """
    assert board.qemu is not None  # asked for before
    ours, theirs = socket.socketpair()
    command = [str(find_qemu()), "-machine", board.qemu.machine, *board.qemu.args, "-kernel", str(image.path)]
    quiet = ["-nographic", "-monitor", "none", "-serial", "null", "-S"]
    server = ["-chardev", "socket,id=gdb,fd=0", "-gdb", "chardev:gdb"]
    with theirs, ours, Child([*command, *quiet, *server], stdin=theirs.fileno(), stdout=DEVNULL) as process:
        ours.settimeout(_SECONDS + instructions / _PER_SECOND)
        try:
            debugger = _Debugger(ours)
            if "crt_fault" in image.symbols:  # it would go on for ever
                debugger.ask(f"Z1,{image.symbols['crt_fault']:x},2")
            debugger.stop_at(entry)
            yield Stopped(debugger, debugger.registers())
        finally:
            process.end(grace=0)


class _Debugger:
    """GDB's remote serial protocol, limited to the packets needed here (GDB's manual, appendix E)."""

    def __init__(self, line: socket.socket) -> None:
        self.line, self.buffer = line, b""
        self.ask("qXfer:features:read:target.xml:0,fff")  # without it, QEMU sets no register

    def ask(self, text: str) -> str:
        # Send a packet; gives the answer. Raises ``LinkError`` for an error, and where there is none.
        self.line.sendall(f"${text}#{sum(text.encode()) & 255:02x}".encode())
        answer = self._packet()
        if answer[:1] in ("", "E"):
            raise LinkError(f"QEMU refuses {text[:20]!r}: {answer}")
        return answer

    def _packet(self) -> str:
        while True:
            first = self.buffer.find(b"$")
            end = self.buffer.find(b"#", first)
            if first >= 0 and 0 <= end <= len(self.buffer) - 3:
                packet, self.buffer = self.buffer[first + 1 : end], self.buffer[end + 3 :]
                self.line.sendall(b"+")
                return packet.decode()
            try:
                more = self.line.recv(1 << 16)
            except OSError as error:
                raise LinkError(f"QEMU does not answer: {error}") from None
            if not more:
                raise LinkError("QEMU ended")
            self.buffer += more

    def registers(self) -> list[int]:
        data = bytes.fromhex(self.ask("g")[: 16 * 8])
        return [int.from_bytes(data[i : i + 4], "little") for i in range(0, 64, 4)]

    def stop_at(self, address: int) -> None:
        self.ask(f"Z1,{address:x},2")
        self.ask("c")
        self.ask(f"z1,{address:x},2")
        stopped = self.registers()[_PC]
        if stopped != address:
            raise LinkError(f"the image stops at {stopped:#x}")

    def write(self, address: int, data: bytes) -> None:
        for i in range(0, len(data), 1024):
            part = data[i : i + 1024]
            self.ask(f"M{address + i:x},{len(part):x}:{part.hex()}")

    def read(self, address: int, size: int) -> bytes:
        parts = (self.ask(f"m{address + i:x},{min(1024, size - i):x}") for i in range(0, size, 1024))
        return bytes.fromhex("".join(parts))
