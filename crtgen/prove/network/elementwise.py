"""Layers of two tensors, element by element: every pair of values is compared."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tflite

from crtgen.prove.network.arithmetic import Ints, quantized_multiplier, requantize
from crtgen.prove.network.layer import Layer, Value
from crtgen.prove.refusal import Refusal
from crtgen.prove.value import Symbol

__all__ = ["Addition", "PairLayer", "Product"]


class PairLayer(Layer):
    """``by_pair`` are outputs by the symbols of their operands."""

    limits: tuple[int, int]

    def prepare(self) -> list[Value]:
        x, y = self.operator.inputs
        f, sizes = self.file, {self.file.shape(t) for t in (x, y, self.operator.output)}
        if len(sizes) != 1 or not all(f.is_int8(t) for t in (x, y, self.operator.output)):
            raise Refusal("its inputs have to be int8, of one shape")
        self.read()
        self.operands = list(zip(self.network.values(x), self.network.values(y), strict=True))
        self.by_pair: dict[tuple[Symbol, Symbol], int] = {}
        result: list[Value] = []
        for i, (a, b) in enumerate(self.operands):
            result.append(self._enter(i, a, b))
        return result

    def _enter(self, i: int, a: Value, b: Value) -> Value:
        if not isinstance(a, Symbol) and not isinstance(b, Symbol):
            self.proven.add(i)
            return int(self.function(np.array([a]), np.array([b]))[0])
        if isinstance(a, Symbol) and isinstance(b, Symbol):
            self.by_pair.setdefault((a, b), i)
        return Symbol(self.operator.output, i, *self.limits)

    def data_inputs(self) -> Sequence[int]:
        return self.operator.inputs

    def read(self) -> None:
        """Parameters from the file."""
        raise NotImplementedError

    def function(self, a: Ints, b: Ints) -> Any:
        """The output for values of the two operands."""
        raise NotImplementedError

    def needs(self, outputs: set[int]) -> set[Symbol]:
        return {v for i in outputs for v in self.operands[i] if isinstance(v, Symbol)}


class Addition(PairLayer):
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

    def function(self, a: Ints, b: Ints) -> Any:
        one, other, last = self.factors
        total = requantize((a - self.zeros[0]) << 20, *one)
        total = total + self.sign * requantize((b - self.zeros[1]) << 20, *other)
        return np.clip(requantize(total, *last) + self.zeros[2], *self.limits)


class Product(PairLayer):
    """MUL."""

    def read(self) -> None:
        f, (x, y), z = self.file, self.operator.inputs, self.operator.output
        o = self.operator.options(tflite.MulOptions)
        self.limits = f.limits(z, o.FusedActivationFunction())
        self.zeros = f.zero_point(x), f.zero_point(y), f.zero_point(z)
        self.factor = quantized_multiplier(f.scale(x) * f.scale(y) / f.scale(z))

    def function(self, a: Ints, b: Ints) -> Any:
        product = (a - self.zeros[0]) * (b - self.zeros[1])
        return np.clip(requantize(product, *self.factor) + self.zeros[2], *self.limits)
