"""Layers that TensorFlow Lite computes by a table of float32 results."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tflite

from crtgen.proof.checker.network.arithmetic import interpolated, interpolation_table
from crtgen.proof.checker.network.elementwise import ElementLayer
from crtgen.proof.checker.refusal import Refusal

__all__ = ["TabulatedLayer"]

_B = tflite.BuiltinOperator


class TabulatedLayer(ElementLayer):
    """EXP, LOG, ELU, GELU, SQRT, and LOGISTIC and TANH of int8 with any output scale.

    TensorFlow Lite computes them in float32 for all 256 values of int8 (LUTPopulate, lut.h), or for 513 of
    int16, with lines between. A function of the C library is taken as its exact value, rounded to float32.
    """

    def read(self) -> None:
        f, (x,), y = self.file, self.operator.inputs, self.operator.output
        self.limits, self.input_step = f.limits(y, 0), np.float32(f.scale(x))
        self.output_step = np.float32(f.scale(y))
        self.per_output = np.float32(1) / self.output_step
        self.least = float(np.float32(self.type.low - f.zero_point(y)) * self.output_step)
        self.real = _OF_REALS[self.operator.code]
        if self.operator.code == _B.GELU and self.operator.options(tflite.GeluOptions).Approximate():
            self.real = _gelu_by_tanh
        if self.type.bits == 16:
            if (
                f.kind(x) != self.type
                or f.zero_point(x)
                or f.zero_point(y)
                or self.operator.code in (_B.ELU, _B.SQRT)
            ):
                raise Refusal("of int16 with a zero point")
            self.table = interpolation_table(self._real, f.scale(x), f.scale(y))

    def of(self, *operands: Any) -> Any:
        if self.type.bits == 16:
            return interpolated(self.table, np.asarray(operands[0]))
        numbers = self.input_step * np.asarray(operands[0]).astype(np.float32)
        found = np.array([self._real(float(x)) for x in numbers.ravel()], np.float32).reshape(numbers.shape)
        if self.operator.code == _B.SQRT:  # divided and cut off, the only one
            return np.floor(found / self.output_step).astype(np.int64)
        steps = np.clip((found * self.per_output).astype(np.float64), -1e6, 1e6)
        return np.where(steps < 0, np.ceil(steps - 0.5), np.floor(steps + 0.5)).astype(np.int64)

    def _real(self, x: float) -> float:
        if self.operator.code == _B.LOG and x <= 0:
            return self.least
        return self.real(x)


def _exp(x: float) -> float:
    return math.exp(min(x, 80.0))  # beyond every output


def _sqrt(x: float) -> float:
    return math.sqrt(max(x, 0.0))  # TensorFlow Lite refuses others


def _elu(x: float) -> float:
    return float(np.float32(math.exp(x)) - np.float32(1)) if x < 0 else x


def _gelu(x: float) -> float:
    return 0.5 * x * math.erfc(-x * math.sqrt(0.5))


def _gelu_by_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -80 else 0.0


_OF_REALS: dict[int, Callable[[float], float]] = {
    _B.EXP: _exp,
    _B.LOG: math.log,
    _B.ELU: _elu,
    _B.SQRT: _sqrt,
    _B.GELU: _gelu,
    _B.LOGISTIC: _sigmoid,
    _B.TANH: math.tanh,
}
