"""Little-endian streams in TVM's serialisation format: a reader that never reads beyond the end, and a
writer.

A string is a u64 length and its bytes; a vector is a u64 count and its items.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from crtgen.base.errors import CorruptModelError

__all__ = ["StreamReader", "StreamWriter"]

_T = TypeVar("_T")


class StreamReader:
    """Reads consecutive values. Raises ``CorruptModelError`` if the bytes end too early."""

    def __init__(self, data: bytes, where: str) -> None:
        self._data = data
        self._at = 0
        self._where = where

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def fail(self, reason: str) -> CorruptModelError:
        return CorruptModelError(f"{reason} (byte {self._at} of {len(self._data)})", where=self._where)

    def take(self, count: int, what: str) -> bytes:
        if count > self.left:
            raise self.fail(f"{what} needs {count} bytes and {self.left} are left")
        piece = self._data[self._at : self._at + count]
        self._at += count
        return piece

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def unpack(self, layout: str, what: str) -> tuple[int, ...]:
        """Read integers in a layout of ``struct``, without its byte order."""
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout), what))

    def raw(self, what: str) -> bytes:
        return self.take(self.u64(f"the length of {what}"), what)

    def text(self, what: str) -> str:
        data = self.raw(what)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} is not UTF-8") from error

    def count(self, what: str, item_bytes: int) -> int:
        """Return a u64 count of items with at least ``item_bytes`` bytes each, all of which must still
        follow.
        """
        count = self.u64(f"the number of {what}")
        if count * item_bytes > self.left:
            raise self.fail(f"{count} {what} do not fit in the {self.left} bytes left")
        return count

    def vector(self, what: str, item_bytes: int, read: Callable[[], _T]) -> tuple[_T, ...]:
        """Read a count, then that many items with ``read``, each of at least ``item_bytes`` bytes."""
        return tuple(read() for _ in range(self.count(what, item_bytes)))

    def texts(self, what: str) -> tuple[str, ...]:
        return self.vector(what, 8, lambda: self.text(what))

    def u64s(self, what: str) -> tuple[int, ...]:
        return self.vector(what, 8, lambda: self.u64(what))

    def end(self) -> None:
        if self.left:
            raise self.fail(f"{self.left} bytes follow its end")


class StreamWriter:
    def __init__(self) -> None:
        self._parts = bytearray()

    def raw(self, data: bytes) -> None:
        self._parts += data

    def u64(self, value: int) -> None:
        self._parts += value.to_bytes(8, "little")

    def pack(self, layout: str, *values: int) -> None:
        self._parts += struct.pack("<" + layout, *values)

    def string(self, value: str | bytes) -> None:
        data = value.encode() if isinstance(value, str) else value
        self.u64(len(data))
        self._parts += data

    def vector(self, items: Sequence[_T], write: Callable[[_T], None]) -> None:
        self.u64(len(items))
        self.each(items, write)

    def each(self, items: Iterable[_T], write: Callable[[_T], None]) -> None:
        for item in items:
            write(item)

    def getvalue(self) -> bytes:
        return bytes(self._parts)
