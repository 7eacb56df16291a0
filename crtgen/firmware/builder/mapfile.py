"""Attributes each byte of an image to an object file, from the linker's map."""

import re
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Piece", "find_piece", "read_map"]

_ROW = re.compile(r"^ (\S+)\s+0x([0-9a-f]+)\s+0x([0-9a-f]+) (\S.*)$", re.MULTILINE)
_NOT_LOADED = (".debug", ".comment", ".ARM.attributes", ".note", ".stab", "*fill*")


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """A placed input section: its address, its size in bytes, and its object file."""

    address: int
    size: int
    file: str


def read_map(path: Path) -> tuple[Piece, ...]:
    """Return the pieces of a map that GNU ld wrote, by address; none if the file does not exist."""
    if not path.is_file():
        return ()
    _, _, body = path.read_text(encoding="utf-8", errors="replace").partition("Linker script and memory map")
    rows = [row for row in _ROW.findall(body) if not row[0].startswith(_NOT_LOADED)]
    pieces = (Piece(int(address, 16), int(size, 16), file) for _, address, size, file in rows)
    return tuple(sorted(piece for piece in pieces if piece.size))


def find_piece(pieces: tuple[Piece, ...], address: int) -> Piece | None:
    i = bisect_right(pieces, address, key=lambda piece: piece.address)
    if i and address < pieces[i - 1].address + pieces[i - 1].size:
        return pieces[i - 1]
    return None
