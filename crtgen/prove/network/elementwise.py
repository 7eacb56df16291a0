"""Layers of one tensor or two, element by element: every value, or pair of values, is compared."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tflite

from crtgen.prove.network.arithmetic import Ints, quantized_multiplier, requantize
from crtgen.prove.network.layer import Layer, Value
from crtgen.prove.refusal import Refusal
from crtgen.prove.value import Symbol

__all__ = ["Addition", "ElementLayer", "Product", "Rescaling"]

_B = tflite.BuiltinOperator
_ACTIVATIONS = {_B.RELU: 1, _B.RELU_N1_TO_1: 2, _B.RELU6: 3}


class ElementLayer(Layer):
    """``by_symbols`` are outputs by the symbols that they depend on, ``operands`` what each is made of."""

    limits: tuple[int, int]

    def prepare(self) -> list[Value]:
        f, tensors = self.file, (*self.data_inputs(), self.operator.output)
        if not all(f.is_int8(t) for t in tensors):
            raise Refusal("its inputs and output have to be int8")
        self.read()
        shape = f.shape(self.operator.output)
        arrays = [np.broadcast_to(self.network.array(t), shape).ravel() for t in self.data_inputs()]
        self.operands: list[tuple[Value, ...]] = list(zip(*arrays, strict=True))
        self.by_symbols: dict[frozenset[Symbol], list[int]] = {}
        return [self._enter(i, operands) for i, operands in enumerate(self.operands)]

    def _enter(self, i: int, operands: tuple[Value, ...]) -> Value:
        symbols = frozenset(v for v in operands if isinstance(v, Symbol))
        if not symbols:
            self.proven.add(i)
            return int(self.function(*(np.array([v]) for v in operands))[0])
        self.by_symbols.setdefault(symbols, []).append(i)
        return Symbol(self.operator.output, i, *self.limits)

    def data_inputs(self) -> Sequence[int]:
        return self.operator.inputs

    def read(self) -> None:
        """Parameters from the file."""
        raise NotImplementedError

    def function(self, *operands: Ints) -> Any:
        """The output for values of the operands."""
        raise NotImplementedError

    def needs(self, outputs: set[int]) -> set[Symbol]:
        return {v for i in outputs for v in self.operands[i] if isinstance(v, Symbol)}


class Rescaling(ElementLayer):
    """QUANTIZE to another scale, RELU and its kin, and LEAKY_RELU, which has two factors."""

    def read(self) -> None:
        f, (x,), y = self.file, self.operator.inputs, self.operator.output
        self.limits = f.limits(y, _ACTIVATIONS.get(self.operator.code, 0))
        self.zeros, scale = (f.zero_point(x), f.zero_point(y)), f.scale(x)
        self.above = self.below = quantized_multiplier(scale / f.scale(y))
        self.sign = 1
        if self.operator.code == _B.LEAKY_RELU:
            alpha = float(np.float32(self.operator.options(tflite.LeakyReluOptions).Alpha()))
            self.sign = -1 if alpha < 0 else 1
            self.below = quantized_multiplier(abs(scale * alpha) / f.scale(y))

    def function(self, *operands: Ints) -> Any:
        x = operands[0] - self.zeros[0]
        scaled = np.where(x >= 0, requantize(x, *self.above), requantize(x * self.sign, *self.below))
        return np.clip(scaled + self.zeros[1], *self.limits)


class Addition(ElementLayer):
    """ADD and SUB: both operands are brought to one scale with 20 more bits."""

    def read(self) -> None:
        f, (x, y), z = self.file, self.operator.inputs, self.operator.output
        is_sum = self.operator.code == tflite.BuiltinOperator.ADD
        o = self.operator.options(tflite.AddOptions if is_sum else tflite.SubOptions)
        self.limits = f.limits(z, o.FusedActivationFunction())
        top = 2 * max(f.scale(x), f.scale(y))
        self.sign = 1 if is_sum else -1
        self.zeros = f.zero_point(x), f.zero_point(y), f.zero_point(z)
        scales = f.scale(x) / top, f.scale(y) / top, top / ((1 << 20) * f.scale(z))
        self.factors = [quantized_multiplier(s) for s in scales]

    def function(self, *operands: Ints) -> Any:
        (a, b), (one, other, last) = operands, self.factors
        total = requantize((a - self.zeros[0]) << 20, *one)
        total = total + self.sign * requantize((b - self.zeros[1]) << 20, *other)
        return np.clip(requantize(total, *last) + self.zeros[2], *self.limits)


class Product(ElementLayer):
    """MUL."""

    def read(self) -> None:
        f, (x, y), z = self.file, self.operator.inputs, self.operator.output
        o = self.operator.options(tflite.MulOptions)
        self.limits = f.limits(z, o.FusedActivationFunction())
        self.zeros = f.zero_point(x), f.zero_point(y), f.zero_point(z)
        self.factor = quantized_multiplier(f.scale(x) * f.scale(y) / f.scale(z))

    def function(self, *operands: Ints) -> Any:
        a, b = operands
        product = (a - self.zeros[0]) * (b - self.zeros[1])
        return np.clip(requantize(product, *self.factor) + self.zeros[2], *self.limits)
