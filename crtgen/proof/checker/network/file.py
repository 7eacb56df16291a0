"""A .tflite file as the proof reads it: tensors, quantisation, and operators with their options."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tflite

from crtgen.base.errors import CorruptModelError
from crtgen.base.formats.tflite_code import operator_number
from crtgen.proof.checker.network.arithmetic import Ints
from crtgen.proof.checker.refusal import Refusal

__all__ = ["REAL", "ElementType", "ModelFile", "NetworkOperator", "Variable"]

_T = tflite.TensorType
_NAMES = {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}


class ElementType(NamedTuple):
    bits: int
    low: int
    high: int

    def of(self, v: Any) -> Any:
        """Wrap ``v`` to this type: its lowest ``bits`` bits, read as a value from ``low`` on."""
        return ((v - self.low) & (1 << self.bits) - 1) + self.low


REAL = ElementType(32, -(1 << 31), (1 << 31) - 1)
"""Float32 is the bits of a number."""

_KINDS = {
    _T.INT8: ElementType(8, -128, 127),
    _T.UINT8: ElementType(8, 0, 255),
    _T.BOOL: ElementType(8, 0, 1),
    _T.INT16: ElementType(16, -0x8000, 0x7FFF),
    _T.INT32: ElementType(32, -(1 << 31), (1 << 31) - 1),
    _T.FLOAT32: REAL,
}
_ARRAYS = {
    _T.INT8: np.int8, _T.UINT8: np.uint8, _T.BOOL: np.uint8, _T.INT16: np.int16, _T.INT32: np.int32,
    _T.INT64: np.int64, _T.FLOAT32: np.float32,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NetworkOperator:
    """An operator. ``code`` is TFLite's builtin code; tensors are given by index, and -1 means absent.

    LSTM and SVDF have their next states among their outputs: ``~t`` is the next value of the tensor ``t``.
    """

    number: int
    code: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    table: Any

    @property
    def name(self) -> str:
        return str(_NAMES.get(self.code, f"operator {self.code}"))

    @property
    def output(self) -> int:
        return self.outputs[0] if self.outputs else -1

    @property
    def has_options(self) -> bool:
        return self.table.BuiltinOptions() is not None

    def options(self, kind: Any) -> Any:
        found, union = kind(), self.table.BuiltinOptions()
        if union is None:
            raise Refusal(f"{self.name} has no options")
        found.Init(union.Bytes, union.Pos)
        return found


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that keeps its value between runs: the tensors that read it, the tensor that is assigned to
    it, and its first value.
    """

    read: tuple[int, ...]
    assigned: int
    first: Ints


