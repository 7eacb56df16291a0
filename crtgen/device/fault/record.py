"""Parser of a fault report: lines with memory of the device, then the address of the fault record in it.

A line that does not match the format is skipped, since a faulty device may send anything. The format is in
section 5 of ``crtgen/runtime/SPEC.md``.
"""

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["RECORD_BYTES", "REGISTERS", "Fault", "FaultReader"]

REGISTERS = (*(f"r{n}" for n in range(13)), "sp", "lr", "pc", "xpsr")

_MAGIC = 0x31544C46
_WORDS = struct.Struct("<30I")
RECORD_BYTES = _WORDS.size
_DUMP = re.compile(r"crtgen\.dump ([0-9a-f]{8}) ((?:[0-9a-f]{2}){1,64})", re.ASCII)
_FAULT = re.compile(r"crtgen\.fault ([0-9a-f]{8})", re.ASCII)
# Bytes of memory that a report may bring: more than the stack of any device.
_MOST_MEMORY = 1 << 18


@dataclass(frozen=True, slots=True)
class Fault:
    """The state of the core at a fault, and the reported memory, by address.

    ``exception`` is the number of the handler. ``uptime`` is in seconds since the start.
    """

    registers: Mapping[str, int]
    exception: int
    exc_return: int
    cfsr: int
    hfsr: int
    mmfar: int
    bfar: int
    stack_bottom: int
    stack_top: int
    uptime: float
    memory: Mapping[int, bytes] = field(default_factory=dict)

    @classmethod
    def of_bytes(cls, data: bytes, memory: Mapping[int, bytes] | None = None) -> "Fault | None":
        if len(data) != _WORDS.size:
            return None
        magic, *words, crc = _WORDS.unpack(data)
        if magic != _MAGIC or crc != _crc(data[:-4]):
            return None
        registers = dict(zip(REGISTERS, words[:17], strict=True))
        exception, exc_return, cfsr, hfsr, mmfar, bfar, bottom, top, rate, low, high = words[17:]
        uptime = (low | high << 32) / max(rate, 1)
        return cls(
            registers, exception, exc_return, cfsr, hfsr, mmfar, bfar, bottom, top, uptime, memory or {}
        )

    @property
    def stack_size(self) -> int:
        return max(0, self.stack_top - self.stack_bottom)

    @property
    def stack_used(self) -> int:
        """Bytes of the stack that were in use; more than its size if it overflowed."""
        return max(0, self.stack_top - self.registers["sp"]) if self.stack_size else 0

    def words(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return address and value of each word of the report between two addresses."""
        found = []
        for address, data in sorted(self.memory.items()):
            for at in range(-address % 4, len(data) - 3, 4):
                if start <= address + at < end:
                    found.append((address + at, int.from_bytes(data[at : at + 4], "little")))
        return found


class FaultReader:
    """Takes lines of a device's log and collects those of a fault report."""

    def __init__(self) -> None:
        self._memory: dict[int, bytes] = {}
        self._size = 0

    def take(self, line: str) -> "Fault | bool":
        """Return the fault if the line completes a report; otherwise True if the line belongs to a report."""
        if dumped := _DUMP.fullmatch(line):
            data = bytes.fromhex(dumped[2])
            self._size += len(data)
            if self._size <= _MOST_MEMORY:
                self._memory[int(dumped[1], 16)] = data
            return True
        if found := _FAULT.fullmatch(line):
            memory, self._memory, self._size = self._memory, {}, 0
            record = _read(memory, int(found[1], 16), RECORD_BYTES)
            return Fault.of_bytes(record, memory) or True
        return False


def _read(memory: Mapping[int, bytes], address: int, size: int) -> bytes:
    # The bytes from ``address`` on, as far as they are there without a gap.
    data = bytearray()
    while len(data) < size and (piece := memory.get(address + len(data))):
        data += piece
    return bytes(data[:size])


def _crc(data: bytes) -> int:
    # That of the frames, see section 1 of SPEC.md.
    crc = 0xFFFF
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ (0x1021 if crc & 0x8000 else 0)) & 0xFFFF
    return crc
