"""Element-wise operators of two operands: ``add``, ``sub``, ``mul``, with numpy's broadcasting."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Quant, Signature, Value
from crtgen.network.ops.attrs import Activation, clamp_float, magnitude, require, tensor_quant
from crtgen.network.ops.case import Case, by_float32, floats, int8s, int16s, make, plain
from crtgen.network.ops.elementwise import Elementwise, Numbers, wide
from crtgen.network.ops.expr import Expr, Formula, operand
from crtgen.network.ops.fixedpoint import quantize_multiplier, single
from crtgen.network.ops.rescaling import by_float, fused_sum, product_factors
from crtgen.network.ops.scheme import INT8, INT16, is_plain, scheme_of
from crtgen.network.ops.traits import Clamping

__all__ = ["Add", "AddParams", "FusedAddParams", "Mul", "MulParams", "Sub", "cases"]


@dataclass(frozen=True, slots=True)
class AddParams:
    """Integers of a quantised addition or subtraction.

    ``a = ((x0 + input1_offset) << left_shift) * input1_multiplier * 2**(input1_shift - 31)``, ``b`` likewise,
    ``y = clamp(output_offset + (a ± b) * output_multiplier * 2**(output_shift - 31))``; shifts are <= 0.
    """

    left_shift: int
    input1_offset: int
    input1_multiplier: int
    input1_shift: int
    input2_offset: int
    input2_multiplier: int
    input2_shift: int
    output_offset: int
    output_multiplier: int
    output_shift: int
    act_min: int
    act_max: int


@dataclass(frozen=True, slots=True)
class MulParams:
    """Integers of a quantised multiplication.

    ``y = clamp(output_offset + (x0 + input1_offset) * (x1 + input2_offset) * multiplier * 2**(shift - 31))``.
    If there is a ``factor``, a float32 product with it takes the place of multiplier and shift, which then
    only approximate it.
    """

    input1_offset: int
    input2_offset: int
    output_offset: int
    output_multiplier: int
    output_shift: int
    act_min: int
    act_max: int
    factor: float | None = None


@dataclass(frozen=True, slots=True)
class FusedAddParams:
    """Parameters of an addition in float32.

    ``y = clamp(rint(fma(x0 + 128, factors[0], fma(x1 + 128, factors[1], start))) - 128)``, where each fma is
    rounded once and ``start`` contains the zero points. ONNX Runtime computes sums of int8 in the same way as
    sums of uint8.
    """

    factors: tuple[float, float]
    start: float
    act_min: int
    act_max: int

    @classmethod
    def of(cls, a: Quant, b: Quant, y: Quant, limits: tuple[int, int]) -> "FusedAddParams":
        """Compute the parameters as ONNX Runtime does: each step in float32, and one product with a zero
        point within an fma.
        """
        first, second = single(a.scale / y.scale), single(b.scale / y.scale)
        a_zero, b_zero, y_zero = (quant.zero_point - INT8.low for quant in (a, b, y))
        zeros = single(first * a_zero + single(second * b_zero))
        return cls((first, second), single(y_zero - zeros), *limits)


class _Binary(Formula, Elementwise, Clamping):
    """``x0, x1 -> the broadcast shape``; both operands have one type.

    Integers without quantisation are plain integers of any width, and wrap as in numpy.
    """

    __slots__ = ()

    operands: ClassVar[int] = 2

    def require_types(self, inputs: Sequence[Value]) -> None:
        a, b = inputs
        if is_plain(a):
            require(is_plain(b), f"{b.name} is quantised, {a.name} is not")
        else:
            scheme_of(a)
        Elementwise.require_types(self, inputs)

    def formula(self, sig: Signature) -> Expr | None:
        if is_plain(sig.x) or scheme_of(sig.x).is_real:
            return None
        return self._quantized(sig, operand(sig, 0), operand(sig, 1))

    def plain(self, sig: Signature, arrays: Sequence[Array]) -> Array:
        result = self._apply(*(wide(v, x) for v, x in zip(sig.inputs, arrays, strict=True)))
        if not is_plain(sig.x):
            return clamp_float(result, self.activation)
        whole = result.astype(sig.x.dtype.numpy)
        return np.clip(whole, *self.activation.whole_range(sig.y)).astype(whole.dtype)

    @abstractmethod
    def _apply(self, a: Numbers, b: Numbers) -> Numbers: ...

    @abstractmethod
    def _quantized(self, sig: Signature, a: Expr, b: Expr) -> Expr | None:
        """Return the quantised result as an expression, or None if it is computed in float32."""


class _Sum(_Binary):
    # Addition and subtraction: both operands are first brought to a common scale.

    __slots__ = ()

    sign: ClassVar[int]

    def parameters(self, sig: Signature) -> AddParams | FusedAddParams:
        # Factors in double, relative to twice the larger input scale, as TFLite Micro's.
        a, b, y = (tensor_quant(v) for v in (*sig.inputs, sig.y))
        if by_float(sig.y):
            require(self.sign > 0, "only sums are rescaled in float32")
            return FusedAddParams.of(a, b, y, self.activation.quantized_range(sig.y))
        left_shift = 15 if scheme_of(sig.y) is INT16 else 20
        twice = 2 * max(a.scale, b.scale)
        finest = twice / (1 << left_shift)
        require(finest < y.scale, "the output's scale is too fine for its inputs' scales")
        factors = (a.scale / twice, b.scale / twice, finest / y.scale)
        first, second, last = (quantize_multiplier(f) for f in factors)
        return AddParams(
            left_shift,
            -a.zero_point,
            *first,
            -b.zero_point,
            *second,
            y.zero_point,
            *last,
            *self.activation.quantized_range(sig.y),
        )

    def _apply(self, a: Numbers, b: Numbers) -> Numbers:
        return a + b if self.sign > 0 else a - b

    def _quantized(self, sig: Signature, a: Expr, b: Expr) -> Expr | None:
        p = self.parameters(sig)
        if isinstance(p, FusedAddParams):
            return None
        left = ((a + p.input1_offset) << p.left_shift).scaled(p.input1_multiplier, p.input1_shift)
        right = ((b + p.input2_offset) << p.left_shift).scaled(p.input2_multiplier, p.input2_shift)
        total = left + right if self.sign > 0 else left - right
        scaled = total.scaled(p.output_multiplier, p.output_shift)
        return (scaled + p.output_offset).clamped(p.act_min, p.act_max)

    def plain(self, sig: Signature, arrays: Sequence[Array]) -> Array:
        if not by_float(sig.y):
            return _Binary.plain(self, sig, arrays)
        p = self.parameters(sig)
        assert isinstance(p, FusedAddParams)
        a, b = (x.astype(np.int64) - INT8.low for x in arrays)
        total = fused_sum(a, b, p.factors, p.start) + INT8.low
        return scheme_of(sig.y).saturated(total, p.act_min, p.act_max)


@dataclass(frozen=True, slots=True)
class Add(_Sum):
    name: ClassVar[str] = "add"
    monotonic: ClassVar[bool] = True
    sign: ClassVar[int] = 1

    activation: Activation = Activation.NONE


@dataclass(frozen=True, slots=True)
class Sub(_Sum):
    name: ClassVar[str] = "sub"
    sign: ClassVar[int] = -1

    activation: Activation = Activation.NONE

    def bounds(self, sig: Signature, low: Sequence[Array], high: Sequence[Array]) -> tuple[Array, Array]:
        return self.reference(sig, [low[0], high[1]])[0], self.reference(sig, [high[0], low[1]])[0]


@dataclass(frozen=True, slots=True)
class Mul(_Binary):
    name: ClassVar[str] = "mul"

    activation: Activation = Activation.NONE

    def parameters(self, sig: Signature) -> MulParams:
        """Compute the factor ``in1 * in2 / out`` in double."""
        a, b, y = (tensor_quant(v) for v in (*sig.inputs, sig.y))
        bound = magnitude(sig.inputs[0]) * magnitude(sig.inputs[1])
        exact = None
        if by_float(sig.y):
            exact = float(product_factors(a.scale, [b.scale], y.scale, [bound])[0])
            bound = 0
        factor = quantize_multiplier(a.scale * b.scale / y.scale, bound)
        clamp = self.activation.quantized_range(sig.y)
        return MulParams(-a.zero_point, -b.zero_point, y.zero_point, *factor, *clamp, exact)

    def bounds(self, sig: Signature, low: Sequence[Array], high: Sequence[Array]) -> tuple[Array, Array]:
        """Return the bounds: the result is linear in each factor, so its extremes are at the corners."""
        corners = [self.reference(sig, pair)[0] for pair in product(*zip(low, high, strict=True))]
        return np.minimum.reduce(corners), np.maximum.reduce(corners)

    def _apply(self, a: Numbers, b: Numbers) -> Numbers:
        return a * b

    def _quantized(self, sig: Signature, a: Expr, b: Expr) -> Expr:
        p = self.parameters(sig)
        product = (a + p.input1_offset) * (b + p.input2_offset)
        if p.factor is None:
            scaled = product.scaled(p.output_multiplier, p.output_shift)
        else:
            scaled = product.rounded(p.factor)
        return (scaled + p.output_offset).clamped(p.act_min, p.act_max)


def cases() -> Iterator[Case]:
    out = Quant.tensor(0.09, -7)
    far = [int8s("a", (1, 5, 3, 7), 0.0388, -78), int8s("b", (1, 5, 3, 7), 2.95, 127)]
    symmetric = [int8s("a", (1, 6, 6, 8), 0.0217, -8), int8s("b", (1, 6, 6, 8), 0.0436, 32)]
    yield make("symmetric", Add(), symmetric, Quant.tensor(0.0524, -104))
    yield make("far_constant", Sub(Activation.RELU), far, Quant.tensor(0.384, 54))
    for kind in (Add, Sub, Mul):
        a, b = int8s("a", (1, 5, 3, 7), 0.05, -12), int8s("b", (1, 5, 3, 7), 0.013, 40)
        yield make("same_shape", kind(), [a, b], out)
        yield make("relu", kind(Activation.RELU), [a, b], Quant.tensor(0.11, -128))
        yield make("relu6", kind(Activation.RELU6), [b, a], Quant.tensor(0.04, -60))
        yield make("channels", kind(), [a, int8s("b", (7,), 0.2, 127)], Quant.tensor(0.5, 1))
        beyond = [int8s(n, (1, 3, 9), 0.1, -128) for n in ("a", "b")]  # sums are at the limit
        yield make("beyond", kind(), beyond, Quant.tensor(0.2, 127))
        yield make("scalar", kind(), [a, int8s("b", (), 0.02, -128)], out)
        yield make("outer", kind(), [int8s("a", (1, 4, 1, 3)), int8s("b", (2, 1, 5, 1), 0.07, 9)], out)
        constant = Value.constant("b", np.arange(-60, 45, dtype=np.int8).reshape(5, 3, 7), b.quant)
        yield make("constant", kind(Activation.RELU_N1_1), [a, constant], out)
        wide = int8s("a", (1, 8, 8, 16), 0.03, -128)
        yield make("wide", kind(Activation.RELU), [wide, int8s("b", (1, 8, 8, 16), 0.04, 3)], out)
        yield make("f32", kind(Activation.RELU), [floats("a", (1, 5, 3, 7)), floats("b", (1, 5, 3, 7))])
        yield make("f32_outer", kind(), [floats("a", (4, 1, 3)), floats("b", (2, 1, 5, 1))])
        short = [int16s("a", (1, 5, 3, 7)), int16s("b", (7,), 0.0002)]
        yield make("int16", kind(), short, Quant.tensor(0.0007))
        yield make("int16_relu6", kind(Activation.RELU6), short[:1] * 2, Quant.tensor(0.0003))
        near = {"a": (-40000.0, 40000.0), "b": (-40000.0, 40000.0)}
        yield make("int32", kind(), [plain("a", (4, 1, 3)), plain("b", (5, 1))], limits=near)
        for dtype in (d for d in DType if d.is_integer and d not in (DType.INT4, DType.INT32)):
            low = 0.0 if dtype.numpy.kind == "u" else -100.0
            pair = [plain("a", (4, 1, 3), dtype), plain("b", (5, 1), dtype)]
            yield make(f"{dtype.value}_onnx", kind(), pair, limits={"a": (low, 100.0), "b": (low, 100.0)})
    for kind in (Add, Mul):
        a, b = int8s("a", (1, 5, 3, 7), 0.05, -12), int8s("b", (1, 5, 3, 7), 0.013, 40)
        yield by_float32(make("same_shape", kind(), [a, b], out))
        yield by_float32(make("scalar", kind(Activation.RELU), [a, int8s("b", (), 0.02, -128)], out))
        halves = [int8s("a", (1, 5, 3, 8), 0.5, -3), int8s("b", (1, 5, 3, 8), 0.25, 2)]
        yield by_float32(make("halves", kind(), halves, Quant.tensor(1.0, 5)))
        yield make("halves", kind(Activation.RELU), halves, Quant.tensor(1.0, 5))
        far = [int8s("a", (1, 8, 8, 16), 0.03, -128), int8s("b", (1, 8, 8, 16), 0.04, 3)]
        yield by_float32(make("far", kind(), far, Quant.tensor(0.05, -128)))
    clamped = [plain("a", (3, 7)), plain("b", (3, 7))]
    for kind in (Sub, Mul):
        yield make("int32_relu6", kind(Activation.RELU6), clamped, limits={"a": (-9, 9), "b": (-9, 9)})
