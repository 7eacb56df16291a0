"""Functions of one element: ``abs``, ``exp``, ``sqrt``, ``elu``, ``hard_swish`` and more, and ``cast``."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import erf, erfc, pi, sqrt
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Quant, Signature, Value
from crtgen.network.ops.attrs import magnitude, require, tensor_quant
from crtgen.network.ops.case import Case, floats, int8s, int16s, make, plain
from crtgen.network.ops.elementwise import Elementwise, Numbers, wide
from crtgen.network.ops.expr import Expr, Formula, operand
from crtgen.network.ops.fixedpoint import (
    Int64,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    single,
)
from crtgen.network.ops.gemmlowp import inverse_square_root
from crtgen.network.ops.scheme import is_plain, scheme_of
from crtgen.network.ops.swish import SwishParams, hard_swish
from crtgen.network.ops.traits import Tabulated

__all__ = [
    "Abs",
    "AbsParams",
    "Atan",
    "Cast",
    "Ceil",
    "Cos",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "GeluTanh",
    "HardSwish",
    "Log",
    "LogicalNot",
    "Neg",
    "RealFunction",
    "Round",
    "Rsqrt",
    "Sin",
    "Sqrt",
    "Square",
    "cases",
]


class RealFunction(Formula, Tabulated, Elementwise):
    __slots__ = ()

    def formula(self, sig: Signature) -> Expr | None:
        return None

    def plain(self, sig: Signature, arrays: Sequence[Array]) -> Array:
        if sig.x.dtype is DType.FLOAT32:
            with np.errstate(all="ignore"):
                return self._real(arrays[0].astype(np.float64)).astype(np.float32)
        return self._whole(sig, arrays[0].astype(np.int64))

    @abstractmethod
    def _real(self, x: Numbers) -> Numbers: ...

    def _whole(self, sig: Signature, x: Int64) -> Array:
        # Integers, for the types that support them.
        raise ValueError(f"{self.name} of {sig.x.dtype.value}")


@dataclass(frozen=True, slots=True)
class AbsParams:
    """``y = clamp(output_offset + |x + input_offset| * multiplier * 2**(shift - 31))``."""

    input_offset: int
    output_offset: int
    multiplier: int
    shift: int


@dataclass(frozen=True, slots=True)
class Abs(RealFunction):
    name: ClassVar[str] = "abs"

    def _real(self, x: Numbers) -> Numbers:
        return np.asarray(np.abs(x))

    def parameters(self, sig: Signature) -> AbsParams:
        """Compute the factor ``in / out`` in double, as TFLite Micro does."""
        x, y = tensor_quant(sig.x), tensor_quant(sig.y)
        factor = quantize_multiplier(x.scale / y.scale, magnitude(sig.x))
        return AbsParams(-x.zero_point, y.zero_point, *factor)

    def formula(self, sig: Signature) -> Expr | None:
        if is_plain(sig.x) or scheme_of(sig.x).is_real:
            return None
        p = self.parameters(sig)
        scaled = abs(operand(sig) + p.input_offset).scaled(p.multiplier, p.shift)
        return (scaled + p.output_offset).clamped(*scheme_of(sig.y).limits)

    def _whole(self, sig: Signature, x: Int64) -> Array:
        return np.abs(x).astype(sig.x.dtype.numpy)


@dataclass(frozen=True, slots=True)
class RsqrtParams:
    """``y = clamp(output_offset + 2**20 / sqrt(x + input_offset) * multiplier * 2**(shift - 51))``."""

    input_offset: int
    output_offset: int
    multiplier: int
    shift: int


@dataclass(frozen=True, slots=True)
class Rsqrt(RealFunction):
    """``1 / sqrt(x)``. An int8 output has its largest value if ``x`` is not positive."""

    name: ClassVar[str] = "rsqrt"

    def _real(self, x: Numbers) -> Numbers:
        return np.asarray(1 / np.sqrt(x))

    def parameters(self, sig: Signature) -> RsqrtParams:
        """Compute the factor ``1 / (sqrt(in) * out)`` in double from float32 scales, as TFLite Micro does."""
        x, y = tensor_quant(sig.x), tensor_quant(sig.y)
        multiplier, shift = quantize_multiplier(1 / (sqrt(single(x.scale)) * single(y.scale)))
        if not -11 <= shift <= 30:
            raise ValueError(f"scales {x.scale:g} and {y.scale:g}, which leave no digits of 1/sqrt(x)")
        return RsqrtParams(-x.zero_point, y.zero_point, multiplier, shift)

    def _whole(self, sig: Signature, x: Int64) -> Array:
        p, scheme = self.parameters(sig), scheme_of(sig.y)
        centred = x + p.input_offset
        inverse, shift = inverse_square_root(np.maximum(centred, 1))
        one = multiply_by_quantized_multiplier(np.ones_like(x), inverse, shift + 20)
        scaled = multiply_by_quantized_multiplier(one, p.multiplier, p.shift - 20) + p.output_offset
        return scheme.saturated(np.where(centred <= 0, scheme.high, scaled))


@dataclass(frozen=True, slots=True)
class Neg(RealFunction):
    name: ClassVar[str] = "neg"

    def _real(self, x: Numbers) -> Numbers:
        return np.asarray(np.negative(x))


@dataclass(frozen=True, slots=True)
class Exp(RealFunction):
    name: ClassVar[str] = "exp"

    def _real(self, x: Numbers) -> Numbers:
        return np.asarray(np.exp(x))


@dataclass(frozen=True, slots=True)
class Log(RealFunction):
    """The natural logarithm: minus infinity for 0, NaN for negative numbers."""

    name: ClassVar[str] = "log"

    def _real(self, x: Numbers) -> Numbers:
        return np.asarray(np.log(x))


@dataclass(frozen=True, slots=True)
class Sin(RealFunction):
    name: ClassVar[str] = "sin"

    def _real(self, x: Numbers) -> Numbers:
        return np.asarray(np.sin(x))


@dataclass(frozen=True, slots=True)
class Cos(RealFunction):
    name: ClassVar[str] = "cos"

    def _real(self, x: Numbers) -> Numbers:
        return np.asarray(np.cos(x))


@dataclass(frozen=True, slots=True)
class Sqrt(RealFunction):
    name: ClassVar[str] = "sqrt"

    def _real(self, x: Numbers) -> Numbers:
        return np.asarray(np.sqrt(x))


@dataclass(frozen=True, slots=True)
class Square(RealFunction):
    name: ClassVar[str] = "square"

    def _real(self, x: Numbers) -> Numbers:
        return np.asarray(np.square(x))


@dataclass(frozen=True, slots=True)
class Floor(RealFunction):
    name: ClassVar[str] = "floor"

    def _real(self, x: Numbers) -> Numbers:
        return np.asarray(np.floor(x))


@dataclass(frozen=True, slots=True)
class Ceil(RealFunction):
    name: ClassVar[str] = "ceil"

    def _real(self, x: Numbers) -> Numbers:
        return np.asarray(np.ceil(x))


@dataclass(frozen=True, slots=True)
class Round(RealFunction):
    """The nearest integer; ties are rounded to even."""

    name: ClassVar[str] = "round"

    def _real(self, x: Numbers) -> Numbers:
        return np.asarray(np.rint(x))


@dataclass(frozen=True, slots=True)
class Erf(RealFunction):
    """The error function: the integral of ``2 / sqrt(pi) * e**-t**2`` from 0 to x."""

    name: ClassVar[str] = "erf"

    def _real(self, x: Numbers) -> Numbers:
        return np.array([erf(number) for number in x.reshape(-1)]).reshape(x.shape)


@dataclass(frozen=True, slots=True)
class Atan(RealFunction):
    name: ClassVar[str] = "atan"

    def _real(self, x: Numbers) -> Numbers:
        return np.asarray(np.arctan(x))


@dataclass(frozen=True, slots=True)
class Elu(RealFunction):
    name: ClassVar[str] = "elu"
    monotonic: ClassVar[bool] = True

    def _real(self, x: Numbers) -> Numbers:
        return np.where(x < 0, np.expm1(np.minimum(x, 0)), x)

    def _whole(self, sig: Signature, x: Int64) -> Array:
        # In float32, as TFLite Micro fills its table.
        inner, outer, scheme = tensor_quant(sig.x), tensor_quant(sig.y), scheme_of(sig.y)
        real = np.float32(inner.scale) * (x - inner.zero_point).astype(np.float32)
        power = np.exp(np.minimum(real, 0).astype(np.float64)).astype(np.float32) - np.float32(1)
        inverse = np.float32(1) / np.float32(outer.scale)
        steps = (np.where(real < 0, power, real) * inverse).astype(np.float64)
        rounded = np.copysign(np.floor(np.abs(steps) + 0.5), steps)
        return scheme.saturated(rounded + outer.zero_point)


@dataclass(frozen=True, slots=True)
class HardSwish(RealFunction):
    name: ClassVar[str] = "hard_swish"

    def _real(self, x: Numbers) -> Numbers:
        return np.asarray(x * np.clip(x + 3, 0, 6) / 6)

    def parameters(self, sig: Signature) -> SwishParams:
        return SwishParams.of(tensor_quant(sig.x), tensor_quant(sig.y))

    def _whole(self, sig: Signature, x: Int64) -> Array:
        return scheme_of(sig.y).saturated(hard_swish(self.parameters(sig), x))


@dataclass(frozen=True, slots=True)
class Gelu(RealFunction):
    """``x * P(X <= x)`` for the standard normal distribution: ``x / 2 * erfc(-x / sqrt(2))``."""

    name: ClassVar[str] = "gelu"

    def _real(self, x: Numbers) -> Numbers:
        shares = [erfc(-number * 0.5**0.5) for number in x.reshape(-1)]
        return np.asarray(0.5 * x * np.array(shares).reshape(x.shape))


@dataclass(frozen=True, slots=True)
class GeluTanh(RealFunction):
    """Gelu's approximation: ``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))``."""

    name: ClassVar[str] = "gelu_tanh"

    def _real(self, x: Numbers) -> Numbers:
        inner = (2 / pi) ** 0.5 * (x + 0.044715 * x**3)
        return np.asarray(0.5 * x * (1 + np.tanh(inner)))


