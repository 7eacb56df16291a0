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
_SHT_SYMTAB, _SHT_ATTRIBUTES = 2, 0x70000003
_EM_ARM = 40
# Build attributes (Addenda to the ABI for the Arm Architecture): CPU_arch and DSP_extension.
_TAG_ARCHITECTURE, _TAG_DSP = 6, 46
_V7M, _V7EM, _V8M_MAIN, _V8_1M_MAIN = 10, 13, 17, 21


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
    extensions: frozenset[str] = frozenset(("DSP", "Armv8.1-M"))
    """Extensions that the core has besides Armv7-M."""

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
        return Image(segments, dict(_symbols(data)), _extensions(path, dict(_attributes(data))))
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
    headers = _sections(data)
    for header in headers:
        if header[1] == _SHT_SYMTAB:
            names = headers[header[6]][4]
            for at in range(header[4], header[4] + header[5], 16):
                name, value, length, _info, _other, section = struct.unpack_from("<IIIBBH", data, at)
                end = data.index(b"\0", names + name)
                if section and end > names + name:
                    yield data[names + name : end].decode("ascii", "replace"), (value, length)


def _sections(data: bytes) -> list[tuple[int, ...]]:
    first, size, count = *struct.unpack_from("<I", data, 32), *struct.unpack_from("<HH", data, 46)
    return [struct.unpack_from("<10I", data, first + size * i) for i in range(count)]


def _extensions(path: Path, attributes: dict[int, int]) -> frozenset[str]:
    architecture = attributes.get(_TAG_ARCHITECTURE, 0)
    if architecture not in (_V7M, _V7EM, _V8M_MAIN, _V8_1M_MAIN):
        raise Refused(
            f"{path} is for a core of another architecture than Armv7-M, Armv8-M or Armv8.1-M Mainline"
        )
    found = {"DSP"} if architecture == _V7EM or attributes.get(_TAG_DSP) == 1 else set[str]()
    return frozenset(found | ({"Armv8.1-M"} if architecture == _V8_1M_MAIN else set()))


def _attributes(data: bytes) -> Iterator[tuple[int, int]]:
    # Numbers by tag, of the whole file.
    for header in _sections(data):
        if header[1] == _SHT_ATTRIBUTES:
            text = data[header[4] : header[4] + header[5]]
            at = text.index(b"aeabi\0") + 6
            if text[:1] != b"A" or text[at] != 1:
                raise Refused("build attributes of another form")
            end = at + int.from_bytes(text[at + 1 : at + 5], "little")
            at += 5
            while at < end:
                tag, at = _number(text, at)
                if tag in (4, 5) or (tag > 32 and tag & 1):  # a text
                    at = text.index(b"\0", at) + 1
                    continue
                value, at = _number(text, at)
                if tag == 32:
                    at = text.index(b"\0", at) + 1
                yield tag, value


def _number(text: bytes, at: int) -> tuple[int, int]:
    # A number in seven bits a byte, and the place behind it.
    value = shift = 0
    while True:
        value, byte = value | (text[at] & 127) << shift, text[at]
        at, shift = at + 1, shift + 7
        if not byte & 128:
            return value, at
