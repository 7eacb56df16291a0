"""Element-wise layers, moves and ends of quantised ONNX networks, in ONNX Runtime's arithmetic on a CPU."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from crtgen.proof.checker.algebra.real import fused, word_of_real
from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.elementwise import ElementLayer
from crtgen.proof.checker.network.layer import Layer, Value
from crtgen.proof.checker.network.onnx_file import OnnxFile
from crtgen.proof.checker.network.onnx_forms import OnnxOperator
from crtgen.proof.checker.network.onnx_functions import UNLIKE
from crtgen.proof.checker.network.onnx_moves import ARRANGED, Arrangement
from crtgen.proof.checker.network.real_ends import RealInput
from crtgen.proof.checker.network.real_functions import FunctionOfOne
from crtgen.proof.checker.refusal import Refusal

__all__ = ["ELEMENTS", "OnnxFileLayer", "same_scale"]

# Steps of float32 that a function of the C library may be from its exact value.
_APART = 2
_INFINITE = 0x7F800000


class OnnxFileLayer(Layer):
    # Common parts of layers of an ONNX file.
    operator: OnnxOperator  # type: ignore[assignment]

    @property
    def source(self) -> OnnxFile:
        found = self.network.file
        assert isinstance(found, OnnxFile)
        return found

    def attribute(self, name: str, default: Any) -> Any:
        return self.operator.attributes.get(name, default)

    def cut(self) -> tuple[int, int]:
        # Limits of the type after a Relu or Clip.
        y, (low, high) = self.operator.output, self.operator.limits
        ends = [self.type.low, self.type.high]
        for k, end in enumerate((low, high)):
            if np.isfinite(end):
                step = np.rint(np.float32(end) / self.source.scale(y)) + self.source.zero_point(y)
                ends[k] = int(np.clip(step, self.type.low, self.type.high))
        return ends[0], ends[1]

    def only(self, *names: str) -> None:
        other = set(self.operator.attributes) - set(names)
        if other:
            raise Refusal(f"attributes that are not followed: {', '.join(sorted(other))}")


class OnnxInput(RealInput, OnnxFileLayer):
    # QuantizeLinear of an input, which rounds halves to even.

    rounded = staticmethod(np.rint)


class Moved(OnnxFileLayer):
    is_move = True

    def data_inputs(self) -> Sequence[int]:
        return self.operator.inputs

    def prepare(self) -> list[Value]:
        same_scale(self)
        f, o = self.source, self.operator
        arrays = [self.network.array(t) for t in o.inputs]
        constants = {place: found.data for place, found in o.constants.items()}
        shapes = [f.shape(t) for t in o.outputs]
        found = ARRANGED[o.code](Arrangement(arrays, o.attributes, constants, f.zero_point(o.output), shapes))
        parts = found if isinstance(found, list) else [found]
        if [np.size(part) for part in parts] != [f.size(t) for t in o.outputs]:
            raise Refusal("results of another size")
        self.proven.update(range(self.size))
        return [v for part in parts for v in part.ravel()]

    def needs(self, outputs: set[int]) -> set[Symbol]:
        assert self.values is not None  # outputs that are asked for have symbols
        return {v for i in outputs if isinstance(v := self.values[i], Symbol)}


class FunctionLayer(ElementLayer, OnnxFileLayer):
    """Functions of one tensor: its numbers in float32, what operators make of these, quantised."""

    def read(self) -> None:
        f, (x,), y = self.source, self.operator.inputs, self.operator.output
        self.limits, self.scales = self.cut(), (f.scale(x), f.scale(y))

    def of(self, *operands: Any) -> Any:
        function = self.operator.function
        assert function is not None  # it makes the layer
        real = np.asarray(operands[0]).astype(np.float32) * self.scales[0]
        with np.errstate(over="ignore"):
            return np.rint(function.of(real) / self.scales[1]).astype(np.float64)

    def value(self, *operands: Any) -> Any:
        return super().value(*operands).astype(np.int64)


class RealFunctionLayer(ElementLayer, OnnxFileLayer):
    """Functions of one tensor at the end of a network, in float32.

    The last operator may be one that no two libraries compute alike: its exact value then, up to ``apart``
    steps of float32.
    """

    def read(self) -> None:
        self.scale = self.source.scale(self.operator.inputs[0])
        self.limits = self.type.low, self.type.high
        function = self.function_of
        self.apart = _APART * function.unlike
        if function.unlike and (function.unlike > 1 or function.name not in UNLIKE):
            raise Refusal(f"{function.name} of what no two libraries compute alike in float32")
        if self.apart:
            self.said = f"{self.name} at the end within {self.apart} steps of float32"

    @property
    def function_of(self) -> FunctionOfOne:
        assert self.operator.function is not None  # it makes the layer
        return self.operator.function

    def value(self, *operands: Any) -> Any:
        numbers = np.asarray(operands[0] - self.zeros[0]).astype(np.float32) * self.scale
        return word_of_real(self.function_of.of(numbers))

    def differs(self, got: Any, wanted: Any) -> Any:
        # Floats that are more than ``apart`` steps from each other.
        if not self.apart:
            return got != wanted
        steps = [np.where(v >= 0, v, -(1 << 31) - v) for v in (got, wanted)]
        return (abs(steps[0] - steps[1]) > self.apart) | (got & _INFINITE == _INFINITE)


class ClipLayer(ElementLayer, OnnxFileLayer):
    def read(self) -> None:
        low, high = self.operator.attributes["ends"]
        self.limits = max(low, self.type.low), min(high, self.type.high)

    def value(self, *operands: Any) -> Any:
        return np.clip(operands[0], *self.limits)


class OnnxAddition(ElementLayer, OnnxFileLayer):
    """Add of two tensors, as ONNX Runtime computes it on a PC, where int8 becomes uint8 first.

    Each factor is rounded once, and so is the addend, which includes one of the zero points.
    """

    def read(self) -> None:
        self.only()
        f, (a, b), y = self.source, self.operator.inputs, self.operator.output
        self.limits = self.cut()
        self.factors = f.scale(a) / f.scale(y), f.scale(b) / f.scale(y)
        first, second, last = (np.float32(f.zero_point(t) + 128) for t in (a, b, y))
        self.start = last - fused(self.factors[0], first, self.factors[1] * second)

    def value(self, *operands: Any) -> Any:
        a, b = (np.asarray(v + 128).astype(np.float32) for v in operands)
        found = np.rint(fused(a, self.factors[0], fused(b, self.factors[1], self.start)))
        return np.clip(found.astype(np.float64) - 128, *self.limits).astype(np.int64)


class OnnxProduct(ElementLayer, OnnxFileLayer):
    # Mul of two tensors: the product of integers times one float32 factor.

    def read(self) -> None:
        self.only()
        f, (a, b) = self.source, self.operator.inputs
        self.limits = self.cut()
        self.factor = f.scale(a) * f.scale(b) / f.scale(self.operator.output)

    def of(self, *operands: Any) -> Any:
        a, b = operands
        return np.rint(np.asarray(a * b).astype(np.float32) * self.factor).astype(np.float64)

    def value(self, *operands: Any) -> Any:
        return super().value(*operands).astype(np.int64)


def same_scale(layer: OnnxFileLayer) -> None:
    f, o = layer.source, layer.operator
    if len({(f.scale(t), f.zero_point(t)) for t in (*o.inputs, *o.outputs)}) != 1:
        raise Refusal("a change of the scale is not followed yet")


ELEMENTS: dict[str, type[Layer]] = {
    "QuantizeLinear": OnnxInput,
    "Function": FunctionLayer,
    "RealFunction": RealFunctionLayer,
    "Clip": ClipLayer,
    "Add": OnnxAddition,
    "Mul": OnnxProduct,
    **dict.fromkeys(ARRANGED, Moved),
}