@dataclass(frozen=True, slots=True)
class LogicalNot(Elementwise):
    name: ClassVar[str] = "logical_not"

    def require_types(self, inputs: Sequence[Value]) -> None:
        require(inputs[0].dtype is DType.BOOL, f"the input is {inputs[0].dtype.value} instead of bool")

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.logical_not(arrays[0]),)


@dataclass(frozen=True, slots=True)
class Cast(Elementwise):
    """Conversion to another element type.

    Integers wrap. Floats are truncated, saturate to int32 (to int64 for 64-bit results), NaN becomes 0, and
    then they wrap, as on a Cortex-M; TFLite Micro leaves values beyond the type's range to the compiler.
    """

    name: ClassVar[str] = "cast"

    to: DType

    def result_type(self, inputs: Sequence[Value]) -> DType:
        return self.to

    def is_identity(self, sig: Signature) -> bool:
        return True

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x = arrays[0]
        if self.to is DType.BOOL or x.dtype.kind != "f" or self.to is DType.FLOAT32:
            return (x.astype(self.to.numpy),)
        cut = np.trunc(np.nan_to_num(wide(sig.x, x), nan=0.0))
        if self.to in (DType.INT64, DType.UINT64):
            within = np.clip(cut, -(2.0**63), np.nextafter(2.0**63, 0)).astype(np.int64)
            return (np.where(cut < 2.0**63, within, np.iinfo(np.int64).max).astype(self.to.numpy),)
        least, most = (-(2.0**31), 2.0**32 - 1 if self.to is DType.UINT32 else 2.0**31 - 1)
        return (np.clip(cut, least, most).astype(np.int64).astype(self.to.numpy),)


