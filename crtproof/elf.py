"""A linked image: 32-bit ELF, little endian (ELF-32 specification, 1.2)."""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from crtproof.values import Refused

__all__ = ["Image", "read_image"]

_PT_LOAD, _PF_W = 1, 2
_SHT_SYMTAB = 2
_EM_ARM = 40


@dataclass(frozen=True)
class Segment:
    address: int
    load: int
    size: int
    is_written: bool
    data: bytes


@dataclass(frozen=True)
class Image:
    segments: tuple[Segment, ...]
    symbols: dict[str, tuple[int, int]]
    """Address and size by name."""

    def constant(self, address: int, size: int) -> int | None:
        """Return the number at an address that holds constants, else None."""
        for s in self.segments:
            if not s.is_written and s.address <= address and address + size <= s.address + len(s.data):
                at = address - s.address
                return int.from_bytes(s.data[at : at + size], "little")
        return None

    def span(self, name: str) -> tuple[int, int]:
        """Return first address and end of a symbol's object."""
        if name not in self.symbols:
            raise Refused(f"the image has no symbol {name}")
        first, size = self.symbols[name]
        return first, first + size

    @property
    def sha256(self) -> str:
        """Digest of the segments: address, load address, size, whether it is written, length, bytes."""
        digest = hashlib.sha256()
        for s in self.segments:
            for number in (s.address, s.load, s.size, s.is_written, len(s.data)):
                digest.update(int(number).to_bytes(4, "little"))
            digest.update(s.data)
        return digest.hexdigest()


def read_image(path: Path) -> Image:
    """Read an ELF file. Raises ``Refused`` for a file that is none, or damaged."""
    data = path.read_bytes()
    if data[:7] != b"\x7fELF\x01\x01\x01":
        raise Refused(f"{path} is no 32-bit ELF file of a little-endian machine")
    try:
        machine = struct.unpack_from("<H", data, 18)[0]
        if machine != _EM_ARM:
            raise Refused(f"{path} is for another machine than Arm")
        segments = tuple(sorted(_segments(data), key=lambda s: s.address))
        for one, other in pairwise(segments):
            if one.address + one.size > other.address:
                raise Refused(f"{path} has segments that overlap")
        return Image(segments, dict(_symbols(data)))
    except (struct.error, IndexError, ValueError) as error:
        raise Refused(f"{path} is damaged: {error}") from None


def _segments(data: bytes) -> Iterator[Segment]:
    first, size, count = *struct.unpack_from("<I", data, 28), *struct.unpack_from("<HH", data, 42)
    for at in range(first, first + size * count, size):
        kind, offset, address, load, stored, whole, flags = struct.unpack_from("<7I", data, at)
        if kind == _PT_LOAD and whole:
            if offset + stored > len(data):
                raise Refused("a segment ends behind the file")
            yield Segment(address, load, whole, bool(flags & _PF_W), data[offset : offset + stored])


def _symbols(data: bytes) -> Iterator[tuple[str, tuple[int, int]]]:
    first, size, count = *struct.unpack_from("<I", data, 32), *struct.unpack_from("<HH", data, 46)
    headers = [struct.unpack_from("<10I", data, first + size * i) for i in range(count)]
    for header in headers:
        if header[1] == _SHT_SYMTAB:
            names = headers[header[6]][4]
            for at in range(header[4], header[4] + header[5], 16):
                name, value, length, _info, _other, section = struct.unpack_from("<IIIBBH", data, at)
                end = data.index(b"\0", names + name)
                if section and end > names + name:
                    yield data[names + name : end].decode("ascii", "replace"), (value, length)
