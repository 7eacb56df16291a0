"""Gives each input and output of a stream a region of its own.

Vela puts all inputs of a network into one region, one after another, and all outputs into another region. Our
plan may place each of them anywhere, so each needs a base pointer of its own. The NPU has eight; constants
and scratch take two.

The idea. Every address of a stream is a pair of registers: a region, and an offset in it. An operator's
addresses are known when it starts, since registers keep their values. So where Vela sets the registers of a
feature map they are omitted, and they are set, translated, just before each operator; registers that have not
changed since the last operator are not set again.

Example: two inputs of 112 bytes are in region 3 at 0x0 and 0x70. A map at 0x80 of region 3 becomes 0x10 of
region 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from crtgen.npu.registers import LONG, SHORT
from crtgen.npu.stream import Command, commands

__all__ = ["RegionPiece", "translated"]

_CODES = {register.name: register.code for table in (SHORT, LONG) for register in table.values()}
_MAPS = ("IFM", "IFM2", "OFM")
_DMAS = ("DMA0_SRC", "DMA0_DST")
_INTERNAL = 0x100
_STARTS = {
    "CONV": ("IFM", "OFM"),
    "DEPTHWISE": ("IFM", "OFM"),
    "POOL": ("IFM", "OFM"),
    "ELEMENTWISE": _MAPS,
    "DMA_START": _DMAS,
}


@dataclass(frozen=True, slots=True)
class RegionPiece:
    """A value in one of Vela's regions, ``size`` bytes from ``start`` on, and the region to which it is
    moved.
    """

    region: int
    start: int
    size: int
    becomes: int


def translated(stream: bytes, pieces: Sequence[RegionPiece]) -> bytes:
    """Return the stream with each piece in its own region.

    Raises ``ValueError`` if an operator's feature map begins outside of all pieces of its region.
    """
    writer = _Translator(pieces)
    for command in commands(stream):
        writer.take(command)
    return bytes(writer.out)


class _Translator:
    """Tracks the registers as Vela's stream sets them, and as the translated stream does."""

    def __init__(self, pieces: Sequence[RegionPiece]) -> None:
        self.pieces = pieces
        self.wanted: dict[str, int] = {}
        self.set: dict[str, int] = {}
        self.out = bytearray()
        self.held = {name for each in _MAPS for name in _registers(each)} | {
            name for each in _DMAS for name in _registers(each)
        }

    def take(self, command: Command) -> None:
        if command.name in self.held:
            self.wanted[command.name] = command.value
            return
        for each in _STARTS.get(command.name, ()):
            self._place(each)
        self._put(command.name, command.parameter, command.value)

    def _place(self, each: str) -> None:
        # Set the registers of one map as they have to be for the operator that follows.
        region, *bases = _registers(each)
        if region not in self.wanted:
            return  # the second operand may be a constant in a register
        moved = self.wanted[region]
        offset = 0
        if not moved & _INTERNAL and (piece := self._piece(moved, self.wanted.get(bases[0], 0))):
            moved, offset = piece.becomes, piece.start
        self._update(region, moved)
        for base in bases:
            if base in self.wanted:
                # Tiles that are not used have the address 0.
                self._update(base, max(self.wanted[base] - offset, 0))

    def _piece(self, region: int, address: int) -> RegionPiece | None:
        inside = [piece for piece in self.pieces if piece.region == region]
        for piece in inside:
            if piece.start <= address < piece.start + piece.size:
                return piece
        if inside:
            raise ValueError(f"nothing is at {address:#x} of region {region}")
        return None

    def _update(self, name: str, value: int) -> None:
        if self.set.get(name) != value:
            self.set[name] = value
            self._put(name, value >> 32, value)

    def _put(self, name: str, parameter: int, value: int) -> None:
        code = _CODES[name]
        if SHORT.get(code) is not None and SHORT[code].name == name:
            short = value if name in self.held else parameter
            self.out += (short << 16 | code).to_bytes(4, "little")
        else:
            self.out += (parameter << 16 | 0x4000 | code).to_bytes(4, "little")
            self.out += (value & 0xFFFFFFFF).to_bytes(4, "little")


def _registers(name: str) -> tuple[str, ...]:
    # The register with the region of a map, and those with its addresses.
    if name in _DMAS:
        return (f"{name}_REGION", name)
    return (f"{name}_REGION", *(f"{name}_BASE{tile}" for tile in range(4)))