def _float_cases() -> Iterator[Case]:
    x = floats("x", (2, 5, 9))
    for op in (Abs(), Neg(), Square(), Floor(), Ceil(), Elu(), HardSwish()):
        yield make("f32", op, [x])
    yield make("f32", Exp(), [x], limits={"x": (-20, 20)})
    yield make("f32_onnx", Erf(), [x], limits={"x": (-5, 5)})
    yield make("f32_onnx", Atan(), [x], limits={"x": (-20, 20)})
    for gelu in (Gelu(), GeluTanh()):  # further below zero, 1 + erf has hardly a digit of float32 left
        yield make("f32_onnx", gelu, [x], limits={"x": (-2, 6)})
    yield make("f32", Round(), [x], limits={"x": (-6, 6)})
    yield make("f32", Log(), [x], limits={"x": (1e-3, 50)})
    yield make("f32_near_one", Log(), [x], limits={"x": (0.9, 1.1)})
    for turn in (Sin(), Cos()):
        yield make("f32", turn, [x])
        yield make("f32_far", turn, [x], limits={"x": (-1e4, 1e4)})
        yield make("f32_very_far", turn, [x], limits={"x": (-1e20, 1e20)})
    for root in (Sqrt(), Rsqrt()):
        yield make("f32", root, [x], limits={"x": (1e-3, 100)})


