"""A quantised ONNX file as the proof reads it: integer operators between quantised tensors.

DequantizeLinear and QuantizeLinear around a float operator mean that ONNX Runtime computes it in integers. A
uint8 tensor is represented as int8, with 128 subtracted from its values and its zero point.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
from onnx import helper, numpy_helper

from crtgen.base.errors import CorruptModelError
from crtgen.proof.checker.network.file import REAL, ElementType, Variable
from crtgen.proof.checker.refusal import Refusal

__all__ = ["OnnxFile", "OnnxOperator", "Scaled"]

_BYTE = ElementType(8, -128, 127)
_WHOLE = ("QLinear", "ConvInteger", "MatMulInteger", "DynamicQuantize")
# Operators that may follow before the result is quantised.
_FUNCTIONS = frozenset(("Relu", "Clip"))
_RECURRENT = frozenset(("LSTM", "GRU", "RNN"))


@dataclass(frozen=True, slots=True)
class Scaled:
    """Integers with one scale, or with one scale per index of an axis; ``data`` is set for a constant."""

    scales: Any
    zero: int
    data: Any = None
    axis: int = 0


@dataclass(frozen=True, slots=True)
class OnnxOperator:
    """An operator. ``inputs`` are tensors by index; ``constants`` are the other operands, by position."""

    number: int
    code: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: dict[str, Any]
    constants: dict[int, Scaled] = field(default_factory=dict)
    limits: tuple[float, float] = (-np.inf, np.inf)
    """Between which real numbers its results are cut."""

    @property
    def name(self) -> str:
        return self.code

    @property
    def output(self) -> int:
        return self.outputs[0]


class OnnxFile:
    """Tensors by index: quantised integers, and floats or int8 at both ends of the network.

    Raises ``CorruptModelError`` for a file that cannot be read, ``Refusal`` for one that the checker does not
    follow.
    """

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        try:
            model = onnx.load_model_from_string(self.data)
            onnx.checker.check_model(model)
            model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        except Exception as error:  # protobuf raises whatever wrong bytes lead to
            raise CorruptModelError(f"the file cannot be read: {error}", where=str(path)) from None
        graph = model.graph
        self._arrays = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self._shapes = {
            v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
            for v in (*graph.input, *graph.value_info, *graph.output)
        }
        self._names: list[str] = []
        self._scales: dict[int, Scaled] = {}
        # Quantised tensor or constant behind each output of a DequantizeLinear, by name.
        self._read: dict[str, int | Scaled] = {}
        # Operators whose results are not quantised yet, by the name of their output.
        self._open: dict[str, OnnxOperator] = {}
        self.operators: list[OnnxOperator] = []
        given = [v.name for v in graph.input if v.name not in self._arrays]
        types = {v.name: v.type.tensor_type.elem_type for v in graph.input}
        self.inputs = [
            self._whole_input(name, graph.node) if types[name] == onnx.TensorProto.INT8 else self._real(name)
            for name in given
        ]
        self._ends = frozenset(v.name for v in graph.output)
        for node in graph.node:
            self._add(node)
        self.outputs = [self._index(v.name) for v in graph.output]

    # ---- reading

    def _add(self, node: Any) -> None:
        if node.domain not in ("", "ai.onnx") or node.op_type.startswith(_WHOLE):
            raise Refusal(
                f"{node.op_type} is not followed: only QuantizeLinear and DequantizeLinear (QDQ) are"
            )
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Constant":
            self._arrays[node.output[0]] = numpy_helper.to_array(attributes["value"])
        elif node.op_type == "QuantizeLinear":
            self._quantize(node)
        elif node.op_type == "DequantizeLinear":
            self._dequantize(node, int(attributes.get("axis", 1)))
        elif node.op_type in _FUNCTIONS and node.input[0] in self._open:
            self._cut(node, attributes)
        else:
            self._operator(node, attributes)

    def _operator(self, node: Any, attributes: dict[str, Any]) -> None:
        inputs, constants = [], {}
        for place, name in enumerate(node.input):
            found = self._read.get(name)
            if isinstance(found, int):
                inputs.append(found)
            elif found is not None:
                constants[place] = found
            elif name in self._arrays:
                constants[place] = Scaled(None, 0, self._arrays[name])
            elif name:
                raise Refusal(f"{node.op_type} {node.name!r}: its operand {name!r} is not quantised")
        if node.op_type in _RECURRENT:
            raise Refusal(f"{node.op_type} has no proof yet")
        if len(node.output) != 1:
            raise Refusal(f"{node.op_type} with {len(node.output)} outputs")
        made = OnnxOperator(-1, node.op_type, tuple(inputs), (), attributes, constants)
        self._open[node.output[0]] = made

    def _cut(self, node: Any, attributes: dict[str, Any]) -> None:
        # RELU or Clip behind an operator.
        before = self._open.pop(node.input[0])
        low, high = 0.0, np.inf
        if node.op_type == "Clip":
            ends = [attributes.get("min", -np.inf), attributes.get("max", np.inf)]
            for k, name in enumerate(node.input[1:]):
                ends[k] = float(self._constant(name)) if name else ends[k]
            low, high = ends
        limits = max(before.limits[0], low), min(before.limits[1], high)
        self._open[node.output[0]] = replace(before, limits=limits)

    def _quantize(self, node: Any) -> None:
        x, (scale, zero) = node.input[0], self._scale(node)
        if scale.size != 1:
            raise Refusal("a tensor with several scales")
        shape = self._shapes.get(x, self._shapes.get(node.output[0], ()))
        y = self._new(node.output[0], shape, Scaled(scale.reshape(1), zero))
        if x in self._open:
            made = replace(self._open.pop(x), number=len(self.operators), outputs=(y,))
        elif x in self._names and self._index(x) in self.inputs:
            made = OnnxOperator(len(self.operators), "QuantizeLinear", (self._index(x),), (y,), {})
        elif isinstance(self._read.get(x), int):
            source = self._read[x]
            assert isinstance(source, int)
            made = OnnxOperator(len(self.operators), "Requantize", (source,), (y,), {})
        else:
            raise Refusal(f"QuantizeLinear of {x!r}, which is not followed")
        self.operators.append(made)

    def _dequantize(self, node: Any, axis: int) -> None:
        x, (scale, zero), y = node.input[0], self._scale(node), node.output[0]
        if x in self._arrays:
            self._read[y] = Scaled(scale.reshape(-1), zero, self._whole(self._arrays[x]), axis)
            return
        tensor = self._index(x)
        known = self._scales[tensor]
        if scale.size != 1 or scale.reshape(-1)[0] != known.scales[0] or zero != known.zero:
            raise Refusal(f"{x!r} is read with another scale than it was written with")
        self._read[y] = tensor
        if y in self._ends:
            made = self._new(y, self._shapes[y], None)
            self.operators.append(
                OnnxOperator(len(self.operators), "DequantizeLinear", (tensor,), (made,), {})
            )

    def _scale(self, node: Any) -> tuple[Any, int]:
        # The scales, and the zero point as it is for int8. Of several, all have to be the same.
        scale = np.asarray(self._constant(node.input[1]), np.float32)
        if len(node.input) < 3 or not node.input[2]:
            raise Refusal("a quantisation without a zero point")
        zero = np.asarray(self._constant(node.input[2]))
        if zero.dtype not in (np.int8, np.uint8, np.int32) or (zero != zero.ravel()[0]).any():
            raise Refusal(f"zero points of {zero.dtype}, or several")
        if not (np.isfinite(scale) & (scale > 0)).all():
            raise Refusal("a scale that is not above 0")
        return scale, int(zero.ravel()[0]) - 128 * (zero.dtype == np.uint8)

    def _constant(self, name: str) -> Any:
        if name not in self._arrays:
            raise Refusal(f"{name!r} has to be constant")
        return self._arrays[name]

    @staticmethod
    def _whole(data: Any) -> Any:
        # A constant as int64, less 128 if it is of uint8.
        if data.dtype not in (np.int8, np.uint8, np.int32):
            raise Refusal(f"a constant of {data.dtype}")
        return data.astype(np.int64) - 128 * (data.dtype == np.uint8)

    def _new(self, name: str, shape: tuple[int, ...], scaled: Scaled | None) -> int:
        if 0 in shape:
            raise Refusal(f"{name!r} has no fixed shape")
        self._names.append(name)
        self._shapes[name] = shape
        if scaled is not None:
            self._scales[len(self._names) - 1] = scaled
        return len(self._names) - 1

    def _real(self, name: str) -> int:
        return self._new(name, self._shapes[name], None)

    def _whole_input(self, name: str, nodes: Iterable[Any]) -> int:
        # An input of int8; all that reads it has to agree about its scale (``_dequantize``).
        readers = [n for n in nodes if n.op_type == "DequantizeLinear" and n.input[0] == name]
        if not readers:
            raise Refusal(f"the input {name!r} has no scale")
        scale, zero = self._scale(readers[0])
        if scale.size != 1:
            raise Refusal("a tensor with several scales")
        return self._new(name, self._shapes[name], Scaled(scale.reshape(1), zero))

    def _index(self, name: str) -> int:
        if name not in self._names:
            raise Refusal(f"{name!r} is not quantised, and no end of the network")
        return len(self._names) - 1 - self._names[::-1].index(name)

    # ---- what layers ask

    def variables(self) -> list[Variable]:
        return []

    def name(self, tensor: int) -> str:
        return self._names[tensor]

    def is_real(self, tensor: int) -> bool:
        return tensor not in self._scales

    def shape(self, tensor: int) -> tuple[int, ...]:
        return self._shapes[self._names[tensor]]

    def size(self, tensor: int) -> int:
        return int(np.prod(self.shape(tensor), dtype=np.int64))

    def kind(self, tensor: int) -> ElementType:
        return _BYTE if tensor in self._scales else REAL

    def constant(self, tensor: int) -> None:
        """Return None: constants are not tensors in these files."""

    def scale(self, tensor: int) -> Any:
        return np.float32(self._scales[tensor].scales[0])

    def zero_point(self, tensor: int) -> int:
        return self._scales[tensor].zero

    def has_scale(self, tensor: int) -> bool:
        return tensor in self._scales
