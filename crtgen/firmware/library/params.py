"""NDArrays and parameter files (``.params``): formats.md, section 4."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from crtgen.base.errors import CorruptModelError
from crtgen.firmware.library.datatype import DLDataType
from crtgen.firmware.library.stream import StreamReader, StreamWriter
from crtgen.network.ir import Array

__all__ = ["NDArray", "read_ndarray", "read_params", "write_ndarray", "write_params"]

_ARRAY_MAGIC = 0xDD5E40F096B4A13F
_FILE_MAGIC = 0xF7E58D4F05049CB7
_CPU = (1, 0)


@dataclass(frozen=True, slots=True, eq=False)
class NDArray:
    """An array with the device (type, id) on which it was saved; ``array`` is read-only and little-endian."""

    array: Array
    device: tuple[int, int] = _CPU

    @property
    def dtype(self) -> DLDataType:
        return DLDataType.of(self.array.dtype)


def read_ndarray(reader: StreamReader) -> NDArray:
    """Read one NDArray: magic, device, rank, type, shape, data."""
    if reader.u64("an array's magic number") != _ARRAY_MAGIC:
        raise reader.fail("this is not an array")
    reader.u64("an array's reserved word")
    kind, index = reader.unpack("ii", "an array's device")
    (ndim,) = reader.unpack("i", "an array's rank")
    dtype = DLDataType(*reader.unpack("BBH", "an array's element type"))
    if not 0 <= ndim * 8 <= reader.left:
        raise reader.fail(f"an array has rank {ndim}")
    shape = reader.unpack(f"{ndim}q", "an array's shape")
    (nbytes,) = reader.unpack("q", "an array's size")
    if min(shape, default=0) < 0 or nbytes != prod(shape) * dtype.itemsize:
        raise reader.fail(f"an array of {dtype} and shape {list(shape)} has {nbytes} bytes")
    data = reader.take(nbytes, "an array's data")
    return NDArray(np.frombuffer(data, dtype.numpy).reshape(shape), (kind, index))


def write_ndarray(writer: StreamWriter, value: NDArray) -> None:
    dtype, shape = value.dtype, value.array.shape
    data = np.ascontiguousarray(value.array).astype(dtype.numpy, copy=False).tobytes()
    writer.u64(_ARRAY_MAGIC)
    writer.u64(0)
    writer.pack("iii", *value.device, len(shape))
    writer.pack("BBH", dtype.code, dtype.bits, dtype.lanes)
    writer.pack(f"{len(shape)}qq", *shape, len(data))
    writer.raw(data)


def read_params(data: bytes, where: str = "parameters") -> dict[str, NDArray]:
    """Return the arrays of a parameter file by name, in the file's order."""
    reader = StreamReader(data, where)
    if reader.u64("the magic number") != _FILE_MAGIC:
        raise CorruptModelError("this is not a parameter file", where=where)
    reader.u64("the reserved word")
    names = reader.texts("names")
    if len(set(names)) != len(names):
        raise reader.fail("two parameters have the same name")
    if reader.u64("the number of arrays") != len(names):
        raise reader.fail(f"the number of arrays is not that of the {len(names)} names")
    params = {name: read_ndarray(reader) for name in names}
    reader.end()
    return params


def write_params(params: Mapping[str, NDArray]) -> bytes:
    writer = StreamWriter()
    writer.u64(_FILE_MAGIC)
    writer.u64(0)
    writer.vector(tuple(params), writer.string)
    writer.vector(tuple(params.values()), lambda value: write_ndarray(writer, value))
    return writer.getvalue()
