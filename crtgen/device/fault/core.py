"""A core dump of a fault: an ELF core that GDB opens together with the image.

Its note is Linux's ``prstatus`` for ARM (148 bytes, 18 registers from byte 72 on), which GDB accepts for bare
metal, too. Its segments are the memory that came with the report.
"""

import struct
from collections.abc import Mapping

from crtgen.base.errors import DeviceFault

__all__ = ["core_dump"]

_HEADER = struct.Struct("<16sHHIIIIIHHHHHH")
_SEGMENT = struct.Struct("<8I")
_NOTE = struct.Struct("<3I8s")
_CORE, _ARM, _EABI5 = 4, 40, 0x0500_0000
_PT_LOAD, _PT_NOTE, _READ_WRITE = 1, 4, 6
_NT_PRSTATUS = 1
_STATUS_BYTES, _SIGNAL_AT, _REGISTERS_AT = 148, 12, 72
_SIGSEGV = 11
_NAMES = (*(f"r{n}" for n in range(13)), "sp", "lr", "pc", "xpsr")


def core_dump(fault: DeviceFault) -> bytes:
    blocks = sorted(_joined(fault.memory).items())
    note = _NOTE.pack(5, _STATUS_BYTES, _NT_PRSTATUS, b"CORE\0\0\0\0") + _status(fault.registers)
    count = 1 + len(blocks)
    at = _HEADER.size + count * _SEGMENT.size
    ident = b"\x7fELF\x01\x01\x01".ljust(16, b"\0")
    header = _HEADER.pack(
        *(ident, _CORE, _ARM, 1, 0, _HEADER.size, 0, _EABI5),
        *(_HEADER.size, _SEGMENT.size, count, 0, 0, 0),
    )
    segments = [_SEGMENT.pack(_PT_NOTE, at, 0, 0, len(note), 0, 0, 4)]
    content = note
    for address, data in blocks:
        place = at + len(content)
        segments.append(
            _SEGMENT.pack(_PT_LOAD, place, address, address, len(data), len(data), _READ_WRITE, 1)
        )
        content += data
    return header + b"".join(segments) + content


def _joined(memory: Mapping[int, bytes]) -> dict[int, bytes]:
    # Pieces that are side by side as one.
    blocks: dict[int, bytearray] = {}
    end, start = -1, 0
    for address, data in sorted(memory.items()):
        if address != end:
            start = address
            blocks[start] = bytearray()
        blocks[start] += data
        end = address + len(data)
    return {address: bytes(data) for address, data in blocks.items()}


def _status(registers: Mapping[str, int]) -> bytes:
    status = bytearray(_STATUS_BYTES)
    struct.pack_into("<H", status, _SIGNAL_AT, _SIGSEGV)
    struct.pack_into("<17I", status, _REGISTERS_AT, *(registers[name] for name in _NAMES))
    return bytes(status)
