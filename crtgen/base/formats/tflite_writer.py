"""A small writer of `.tflite` files: takes tensors, operators and options as plain data, and returns bytes.

    model = TfliteModel(
        tensors=[TfliteTensor("x", (1, 4), "float32"), TfliteTensor("y", (1, 4), "float32")],
        operators=[Operator("SOFTMAX", ["x"], ["y"], Options("SoftmaxOptions", Beta=1.0))],
        inputs=["x"],
        outputs=["y"],
    )
    Path("softmax.tflite").write_bytes(model.to_bytes())

It knows the format and nothing of crtgen. Operators, options and fields have the names of TFLite's schema.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
import tflite

__all__ = ["Operator", "Options", "Sparsity", "TfliteModel", "TfliteSubgraph", "TfliteTensor", "packed"]

_BUFFER_ALIGNMENT = 16


@dataclass(frozen=True)
class Sparsity:
    """Storage of a sparse tensor: levels in ``order``, and the axes of ``blocks``; a level is
    the length of a dense one, or segments and indices.
    """

    order: Sequence[int]
    blocks: Sequence[int]
    levels: Sequence[int | tuple[Sequence[int], Sequence[int]]]


@dataclass
class TfliteTensor:
    """A tensor: an input, a constant (``data``), or the output of an operator.

    ``scales`` and ``zero_points`` are its quantisation, per index of ``axis`` if there are several.
    ``signature`` is the shape with -1 for dimensions that are not fixed. ``dtype`` is numpy's name of the
    type or, for types that numpy lacks, the schema's.
    """

    name: str
    shape: Sequence[int]
    dtype: str
    scales: Sequence[float] = ()
    zero_points: Sequence[int] = ()
    axis: int = 0
    data: npt.NDArray[Any] | None = None
    signature: Sequence[int] | None = None
    sparsity: Sparsity | None = None
    is_variable: bool = False


def packed(numbers: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the data of an int4 constant: two values per byte, the first one in the low half."""
    flat = np.append(numbers.ravel(), np.zeros(numbers.size % 2, np.int8)).astype(np.uint8) & 15
    return (flat[::2] | flat[1::2] << 4).astype(np.uint8)


class Options:
    """An operator's options: the table's name in the schema, and its fields."""

    def __init__(self, table: str, **fields: Any) -> None:
        self.table = table
        self.fields = fields


@dataclass
class Operator:
    """An operator applied to tensors by name; None is an absent optional input.

    A custom operator is called ``CUSTOM name``; ``custom`` are its options, a flexbuffer.
    """

    code: str
    inputs: Sequence[str | None]
    outputs: Sequence[str]
    options: Options | None = None
    version: int = 1
    custom: bytes = b""


@dataclass
class TfliteSubgraph:
    tensors: Sequence[TfliteTensor]
    operators: Sequence[Operator]
    inputs: Sequence[str]
    outputs: Sequence[str]
    name: str = "main"


@dataclass
class TfliteModel(TfliteSubgraph):
    """A model: its main subgraph, and ``others`` that its operators call."""

    description: str = ""
    others: Sequence[TfliteSubgraph] = ()

    def to_bytes(self) -> bytes:
        """Return the bytes of the file; equal models give equal bytes."""
        return _Writer(self).file()