def cases() -> Iterator[Case]:
    yield from _float_cases()
    out = Quant.tensor(0.04, -20)
    for scale, zero in ((0.05, -12), (0.0021, 100), (0.31, -128)):
        x = int8s("x", (1, 5, 3, 11), scale, zero)
        for op in (Abs(), Elu(), HardSwish()):
            yield make(f"scale_{scale}", op, [x], out)
        lowest = int8s("x", (1, 5, 3, 11), scale, -128)
        yield make(f"scale_{scale}", Rsqrt(), [lowest], Quant.tensor(0.09, -11))
    for scale, out_scale in ((0.001, 0.001), (1 / 32768, 0.01), (0.0005, 0.02)):
        positive = int16s("x", (3, 35), scale)
        yield make(
            f"int16_{scale:.4f}", Rsqrt(), [positive], Quant.tensor(out_scale), limits={"x": (0, 32767)}
        )
    yield make("equal", Abs(), [int8s("x", (3, 17), 0.05, 9)])
    yield make("int16", Abs(), [int16s("x", (3, 35))], Quant.tensor(0.0007))
    near = [int16s("x", (1, 9000), 0.00136619)]
    yield make("int16_near", Abs(), near, Quant.tensor(0.00129418))
    yield make("plain_onnx", Abs(), [plain("x", (3, 35), DType.INT16)], limits={"x": (-32767, 32767)})
    yield make("bool", LogicalNot(), [plain("x", (3, 35), DType.BOOL)])
    numbers = (DType.INT8, DType.INT16, DType.INT32, DType.UINT32, DType.FLOAT32)
    for source in (*numbers, DType.BOOL):
        for to in numbers:
            x = Value("x", (3, 7), source)
            least = 0.0 if to is DType.UINT32 else -120.0
            narrow = {} if source is not DType.FLOAT32 else {"x": (least, 120.0)}
            yield make(f"{source.value}_{to.value}", Cast(to), [x], limits=narrow)
    for to, most in ((DType.INT64, 1.2e19), (DType.INT64, 4e9), (DType.UINT64, 9e18)):
        far = {"x": (0.0 if to is DType.UINT64 else -most, most)}
        yield make(f"f32_{to.value}_{most:.0e}_onnx", Cast(to), [floats("x", (3, 35))], limits=far)
