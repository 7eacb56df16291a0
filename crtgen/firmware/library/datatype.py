"""Element types as DLPack and TVM write them: ``int8``, ``float32``, ``uint1`` for booleans, ``int8x4``."""

import re
from dataclasses import dataclass
from typing import Self

import numpy as np

from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.network.ir import DType

__all__ = ["DLDataType"]

_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4}
_NAMES = {code: name for name, code in _CODES.items()}
_NUMPY = (
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "bool"),
)
_TEXT = re.compile(r"(int|uint|float|bfloat)([1-9]\d{0,2})(?:x([1-9]\d{0,4}))?")


@dataclass(frozen=True, slots=True)
class DLDataType:
    """An element type: type code, bits per lane, lanes."""

    code: int
    bits: int
    lanes: int = 1

    @classmethod
    def parse(cls, text: str, where: str = "") -> Self:
        match = _TEXT.fullmatch("uint1" if text == "bool" else text)
        if match is None or not 1 <= int(match[2]) <= 255 or int(match[3] or 1) > 65535:
            raise CorruptModelError(f"{text!r} is not an element type", where=where)
        return cls(_CODES[match[1]], int(match[2]), int(match[3] or 1))

    @classmethod
    def of(cls, dtype: "np.dtype[np.generic]") -> Self:
        return cls.parse(dtype.name)

    @property
    def itemsize(self) -> int:
        return (self.bits * self.lanes + 7) // 8

    @property
    def numpy(self) -> "np.dtype[np.generic]":
        """Return numpy's type, little-endian; raises ``UnsupportedError`` if numpy has none."""
        if str(self) not in _NUMPY:
            raise UnsupportedError(f"arrays of {self} are not supported")
        return np.dtype(str(self)).newbyteorder("<")

    @property
    def ir(self) -> DType:
        """Return the compiler's own type; raises ``UnsupportedError`` if it has none."""
        try:
            return DType(str(self))
        except ValueError:
            raise UnsupportedError(f"tensors of {self} are not supported") from None

    def __str__(self) -> str:
        if (self.code, self.bits, self.lanes) == (1, 1, 1):
            return "bool"
        lanes = f"x{self.lanes}" if self.lanes != 1 else ""
        return f"{_NAMES.get(self.code, f'code{self.code}_')}{self.bits}{lanes}"
