"""The logarithm of softmax."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, AxisMap, DType, Op, Quant, Signature, Value
from crtgen.network.ops.activation import Softmax, SoftmaxParams
from crtgen.network.ops.attrs import require, require_inputs, tensor_quant
from crtgen.network.ops.case import Case, floats, int8s, make
from crtgen.network.ops.fixedpoint import (
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    rounding_divide_by_pot,
)
from crtgen.network.ops.gemmlowp import exp_on_negative_values, logarithm
from crtgen.network.ops.scheme import INT8, scheme_of
from crtgen.network.ops.traits import along_all

__all__ = ["LogSoftmax", "LogSoftmaxParams", "cases"]

_OUTPUT = Quant.tensor(1 / 16, INT8.high)


@dataclass(frozen=True, slots=True)
class LogSoftmaxParams:
    """Parameters of softmax, and the inverse of its factor as multiplier and shift: ``back``."""

    softmax: SoftmaxParams
    back: tuple[int, int]


@dataclass(frozen=True, slots=True)
class LogSoftmax(Op):
    """``x`` minus the logarithm of the sum of all ``exp(x)`` along the last axis."""

    name: ClassVar[str] = "log_softmax"

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        return Softmax().infer(inputs)

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        return along_all(sig, axes) if axes[0] != len(sig.x.shape) - 1 else None

    def parameters(self, sig: Signature) -> LogSoftmaxParams:
        """Compute the parameters as ``PreprocessLogSoftmaxScalingExp`` does. Raises ``ValueError`` for an
        unsupported quantisation of the output.
        """
        require(sig.y.quant == _OUTPUT, f"the output has {tensor_quant(sig.y)} instead of {_OUTPUT}")
        p = Softmax().exponents(sig)
        real = (1 << (31 - p.input_left_shift)) / p.input_multiplier
        require(real < 1, "the input's scale is too coarse for log_softmax")
        return LogSoftmaxParams(p, quantize_multiplier(real))

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        if scheme_of(sig.x).is_real:
            x = arrays[0].astype(np.float64)
            x = x - x.max(axis=-1, keepdims=True)
            return ((x - np.log(np.exp(x).sum(axis=-1, keepdims=True))).astype(np.float32),)
        p = self.parameters(sig)
        s, x = p.softmax, arrays[0].astype(np.int64)
        difference = x - x.max(axis=-1, keepdims=True)
        counts = difference >= s.diff_min
        exponent = multiply_by_quantized_multiplier(
            np.where(counts, difference, 0), s.input_multiplier, s.input_left_shift
        )
        powers = rounding_divide_by_pot(exp_on_negative_values(exponent, 5), 12)
        logarithms = logarithm(np.where(counts, powers, 0).sum(axis=-1, keepdims=True))
        least = multiply_by_quantized_multiplier(logarithms - (1 << 31), *p.back)
        inside = difference > np.maximum(s.diff_min - 1, least)
        scaled = rounding_divide_by_pot(exponent - logarithms, 22) + INT8.high
        return (INT8.saturated(np.where(inside, scaled, INT8.low)),)


def cases() -> Iterator[Case]:
    for scale, zero in ((0.004, 5), (0.06, -12), (0.5, 100), (0.2, 0)):
        x = int8s("x", (3, 4, 33), scale, zero)
        yield make(f"scale_{scale}", LogSoftmax(), [x], _OUTPUT)
    yield make("long", LogSoftmax(), [int8s("x", (2, 600), 0.1)], _OUTPUT)
    yield make("single", LogSoftmax(), [int8s("x", (5, 1), 0.1)], _OUTPUT)
    yield make("f32", LogSoftmax(), [floats("x", (3, 17))])
