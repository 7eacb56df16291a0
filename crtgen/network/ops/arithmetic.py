"""Element-wise arithmetic other than sums and products: quotients, squared differences, ``add_n``,
``prelu``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Quant, Signature, Value
from crtgen.network.ops.attrs import Activation, clamp_float, magnitude, require, tensor_quant
from crtgen.network.ops.case import Case, floats, int8s, int16s, make, plain
from crtgen.network.ops.elementwise import Elementwise, wide
from crtgen.network.ops.expr import Expr, Formula, operand
from crtgen.network.ops.fixedpoint import (
    Int64,
    quantize_multiplier,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
    single,
)
from crtgen.network.ops.gemmlowp import one_over_one_plus_x
from crtgen.network.ops.scheme import INT16, is_plain, scheme_of
from crtgen.network.ops.traits import Clamping

__all__ = [
    "AddN",
    "AddNParams",
    "Div",
    "DivParams",
    "FloorDiv",
    "FloorMod",
    "Pow",
    "Prelu",
    "PreluParams",
    "SquaredDifference",
    "SquaredDifferenceParams",
    "cases",
]


@dataclass(frozen=True, slots=True)
class DivParams:
    """Integers of a quantised quotient; ``multiplier`` and ``shift`` represent ``in1 / in2 / out``."""

    input1_offset: int
    input2_offset: int
    output_offset: int
    output_multiplier: int
    output_shift: int
    act_min: int
    act_max: int


@dataclass(frozen=True, slots=True)
class Div(Elementwise, Clamping):
    """``x0 / x1``; integers are truncated towards zero.

    An integer divided by zero is zero, and a quantised divisor that represents zero counts as the next larger
    value; TFLite Micro leaves both undefined. Quantised quotients near zero are those of TFLite Micro built
    for x86, where shifts may exceed 31 bits.
    """

    name: ClassVar[str] = "div"
    operands: ClassVar[int] = 2

    activation: Activation = Activation.NONE

    def parameters(self, sig: Signature) -> DivParams:
        a, b, y = (tensor_quant(v) for v in (*sig.inputs, sig.y))
        factor = quantize_multiplier(a.scale / (b.scale * y.scale))
        clamp = self.activation.quantized_range(sig.y)
        return DivParams(-a.zero_point, -b.zero_point, y.zero_point, *factor, *clamp)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        a, b = (wide(v, x) for v, x in zip(sig.inputs, arrays, strict=True))
        if sig.x.dtype is DType.FLOAT32:
            with np.errstate(divide="ignore", invalid="ignore"):
                return (clamp_float(a / b, self.activation),)
        if sig.x.quant is None and sig.x.dtype.numpy.kind == "u":
            a, b = (x.astype(np.uint64) for x in arrays)
            quotient = np.where(b == 0, np.uint64(0), a // np.maximum(b, np.uint64(1)))
            return (quotient.astype(sig.y.dtype.numpy),)
        if sig.x.quant is None:
            cut = np.sign(a) * np.sign(b) * (np.abs(a) // np.maximum(np.abs(b), 1))
            low, high = self.activation.whole_range(sig.y)
            return (np.clip(cut.astype(sig.y.dtype.numpy), low, high).astype(sig.y.dtype.numpy),)
        return (self._quantized(sig, a, b),)

    def _quantized(self, sig: Signature, a: Int64, b: Int64) -> Array:
        p = self.parameters(sig)
        a, b = np.broadcast_arrays(a + p.input1_offset, b + p.input2_offset)
        a, b = np.where(b < 0, -a, a), np.where(b == 0, 1, np.abs(b))
        bits = np.frexp(b.astype(np.float64))[1].astype(np.int64)  # b < 2**bits
        inverse = one_over_one_plus_x((b << (32 - bits)) - (1 << 31))
        headroom = 31 - np.frexp(np.where(a < 0, -a - 1, a).astype(np.float64))[1].astype(np.int64)
        quotient = saturating_rounding_doubling_high_mul(a << headroom, inverse)
        high = saturating_rounding_doubling_high_mul(quotient, p.output_multiplier)
        right = headroom + (bits - 1) - p.output_shift
        if right.min(initial=0) < 0:
            raise ValueError("the output's scale is too fine for its inputs' scales")
        far = (high >> (right & 31)) + (high > (high < 0) - 1)
        scaled = np.where(right > 31, far, rounding_divide_by_pot(high, np.minimum(right, 31)))
        return scheme_of(sig.y).saturated(scaled + p.output_offset, p.act_min, p.act_max)


@dataclass(frozen=True, slots=True)
class FloorDiv(Elementwise):
    name: ClassVar[str] = "floor_div"
    operands: ClassVar[int] = 2

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        a, b = (x.astype(np.float32) for x in arrays)
        with np.errstate(divide="ignore", invalid="ignore"):
            return (np.floor(a / b),)


@dataclass(frozen=True, slots=True)
class FloorMod(Elementwise):
    name: ClassVar[str] = "floor_mod"
    operands: ClassVar[int] = 2

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        a, b = (x.astype(np.float32) for x in arrays)
        with np.errstate(invalid="ignore"):
            rest = np.fmod(a, b)
        return (np.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest),)


@dataclass(frozen=True, slots=True)
class Pow(Elementwise):
    name: ClassVar[str] = "pow"
    operands: ClassVar[int] = 2

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        a, b = (x.astype(np.float64) for x in arrays)
        with np.errstate(all="ignore"):
            return (np.power(a, b).astype(np.float32),)


@dataclass(frozen=True, slots=True)
class SquaredDifferenceParams:
    """``a = ((x0 + offset1) << left_shift) * multiplier1 * 2**(shift1 - 31)``, ``b`` likewise,
    ``y = clamp(output_offset + (a - b)**2 * multiplier * 2**(shift - 31))``."""

    left_shift: int
    first: tuple[int, int, int]
    second: tuple[int, int, int]
    output_offset: int
    multiplier: int
    shift: int


@dataclass(frozen=True, slots=True)
class SquaredDifference(Formula, Elementwise):
    name: ClassVar[str] = "squared_difference"
    operands: ClassVar[int] = 2

    def parameters(self, sig: Signature) -> SquaredDifferenceParams:
        """Compute the factors in double, relative to twice the larger input scale, as TFLite Micro does."""
        a, b, y = (tensor_quant(v) for v in (*sig.inputs, sig.y))
        left = 0 if scheme_of(sig.x) is INT16 else 7
        twice = 2 * max(a.scale, b.scale)
        first, second = ((-q.zero_point, *quantize_multiplier(q.scale / twice)) for q in (a, b))
        factor = quantize_multiplier(twice * twice / single((1 << 2 * left) * y.scale))
        return SquaredDifferenceParams(left, first, second, y.zero_point, *factor)

    def formula(self, sig: Signature) -> Expr | None:
        if is_plain(sig.x) or scheme_of(sig.x).is_real:
            return None
        p = self.parameters(sig)
        a, b = (
            ((operand(sig, i) + offset) << p.left_shift).scaled(*factor)
            for i, (offset, *factor) in enumerate((p.first, p.second))
        )
        square = ((a - b) * (a - b)).scaled(p.multiplier, p.shift)
        return (square + p.output_offset).clamped(*scheme_of(sig.y).limits)

    def plain(self, sig: Signature, arrays: Sequence[Array]) -> Array:
        a, b = (wide(v, x) for v, x in zip(sig.inputs, arrays, strict=True))
        return np.asarray(np.square(a - b), sig.x.dtype.numpy)


@dataclass(frozen=True, slots=True)
class AddNParams:
    """``y = clamp(output_offset + sum(((x + input_offset) << 20) / 2) * multiplier * 2**(shift - 31))``.

    As in TFLite Micro, the sum begins with ``input_offset``, which is scaled like an operand.
    """

    input_offset: int
    output_offset: int
    multiplier: int
    shift: int


@dataclass(frozen=True, slots=True)
class AddN(Formula, Elementwise):
    name: ClassVar[str] = "add_n"
    monotonic: ClassVar[bool] = True

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require(len(inputs) > 1, "it has fewer than two inputs")
        self.require_types(inputs)
        for value in inputs:
            require(value.shape == inputs[0].shape, f"{value.name} has another shape than {inputs[0].name}")
        return ((inputs[0].shape, inputs[0].dtype),)

    def parameters(self, sig: Signature) -> AddNParams:
        x, y = tensor_quant(sig.x), tensor_quant(sig.y)
        require(all(v.quant == x for v in sig.inputs), "the inputs are quantised differently")
        finest = 2 * x.scale / (1 << 20)
        require(finest < y.scale, "the output's scale is too fine for its inputs' scale")
        return AddNParams(-x.zero_point, y.zero_point, *quantize_multiplier(finest / y.scale))

    def formula(self, sig: Signature) -> Expr | None:
        if scheme_of(sig.x).is_real:
            return None
        p, count = self.parameters(sig), len(sig.inputs)
        total = reduce(add, (operand(sig, i) for i in range(count))) + (count + 1) * p.input_offset
        scaled = (total << 19).scaled(p.multiplier, p.shift)
        return (scaled + p.output_offset).clamped(*scheme_of(sig.y).limits)

    def plain(self, sig: Signature, arrays: Sequence[Array]) -> Array:
        return np.asarray(np.sum([x.astype(np.float64) for x in arrays], axis=0), np.float32)


@dataclass(frozen=True, slots=True)
class PreluParams:
    """``y = clamp(output_offset + (x + input_offset) * multiplier * 2**(shift - 31))`` for inputs above zero;
    below, a second multiplier and shift are used, and ``alpha + alpha_offset`` is an additional factor.
    """

    input_offset: int
    alpha_offset: int
    output_offset: int
    above: tuple[int, int]
    below: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Prelu(Formula, Elementwise):
    """``x0`` if not negative, otherwise ``x0 * x1``; for int16 the slopes ``x1`` are int8."""

    name: ClassVar[str] = "prelu"
    operands: ClassVar[int] = 2

    def require_types(self, inputs: Sequence[Value]) -> None:
        x, alpha = inputs
        expected = scheme_of(x).weights
        require(alpha.dtype is expected, f"slopes of {alpha.dtype.value} on {x.dtype.value}")

    def parameters(self, sig: Signature) -> PreluParams:
        """Compute the factors ``in / out`` and ``in * alpha / out`` in double."""
        x, alpha, y = (tensor_quant(v) for v in (*sig.inputs, sig.y))
        bound = magnitude(sig.x)
        above = quantize_multiplier(x.scale / y.scale, bound)
        below = quantize_multiplier(x.scale * alpha.scale / y.scale, bound * magnitude(sig.inputs[1]))
        return PreluParams(-x.zero_point, -alpha.zero_point, y.zero_point, above, below)

    def formula(self, sig: Signature) -> Expr | None:
        if scheme_of(sig.x).is_real:
            return None
        p = self.parameters(sig)
        x, alpha = operand(sig, 0) + p.input_offset, operand(sig, 1) + p.alpha_offset
        y = x.split(lambda x: x.scaled(*p.above), lambda x: (x * alpha).scaled(*p.below))
        return (y + p.output_offset).clamped(*scheme_of(sig.y).limits)

    def plain(self, sig: Signature, arrays: Sequence[Array]) -> Array:
        x, alpha = (wide(v, a) for v, a in zip(sig.inputs, arrays, strict=True))
        return np.where(x >= 0, x, x * alpha).astype(np.float32)


def cases() -> Iterator[Case]:
    pairs = ((2, 5, 7), (2, 5, 7)), ((4, 1, 3), (5, 1)), ((3, 5), ())
    for number, (a, b) in enumerate(pairs):
        real = [floats("a", a), floats("b", b)]
        positive = {"b": (0.25, 4.0)}
        for op in (Div(), Div(Activation.RELU6), FloorDiv(), FloorMod()):
            clamp = f"_{op.activation.value}" if isinstance(op, Div) and number == 0 else ""
            if not isinstance(op, Div) or op.activation is Activation.NONE or clamp:
                yield make(f"f32{number}{clamp}", op, real, limits=positive)
        yield make(f"f32{number}_onnx", Pow(), real, limits={"a": (0.1, 4.0), "b": (-3.0, 3.0)})
        yield make(f"f32{number}", SquaredDifference(), real)
        yield make(f"f32{number}", Prelu(), real)
        whole = [plain("a", a), plain("b", b)]
        yield make(f"int32{number}", Div(), whole, limits={"b": (1, 90000)})
        for dtype in (d for d in DType if d.is_integer and d not in (DType.INT4, DType.INT32)):
            limits = {"a": (0.0 if dtype.numpy.kind == "u" else -100.0, 100.0), "b": (1.0, 9.0)}
            yield make(
                f"{dtype.value}{number}_onnx",
                Div(),
                [plain("a", a, dtype), plain("b", b, dtype)],
                limits=limits,
            )
        yield make(
            f"int32{number}", SquaredDifference(), whole, limits={"a": (-20000, 20000), "b": (-20000, 20000)}
        )
        eight = [int8s("a", a, 0.05, -12), int8s("b", b, 0.021, -128)]
        yield make(f"int8{number}", Div(), eight, Quant.tensor(0.4, -7), limits={"b": (-127, 127)})
        yield make(f"int8{number}", SquaredDifference(), eight, Quant.tensor(0.31, -100))
        yield make(f"int8{number}", Prelu(), [eight[0], int8s("b", b, 0.01, 3)], Quant.tensor(0.06, 5))
        short = [int16s("a", a), int16s("b", b, 0.0002)]
        yield make(f"int16{number}", SquaredDifference(), short, Quant.tensor(0.01))
        yield make(f"int16{number}", Prelu(), [short[0], int8s("b", b, 0.01)], Quant.tensor(0.0006))
    negative = [int8s("a", (3, 41), 0.05, 9), int8s("b", (3, 41), 0.5, 127)]
    yield make(
        "negative", Div(Activation.RELU), negative, Quant.tensor(0.02, -128), limits={"b": (-128, 126)}
    )
    three = [floats(n, (3, 41)) for n in "abc"]
    yield make("f32", AddN(), three)
    for count in (2, 4):
        many = [int8s(f"x{i}", (3, 41), 0.05, 9) for i in range(count)]
        yield make(f"int8_{count}", AddN(), many, Quant.tensor(0.11, -5))
