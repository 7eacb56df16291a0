"""Talks to the product by its serial port.

usage: python product.py PORT read                      reads the next sample
       python product.py PORT update FILE [--cut N]     sends an image of crtgen slot, waits for a start,
                                                        or goes away after N bytes
       python product.py PORT log                       asks for the black box
       python product.py PORT wait TEXT                 waits for a line

--log FILE keeps every line that came.

PORT is a serial port, or a socket of QEMU.
"""

import argparse
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["Product"]

_SECONDS = 60


class Product:
    """The product at the other end of a line: ``receive`` returns what has come, perhaps nothing."""

    def __init__(self, send: Callable[[bytes], object], receive: Callable[[], bytes]) -> None:
        self.send, self.receive = send, receive
        self.come = b""
        self.told: list[str] = []

    def line(self) -> str:
        """Return the next line; ``TimeoutError`` after a minute without one."""
        end = time.monotonic() + _SECONDS
        while b"\n" not in self.come:
            if time.monotonic() > end:
                raise TimeoutError(f"the product says nothing more; the last was {self.come!r}")
            self.come += self.receive()
        line, _, self.come = self.come.partition(b"\n")
        self.told.append(line.decode("ascii", "replace").strip())
        return self.told[-1]

    def until(self, start: str | tuple[str, ...]) -> list[str]:
        """Return the lines up to one that starts so."""
        found = [self.line()]
        while not found[-1].startswith(start):
            found.append(self.line())
        return found

    def read(self) -> str:
        """Let it read the next sample, a picture or a sound."""
        self.send(b"r")
        return self.until("read")[-1]

    def log(self) -> list[str]:
        """Let it send its black box."""
        self.send(b"s")
        return self.until("sent")

    def update(self, image: bytes, cut: int | None = None) -> str:
        """Send an image as it is asked for, at most ``cut`` bytes of it."""
        self.send(b"u%08x" % len(image))
        while True:
            said = self.until(("want", "update"))[-1]
            if said.startswith("update"):
                return said
            offset, size = map(int, said.split()[1:])
            if cut is not None and offset + size > cut:
                return "cut"
            self.send(image[offset : offset + size])


def _open(port: str) -> Product:
    if stat.S_ISSOCK(Path(port).stat().st_mode):
        line = socket.socket(socket.AF_UNIX)
        line.connect(port)
        return Product(line.sendall, lambda: line.recv(4096))
    import serial

    device = serial.Serial(port, 115200, timeout=0.1)
    return Product(device.write, lambda: bytes(device.read(4096)))


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port")
    parser.add_argument("action", choices=("read", "update", "log", "wait"))
    parser.add_argument("words", nargs="*")
    parser.add_argument("--cut", type=int)
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    product = _open(given.port)
    if given.action == "read":
        print(product.read())
    elif given.action == "update":
        said = product.update(Path(given.words[0]).read_bytes(), given.cut)
        print(said)
        if said == "update 0":
            print("\n".join(line for line in product.until("ready") if not line.startswith("crt ")))
    else:
        print((product.log() if given.action == "log" else product.until(given.words[0]))[-1])
    if given.log is not None:
        given.log.write_text("\n".join(product.told) + "\n")


if __name__ == "__main__":
    main()
