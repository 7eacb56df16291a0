"""Values in messages: their Python types, the packed sequence, and a bounded reader.

A packed sequence is the number of arguments (i32), a type code for each (i32), then the values.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen.base.errors import ProtocolError, UsageError

__all__ = [
    "Args",
    "DataType",
    "Device",
    "Handle",
    "Reader",
    "Tensor",
    "TypeCode",
    "Value",
    "pack_args",
    "pack_sized",
    "pack_tensor",
]


class TypeCode(IntEnum):
    INT = 0
    UINT = 1
    FLOAT = 2
    HANDLE = 3
    NULL = 4
    DTYPE = 5
    DEVICE = 6
    TENSOR = 7
    MODULE = 9
    FUNCTION = 10
    STR = 11
    BYTES = 12
    NDARRAY = 13


MOST_DIMENSIONS = 32
"""Limit of a tensor's dimensions on the wire, which is that of older versions of numpy."""

_WIDTHS = {"i": (8, 16, 32, 64), "u": (8, 16, 32, 64), "f": (16, 32, 64)}


@dataclass(frozen=True, slots=True)
class DataType:
    """Element type: ``code`` 0 int, 1 uint, 2 float; ``bits`` of one lane."""

    code: int
    bits: int
    lanes: int = 1

    @classmethod
    def of(cls, dtype: npt.DTypeLike) -> "DataType":
        """Convert numpy's type. Raises ``UsageError`` for a type that tensors cannot have."""
        scalar = np.dtype(dtype)
        if scalar.kind == "b":
            return cls(1, 1)
        if scalar.itemsize * 8 not in _WIDTHS.get(scalar.kind, ()):
            raise UsageError(f"a tensor cannot hold {scalar}", hint="use integers, floats or bool")
        return cls("iuf".index(scalar.kind), scalar.itemsize * 8)

    @property
    def numpy(self) -> "np.dtype[Any]":
        """The little-endian numpy dtype. Raises ``ProtocolError`` if numpy has none."""
        if self == DataType(1, 1):
            return np.dtype(np.bool_)
        if self.code > 2 or self.lanes != 1 or self.bits not in _WIDTHS["iuf"[self.code]]:
            raise ProtocolError(f"element type {self} has no equal in numpy")
        return np.dtype(f"<{'iuf'[self.code]}{self.bits // 8}")

    @property
    def nbytes(self) -> int:
        return (self.bits * self.lanes + 7) // 8


@dataclass(frozen=True, slots=True)
class Device:
    type: int = 1
    id: int = 0


@dataclass(frozen=True, slots=True)
class Tensor:
    """A compact tensor in the memory of the device, ``byte_offset`` bytes after the address ``data``."""

    data: int
    shape: tuple[int, ...]
    dtype: DataType
    device: Device = Device()
    byte_offset: int = 0

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.nbytes


@dataclass(frozen=True, slots=True)
class Handle:
    """A handle of the device; ``type`` is HANDLE, or MODULE or FUNCTION if an argument requires that."""

    value: int
    type: TypeCode = TypeCode.HANDLE


Value = None | int | float | str | bytes | DataType | Device | Tensor | Handle
Args = tuple[Value, ...]


_I32 = struct.Struct("<i")
_U64 = struct.Struct("<Q")
_I64 = struct.Struct("<q")
_F64 = struct.Struct("<d")
_DTYPE = struct.Struct("<BBH")
_DEVICE = struct.Struct("<ii")
_TENSOR = struct.Struct("<QiiiBBH")


def _pack_int(value: int) -> tuple[TypeCode, bytes]:
    if -(1 << 63) <= value < 1 << 63:
        return TypeCode.INT, _I64.pack(value)
    if 0 <= value < 1 << 64:
        return TypeCode.UINT, _U64.pack(value)
    raise UsageError(f"{value} does not fit into 64 bits", hint="send it in an array, or as a float")


def _pack_dtype(value: DataType) -> tuple[TypeCode, bytes]:
    return TypeCode.DTYPE, _DTYPE.pack(value.code, value.bits, value.lanes) + bytes(4)


def pack_sized(data: bytes) -> bytes:
    return _U64.pack(len(data)) + data


def pack_tensor(tensor: Tensor) -> bytes:
    """Return the packed tensor: address, device, rank, element type, shape, byte offset."""
    ndim, dtype, device = len(tensor.shape), tensor.dtype, tensor.device
    head = _TENSOR.pack(tensor.data, device.type, device.id, ndim, dtype.code, dtype.bits, dtype.lanes)
    return head + struct.pack(f"<{ndim}qQ", *tensor.shape, tensor.byte_offset)


