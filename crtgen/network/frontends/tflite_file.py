"""A `.tflite` file as plain, checked data; no other module reads the flatbuffer.

Flatbuffers' Python reader verifies nothing, so everything is read once, eagerly, with each length and index
checked. Reading beyond the end of a damaged file is caught in :func:`read`, and nowhere else.
"""

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tflite
from flatbuffers import flexbuffers

from crtgen.base.budget import memory_limit
from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.base.formats.tflite_code import operator_number
from crtgen.network.frontends.builder import NamedTensor
from crtgen.network.frontends.tflite_lookups import TensorLookup, lookups
from crtgen.network.frontends.tflite_sparse import dense
from crtgen.network.frontends.tflite_tables import looked_up, table_axis
from crtgen.network.ir import Array, DType, Quant, shape_text

__all__ = ["DECODE", "FileOperator", "FileTensor", "TfliteFileGraph", "read"]

DECODE = "CUSTOM TFLM_DECODE"
"""Operator that decodes compressed tensors."""

_IDENTIFIER = b"TFL3"
_MAX_ITEMS = 1 << 16
_MAX_RANK = 8
# More than any board holds, and few enough to compute with on a host.
_MAX_ELEMENTS = 1 << 26

_TYPES = {v: k for k, v in vars(tflite.TensorType).items() if not k.startswith("_")}
_OPERATORS = {v: k for k, v in vars(tflite.BuiltinOperator).items() if not k.startswith("_")}
_TABLES = {v: k for k, v in vars(tflite.BuiltinOptions).items() if not k.startswith("_")}
_TABLES_2 = {v: k for k, v in vars(tflite.BuiltinOptions2).items() if not k.startswith("_")}
_DTYPES = {d.name: d for d in DType}

# Stands for a channel's scale of 0, which converters write for weights that are all 0. TFLite's multiplier of
# such a channel is 0, and that of so small a scale, too: its outputs are the zero point, whatever the bias.
_NO_SCALE = 2.0**-100


@dataclass(frozen=True, slots=True, eq=False)
class FileTensor(NamedTensor):
    """A tensor. Its key is its index, preceded by the number of the subgraph in all subgraphs but the
    first.
    """

    @property
    def is_unsigned(self) -> bool:
        return self.type_name == DType.UINT8.name