class _Writer:
    def __init__(self, model: TfliteModel) -> None:
        self._model = model
        self._builder = flatbuffers.Builder(1024)
        self._buffers = itertools.count(1)

    def file(self) -> bytes:
        graphs = [self._model, *self._model.others]
        codes = list(dict.fromkeys((o.code, o.version) for g in graphs for o in g.operators))
        constants = [t.data for g in graphs for t in g.tensors if t.data is not None]
        buffers = self._offsets([None, *constants], self._buffer)
        subgraphs = self._offsets(graphs, lambda graph: self._subgraph(graph, codes))
        parts = {
            "Version": 3,
            "OperatorCodes": self._offsets(codes, self._operator_code),
            "Subgraphs": subgraphs,
            "Description": self._builder.CreateString(self._model.description),
            "Buffers": buffers,
        }
        self._builder.Finish(self._table("Model", parts), file_identifier=b"TFL3")
        return bytes(self._builder.Output())

    def _subgraph(self, graph: TfliteSubgraph, codes: Sequence[tuple[str, int]]) -> int:
        index = {t.name: i for i, t in enumerate(graph.tensors)}
        if len(index) != len(graph.tensors):
            raise ValueError("two tensors have the same name")
        numbered = [(t, 0 if t.data is None else next(self._buffers)) for t in graph.tensors]

        def operator(op: Operator) -> int:
            return self._operator(op, codes.index((op.code, op.version)), index)

        parts = {
            "Tensors": self._offsets(numbered, lambda pair: self._tensor(*pair)),
            "Inputs": self._vector([index[n] for n in graph.inputs], "int32"),
            "Outputs": self._vector([index[n] for n in graph.outputs], "int32"),
            "Operators": self._offsets(graph.operators, operator),
            "Name": self._builder.CreateString(graph.name),
        }
        return self._table("SubGraph", parts)

    def _buffer(self, data: npt.NDArray[Any] | None) -> int:
        if data is None:
            return self._table("Buffer", {})
        raw = np.ascontiguousarray(data).tobytes()
        self._builder.StartVector(1, len(raw), _BUFFER_ALIGNMENT)
        self._builder.head -= len(raw)
        self._builder.Bytes[self._builder.Head() : self._builder.Head() + len(raw)] = raw
        return self._table("Buffer", {"Data": self._builder.EndVector()})

    def _operator_code(self, code: tuple[str, int]) -> int:
        name, _, custom = code[0].partition(" ")
        number = getattr(tflite.BuiltinOperator, name)
        parts: dict[str, Any] = {"CustomCode": self._builder.CreateString(custom)} if custom else {}
        parts |= {"DeprecatedBuiltinCode": min(number, 127), "Version": code[1], "BuiltinCode": number}
        return self._table("OperatorCode", parts)

    def _tensor(self, tensor: TfliteTensor, buffer: int) -> int:
        parts = {
            "Shape": self._vector(tensor.shape, "int32"),
            "Type": getattr(tflite.TensorType, tensor.dtype.upper()),
            "Buffer": buffer,
            "Name": self._builder.CreateString(tensor.name),
        }
        if tensor.scales:
            quantization = {
                "Scale": self._vector(tensor.scales, "float32"),
                "ZeroPoint": self._vector(tensor.zero_points, "int64"),
                "QuantizedDimension": tensor.axis,
            }
            parts["Quantization"] = self._table("QuantizationParameters", quantization)
        if tensor.is_variable:
            parts["IsVariable"] = True
        if tensor.sparsity is not None:
            parts["Sparsity"] = self._sparsity(tensor.sparsity)
        if tensor.signature is not None:
            parts["ShapeSignature"] = self._vector(tensor.signature, "int32")
        return self._table("Tensor", parts)

    def _sparsity(self, sparsity: Sparsity) -> int:
        levels = []
        for level in sparsity.levels:
            if isinstance(level, int):
                levels.append(self._table("DimensionMetadata", {"Format": 0, "DenseSize": level}))
                continue
            fields: dict[str, Any] = {"Format": 1}
            for name, numbers in zip(("ArraySegments", "ArrayIndices"), level, strict=True):
                values = self._vector(numbers, "int32")
                fields[f"{name}Type"] = tflite.SparseIndexVector.Int32Vector
                fields[name] = self._table("Int32Vector", {"Values": values})
            levels.append(self._table("DimensionMetadata", fields))
        parts = {
            "TraversalOrder": self._vector(sparsity.order, "int32"),
            "BlockMap": self._vector(sparsity.blocks, "int32"),
            "DimMetadata": self._vector(levels, "uoffset"),
        }
        return self._table("SparsityParameters", parts)

    def _operator(self, op: Operator, code: int, index: Mapping[str, int]) -> int:
        parts = {
            "OpcodeIndex": code,
            "Inputs": self._vector([-1 if n is None else index[n] for n in op.inputs], "int32"),
            "Outputs": self._vector([index[n] for n in op.outputs], "int32"),
        }
        if op.custom:
            parts["CustomOptions"] = self._builder.CreateByteVector(op.custom)
        if op.options is not None:
            values = {name: self._option(value) for name, value in op.options.fields.items()}
            parts["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, op.options.table)
            parts["BuiltinOptions"] = self._table(op.options.table, values)
        return self._table("Operator", parts)

    def _option(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._builder.CreateString(value)
        if not isinstance(value, Sequence):
            return value
        return self._vector(value, "float32" if any(isinstance(v, float) for v in value) else "int32")

    def _offsets(self, items: Sequence[Any], write: Callable[[Any], int]) -> int:
        return self._vector([write(item) for item in items], "uoffset")

    def _vector(self, items: Sequence[Any], kind: str) -> int:
        prepend = {
            "uoffset": self._builder.PrependUOffsetTRelative,
            "int32": self._builder.PrependInt32,
            "int64": self._builder.PrependInt64,
            "float32": self._builder.PrependFloat32,
        }[kind]
        size = 8 if kind == "int64" else 4
        self._builder.StartVector(size, len(items), size)
        for item in reversed(items):
            prepend(item)
        return int(self._builder.EndVector())

    def _table(self, name: str, fields: dict[str, Any]) -> int:
        # Return a table from its fields, whose vectors and strings are offsets written before.
        getattr(tflite, f"{name}Start")(self._builder)
        for key, value in fields.items():
            getattr(tflite, f"{name}Add{key}")(self._builder, value)
        return int(getattr(tflite, f"{name}End")(self._builder))
