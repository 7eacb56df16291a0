"""Conversion between float32 and int8, and between int8 quantisations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.ir import Array, DType, Index, Op, Quant, Signature, Value
from crtgen.ops.attrs import magnitude, require, require_inputs, tensor_quant
from crtgen.ops.case import Case, floats, int8s, make
from crtgen.ops.fixedpoint import multiply_by_quantized_multiplier, quantize_multiplier
from crtgen.ops.scheme import INT8, scheme_of
from crtgen.ops.traits import channelwise

__all__ = ["AffineParams", "Dequantize", "Quantize", "RequantizeParams", "cases"]


@dataclass(frozen=True, slots=True)
class AffineParams:
    """``real = scale * (q - zero_point)``."""

    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True)
class RequantizeParams:
    """``y = clamp(output_offset + (x + input_offset) * multiplier * 2**(shift - 31))`` to int8."""

    input_offset: int
    output_offset: int
    multiplier: int
    shift: int


@dataclass(frozen=True, slots=True)
class Quantize(Op):
    """float32 to int8, or int8 to int8 with another scale."""

    name: ClassVar[str] = "quantize"
    rising: ClassVar[bool] = True

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        scheme_of(inputs[0])
        return ((inputs[0].shape, INT8.activations),)

    def is_identity(self, sig: Signature) -> bool:
        return True

    def bundles(self, sig: Signature) -> tuple[Index | None, ...] | None:
        return channelwise(sig)

    def parameters(self, sig: Signature) -> AffineParams | RequantizeParams:
        """The output's quantisation for float32, the factor ``in / out`` in double for int8."""
        y = tensor_quant(sig.y)
        if scheme_of(sig.x).is_real:
            return AffineParams(y.scale, y.zero_point)
        x = tensor_quant(sig.x)
        factor = quantize_multiplier(x.scale / y.scale, magnitude(sig.x))
        return RequantizeParams(-x.zero_point, y.zero_point, *factor)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        p = self.parameters(sig)
        if isinstance(p, AffineParams):
            ratio = (arrays[0].astype(np.float32) / np.float32(p.scale)).astype(np.float64)
            rounded = np.copysign(np.floor(np.abs(ratio) + 0.5), ratio)
            return (scheme_of(sig.y).saturated(rounded + p.zero_point),)
        centred = arrays[0].astype(np.int64) + p.input_offset
        scaled = multiply_by_quantized_multiplier(centred, p.multiplier, p.shift) + p.output_offset
        return (scheme_of(sig.y).saturated(scaled),)


@dataclass(frozen=True, slots=True)
class Dequantize(Op):
    """int8 to float32."""

    name: ClassVar[str] = "dequantize"

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        require(not scheme_of(inputs[0]).is_real, f"the input is {inputs[0].dtype.value}, not quantised")
        return ((inputs[0].shape, DType.FLOAT32),)

    def parameters(self, sig: Signature) -> AffineParams:
        """The input's quantisation."""
        x = tensor_quant(sig.x)
        return AffineParams(x.scale, x.zero_point)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        p = self.parameters(sig)
        return (((arrays[0].astype(np.float64) - p.zero_point) * p.scale).astype(np.float32),)


def cases() -> Iterator[Case]:
    """All three conversions, to finer and to coarser scales."""
    yield make("f32", Quantize(), [floats("x", (1, 7, 5))], Quant.tensor(0.03, -4))
    yield make("f32_saturated", Quantize(), [floats("x", (1, 64))], Quant.tensor(0.01, 127))
    yield make("coarser", Quantize(), [int8s("x", (1, 37), 0.02, -128)], Quant.tensor(0.09, 3))
    yield make("finer", Quantize(), [int8s("x", (1, 37), 0.9, 20)], Quant.tensor(0.05, -128))
    yield make("equal", Quantize(), [int8s("x", (1, 37), 0.05, 20)])
    yield make("int8", Dequantize(), [int8s("x", (2, 19), 0.033, -77)])
