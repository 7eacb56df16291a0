"""A mailbox: two ring buffers in memory that QEMU shares with this process.

A simulated UART moves some ten thousand bytes a second. So messages go through memory, and for each the UART
carries one byte that announces it: neither side has to poll. ``mailbox.c`` in a project is the device's half.
The device may write anything into this memory, so nothing in it is trusted.
"""

import mmap
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from crtgen.base.errors import LinkClosedError, LinkTimeoutError, UsageError
from crtgen.boards import MAILBOX_SIZE, NPU_WINDOW
from crtgen.device.run.streams import WRITE_TIMEOUT, SocketStream

if TYPE_CHECKING:
    from crtgen.device.run.npu import NpuWindow

__all__ = ["MailboxStream", "has_mailbox", "has_npu"]

_FUNCTION = b"\0crt_mailbox_open\0"
_NPU, _RUN = b"\0crt_npu_mailbox_start\0", b"\0crt_npu_run\0"
_MARK = b"crtmail1"
_RING = 1 << 18
_TO_DEVICE = len(_MARK)
_TO_HOST = _TO_DEVICE + 8 + _RING
_WRAP = 1 << 32
_BELL = b"\0"
# Seconds between two looks at a ring that is full.
_PAUSE = 0.001


def has_mailbox(image: Path) -> bool:
    return _has_symbol(image, _FUNCTION)


def has_npu(image: Path) -> bool:
    """Return True if firmware hands the jobs of its NPU to the host.

    Raises ``UsageError`` for firmware that gives them to a real NPU.
    """
    found = _has_symbol(image, _NPU)
    if not found and _has_symbol(image, _RUN):
        raise UsageError(
            "the image uses an NPU, which QEMU does not have",
            where=str(image),
            hint="a server for bare metal hands its jobs to crtgen's model: --type server",
        )
    return found


def _has_symbol(image: Path, name: bytes) -> bool:
    with image.open("rb") as file, suppress(ELFError):
        names = ELFFile(file).get_section_by_name(".strtab")
        return names is not None and name in names.data()
    return False


def _nameless() -> int:
    # A descriptor of shared memory: none of the machine's memory, which firmware may fill, is on a disk.
    # Systems without such memory get a file without a name.
    if hasattr(os, "memfd_create"):
        return os.memfd_create("crtgen-mailbox")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _npu_window(memory: memoryview, name: str) -> "NpuWindow":
    from crtgen.device.run.npu import NpuWindow  # numpy, and the model: only images with an NPU pay for them

    return NpuWindow(memory, name)


class MailboxStream:
    """The rings of a mailbox, and the serial line that announces bytes in them. The stream owns both.

    With ``npu``, the rings are followed by a window through which firmware uses a model of its NPU.
    """

    flow_controlled = True

    def __init__(self, line: SocketStream, size: int, *, npu: bool = False) -> None:
        self.name = line.name
        self._line = line
        self._size = size
        self.descriptor = _nameless()
        os.ftruncate(self.descriptor, size)
        self._memory = mmap.mmap(self.descriptor, MAILBOX_SIZE + (NPU_WINDOW if npu else 0))
        self._memory[: len(_MARK)] = _MARK
        self._words = memoryview(self._memory)[:MAILBOX_SIZE].cast(
            "I"
        )  # the device never sees a half of a count
        self._sent = self._taken = 0
        self._npu = _npu_window(memoryview(self._memory)[MAILBOX_SIZE:], self.name) if npu else None

    def arguments(self) -> list[str]:
        """Return the QEMU arguments that make this memory the machine's; QEMU must inherit ``descriptor``."""
        path = f"/dev/fd/{self.descriptor}"
        memory = f"memory-backend-file,id=mailbox,size={self._size},mem-path={path},share=on"
        return ["-object", memory, "-machine", "memory-backend=mailbox"]

    def read(self, timeout: float) -> bytes:
        """Read at least one byte, at most 256 KiB."""
        deadline = time.monotonic() + timeout
        while not (data := self._take()):
            if self._npu is not None and self._npu.serve():
                if self._npu.failure is not None:
                    raise self._npu.failure
            else:
                self._line.read(max(0.0, deadline - time.monotonic()))
        return data

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        deadline = time.monotonic() + WRITE_TIMEOUT
        while rest:
            if count := self._put(rest):
                rest = rest[count:]
                self._line.write(_BELL)
                deadline = time.monotonic() + WRITE_TIMEOUT
            elif time.monotonic() > deadline:
                raise LinkTimeoutError(
                    f"the device accepted no data for {WRITE_TIMEOUT:g} s", where=self.name
                )
            else:
                with suppress(LinkTimeoutError):  # a device that is gone is noticed
                    self._line.read(_PAUSE)

    def close(self) -> None:
        """Close the line and unmap the memory. Calling it again has no effect."""
        self._line.close()
        self._words.release()
        if self._npu is not None:
            self._npu.release()
        self._memory.close()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _take(self) -> bytes:
        # At most up to the end of the ring.
        count = self._filled(_TO_HOST, self._count(_TO_HOST), self._taken)
        at = self._taken % _RING
        start = _TO_HOST + 8 + at
        data = self._memory[start : start + min(count, _RING - at)]
        self._taken = self._set(_TO_HOST + 4, self._taken + len(data))
        return data

    def _put(self, data: memoryview) -> int:
        # The count of bytes that fitted, at most up to the end of the ring.
        count = _RING - self._filled(_TO_DEVICE, self._sent, self._count(_TO_DEVICE + 4))
        at = self._sent % _RING
        count = min(count, len(data), _RING - at)
        start = _TO_DEVICE + 8 + at
        self._memory[start : start + count] = data[:count]
        self._sent = self._set(_TO_DEVICE, self._sent + count)
        return count

    def _filled(self, ring: int, head: int, tail: int) -> int:
        filled = (head - tail) % _WRAP
        if filled > _RING:
            raise LinkClosedError(
                f"the device overwrote what it shares with this computer: {filled:,} bytes at {ring:#x}",
                where=self.name,
                hint="its firmware writes where it should not",
            )
        return filled

    def _count(self, at: int) -> int:
        return self._words[at // 4]

    def _set(self, at: int, count: int) -> int:
        self._words[at // 4] = count % _WRAP
        return count % _WRAP
