"""Delta images: an update that only sends the bytes that changed, for models with the same code and plan.

A delta names the old image by its CRC and holds the bytes of the new image that differ from the old one at
the same offset. The device has the old image in one slot and builds the new one in another. Each is linked
for the address of its slot, so a delta also contains the addresses that differ. The signature of the new
image is part of the last run of bytes.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from crtgen.base.errors import CorruptModelError, UsageError
from crtgen.compiler.codegen.slot_image import SIGNATURE_BYTES, SlotImage

__all__ = ["DELTA_MAGIC", "Delta"]

DELTA_MAGIC = b"CRTD"
_HEAD = struct.Struct("<4sIIIIII")
_RUN = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class Delta:
    """The runs ``(offset, bytes)`` that turn the image for ``base_origin`` into the one for ``origin``.

    ``size`` is that of both images, without signature; a signature may follow in the last run.
    """

    base_origin: int
    base_crc: int
    origin: int
    size: int
    crc: int
    runs: tuple[tuple[int, bytes], ...]

    @classmethod
    def between(cls, old: SlotImage, new: SlotImage, unit: int) -> "Delta":
        """Compare two images in units of ``unit`` bytes, which the flash writes at once.

        Raises ``UsageError`` if anything but weights differs: both images need the same layout.
        """
        a, b = old.image, new.image
        if len(a) != len(b) or old.interface != new.interface:
            raise UsageError(
                f"{old.name} {old.version} and {new.name} {new.version} differ in code or plan",
                hint="push the whole image: a delta is for weights alone",
            )
        unlike = bytes(byte ^ 0xFF for byte in new.signature)
        runs = tuple(_runs(a + unlike, b + new.signature, unit))
        return cls(old.origin, zlib.crc32(a), new.origin, len(b), zlib.crc32(b), runs)

    @property
    def end(self) -> int:
        return max([self.size, *(offset + len(data) for offset, data in self.runs)])

    @property
    def data(self) -> bytes:
        head = (self.base_origin, self.base_crc, self.origin, self.size, self.crc, len(self.runs))
        runs = (_RUN.pack(offset, len(data)) + data for offset, data in self.runs)
        return _HEAD.pack(DELTA_MAGIC, *head) + b"".join(runs)

    @classmethod
    def read(cls, data: bytes, where: str) -> "Delta":
        """Parse a delta. Raises ``CorruptModelError`` if it is incomplete."""
        if len(data) < _HEAD.size or data[:4] != DELTA_MAGIC:
            raise CorruptModelError(
                "the file is not a delta", where=where, hint="crtgen slot --since makes them"
            )
        _, base_origin, base_crc, origin, size, crc, count = _HEAD.unpack_from(data)
        runs, at, end = [], _HEAD.size, 0
        for _ in range(count):
            if at + _RUN.size > len(data):
                raise CorruptModelError("the delta is cut short", where=where)
            offset, length = _RUN.unpack_from(data, at)
            at += _RUN.size
            if offset < end or offset + length > size + SIGNATURE_BYTES or at + length > len(data):
                raise CorruptModelError(
                    "the runs of the delta are not in ascending order within the image", where=where
                )
            runs.append((offset, data[at : at + length]))
            at, end = at + length, offset + length
        if end > size and end != size + SIGNATURE_BYTES:
            raise CorruptModelError("the signature is cut short", where=where)
        if at != len(data):
            raise CorruptModelError("the delta has bytes after its last run", where=where)
        return cls(base_origin, base_crc, origin, size, crc, tuple(runs))

    def apply(self, old: bytes) -> bytes:
        """Build the new image, with its signature, from the old one. Raises ``UsageError`` if ``old`` is not
        the image that the delta was made for.
        """
        image = old[: self.size]
        if len(old) not in (self.size, self.size + SIGNATURE_BYTES) or zlib.crc32(image) != self.base_crc:
            raise UsageError(
                "the delta belongs to another image",
                hint="make it anew: --since names the image that the device holds",
            )
        made = bytearray(image)
        for offset, data in self.runs:
            made[offset : offset + len(data)] = data
        return bytes(made)

    def parts(self) -> Iterator[tuple[int, bytes | int]]:
        """Yield the steps that build the new image: an offset, and either bytes to write or a number of bytes
        to copy.
        """
        at = 0
        for offset, data in self.runs:
            if offset > at:
                yield at, offset - at
            yield offset, data
            at = offset + len(data)
        if at < self.size:
            yield at, self.size - at


def _runs(a: bytes, b: bytes, unit: int) -> Iterator[tuple[int, bytes]]:
    # Units that differ; those side by side are one run.
    changed = np.flatnonzero(np.frombuffer(a, np.uint8) != np.frombuffer(b, np.uint8))
    units = np.unique(changed // unit)
    for part in np.split(units, np.flatnonzero(np.diff(units) > 1) + 1):
        if len(part):
            first, end = int(part[0]) * unit, min((int(part[-1]) + 1) * unit, len(b))
            yield first, b[first:end]
