"""An image in formats other than ELF, for tools that do not read ELF: plain binary, Intel hex, UF2.

UF2 is Microsoft's format for boards that appear as drives: https://github.com/microsoft/uf2
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile

from crtgen.base import files
from crtgen.base.errors import BuildError
from crtgen.boards import Board

__all__ = ["Content", "binary", "intel_hex", "read_content", "uf2", "write_formats"]

ERASED = b"\xff"
"""Value of an erased byte of flash."""

_PAGE = 256
_ROW = 16
_DATA, _END, _UPPER_ADDRESS, _START = 0, 1, 4, 5
_UF2_MAGIC = (0x0A324655, 0x9E5D5157, 0x0AB16F30)
_UF2_HAS_FAMILY = 0x2000
_UF2_PAYLOAD = 476


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes of an image by start address, in ascending order and with gaps between them. It starts at
    ``entry``.
    """

    blocks: tuple[tuple[int, bytes], ...]
    entry: int = 0

    @property
    def origin(self) -> int:
        return self.blocks[0][0]

    @property
    def end(self) -> int:
        address, data = self.blocks[-1]
        return address + len(data)


def read_content(elf: Path) -> Content:
    """Return the bytes to write to the board's memories, at their load addresses.

    Raises ``BuildError`` if the file is not an ELF file or has nothing to load.
    """
    try:
        with elf.open("rb") as stream:
            file = ELFFile(stream)
            blocks = _joined(sorted(_sections(file)))
            entry = int(file.header["e_entry"])
    except (OSError, ELFError) as error:
        raise BuildError(f"the file is not an ELF file: {error}", where=str(elf)) from error
    if not blocks:
        raise BuildError("the image is empty", where=str(elf))
    return Content(blocks, entry)


def binary(content: Content) -> bytes:
    """Return the bytes from the first address to the last one; gaps are filled like erased flash."""
    parts, at = [], content.origin
    for address, data in content.blocks:
        parts += [ERASED * (address - at), data]
        at = address + len(data)
    return b"".join(parts)


def intel_hex(content: Content) -> bytes:
    """Return Intel's hexadecimal format with 32-bit addresses, 16 bytes per line."""
    lines, upper = [], 0
    for address, data in content.blocks:
        for at, row in _rows(address, data, _ROW):
            if at >> 16 != upper:
                upper = at >> 16
                lines.append(_record(_UPPER_ADDRESS, 0, upper.to_bytes(2, "big")))
            lines.append(_record(_DATA, at & 0xFFFF, row))
    lines.append(_record(_START, 0, content.entry.to_bytes(4, "big")))
    lines.append(_record(_END, 0, b""))
    return "".join(lines).encode("ascii")


def uf2(content: Content, family: int) -> bytes:
    """Return UF2 for a chip of that family: 256 bytes in each block of 512, at multiples of 256."""
    pages: dict[int, bytearray] = {}
    for address, data in content.blocks:
        for at, row in _rows(address, data, _PAGE):
            page = pages.setdefault(at - at % _PAGE, bytearray(ERASED * _PAGE))
            page[at % _PAGE : at % _PAGE + len(row)] = row
    first, second, last = _UF2_MAGIC
    blocks = []
    for number, (at, page) in enumerate(pages.items()):
        words = (first, second, _UF2_HAS_FAMILY, at, _PAGE, number, len(pages), family)
        blocks.append(struct.pack(f"<8I{_UF2_PAYLOAD}sI", *words, bytes(page), last))
    return b"".join(blocks)


def write_formats(elf: Path, board: Board) -> None:
    """Write ``.hex`` beside the ELF, ``.bin`` if a single memory holds everything, ``.uf2`` if the board
    accepts it.
    """
    content = read_content(elf)
    family = board.flash_with.uf2_family if board.flash_with else 0
    in_one = any(m.origin <= content.origin and content.end <= m.end for m in board.memories)
    contents = {
        ".bin": binary(content) if in_one else None,
        ".uf2": uf2(content, family) if family else None,
        ".hex": intel_hex(content),
    }
    for suffix, data in contents.items():
        if data is None:
            files.remove(elf.with_suffix(suffix))
        else:
            files.write(elf.with_suffix(suffix), data, durable=False)


def _sections(file: ELFFile) -> Iterator[tuple[int, bytes]]:
    # The sections that the image brings, by the addresses at which they are loaded.
    segments = [segment for segment in file.iter_segments("PT_LOAD") if segment["p_filesz"]]
    for section in file.iter_sections():
        size = section["sh_size"]
        if section["sh_type"] == "SHT_NOBITS" or not section["sh_flags"] & SH_FLAGS.SHF_ALLOC or not size:
            continue
        for segment in segments:
            offset = section["sh_offset"] - segment["p_offset"]
            if offset >= 0 and offset + size <= segment["p_filesz"]:
                yield segment["p_paddr"] + offset, section.data()
                break


def _joined(blocks: Sequence[tuple[int, bytes]]) -> tuple[tuple[int, bytes], ...]:
    # Blocks that touch each other become one.
    joined: list[tuple[int, bytes]] = []
    for address, data in blocks:
        if joined and joined[-1][0] + len(joined[-1][1]) == address:
            joined[-1] = (joined[-1][0], joined[-1][1] + data)
        else:
            joined.append((address, data))
    return tuple(joined)


def _rows(address: int, data: bytes, length: int) -> Iterator[tuple[int, bytes]]:
    # Pieces that end at multiples of ``length``.
    start = -(address % length)
    for at in range(start, len(data), length):
        yield address + max(at, 0), data[max(at, 0) : at + length]


def _record(kind: int, address: int, data: bytes) -> str:
    body = bytes((len(data), address >> 8, address & 0xFF, kind)) + data
    return f":{body.hex()}{-sum(body) & 0xFF:02x}\n".upper()
