"""A TensorFlow Lite file, read by its schema (schema.fbs) without a library.

A FlatBuffer is a tree of tables. A table begins with the distance to its vtable, which has a halfword for
each field: where in the table the field is, or 0 where it has its default. Strings, vectors and other tables
are given by their distance from the field (flatbuffers: internals).
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from crtproof.values import Refused

__all__ = ["Model", "Operator", "Tensor", "read_model"]

INT8, INT32 = 9, 2
_SIZES = {INT8: "b", INT32: "i"}


class _Table:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self._fields = at - struct.unpack_from("<i", data, at)[0]

    def _place(self, field: int) -> int:
        size = struct.unpack_from("<H", self.data, self._fields)[0]
        entry = 4 + 2 * field
        offset = struct.unpack_from("<H", self.data, self._fields + entry)[0] if entry < size else 0
        return self.at + offset if offset else 0

    def number(self, field: int, kind: str, default: int = 0) -> int:
        place = self._place(field)
        return int(struct.unpack_from(f"<{kind}", self.data, place)[0]) if place else default

    def table(self, field: int) -> "_Table | None":
        place = self._place(field)
        return _Table(self.data, self._target(place)) if place else None

    def _target(self, place: int) -> int:
        return place + int(struct.unpack_from("<I", self.data, place)[0])

    def _vector(self, field: int) -> tuple[int, int]:
        place = self._place(field)
        if not place:
            return 0, 0
        at = self._target(place)
        return at + 4, struct.unpack_from("<I", self.data, at)[0]

    def numbers(self, field: int, kind: str) -> list[float]:
        at, count = self._vector(field)
        return list(struct.unpack_from(f"<{count}{kind}", self.data, at))

    def bytes(self, field: int) -> bytes:
        at, count = self._vector(field)
        if at + count > len(self.data):
            raise Refused("a vector ends behind the file")
        return self.data[at : at + count]

    def tables(self, field: int) -> "list[_Table]":
        at, count = self._vector(field)
        return [_Table(self.data, self._target(at + 4 * i)) for i in range(count)]


@dataclass(frozen=True)
class Tensor:
    """``numbers`` are its elements if they are constant. Scales are float32 numbers."""

    shape: tuple[int, ...]
    type: int
    scales: tuple[float, ...]
    zero: int
    numbers: tuple[int, ...] | None

    @property
    def size(self) -> int:
        size = 1
        for n in self.shape:
            size *= n
        return size


@dataclass(frozen=True)
class Operator:
    number: int
    code: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: _Table | None

    def option(self, field: int, kind: str = "b", default: int = 0) -> int:
        return self.options.number(field, kind, default) if self.options else default


@dataclass(frozen=True)
class Model:
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def read_model(path: Path) -> Model:
    """Read a file. Raises ``Refused`` for one that is none, or damaged."""
    data = path.read_bytes()
    if data[4:8] != b"TFL3":
        raise Refused(f"{path} is no TensorFlow Lite file")
    try:
        return _model(data)
    except (struct.error, IndexError, ValueError) as error:
        raise Refused(f"{path} is damaged: {error}") from None


def _model(data: bytes) -> Model:
    root = _Table(data, struct.unpack_from("<I", data, 0)[0])
    codes = [max(t.number(0, "b"), t.number(3, "i")) for t in root.tables(1)]
    buffers = root.tables(4)
    graphs = root.tables(2)
    if len(graphs) != 1:
        raise Refused("a file with several graphs is not followed")
    graph = graphs[0]
    tensors = tuple(_tensor(t, buffers) for t in graph.tables(0))
    operators = tuple(
        Operator(n, codes[o.number(0, "I")], _whole(o, 1), _whole(o, 2), o.table(4))
        for n, o in enumerate(graph.tables(3))
    )
    return Model(tensors, operators, _whole(graph, 1), _whole(graph, 2))


def _whole(t: _Table, field: int) -> tuple[int, ...]:
    return tuple(int(n) for n in t.numbers(field, "i"))


def _tensor(t: _Table, buffers: list[_Table]) -> Tensor:
    shape, kind = _whole(t, 0), t.number(1, "b")
    q = t.table(4)
    scales = tuple(q.numbers(2, "f")) if q else ()
    zeros = [int(n) for n in q.numbers(3, "q")] if q else []
    if len(set(zeros)) > 1:
        raise Refused("zero points that differ from channel to channel")
    buffer = buffers[t.number(2, "I")]
    if buffer.number(1, "Q") > 1:
        raise Refused("constants behind the file's tables are not followed")
    data, numbers = buffer.bytes(0), None
    if data and kind in _SIZES:
        numbers = struct.unpack(f"<{len(data) // struct.calcsize(_SIZES[kind])}{_SIZES[kind]}", data)
    tensor = Tensor(shape, kind, scales, zeros[0] if zeros else 0, numbers)
    if numbers is not None and len(numbers) != tensor.size:
        raise Refused("a constant has another size than its shape")
    return tensor