@dataclass(frozen=True, slots=True)
class FileOperator:
    """An operator: its name in the schema, tensors by index, and options.

    An absent optional input is None. A custom operator is called ``CUSTOM name``; its options are a dict.
    ``table`` is the name of the options' table, ``NONE`` if there is none.
    """

    index: int
    code: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]
    table: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TfliteFileGraph:
    tensors: tuple[FileTensor, ...]
    operators: tuple[FileOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def read(data: bytes, where: str, options: Mapping[str, tuple[str, ...]]) -> tuple[TfliteFileGraph, ...]:
    """Read the subgraphs of a model; the first one is the main graph.

    ``where`` is the file's name in errors, ``options`` the fields to read from each options table. Raises
    ``CorruptModelError`` if the file is damaged, ``UnsupportedError`` for parts of the format that crtgen
    lacks.
    """
    if data[4:8] != _IDENTIFIER:
        message = "it is not a TFLite model: the identifier TFL3 is missing"
        raise CorruptModelError(message, where=where, hint="an ONNX model is called .onnx")
    try:
        return _TfliteReader(data, where, options).model()
    except (struct.error, LookupError, ValueError, OverflowError, TypeError, AttributeError) as error:
        raise CorruptModelError(f"the file is damaged: {error}", where=where, hint=_HINT) from error


_HINT = "export or download the model again"


@dataclass(frozen=True, slots=True)
class _Common:
    # Shared by all subgraphs of a file: buffers, names of operators, and the tensors that are indices.
    buffers: tuple[Array | None, ...]
    codes: tuple[str, ...]
    lookups: Mapping[str, TensorLookup]


@dataclass(frozen=True, slots=True)
class _TfliteReader:
    data: bytes
    where: str
    fields: Mapping[str, tuple[str, ...]]

    def model(self) -> tuple[TfliteFileGraph, ...]:
        root = tflite.Model.GetRootAs(self.data, 0)
        if root.Version() != 3:
            raise UnsupportedError(f"schema version {root.Version()}; supported: 3", where=self.where)
        common = _Common(
            self._tables(root, "Buffers", lambda _, b: self._buffer(b)),
            self._tables(root, "OperatorCodes", lambda _, c: _operator_name(c)),
            lookups(root, self.where),
        )
        graphs = self._tables(root, "Subgraphs", lambda i, g: self._graph(i, g, common))
        if not graphs:
            raise self._corrupt("the file has no subgraph")
        return graphs

    def _graph(self, number: int, graph: Any, common: "_Common") -> TfliteFileGraph:
        keys, count = f"{number}:" if number else "", self._count(graph, "Tensors")
        operators = self._tables(graph, "Operators", lambda i, o: self._operator(i, o, common.codes, count))
        codes = {
            i for op in operators if op.code == DECODE for i in op.inputs
        }  # as other tensors were before
        tensors = self._tables(
            graph, "Tensors", lambda i, t: self._tensor(f"{keys}{i}", t, common, i not in codes)
        )
        inputs, outputs = (self._indices(graph, kind, count) for kind in ("Inputs", "Outputs"))
        return TfliteFileGraph(tensors, operators, inputs, outputs)

    def _count(self, table: Any, name: str) -> int:
        # The length of a vector of tables, checked against the size of the file.
        count = int(getattr(table, f"{name}Length")())
        if count > min(_MAX_ITEMS, len(self.data) // 4):
            raise self._corrupt(f"the file has {count} {name.lower()}")
        return count

    def _tables(self, table: Any, name: str, parse: Callable[[int, Any], Any]) -> tuple[Any, ...]:
        item = getattr(table, name)
        return tuple(parse(i, item(i)) for i in range(self._count(table, name)))

    def _numbers(self, table: Any, name: str, limit: int) -> tuple[Any, ...]:
        # A vector of numbers, at most ``limit`` of them.
        count = int(getattr(table, f"{name}Length")())
        if count > limit:
            raise self._corrupt(f"{name} has {count} numbers")
        return tuple(getattr(table, f"{name}AsNumpy")().tolist()) if count else ()

    def _indices(self, table: Any, name: str, tensors: int) -> tuple[int, ...]:
        indices = self._numbers(table, name, _MAX_ITEMS)
        for index in indices:
            if not 0 <= index < tensors:
                raise self._corrupt(f"the operator names tensor {index} of {tensors}")
        return indices

    def _buffer(self, buffer: Any) -> Array | None:
        # The bytes of a buffer without copying; None if it is empty.
        if buffer.Offset() > 1:
            raise UnsupportedError("buffers outside of the flatbuffer", where=self.where)
        if not buffer.DataLength():
            return None
        data: Array = buffer.DataAsNumpy()
        return data

    def _tensor(self, key: str, tensor: Any, common: "_Common", scaled: bool) -> FileTensor:
        # A tensor; if it is not ``scaled``, scales that it has are none of its own.
        buffers = common.buffers
        name = (tensor.Name() or b"").decode(errors="replace")
        label = f"tensor {key} {name!r}"
        shape = self._shape(tensor, label)
        type_name = _TYPES.get(tensor.Type())
        if type_name is None:
            raise self._corrupt(f"{label} has type {tensor.Type()}")
        if not 0 <= tensor.Buffer() < len(buffers):
            raise self._corrupt(f"{label} names buffer {tensor.Buffer()} of {len(buffers)}")
        if buffers[tensor.Buffer()] is None:
            shape = self._opened(tensor, shape)
        packed = type_name == "INT4" and buffers[tensor.Buffer()] is not None
        dtype = _DTYPES.get("INT8" if packed else type_name)
        quant = self._quant(tensor.Quantization(), shape, dtype, label) if scaled else None
        data, one = buffers[tensor.Buffer()], common.lookups.get(key)
        constant = None if one else self._constant(data, shape, type_name, dtype, label, tensor.Sparsity())
        made = FileTensor(
            key=key,
            name=name,
            shape=shape,
            type_name=type_name,
            dtype=dtype,
            quant=quant,
            data=constant,
            is_variable=bool(tensor.IsVariable()),
        )
        return made if one is None else replace(made, data=self._looked_up(made, data, buffers, one))

    def _looked_up(
        self,
        tensor: FileTensor,
        indices: Array | None,
        buffers: tuple[Array | None, ...],
        lookup: TensorLookup,
    ) -> Array:
        # The numbers of a tensor that is indices into the tables of a buffer.
        if not 0 <= lookup.values < len(buffers):
            raise self._corrupt(
                f"tensor {tensor.key} has its tables in buffer {lookup.values} of {len(buffers)}"
            )
        values = buffers[lookup.values]
        if indices is None or values is None or tensor.dtype is None or tensor.type_name == "INT4":
            raise self._corrupt(f"tensor {tensor.key} of {tensor.type_name} has no indices or no tables")
        axis = table_axis(tensor.shape, tensor.quant)
        tables, dtype = 1 if axis is None else tensor.shape[axis], tensor.dtype.numpy.newbyteorder("<")
        if min(tensor.shape, default=0) < 0 or values.nbytes % (tables * dtype.itemsize):
            raise self._corrupt(f"tensor {tensor.key} has {values.nbytes} bytes in {tables} tables")
        return looked_up(indices, values.view(dtype).reshape(tables, -1), lookup.bits, tensor.shape, axis)

    def _shape(self, tensor: Any, label: str) -> tuple[int, ...]:
        # Read a shape, with -1 for a length that is not fixed; a batch that is not fixed is 1.
        shape = self._numbers(tensor, "Shape", _MAX_RANK)
        if shape and shape[0] == -1:
            shape = (1, *shape[1:])
        if any(d < -1 for d in shape):
            raise self._corrupt(f"{label} has shape {shape_text(shape)}")
        most = min(_MAX_ELEMENTS, memory_limit(8))
        if math.prod(shape) > most:
            reason = f"{label} has shape {shape_text(shape)}; supported: at most {most:,} elements"
            hint = "" if most == _MAX_ELEMENTS else "raise --limit-memory"
            raise UnsupportedError(reason, where=self.where, hint=hint)
        return shape

    def _opened(self, tensor: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
        # Put -1 for open lengths: converters record 1 for them, and say so in the signature only.
        signature = self._numbers(tensor, "ShapeSignature", _MAX_RANK)
        if len(signature) != len(shape):
            return shape
        lengths = enumerate(zip(shape, signature, strict=True))
        return tuple(-1 if axis and (d, s) == (1, -1) else d for axis, (d, s) in lengths)

    def _quant(self, quant: Any, shape: tuple[int, ...], dtype: DType | None, label: str) -> Quant | None:
        if quant is None or not quant.ScaleLength():
            return None
        axis, count = int(quant.QuantizedDimension()), int(quant.ScaleLength())
        if len(shape) == 1:
            axis = 0  # there is no other, whatever the file says: TFLite Micro does not look at it
        if count > 1 and not (0 <= axis < len(shape) and shape[axis] == count):
            raise self._corrupt(f"{label} has {count} scales on axis {axis} of {shape_text(shape)}")
        scales = self._numbers(quant, "Scale", count)
        if count > 1:
            scales = tuple(s or _NO_SCALE for s in scales)
        zero_points = self._numbers(quant, "ZeroPoint", count) or (0,) * count
        if not all(0 < s < math.inf for s in scales):
            raise self._corrupt(f"{label} has a scale that is not positive and finite")
        if dtype is not None and dtype.is_integer:
            info = np.iinfo(dtype.numpy.name)
            if not all(info.min <= z <= info.max for z in zero_points):
                raise self._corrupt(f"{label} has a zero point outside of {dtype.value}")
        return Quant(scales, zero_points, axis if count > 1 else None)

    def _constant(
        self,
        data: Array | None,
        shape: tuple[int, ...],
        type_name: str,
        dtype: DType | None,
        label: str,
        sparsity: Any,
    ) -> Array | None:
        if data is None or dtype is None or -1 in shape:
            return None
        if sparsity is not None and type_name != "INT4":
            return dense(data.view(dtype.numpy.newbyteorder("<")), shape, sparsity)
        count = math.prod(shape)
        expected = (count + 1) // 2 if type_name == "INT4" else count * dtype.itemsize
        if data.nbytes != expected:
            raise self._corrupt(f"{label} has {data.nbytes} bytes of data instead of {expected}")
        if type_name == "INT4":
            return _nibbles(data, count).reshape(shape)
        return data.view(dtype.numpy.newbyteorder("<")).reshape(shape)

    def _operator(self, index: int, operator: Any, codes: tuple[str, ...], tensors: int) -> FileOperator:
        code = int(operator.OpcodeIndex())
        if not 0 <= code < len(codes):
            raise self._corrupt(f"operator {index} names code {code} of {len(codes)}")
        given = self._numbers(operator, "Inputs", _MAX_ITEMS)
        for tensor in given:
            if not -1 <= tensor < tensors:
                raise self._corrupt(f"operator {index} names tensor {tensor} of {tensors}")
        outputs = self._indices(operator, "Outputs", tensors)
        table, raw = _TABLES.get(operator.BuiltinOptionsType(), "NONE"), operator.BuiltinOptions()
        if raw is None and operator.BuiltinOptions2Type():
            table, raw = _TABLES_2.get(operator.BuiltinOptions2Type(), "NONE"), operator.BuiltinOptions2()
        inputs = tuple(None if i < 0 else i for i in given)
        options = _options(table, self.fields.get(table, ()), raw)
        if operator.CustomOptionsLength():
            options = _custom_options(operator.CustomOptionsAsNumpy().tobytes())
        return FileOperator(index, codes[code], inputs, outputs, table, options)

    def _corrupt(self, reason: str) -> CorruptModelError:
        return CorruptModelError(reason, where=self.where, hint=_HINT)


def _options(table: str, fields: tuple[str, ...], raw: Any) -> Mapping[str, Any]:
    if raw is None or not fields:
        return {}
    options = getattr(tflite, table)()
    options.Init(raw.Bytes, raw.Pos)
    return {field: getattr(options, field)() for field in fields}


def _custom_options(data: bytes) -> Mapping[str, Any]:
    # The numbers and lists of numbers in a flexbuffer's map; if it is no map, the bytes themselves.
    try:
        root = flexbuffers.GetRoot(data)
        is_map = bool(root.IsMap)
    except ValueError:
        is_map = False
    if not is_map:
        return {"bytes": data}
    found: dict[str, Any] = {}
    for key in root.AsMap.Keys:
        value = root.AsMap[key.AsKey]
        if value.IsInt or value.IsFloat or value.IsBool:
            found[str(key.AsKey)] = value.Value
        elif value.IsTypedVector:
            found[str(key.AsKey)] = value.AsTypedVector.Value
    return found


def _operator_name(code: Any) -> str:
    # The name of an operator code. A custom code counts whatever stands beside it: compilers for NPUs leave
    # the builtin at 0, which is ADD.
    number = operator_number(code)
    name, custom = _OPERATORS.get(number, f"number {number}"), code.CustomCode() or b""
    return f"CUSTOM {custom.decode(errors='replace')}" if custom or name == "CUSTOM" else name


def _nibbles(data: Array, count: int) -> Array:
    # Numbers of four bits, the low half of a byte first, as int8.
    halves = np.stack([data.view(np.int8) << 4, data.view(np.int8)], axis=-1).reshape(-1)[:count] >> 4
    return halves.astype(np.int8)
