"""A small writer of `.tflite` files: tensors, operators and options as plain data, in; bytes, out.

    model = Model(
        tensors=[Tensor("x", (1, 4), "float32"), Tensor("y", (1, 4), "float32")],
        operators=[Operator("SOFTMAX", ["x"], ["y"], Options("SoftmaxOptions", Beta=1.0))],
        inputs=["x"],
        outputs=["y"],
    )
    Path("softmax.tflite").write_bytes(model.to_bytes())

It knows the format and nothing of crtgen. Operators, options and fields have the names of TFLite's schema.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
import tflite

__all__ = ["Model", "Operator", "Options", "Tensor"]

_BUFFER_ALIGNMENT = 16


@dataclass
class Tensor:
    """A tensor: an input, a constant (``data``) or what an operator computes.

    ``scales`` and ``zero_points`` are its quantisation, per index of ``axis`` where there are several.
    ``signature`` is the shape with -1 for dimensions that are not fixed. ``dtype`` is numpy's name or, for
    the types that numpy does not have, the schema's.
    """

    name: str
    shape: Sequence[int]
    dtype: str
    scales: Sequence[float] = ()
    zero_points: Sequence[int] = ()
    axis: int = 0
    data: npt.NDArray[Any] | None = None
    signature: Sequence[int] | None = None


class Options:
    """An operator's options: the table's name in the schema, and its fields."""

    def __init__(self, table: str, **fields: Any) -> None:
        self.table = table
        self.fields = fields


@dataclass
class Operator:
    """An operator applied to tensors by name; None is an absent optional input."""

    code: str
    inputs: Sequence[str | None]
    outputs: Sequence[str]
    options: Options | None = None
    version: int = 1


@dataclass
class Model:
    """A model of one subgraph."""

    tensors: Sequence[Tensor]
    operators: Sequence[Operator]
    inputs: Sequence[str]
    outputs: Sequence[str]
    name: str = "main"
    description: str = ""

    def to_bytes(self) -> bytes:
        """The file; the same model gives the same bytes."""
        return _Writer(self).file()


class _Writer:
    """Writes one model, from the leaves of the flatbuffer to its root."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._builder = flatbuffers.Builder(1024)
        self._index = {t.name: i for i, t in enumerate(model.tensors)}
        if len(self._index) != len(model.tensors):
            raise ValueError("two tensors have the same name")

    def file(self) -> bytes:
        model = self._model
        codes = list(dict.fromkeys((o.code, o.version) for o in model.operators))
        constants = [t.data for t in model.tensors if t.data is not None]
        buffers = self._offsets([None, *constants], self._buffer)
        subgraph = self._subgraph(codes)
        parts = {
            "Version": 3,
            "OperatorCodes": self._offsets(codes, self._operator_code),
            "Subgraphs": self._vector([subgraph], "uoffset"),
            "Description": self._builder.CreateString(model.description),
            "Buffers": buffers,
        }
        self._builder.Finish(self._table("Model", parts), file_identifier=b"TFL3")
        return bytes(self._builder.Output())

    def _subgraph(self, codes: Sequence[tuple[str, int]]) -> int:
        model = self._model
        numbers = itertools.count(1)
        numbered = [(t, 0 if t.data is None else next(numbers)) for t in model.tensors]
        parts = {
            "Tensors": self._offsets(numbered, lambda pair: self._tensor(*pair)),
            "Inputs": self._vector([self._index[n] for n in model.inputs], "int32"),
            "Outputs": self._vector([self._index[n] for n in model.outputs], "int32"),
            "Operators": self._offsets(
                model.operators, lambda op: self._operator(op, codes.index((op.code, op.version)))
            ),
            "Name": self._builder.CreateString(model.name),
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
        number = getattr(tflite.BuiltinOperator, code[0])
        parts = {"DeprecatedBuiltinCode": min(number, 127), "Version": code[1], "BuiltinCode": number}
        return self._table("OperatorCode", parts)

    def _tensor(self, tensor: Tensor, buffer: int) -> int:
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
        if tensor.signature is not None:
            parts["ShapeSignature"] = self._vector(tensor.signature, "int32")
        return self._table("Tensor", parts)

    def _operator(self, op: Operator, code: int) -> int:
        parts = {
            "OpcodeIndex": code,
            "Inputs": self._vector([-1 if n is None else self._index[n] for n in op.inputs], "int32"),
            "Outputs": self._vector([self._index[n] for n in op.outputs], "int32"),
        }
        if op.options is not None:
            values = {
                name: self._vector(value, "int32") if isinstance(value, Sequence) else value
                for name, value in op.options.fields.items()
            }
            parts["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, op.options.table)
            parts["BuiltinOptions"] = self._table(op.options.table, values)
        return self._table("Operator", parts)

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
        """A table from its fields, whose vectors and strings are offsets written before."""
        getattr(tflite, f"{name}Start")(self._builder)
        for key, value in fields.items():
            getattr(tflite, f"{name}Add{key}")(self._builder, value)
        return int(getattr(tflite, f"{name}End")(self._builder))