_PACKERS: dict[type, Callable[[Any], tuple[TypeCode, bytes]]] = {
    type(None): lambda _: (TypeCode.NULL, b""),
    bool: _pack_int,
    int: _pack_int,
    float: lambda value: (TypeCode.FLOAT, _F64.pack(value)),
    str: lambda value: (TypeCode.STR, pack_sized(value.encode())),
    bytes: lambda value: (TypeCode.BYTES, pack_sized(value)),
    DataType: _pack_dtype,
    Device: lambda value: (TypeCode.DEVICE, _DEVICE.pack(value.type, value.id)),
    Tensor: lambda value: (TypeCode.TENSOR, pack_tensor(value)),
    Handle: lambda value: (value.type, _U64.pack(value.value)),
}


def pack_args(args: Args) -> bytes:
    """Write a packed sequence. Raises ``UsageError`` for an argument that cannot be sent."""
    codes, values = [], []
    for arg in args:
        packer = _PACKERS.get(type(arg))
        if packer is None:
            raise UsageError(
                f"a {type(arg).__name__} cannot be an argument of a remote function",
                hint="send an int, a float, a str, bytes or an array of the device",
            )
        code, value = packer(arg)
        codes.append(code)
        values.append(value)
    return struct.pack(f"<{len(codes) + 1}i", len(codes), *codes) + b"".join(values)


class Reader:
    """Reads values from bytes, never beyond the end: a ``ProtocolError`` says what is missing, and where."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.offset = 0

    def fail(self, what: str) -> ProtocolError:
        return ProtocolError(f"{what}, at byte {self.offset} of a packet of {len(self._data)} bytes")

    def take(self, size: int, what: str) -> bytes:
        left = len(self._data) - self.offset
        if size > left:
            raise self.fail(f"{what} needs {size} bytes, {left} are left")
        self.offset += size
        return self._data[self.offset - size : self.offset]

    def rest(self) -> bytes:
        return self.take(len(self._data) - self.offset, "the rest")

    def unpack(self, layout: struct.Struct, what: str) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size, what))

    def i32(self, what: str) -> int:
        return int(self.unpack(_I32, what)[0])

    def u64(self, what: str) -> int:
        return int(self.unpack(_U64, what)[0])

    def sized(self, what: str) -> bytes:
        return self.take(self.u64(f"the length of {what}"), what)

    def text(self, what: str) -> str:
        return self.sized(what).decode(errors="backslashreplace")

    def tensor(self) -> Tensor:
        data, device_type, device_id, ndim, *dtype = self.unpack(_TENSOR, "a tensor")
        if not 0 <= ndim <= min(MOST_DIMENSIONS, 1 + (len(self._data) - self.offset) // 8):
            raise self.fail(f"a tensor cannot have {ndim} dimensions")
        *shape, byte_offset = self.unpack(struct.Struct(f"<{ndim}qQ"), "a tensor's shape")
        if any(extent < 0 for extent in shape):
            raise self.fail(f"a tensor cannot have the shape {shape}")
        return Tensor(data, tuple(shape), DataType(*dtype), Device(device_type, device_id), byte_offset)

    def args(self) -> Args:
        number = self.i32("the number of arguments")
        if not 0 <= number <= (len(self._data) - self.offset) // 4:
            raise self.fail(f"there cannot be {number} arguments")
        codes = self.unpack(struct.Struct(f"<{number}i"), "type codes")
        return tuple(self._value(code, index) for index, code in enumerate(codes))

    def _value(self, code: int, index: int) -> Value:
        unpacker = _UNPACKERS.get(code)
        if unpacker is None:
            raise self.fail(f"argument {index} has the unknown type code {code}")
        return unpacker(self, f"argument {index}")


_UNPACKERS: dict[int, Callable[[Reader, str], Value]] = {
    TypeCode.INT: lambda reader, what: int(reader.unpack(_I64, what)[0]),
    TypeCode.UINT: lambda reader, what: reader.u64(what),
    TypeCode.FLOAT: lambda reader, what: float(reader.unpack(_F64, what)[0]),
    TypeCode.HANDLE: lambda reader, what: Handle(reader.u64(what)),
    TypeCode.NULL: lambda reader, what: None,
    TypeCode.DTYPE: lambda reader, what: DataType(*_DTYPE.unpack(reader.take(8, what)[:4])),
    TypeCode.DEVICE: lambda reader, what: Device(*reader.unpack(_DEVICE, what)),
    TypeCode.TENSOR: lambda reader, what: reader.tensor(),
    TypeCode.MODULE: lambda reader, what: Handle(reader.u64(what), TypeCode.MODULE),
    TypeCode.FUNCTION: lambda reader, what: Handle(reader.u64(what), TypeCode.FUNCTION),
    TypeCode.STR: lambda reader, what: reader.text(what),
    TypeCode.BYTES: lambda reader, what: reader.sized(what),
}