class ModelFile:
    """A file with its main subgraph.

    Raises ``CorruptModelError`` if it cannot be read, and ``Refusal`` for a pipeline description or an
    archive.
    """

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        if path.suffix.lower() == ".toml":
            raise Refusal(
                "a pipeline has features before its network and decisions behind it, which are not followed; "
                "the file of its network can be proven by itself"
            )
        if path.suffix.lower() in (".tar", ".so", ".o"):
            raise Refusal(
                "the code is not crtgen's, and no file says what it computes, so nothing is compared"
            )
        if self.data[4:8] != b"TFL3":
            raise CorruptModelError("a proof needs a .tflite or .onnx file", where=str(path))
        try:
            self._model = tflite.Model.GetRootAsModel(self.data, 0)
            self._graph = self._model.Subgraphs(0)
            self.inputs = [int(i) for i in self._graph.InputsAsNumpy()]
            self.outputs = [int(i) for i in self._graph.OutputsAsNumpy()]
            self.operators = tuple(self._operators(self._graph))
        except Exception as error:  # flatbuffers raises whatever a wrong offset leads to
            raise CorruptModelError(f"the file cannot be read: {error}", where=str(path)) from None

    def _operators(self, graph: Any) -> Iterator[NetworkOperator]:
        for i in range(graph.OperatorsLength()):
            table = graph.Operators(i)
            code = self._model.OperatorCodes(table.OpcodeIndex())
            kind = operator_number(code)
            if code.CustomCode():  # whatever stands beside it
                kind = tflite.BuiltinOperator.CUSTOM
            inputs = tuple(int(table.Inputs(k)) for k in range(table.InputsLength()))
            outputs = tuple(int(table.Outputs(k)) for k in range(table.OutputsLength()))
            if kind == tflite.BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM:
                outputs += tuple(~t for t in inputs[18:20])
            if kind == tflite.BuiltinOperator.SVDF:
                outputs += (~inputs[4],)
            yield NetworkOperator(i, kind, inputs, outputs, table)

    def variables(self) -> list[Variable]:
        """Return the variables, in the order in which the network reads them; then the states of layers."""
        b, first = tflite.BuiltinOperator, dict[bytes, Ints]()
        for operator in self.operators:
            if operator.code == b.CALL_ONCE:
                graph = self._model.Subgraphs(operator.options(tflite.CallOnceOptions).InitSubgraphIndex())
                names, pairs = self._names(self._operators(graph))
                first |= {names[v]: self._constant(graph.Tensors(t)) for v, t in pairs[b.ASSIGN_VARIABLE]}
        names, pairs = self._names(self.operators)
        found: dict[bytes, tuple[int, ...]] = {}
        for handle, tensor in pairs[b.READ_VARIABLE]:
            found[names[handle]] = (*found.get(names[handle], ()), tensor)
        assigned = {names[handle]: tensor for handle, tensor in pairs[b.ASSIGN_VARIABLE]}
        if set(found) != set(assigned) or not set(found) <= set(first):
            raise Refusal("a variable that is not read, assigned and initialised")
        known = [Variable(read, assigned[name], first[name].ravel()) for name, read in found.items()]
        kept = [~t for o in self.operators for t in o.outputs if t < -1]
        return known + [Variable((t,), ~t, np.full(self.size(t), self.zero_point(t))) for t in kept]

    def _names(self, operators: Any) -> tuple[dict[int, bytes], dict[int, list[tuple[int, int]]]]:
        # The variable that a handle names; of reads and assignments the handle and the tensor.
        b, names = tflite.BuiltinOperator, dict[int, bytes]()
        pairs: dict[int, list[tuple[int, int]]] = {b.READ_VARIABLE: [], b.ASSIGN_VARIABLE: []}
        for operator in operators:
            if operator.code == b.VAR_HANDLE:
                names[operator.output] = operator.options(tflite.VarHandleOptions).SharedName()
            elif operator.code == b.READ_VARIABLE:
                pairs[operator.code].append((operator.inputs[0], operator.output))
            elif operator.code == b.ASSIGN_VARIABLE:
                pairs[operator.code].append((operator.inputs[0], operator.inputs[1]))
        return names, pairs

    def _tensor(self, tensor: int) -> Any:
        return self._graph.Tensors(max(tensor, ~tensor))

    def shape(self, tensor: int) -> tuple[int, ...]:
        """Return the shape; () for a tensor without one."""
        return _shape(self._tensor(tensor))

    def name(self, tensor: int) -> str:
        return bytes(self._tensor(tensor).Name() or b"").decode(errors="replace")

    def size(self, tensor: int) -> int:
        return int(np.prod(self.shape(tensor), dtype=np.int64))

    def type(self, tensor: int) -> int:
        return int(self._tensor(tensor).Type())

    def is_real(self, tensor: int) -> bool:
        return bool(self.type(tensor) == _T.FLOAT32)

    def kind(self, tensor: int) -> ElementType:
        if self.type(tensor) not in _KINDS:
            raise Refusal(f"tensor {tensor} is not of float32, or integers of 8, 16 or 32 bits")
        return _KINDS[self.type(tensor)]

    def constant(self, tensor: int) -> Any:
        """Return the elements of a constant in its shape, int64 or float32; None for any other tensor."""
        t = self._tensor(tensor)
        return None if not self._model.Buffers(t.Buffer()).DataLength() else self._constant(t)

    def _constant(self, t: Any) -> Any:
        buffer, shape = self._model.Buffers(t.Buffer()), _shape(t)
        data = buffer.DataAsNumpy().tobytes() if buffer.DataLength() else b""
        if t.Type() == _T.INT4:  # the lower half of a byte comes first
            pairs = np.frombuffer(data, np.int8)
            found = np.stack([pairs << 4 >> 4, pairs >> 4], -1).ravel()[: int(np.prod(shape))]
        elif t.Type() in _ARRAYS:
            found = np.frombuffer(data, _ARRAYS[t.Type()])
        else:
            raise Refusal("a constant of another type than integers and float32")
        if found.size != np.prod(shape, dtype=np.int64):
            raise Refusal("a constant has another size than its shape")
        return found.reshape(shape).astype(np.float32 if t.Type() == _T.FLOAT32 else np.int64)

    def has_scale(self, tensor: int) -> bool:
        q = self._tensor(tensor).Quantization()
        return q is not None and q.ScaleLength() > 0

    def scales(self, tensor: int) -> Any:
        if not self.has_scale(tensor):
            raise Refusal(f"tensor {tensor} is not quantised")
        return np.float32(self._tensor(tensor).Quantization().ScaleAsNumpy())

    def scale(self, tensor: int) -> float:
        return float(self.scales(tensor)[0])

    def zero_point(self, tensor: int) -> int:
        q = self._tensor(tensor).Quantization()
        if q is None or not q.ZeroPointLength():
            raise Refusal(f"tensor {tensor} is not quantised")
        return int(q.ZeroPointAsNumpy()[0])

    def limits(self, tensor: int, activation: int) -> tuple[int, int]:
        """Return the limits of an activation within the type: NONE, RELU, RELU_N1_TO_1, RELU6, or 4 for
        RELU_0_TO_1.
        """
        kind = self.kind(tensor)
        if not activation:
            return kind.low, kind.high
        scale, zero = np.float32(self.scale(tensor)), self.zero_point(tensor)

        def quantized(v: float) -> int:
            return zero + int(np.floor(float(np.float32(v) / scale) + 0.5))

        ranges = {
            1: (zero, kind.high),
            2: (quantized(-1.0), quantized(1.0)),
            3: (zero, quantized(6.0)),
            4: (zero, quantized(1.0)),
        }
        if activation not in ranges:
            raise Refusal(f"activation {activation} is not followed")
        low, high = ranges[activation]
        return max(low, kind.low), min(high, kind.high)


def _shape(t: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in t.ShapeAsNumpy()) if t.ShapeLength() else ()
