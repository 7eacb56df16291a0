"""Conversion between real and quantised values, and between quantisations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, AxisMap, DType, Op, Quant, Signature, Value
from crtgen.network.ops.attrs import magnitude, require, require_inputs, tensor_quant
from crtgen.network.ops.case import Case, by_float32, floats, int8s, int16s, make
from crtgen.network.ops.expr import Expr, Formula, operand
from crtgen.network.ops.fixedpoint import quantize_multiplier
from crtgen.network.ops.rescaling import by_float
from crtgen.network.ops.scheme import INT8, scheme_of
from crtgen.network.ops.traits import Channelwise, along_all

__all__ = ["AffineParams", "Dequantize", "Quantize", "RequantizeParams", "cases"]


@dataclass(frozen=True, slots=True)
class AffineParams:
    """``real = scale * (q - zero_point)``."""

    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True)
class RequantizeParams:
    """``y = clamp(output_offset + (x + input_offset) * multiplier * 2**(shift - 31))``."""

    input_offset: int
    output_offset: int
    multiplier: int
    shift: int


@dataclass(frozen=True, slots=True)
class Quantize(Formula, Channelwise):
    """Conversion of float32, or of integers, to quantised integers of type ``to``.

    NaN becomes the smallest value.
    """

    name: ClassVar[str] = "quantize"
    monotonic: ClassVar[bool] = True

    to: DType = INT8.activations

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        require(inputs[0].dtype is DType.FLOAT32 or inputs[0].dtype.is_integer, "the input is bool")
        require(self.to.is_integer, f"the output is {self.to.value}")
        return ((inputs[0].shape, self.to),)

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        return along_all(sig, axes)

    def is_identity(self, sig: Signature) -> bool:
        return True

    def parameters(self, sig: Signature) -> AffineParams | RequantizeParams:
        """Return the output's quantisation for float32, or the factor ``in / out`` in double for integers.

        Raises ``ValueError`` if a result can exceed 32 bits; only results of int32 saturate.
        """
        y = tensor_quant(sig.y)
        if sig.x.dtype is DType.FLOAT32:
            return AffineParams(y.scale, y.zero_point)
        x = tensor_quant(sig.x)
        bound = 0 if sig.x.dtype is DType.INT32 else magnitude(sig.x)
        factor = quantize_multiplier(x.scale / y.scale, bound)
        return RequantizeParams(-x.zero_point, y.zero_point, *factor)

    def formula(self, sig: Signature) -> Expr | None:
        p = self.parameters(sig)
        if isinstance(p, AffineParams):
            return None
        scaled = (operand(sig) + p.input_offset).scaled(p.multiplier, p.shift) + p.output_offset
        return scaled if sig.y.dtype is DType.INT32 else scaled.clamped(*scheme_of(sig.y).limits)

    def plain(self, sig: Signature, arrays: Sequence[Array]) -> Array:
        p = self.parameters(sig)
        assert isinstance(p, AffineParams)
        with np.errstate(invalid="ignore", over="ignore"):
            ratio = (arrays[0].astype(np.float32) / np.float32(p.scale)).astype(np.float64)
        ratio = np.where(np.isnan(ratio), -np.inf, ratio)
        away = np.copysign(np.floor(np.abs(ratio) + 0.5), ratio)
        rounded = np.rint(ratio) if by_float(sig.y) else away
        return scheme_of(sig.y).saturated(rounded + p.zero_point)


@dataclass(frozen=True, slots=True)
class Dequantize(Op):
    name: ClassVar[str] = "dequantize"

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        require(not scheme_of(inputs[0]).is_real, f"the input is {inputs[0].dtype.value}, not quantised")
        return ((inputs[0].shape, DType.FLOAT32),)

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        return along_all(sig, axes)

    def parameters(self, sig: Signature) -> AffineParams:
        x = tensor_quant(sig.x)
        return AffineParams(x.scale, x.zero_point)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        p = self.parameters(sig)
        return (((arrays[0].astype(np.float64) - p.zero_point) * p.scale).astype(np.float32),)


_I8, _U8, _I16, _I32 = DType.INT8, DType.UINT8, DType.INT16, DType.INT32
_PAIRS = (
    *((_I8, to) for to in (_U8, _I16, _I32)),
    *((_I16, to) for to in (_I8, _I16, _I32)),
    *((_I32, to) for to in (_I8, _I16)),
    (_U8, _I8),
)


def cases() -> Iterator[Case]:
    yield make("f32", Quantize(), [floats("x", (1, 7, 5))], Quant.tensor(0.03, -4))
    yield by_float32(make("f32", Quantize(), [floats("x", (1, 7, 5))], Quant.tensor(0.03, -4)))
    yield make("f32_saturated", Quantize(), [floats("x", (1, 64))], Quant.tensor(0.01, 127))
    yield make("coarser", Quantize(), [int8s("x", (1, 37), 0.02, -128)], Quant.tensor(0.09, 3))
    yield make("finer", Quantize(), [int8s("x", (1, 37), 0.9, 20)], Quant.tensor(0.05, -128))
    yield make("equal", Quantize(), [int8s("x", (1, 37), 0.05, 20)])
    yield make("int8", Dequantize(), [int8s("x", (2, 19), 0.033, -77)])
    yield make("int16", Dequantize(), [int16s("x", (2, 19), 0.0033)])
    bytes_ = Value("x", (2, 19), DType.UINT8, Quant.tensor(0.033, 77))
    yield make("uint8", Dequantize(), [bytes_])
    yield make("f32_int16", Quantize(DType.INT16), [floats("x", (1, 7, 5))], Quant.tensor(0.00007))
    for name, scale in (("finer", 0.031), ("coarser", 0.7)):
        x = Quant.tensor(0.1, 9)
        for source, to in _PAIRS:
            zero = 0 if to is DType.INT16 else 3
            value = Value("x", (1, 37), source, x if source is not DType.INT16 else Quant.tensor(0.1))
            limits = {"x": (-3000.0, 3000.0)} if source is DType.INT32 else {}
            case = f"{source.value}_{to.value}_{name}"
            yield make(case, Quantize(to), [value], Quant.tensor(scale, zero), limits=limits)
    yield make("signed", Quantize(DType.INT8), [bytes_], Quant.tensor(0.033, -51))
    yield make("unsigned", Quantize(DType.UINT8), [int8s("x", (2, 19), 0.033, -51)], Quant.tensor(0.033, 77))
