"""Compressed constants of TFLite Micro: operators TFLM_DECODE.

A TFLM_DECODE has pairs of inputs: encoded data, and a description of 16 bytes, with the kind of coding in
byte 0 and versions in bytes 1 and 4, followed by tables. There are three codings:

- tables: indices of 1 to 7 bits, the first one in the highest bits, into a table of the whole tensor or of a
  channel. The low half of byte 5 has the bits, its high half the axis of the channels, 15 if there is one
  table; byte 6 is the length of a table.
- Huffman codes, by tables of 16 or 32 bits an entry: an entry is a value, or where the next table begins.
- pruning: a bit for each number, which is set where one of the values follows, else it is the zero point.

Sources: tflite_micro's compression package, and ``decode_state*.h`` of tflite-micro. Older files have 0 for
every axis, and the channels of the scales; the length of the tables tells which is meant.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from crtgen.base import budget
from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.network.frontends.tflite_file import DECODE, FileOperator, FileTensor, TfliteFileGraph
from crtgen.network.frontends.tflite_tables import BadCodes, looked_up, table_axis
from crtgen.network.ir import Array, DType

__all__ = ["decoded"]

_HEADER = 16
_TYPES = (DType.BOOL, DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.FLOAT32)
_ONE_TABLE = 15
_LONGEST = 32  # bits of a Huffman code
_WINDOW = 40  # bits that are looked at for a number
_OPERATIONS = 500  # of a number of a Huffman code
_HINT = "compress the model again with tflite_micro's compression tools"


class _Unknown(Exception):
    pass


def decoded(graph: TfliteFileGraph, where: str) -> TfliteFileGraph:
    """Replace TFLM_DECODE operators on constants by the decoded constants.

    ``where`` is the file's name in errors. Raises ``CorruptModelError`` for lengths and indices that do not
    fit, ``UnsupportedError`` for a coding that is unknown or depends on the input.
    """
    if all(op.code != DECODE for op in graph.operators):
        return graph
    tensors = list(graph.tensors)
    for op in graph.operators:
        if op.code == DECODE:
            place = ", ".join((f"operator {op.index}", *(f"tensor {tensors[i].key}" for i in op.outputs)))
            try:
                for output, tensor in _constants(tensors, op):
                    tensors[output] = tensor
            except BadCodes as error:
                raise CorruptModelError(f"TFLM_DECODE: {error} ({place})", where=where, hint=_HINT) from error
            except _Unknown as error:
                raise UnsupportedError(f"TFLM_DECODE: {error} ({place})", where=where, hint=_HINT) from error
    left = tuple(op for op in graph.operators if op.code != DECODE)
    return replace(graph, tensors=tuple(tensors), operators=left)


def _constants(tensors: list[FileTensor], op: FileOperator) -> Iterable[tuple[int, FileTensor]]:
    # The constants of an operator, and the tensors that they are for.
    if len(op.inputs) != 2 * len(op.outputs):
        raise BadCodes(
            f"the operator has {len(op.inputs)} inputs for {len(op.outputs)} outputs instead of two for each"
        )
    for number, output in enumerate(op.outputs):
        encoded, ancillary = (
            _bytes(tensors, i, what)
            for i, what in zip(op.inputs[2 * number : 2 * number + 2], ("codes", "tables"), strict=True)
        )
        yield output, replace(tensors[output], data=_decode(encoded, ancillary, tensors[output]))


def _bytes(tensors: list[FileTensor], index: int | None, what: str) -> Array:
    if index is None:
        raise BadCodes(f"the operator has no {what}")
    data = tensors[index].data
    if data is None:
        raise _Unknown(f"{what} {tensors[index].name!r} that are no constant; supported: constants")
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class _Coding:
    # Encoded data, the header and tables after it, and the tensor to decode.
    encoded: Array
    header: bytes
    tables: Array
    output: FileTensor

    @property
    def dtype(self) -> np.dtype[np.generic]:
        assert self.output.dtype is not None
        return self.output.dtype.numpy.newbyteorder("<")


def _decode(encoded: Array, ancillary: Array, output: FileTensor) -> Array:
    if len(ancillary) < _HEADER:
        raise BadCodes(f"the tables have {len(ancillary)} bytes; the header alone has {_HEADER}")
    if output.dtype not in _TYPES or output.type_name != output.dtype.name:
        names = ", ".join(dtype.name for dtype in _TYPES)
        raise _Unknown(f"{output.name!r} of type {output.type_name}; supported: {names}")
    if -1 in output.shape:
        raise BadCodes(f"the shape of {output.name!r} is not fixed")
    coding = _Coding(encoded, ancillary[:_HEADER].tobytes(), ancillary[_HEADER:], output)
    kinds = {0: _by_tables, 1: _huffman, 2: _pruned}
    kind, version = coding.header[0], coding.header[1]
    if kind not in kinds:
        raise _Unknown(f"a coding of kind {kind}; supported: 0 (tables), 1 (Huffman), 2 (pruning)")
    if version != 1 or coding.header[4] != 1:
        raise _Unknown(f"version {version}.{coding.header[4]} of the coding; supported: 1.1")
    budget.current().hold(prod(output.shape) * coding.dtype.itemsize, f"{output.name!r}, which is decoded,")
    return kinds[kind](coding).reshape(output.shape)


def _by_tables(coding: _Coding) -> Array:
    shape, length = coding.output.shape, coding.header[6]
    axis, bits = coding.header[5] >> 4, coding.header[5] & 7
    if coding.header[5] & 8 or (axis != _ONE_TABLE and axis not in (0, len(shape) - 1)):
        raise _Unknown(f"parameters 0x{coding.header[5]:02x} of tables")
    found = _axis(coding, None if axis == _ONE_TABLE else axis, length)
    count = 1 if found is None else shape[found]
    tables = coding.tables.view(coding.dtype).reshape(count, length)
    return looked_up(coding.encoded, tables, bits, shape, found)


def _axis(coding: _Coding, axis: int | None, length: int) -> int | None:
    # Whose channels have a table each; None if there is one, or raises if the tables have another length.
    # Where the header has 0, files of before it had an axis have those of the scales.
    shape, given = coding.output.shape, len(coding.tables)
    older = table_axis(shape, coding.output.quant) if axis == 0 else axis
    needed = [(1 if one is None else shape[one]) * length * coding.dtype.itemsize for one in (axis, older)]
    if older not in (None, axis) and needed[0] == needed[1] and shape[0] > 1:
        raise _Unknown(f"tables of axis {axis} beside scales of axis {older}, as many of both")
    if given not in needed:
        raise BadCodes(f"the tables of {coding.output.name!r} have {given} bytes instead of {needed[0]}")
    return axis if given == needed[0] else older


def _pruned(coding: _Coding) -> Array:
    shape, quant = coding.output.shape, coding.output.quant
    count = prod(shape)
    if len(coding.encoded) < -(-count // 8):
        raise BadCodes(f"{len(coding.encoded)} bytes say where {count} numbers of {coding.output.name!r} are")
    where = np.unpackbits(coding.encoded.view(np.uint8), count=count).astype(bool).reshape(shape)
    values, size = coding.tables, coding.dtype.itemsize
    found = int(where.sum())
    if len(values) < found * size:
        raise BadCodes(f"{coding.output.name!r} has {len(values)} bytes of values instead of {found * size}")
    zeros = np.array((0,) if quant is None else quant.zero_points)
    if zeros.any() and coding.output.dtype is not DType.INT8:
        raise _Unknown(f"pruned {coding.output.type_name} with a zero point; supported: INT8, or none")
    if len(zeros) > 1:
        zeros = zeros.reshape([-1 if n == table_axis(shape, quant) else 1 for n in range(len(shape))])
    made: Array = np.broadcast_to(zeros, shape).astype(coding.dtype)
    made[where] = values[: found * size].view(coding.dtype)
    return made


def _huffman(coding: _Coding) -> Array:
    wide, first = coding.header[5] & 1, (coding.header[5] >> 4) + 1
    allowed = (DType.INT8, DType.INT16) if wide else (DType.INT8,)
    if coding.output.dtype not in allowed:
        names = " and ".join(dtype.name for dtype in allowed)
        raise _Unknown(f"Huffman codes of {coding.output.type_name}; supported: {names} in such a table")
    entry = np.dtype("<u4" if wide else "<u2")
    if len(coding.tables) % entry.itemsize:
        raise BadCodes(f"a table of {len(coding.tables)} bytes, in entries of {entry.itemsize}")
    count = prod(coding.output.shape)
    budget.current().compute(count * _OPERATIONS, f"{coding.output.name!r}, which is decoded,")
    tree = _Tree(coding.tables.view(entry).tolist(), 8 * entry.itemsize - 5, first)
    numbers = np.array(tree.numbers(coding.encoded.tobytes(), count), np.int64)
    made: Array = (numbers & (256**coding.dtype.itemsize - 1)).astype(f"<u{coding.dtype.itemsize}")
    return made.view(coding.dtype)


@dataclass(frozen=True, slots=True)
class _Tree:
    """Tables of Huffman codes. An entry is a bit, then four bits, then ``bits`` bits of value.

    If the bit is set, the value is a decoded number, and the four bits are the length of its code within this
    table. Otherwise the next table begins value entries later, and takes the four bits plus one as its width.
    The first table has a width of ``first`` bits.
    """

    entries: list[int]
    bits: int
    first: int

    def numbers(self, data: bytes, count: int) -> list[int]:
        # Raises ``BadCodes`` if codes or tables end too early.
        padded, end, at = data + bytes(_WINDOW // 8 + 1), 8 * len(data), 0
        made: list[int] = []
        for _ in range(count):
            near = int.from_bytes(padded[at >> 3 : (at >> 3) + _WINDOW // 8 + 1], "big")
            number, taken = self._number(near >> (8 - (at & 7)) & (1 << _WINDOW) - 1)
            at += taken
            if at > end:
                raise BadCodes(f"the codes end after {len(made)} of {count} numbers")
            made.append(number)
        return made

    def _number(self, window: int) -> tuple[int, int]:
        # The number that a window begins with, and how many it takes.
        place, used, step = 0, 0, self.first
        while True:
            place += window >> (_WINDOW - used - step) & (1 << step) - 1
            if place >= len(self.entries):
                raise BadCodes(f"a code leads to entry {place} of {len(self.entries)}")
            entry = self.entries[place]
            count, value = entry >> self.bits & 15, entry & (1 << self.bits) - 1
            if entry >> (self.bits + 4):
                if used + count == 0 or count > step:
                    raise BadCodes(f"entry {place} of its tables is of {count} of {step} bits")
                return value, used + count
            used, step, place = used + step, count + 1, place + value
            if used + step > _LONGEST:
                raise BadCodes(f"a code of its tables is longer than {_LONGEST} bits")
