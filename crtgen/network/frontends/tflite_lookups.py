"""The older form of TFLite Micro's compressed models: metadata lists the tensors that are indices into
tables.

``COMPRESSION_METADATA`` is a flatbuffer of its own (tflite-micro's ``compression/metadata.fbs``). Field 0 is
its version. Field 1 has a list of tables for each subgraph; each table has a tensor, the buffer of its
values, and the bits of an index.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flatbuffers.table import Table

from crtgen.base.errors import UnsupportedError

__all__ = ["TensorLookup", "lookups"]

_NAME = b"COMPRESSION_METADATA"
_VERSION = 1
_MOST = 1 << 16


@dataclass(frozen=True, slots=True)
class TensorLookup:
    values: int
    bits: int


def lookups(model: Any, where: str) -> Mapping[str, TensorLookup]:
    """Return the lookups of a model, by the tensors' keys.

    Raises ``ValueError`` or ``struct.error`` for damaged metadata, ``UnsupportedError`` for a later version.
    """
    found: dict[str, TensorLookup] = {}
    for number in range(_checked(model.MetadataLength())):
        metadata = model.Metadata(number)
        if metadata.Name() == _NAME:
            buffer = model.Buffers(metadata.Buffer())
            data = buffer.DataAsNumpy().tobytes() if buffer.DataLength() else b""
            found.update(_parsed(data, where))
    return found


def _parsed(data: bytes, where: str) -> Iterator[tuple[str, TensorLookup]]:
    root = Table(data, struct.unpack_from("<I", data)[0])
    version = _number(root, 0, "<I", _VERSION)
    if version > _VERSION:
        reason = f"version {version} of compressed tensors; supported: {_VERSION}"
        raise UnsupportedError(reason, where=where, hint="compress the model with operators TFLM_DECODE")
    for number, subgraph in enumerate(_tables(root, 1)):
        for tensor in _tables(subgraph, 0):
            key = f"{number}:" if number else ""
            lookup = TensorLookup(_number(tensor, 1, "<I", 0), _number(tensor, 2, "<B", 0))
            yield f"{key}{_number(tensor, 0, '<i', 0)}", lookup


def _place(table: Table, field: int) -> int:
    # Offset of a field; 0 if it is absent.
    offset = table.Offset(4 + 2 * field)
    return table.Pos + offset if offset else 0


def _number(table: Table, field: int, kind: str, absent: int) -> int:
    place = _place(table, field)
    return int(struct.unpack_from(kind, table.Bytes, place)[0]) if place else absent


def _tables(table: Table, field: int) -> Iterator[Table]:
    place = _place(table, field)
    if not place:
        return
    start = place + struct.unpack_from("<I", table.Bytes, place)[0]
    for number in range(_checked(struct.unpack_from("<I", table.Bytes, start)[0])):
        at = start + 4 + 4 * number
        yield Table(table.Bytes, at + struct.unpack_from("<I", table.Bytes, at)[0])


def _checked(count: int) -> int:
    if count > _MOST:
        raise ValueError(f"a list of {count} in its metadata")
    return count
