"""Which object file each byte of an image comes from, read from the linker's map."""

import re
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Piece", "find_piece", "read_map"]

_GNU = re.compile(r"^ (?:(\S+)\s+)?0x([0-9a-f]+)\s+0x([0-9a-f]+)\s+(\S.*)$")
_LLD = re.compile(r"^\s*([0-9a-f]+)\s+[0-9a-f]+\s+([0-9a-f]+)\s+\d+\s+(\S.*):\(\S+\)$")


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """An input section as it was placed: its address, its bytes, and the object that it is from."""

    address: int
    size: int
    file: str


def read_map(path: Path) -> tuple[Piece, ...]:
    """The pieces of a map written by GNU ld or by LLD, by address. Without such a file there are none."""
    if not path.is_file():
        return ()
    text = path.read_text(encoding="utf-8", errors="replace")
    _, gnu, body = text.partition("Linker script and memory map")
    pieces = [_gnu(line) if gnu else _lld(line) for line in (body if gnu else text).splitlines()]
    return tuple(sorted(piece for piece in pieces if piece is not None and piece.size))


def find_piece(pieces: tuple[Piece, ...], address: int) -> Piece | None:
    """The piece that holds ``address``."""
    i = bisect_right(pieces, address, key=lambda piece: piece.address)
    if i and address < pieces[i - 1].address + pieces[i - 1].size:
        return pieces[i - 1]
    return None


def _gnu(line: str) -> Piece | None:
    """A line of GNU ld: the section's name may stand alone on the line before."""
    match = _GNU.match(line)
    if match is None or match[1] == "*fill*":
        return None
    return Piece(int(match[2], 16), int(match[3], 16), match[4])


def _lld(line: str) -> Piece | None:
    match = _LLD.match(line)
    return Piece(int(match[1], 16), int(match[2], 16), match[3]) if match else None
