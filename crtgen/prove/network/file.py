"""A .tflite file, as far as a proof reads it: tensors, quantisation, operators with their options."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tflite

from crtgen.errors import CorruptModelError
from crtgen.prove.network.arithmetic import Ints
from crtgen.prove.refusal import Refusal

__all__ = ["ModelFile", "Operator"]

_NAMES = {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}


@dataclass(frozen=True, slots=True)
class Operator:
    """``code`` is TFLite's builtin code; tensors by index, -1 for one that is left out or not there."""

    number: int
    code: int
    inputs: tuple[int, ...]
    output: int
    table: Any

    @property
    def name(self) -> str:
        """As TFLite calls it."""
        return str(_NAMES.get(self.code, f"operator {self.code}"))

    @property
    def has_options(self) -> bool:
        return self.table.BuiltinOptions() is not None

    def options(self, kind: Any) -> Any:
        """Its options, read as this class of the ``tflite`` package."""
        found, union = kind(), self.table.BuiltinOptions()
        if union is None:
            raise Refusal(f"{self.name} has no options")
        found.Init(union.Bytes, union.Pos)
        return found


class ModelFile:
    """A file with one subgraph. Raises ``CorruptModelError`` for one that cannot be read."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        if self.data[4:8] != b"TFL3":
            raise CorruptModelError("no .tflite file: a proof starts from one", where=str(path))
        try:
            self._model = tflite.Model.GetRootAsModel(self.data, 0)
            self._graph = self._model.Subgraphs(0)
            self.inputs = [int(i) for i in self._graph.InputsAsNumpy()]
            self.outputs = [int(i) for i in self._graph.OutputsAsNumpy()]
            self.operators = tuple(self._operators())
        except Exception as error:  # flatbuffers raises whatever a wrong offset leads to
            raise CorruptModelError(f"the file cannot be read: {error}", where=str(path)) from None
        if self._model.SubgraphsLength() != 1 or len(self.inputs) != 1 or len(self.outputs) != 1:
            raise Refusal("a network with several subgraphs, inputs or outputs is not followed yet")

    def _operators(self) -> Iterator[Operator]:
        for i in range(self._graph.OperatorsLength()):
            table = self._graph.Operators(i)
            code = self._model.OperatorCodes(table.OpcodeIndex())
            kind = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
            inputs = tuple(int(table.Inputs(k)) for k in range(table.InputsLength()))
            output = int(table.Outputs(0)) if table.OutputsLength() else -1
            yield Operator(i, kind, inputs, output, table)

    def shape(self, tensor: int) -> tuple[int, ...]:
        """The shape; () of a tensor without one."""
        t = self._graph.Tensors(tensor)
        return tuple(int(n) for n in t.ShapeAsNumpy()) if t.ShapeLength() else ()

    def size(self, tensor: int) -> int:
        """How many elements it has."""
        return int(np.prod(self.shape(tensor), dtype=np.int64))

    def type(self, tensor: int) -> int:
        """TFLite's number of the element type."""
        return int(self._graph.Tensors(tensor).Type())

    def is_int8(self, tensor: int) -> bool:
        return bool(self.type(tensor) == tflite.TensorType.INT8)

    def constant(self, tensor: int) -> Ints | None:
        """The elements of a constant of int8 or int32; None for any other tensor."""
        buffer = self._model.Buffers(self._graph.Tensors(tensor).Buffer())
        types = {tflite.TensorType.INT8: np.int8, tflite.TensorType.INT32: np.int32}
        kind = types.get(self.type(tensor))
        if not buffer.DataLength() or kind is None:
            return None
        found = np.frombuffer(buffer.DataAsNumpy().tobytes(), kind)
        if found.size != self.size(tensor):
            raise Refusal(f"tensor {tensor} has another size than its shape")
        return found.reshape(self.shape(tensor)).astype(np.int64)

    def scales(self, tensor: int) -> Any:
        """The scales as float32, one or one per channel."""
        q = self._graph.Tensors(tensor).Quantization()
        if q is None or not q.ScaleLength():
            raise Refusal(f"tensor {tensor} is not quantised")
        return np.float32(q.ScaleAsNumpy())

    def scale(self, tensor: int) -> float:
        """The scale of a tensor that has one."""
        return float(self.scales(tensor)[0])

    def zero_point(self, tensor: int) -> int:
        q = self._graph.Tensors(tensor).Quantization()
        if q is None or not q.ZeroPointLength():
            raise Refusal(f"tensor {tensor} is not quantised")
        return int(q.ZeroPointAsNumpy()[0])

    def limits(self, tensor: int, activation: int) -> tuple[int, int]:
        """What an activation leaves of int8: NONE, RELU, RELU_N1_TO_1 or RELU6."""
        scale, zero = np.float32(self.scale(tensor)), self.zero_point(tensor)

        def quantized(v: float) -> int:
            return zero + int(np.floor(float(np.float32(v) / scale) + 0.5))

        ranges = {
            0: (-128, 127),
            1: (zero, 127),
            2: (quantized(-1.0), quantized(1.0)),
            3: (zero, quantized(6.0)),
        }
        if activation not in ranges:
            raise Refusal(f"activation {activation} is not followed")
        low, high = ranges[activation]
        return max(low, -128), min(high, 127)
