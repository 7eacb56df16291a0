"""A quantised ONNX file as the proof reads it: integer operators between quantised tensors.

DequantizeLinear and QuantizeLinear around a float operator (QDQ) mean that ONNX Runtime computes it in
integers, as it does the quantised operators (QOperator). A uint8 tensor is represented as int8, with 128
subtracted from its values and its zero point.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from crtgen.base.errors import CorruptModelError
from crtgen.proof.checker.network.onnx_forms import (
    FORMS,
    STANDARD,
    OnnxOperator,
    QuantisedForm,
    Scaled,
    shapes_of,
)
from crtgen.proof.checker.network.onnx_functions import OPERATORS, combined
from crtgen.proof.checker.network.onnx_moves import ARRANGED
from crtgen.proof.checker.network.onnx_tensors import OnnxTensors
from crtgen.proof.checker.network.real_functions import FunctionOfOne
from crtgen.proof.checker.refusal import Refusal

__all__ = ["OnnxFile"]

_WHOLE = ("QLinear", "ConvInteger", "MatMulInteger", "DynamicQuantize")
# Operators that move numbers, or choose among them: of integers as of floats.
_MOVES = frozenset(("MaxPool", *ARRANGED))
# Operators whose results are quantised at once.
_SUMS = frozenset(("AveragePool", "Conv", "Gemm", "GlobalAveragePool", "MatMul"))
_PAIRS = frozenset(("Add", "Mul"))
# Operators of which ONNX Runtime computes a Relu or a Clip, too.
_LIMITED = frozenset(("Conv", "Gemm", "MatMul", "MatMul of tensors", *_PAIRS))


# What is known of a float32 tensor: the quantised one before it, a constant, an operator whose result is not
# quantised yet, or a function.
_Known: TypeAlias = int | Scaled | OnnxOperator | FunctionOfOne


class OnnxFile(OnnxTensors):
    """Tensors by index: quantised integers, and floats or int8 at both ends of the network.

    Raises ``CorruptModelError`` for a file that cannot be read, ``Refusal`` for one that the checker does not
    follow.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.data = path.read_bytes()
        try:
            model = onnx.load_model_from_string(self.data)
            onnx.checker.check_model(model)
            self._shapes = shapes_of(model)
        except Exception as error:  # protobuf raises whatever wrong bytes lead to
            raise CorruptModelError(f"the file cannot be read: {error}", where=str(path)) from None
        graph = model.graph
        self._arrays = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self._known: dict[str, _Known] = {}
        self.operators: list[OnnxOperator] = []
        given = [v.name for v in graph.input if v.name not in self._arrays]
        types = {v.name: v.type.tensor_type.elem_type for v in graph.input}
        self.inputs = [self._input(name, types[name], graph.node) for name in given]
        self._ends = frozenset(v.name for v in graph.output)
        for node in graph.node:
            self._add(node)
        self.outputs = [self._end(v.name) for v in graph.output]

    # ---- reading

    def _add(self, node: Any) -> None:
        code, attributes = node.op_type, {a.name: helper.get_attribute_value(a) for a in node.attribute}
        form = FORMS.get(code)
        if form is not None:
            self._unfold(node, form, attributes)
        elif code == "QLinearConcat":
            groups = [node.input[i : i + 3] for i in range(2, len(node.input), 3)]
            found = [self._whole_operand(group, 0) for group in groups]
            joined = self._joined(node.input[2::3], found, attributes)
            self._tensors[node.output[0]] = self._append(
                joined, node.output[0], *self._scale(*node.input[:2])
            )
        elif node.domain not in STANDARD or code.startswith(_WHOLE):
            raise Refusal(f"{code} is not followed")
        elif code == "Constant":
            self._arrays[node.output[0]] = numpy_helper.to_array(attributes["value"])
        elif code == "QuantizeLinear":
            self._quantize(node, int(attributes.get("axis", 1)))
        elif code == "DequantizeLinear":
            self._dequantize(node, int(attributes.get("axis", 1)))
        elif code == "Concat":
            self._join(node, attributes)
        elif code in _MOVES:
            self._move(node, attributes)
        elif code == "Clip" and node.input[0] not in self._known:
            self._clip(node)
        else:
            self._operator(node, attributes)

    def _operator(self, node: Any, attributes: dict[str, Any]) -> None:
        code, y = node.op_type, node.output[0]
        found = [self._operand(node, name) for name in node.input if name]
        before = found[0]
        if code in ("Relu", "Clip") and isinstance(before, OnnxOperator):
            if before.code not in _LIMITED:
                raise Refusal(f"{code} of {before.code}, which is not quantised")
            self._known[y] = self._cut(before, *self._limits(node, attributes))
        elif code in _PAIRS and all(isinstance(f, int | Scaled) and not _is_bare(f) for f in found):
            self._known[y] = OnnxOperator(-1, code, self._as_tensors(node.input, found), (), attributes)
        elif code in _SUMS and not any(isinstance(f, OnnxOperator | FunctionOfOne) for f in found):
            inputs = tuple(f for f in found if isinstance(f, int))
            constants = {i: f for i, f in enumerate(found) if isinstance(f, Scaled)}
            code = "MatMul of tensors" if code == "MatMul" and len(inputs) == 2 else code
            self._known[y] = OnnxOperator(-1, code, inputs, (), attributes, constants)
        elif code == "Clip":
            low, high = (np.float32(end) for end in self._limits(node, attributes))
            self._known[y] = combined("Clip", {}, [self._number(found[0]), low, high])
        elif code in OPERATORS:
            self._known[y] = combined(code, attributes, [self._number(f) for f in found])
        elif code in _SUMS:
            raise Refusal(f"{code} of float32 numbers, which are not quantised")
        else:
            raise Refusal(f"{code} has no proof yet")

    def _operand(self, node: Any, name: str) -> _Known:
        found = self._known.get(name)
        if found is not None:
            return found
        if name in self._arrays:
            return Scaled(None, 0, self._arrays[name])
        raise Refusal(f"{node.op_type} {node.name!r}: its operand {name!r} is not quantised")

    def _number(self, found: _Known) -> Any:
        # An operand of float32 operators.
        if isinstance(found, int):
            return FunctionOfOne(found, "", lambda x: x)
        if isinstance(found, OnnxOperator):
            raise Refusal(f"the result of {found.code} is not quantised")
        if isinstance(found, FunctionOfOne):
            return found
        if found.data.size != 1:
            raise Refusal("a function of a tensor and of several constants")
        if _is_bare(found):
            return np.float32(found.data.ravel()[0])
        return np.float32(found.data.ravel()[0] - found.zero) * np.float32(found.scales[0])

    def _as_tensors(self, names: Sequence[str], found: Sequence[_Known]) -> tuple[int, ...]:
        # Operands as tensors, constants too.
        made = []
        for name, known in zip(names, found, strict=True):
            if isinstance(known, Scaled):
                if np.size(known.scales) != 1:
                    raise Refusal("an operand with several scales")
                known = self._new(name, known.data.shape, known)
            assert isinstance(known, int)
            made.append(known)
        return tuple(made)

    def _limits(self, node: Any, attributes: dict[str, Any]) -> tuple[float, float]:
        # The limits of Relu or Clip.
        if node.op_type == "Relu":
            return 0.0, np.inf
        ends = [attributes.get("min", -np.inf), attributes.get("max", np.inf)]
        for k, name in enumerate(node.input[1:]):
            ends[k] = float(self._constant(name)) if name else ends[k]
        return ends[0], ends[1]

    @staticmethod
    def _cut(before: OnnxOperator, low: float, high: float) -> OnnxOperator:
        return replace(before, limits=(max(before.limits[0], low), min(before.limits[1], high)))

    def _unfold(self, node: Any, form: QuantisedForm, attributes: dict[str, Any]) -> None:
        # A quantised operator, as the float operator between its scales.
        if attributes.pop("channels_last", 0):
            raise Refusal(f"{node.op_type} with its channels last")
        axis = 0 if form.code == "Conv" or attributes.get("transB", 0) else -1
        names = [list(node.input[3 * i : 3 * i + 3]) for i in range(form.operands)]
        found = [self._whole_operand(name, axis) for name in names]
        if form.code in OPERATORS and form.operands == 1:
            made: _Known = combined(form.code, attributes, [self._number(found[0])])
        elif form.code in _PAIRS:
            tensors = self._as_tensors([name[0] for name in names], found)
            made = OnnxOperator(-1, form.code, tensors, (), attributes)
        else:
            inputs = tuple(f for f in found if isinstance(f, int))
            constants = {i: f for i, f in enumerate(found) if isinstance(f, Scaled)}
            if 0 < form.bias < len(node.input) and node.input[form.bias]:
                first, second = (np.asarray(self._constant(name[1]), np.float32) for name in names)
                data = self._whole(self._constant(node.input[form.bias]))
                constants[form.operands] = Scaled((first * second).reshape(-1), 0, data)
            code = "MatMul of tensors" if form.code == "MatMul" and len(inputs) == 2 else form.code
            made = OnnxOperator(-1, code, inputs, (), attributes, constants)
        scaled = self._scale(*node.input[form.result : form.result + 2])
        self._tensors[node.output[0]] = self._append(made, node.output[0], *scaled)

    def _whole_operand(self, names: Sequence[str], axis: int) -> int | Scaled:
        # A tensor, or a constant, of integers: with its scale and zero point.
        x, (scales, first) = names[0], self._scale(*names[1:])
        if x in self._arrays:
            return Scaled(scales.reshape(-1), first, self._whole(self._arrays[x]), axis)
        return self._written(x, scales, first)

    def _written(self, x: str, scale: Any, zero: int) -> int:
        # A tensor that is read with the scale that it was written with.
        tensor = self._index(x)
        known = self._scales.get(tensor)
        if known is None:
            raise Refusal(f"{x!r} is not quantised")
        if scale.size != 1 or scale.reshape(-1)[0] != known.scales[0] or zero != known.zero:
            raise Refusal(f"{x!r} is read with another scale than it was written with")
        return tensor

    def _append(self, made: _Known, name: str, scale: Any, zero: int) -> int:
        # An operator whose results are quantised; the tensor of these.
        if scale.size != 1:
            raise Refusal("a tensor with several scales")
        if isinstance(made, int):
            made = FunctionOfOne(made, "Requantize", lambda x: x)
        if isinstance(made, FunctionOfOne):
            made = OnnxOperator(-1, "Function", (made.tensor,), (), {}, function=made)
        assert isinstance(made, OnnxOperator)  # no constant
        if made.code == "Concat":
            made = replace(made, inputs=tuple(self._rescaled(t, scale, zero) for t in made.inputs))
        y = self._new(name, self._shapes.get(name, ()), Scaled(scale.reshape(1), zero))
        self.operators.append(replace(made, number=len(self.operators), outputs=(y,)))
        return y

    def _rescaled(self, tensor: int, scale: Any, zero: int, name: str = "") -> int:
        # A tensor with another scale, or with its own.
        known, name = self._scales[tensor], name or f"{self._names[tensor]}.rescaled"
        if scale.size == 1 and (known.scales[0], known.zero) == (scale.reshape(-1)[0], zero):
            return tensor
        self._shapes[name] = self.shape(tensor)
        return self._append(tensor, name, scale, zero)

    def _quantize(self, node: Any, axis: int) -> None:
        x, y = node.input[0], node.output[0]
        scale, zero = self._scale(*node.input[1:])
        known = self._known.get(x)
        if x in self._arrays:
            self._arrays[y] = self._whole_of(self._arrays[x], node, axis)
        elif isinstance(known, int) and y not in self._ends:
            self._tensors[y] = self._rescaled(known, scale, zero, y)
        elif known is not None and not isinstance(known, Scaled):
            self._tensors[y] = self._append(known, y, scale, zero)
        elif x in self._tensors and self._tensors[x] in self.inputs:
            made = OnnxOperator(-1, "QuantizeLinear", (self._index(x),), (), {})
            self._tensors[y] = self._append(made, y, scale, zero)
        else:
            raise Refusal(f"QuantizeLinear of {x!r}, which is not followed")

    def _dequantize(self, node: Any, axis: int) -> None:
        self._known[node.output[0]] = self._whole_operand(node.input, axis)

    def _move(self, node: Any, attributes: dict[str, Any]) -> None:
        # Of what is behind a function, the function comes later.
        x, y = node.input[0], node.output[0]
        known = self._known.get(x, self._tensors.get(x))
        if isinstance(known, Scaled) and node.op_type == "Transpose":
            order = attributes.get("perm", list(range(known.data.ndim))[::-1])
            axis = order.index(known.axis % known.data.ndim)
            self._known[y] = replace(known, data=known.data.transpose(order), axis=axis)
            return
        source = known.tensor if isinstance(known, FunctionOfOne) else known
        chosen = isinstance(known, FunctionOfOne) and node.op_type == "MaxPool"
        unlike = not isinstance(source, int) or source not in self._scales
        if not isinstance(source, int) or unlike or (chosen and not self._never_falls(known)):
            raise Refusal(f"{node.op_type} {node.name!r}: its operand {x!r} is not quantised")
        before, names = self._scales[source], enumerate(node.input[1:], 1)
        constants = {i: Scaled(None, 0, self._constant(name)) for i, name in names if name}
        if node.op_type == "Pad" and x in self._tensors:
            if 2 not in constants:
                raise Refusal("padding of integers without a value")
            attributes["fill"] = int(self._whole(constants[2].data).ravel()[0])
        ys = tuple(self._new(y, self._shapes.get(y, ()), replace(before, data=None)) for y in node.output)
        number = len(self.operators)
        self.operators.append(OnnxOperator(number, node.op_type, (source,), ys, attributes, constants))
        for name, moved in zip(node.output, ys, strict=True):
            if x in self._tensors:
                self._tensors[name] = moved
            else:
                self._known[name] = (
                    replace(known, tensor=moved) if isinstance(known, FunctionOfOne) else moved
                )

    def _join(self, node: Any, attributes: dict[str, Any]) -> None:
        # Of tensors with one scale at once, of others where the result is quantised.
        y, found = node.output[0], [self._known.get(x, self._tensors.get(x)) for x in node.input]
        joined = self._joined(node.input, found, attributes)
        scales = [self._scales.get(t) for t in joined.inputs]
        first = scales[0]
        if first is None or len({(float(s.scales[0]), s.zero) for s in scales if s is not None}) != 1:
            self._known[y] = joined
        elif node.input[0] in self._tensors:
            self._tensors[y] = self._append(joined, y, first.scales, first.zero)
        else:
            self._known[y] = self._append(joined, y, first.scales, first.zero)

    def _joined(
        self, names: Sequence[str], found: Sequence[_Known | None], attributes: dict[str, Any]
    ) -> OnnxOperator:
        known = [f for f in found if isinstance(f, int) or (isinstance(f, Scaled) and not _is_bare(f))]
        if len(known) != len(found):
            raise Refusal("Concat of what is not quantised")
        return OnnxOperator(-1, "Concat", self._as_tensors(names, known), (), attributes)

    def _never_falls(self, known: Any) -> bool:
        # True if the greatest of a function is the function of the greatest.
        zero = self._scales[known.tensor].zero
        numbers = np.arange(-128 - zero, 128 - zero).astype(np.float32) * self.scale(known.tensor)
        return bool((np.diff(known.of(numbers)) >= 0).all())

    def _clip(self, node: Any) -> None:
        # A Clip of integers, to fewer bits.
        x, y = node.input[0], node.output[0]
        low, high = (self._constant(name) for name in node.input[1:3])
        if x in self._arrays:
            self._arrays[y] = np.clip(self._arrays[x], low, high)
            return
        tensor = self._index(x)
        before = self._scales.get(tensor)
        if before is None:
            raise Refusal(f"Clip of {x!r}, which is not quantised")
        made = OnnxOperator(-1, "Clip", (tensor,), (), {"ends": [int(self._whole(e)) for e in (low, high)]})
        self._tensors[y] = self._append(made, y, before.scales, before.zero)

    def _end(self, name: str) -> int:
        # An output of the network.
        if name in self._tensors:
            return self._index(name)
        known = self._known.get(name)
        if known is None or isinstance(known, Scaled):
            raise Refusal(f"{name!r} is not quantised, and no end of the network")
        if isinstance(known, int):
            known = OnnxOperator(-1, "DequantizeLinear", (known,), (), {})
        if isinstance(known, FunctionOfOne):
            known = OnnxOperator(-1, "RealFunction", (known.tensor,), (), {}, function=known)
        y = self._new(name, self._shapes[name], None)
        self.operators.append(replace(known, number=len(self.operators), outputs=(y,)))
        return y

    def _real(self, name: str) -> int:
        self._tensors[name] = self._new(name, self._shapes[name], None)
        return self._tensors[name]

    def _input(self, name: str, kind: int, nodes: Iterable[Any]) -> int:
        if kind == onnx.TensorProto.INT8:
            return self._whole_input(name, nodes)
        if kind != onnx.TensorProto.FLOAT:
            raise Refusal(f"an input of {onnx.TensorProto.DataType.Name(kind)}")
        return self._real(name)

    def _whole_input(self, name: str, nodes: Iterable[Any]) -> int:
        # An input of int8; all that reads it has to agree about its scale (``_written``).
        places = {"DequantizeLinear": 1, **{code: form.operands for code, form in FORMS.items()}}
        groups = [n.input[3 * i : 3 * i + 3] for n in nodes for i in range(places.get(n.op_type, 0))]
        found = next((group for group in groups if group and group[0] == name), None)
        if found is None:
            raise Refusal(f"the input {name!r} has no scale")
        scale, zero = self._scale(*found[1:])
        if scale.size != 1:
            raise Refusal("a tensor with several scales")
        self._tensors[name] = self._new(name, self._shapes[name], Scaled(scale.reshape(1), zero))
        return self._tensors[name]


def _is_bare(found: _Known) -> bool:
    # True for a float32 constant of the file; False for integers that it dequantises.
    return isinstance(found, Scaled) and found.scales is None
