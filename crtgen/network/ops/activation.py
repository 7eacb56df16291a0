"""Element-wise non-linearities and softmax."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, AxisMap, DType, Op, Quant, Signature, Value
from crtgen.network.ops.attrs import Activation, clamp_float, magnitude, require, require_inputs, tensor_quant
from crtgen.network.ops.case import Case, floats, int8s, int16s, make
from crtgen.network.ops.expr import Expr, Formula, operand
from crtgen.network.ops.fixedpoint import (
    Int64,
    multiply_by_quantized_multiplier,
    quantize_multiplier,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
    single,
)
from crtgen.network.ops.gemmlowp import exp_on_negative_values, logistic, one_over_one_plus_x, tanh
from crtgen.network.ops.scheme import INT8, INT16, Scheme, scheme_of
from crtgen.network.ops.sigmoid16 import Sigmoid16Params, logistic16, require_fraction, tanh16
from crtgen.network.ops.softmax16 import Softmax16Params, softmax16
from crtgen.network.ops.traits import Channelwise, Tabulated, along_all

__all__ = ["Logistic", "Relu", "ReluParams", "SigmoidParams", "Softmax", "SoftmaxParams", "Tanh", "cases"]

_SOFTMAX_INPUT_BITS = 5
_SOFTMAX_SUM_BITS = 12
_SIGMOID_INPUT_BITS = 4
_WIDEST_SOFTMAX = 32768
# Largest relative difference of an int16 scale from the one that softmax assumes.
_NEAR = 0.001


class _Unary(Op):
    """An operator whose single output has the shape and type of its single input."""

    __slots__ = ()

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        scheme_of(inputs[0])
        return ((inputs[0].shape, inputs[0].dtype),)


@dataclass(frozen=True, slots=True)
class SoftmaxParams:
    """Integers of a quantised softmax.

    ``((x - max) << input_left_shift) * input_multiplier / 2**31`` is the exponent in Q5.26; differences below
    ``diff_min`` contribute nothing. The smallest output value represents 0.0, and one step beyond the largest
    represents 1.0.
    """

    input_multiplier: int
    input_left_shift: int
    diff_min: int


@dataclass(frozen=True, slots=True)
class Softmax(_Unary):
    """``exp(beta * x)`` divided by its sum along the last axis. With int8 input, ``to`` may select an int16
    output.
    """

    name: ClassVar[str] = "softmax"

    beta: float = 1.0
    to: DType | None = None

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require(len(inputs) == 1 and len(inputs[0].shape) >= 1, "the input must have a dimension")
        ((shape, dtype),) = _Unary.infer(self, inputs)
        wider = (dtype, self.to) == (DType.INT8, DType.INT16)
        require(self.to in (None, dtype) or wider, f"softmax of {dtype.value} to {self.to}")
        return ((shape, self.to or dtype),)

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        return along_all(sig, axes) if axes[0] != len(sig.x.shape) - 1 else None

    def parameters(self, sig: Signature) -> SoftmaxParams | Softmax16Params:
        """Compute the parameters as TFLite's ``PreprocessSoftmaxScaling`` does. Raises ``ValueError`` for an
        unsupported quantisation of the output.
        """
        x, is_wide = tensor_quant(sig.x), scheme_of(sig.x) is INT16
        _require_probability(sig.y, Quant.tensor(1 / 32768) if is_wide else _probability(scheme_of(sig.y)))
        if is_wide:
            # Exponents of 65,535 steps have to fit into 32 bits: beyond, those of TFLite wrap.
            real = x.scale * single(self.beta) / (10.0 / 65535.0)
            require(
                real < _WIDEST_SOFTMAX,
                f"softmax of int16 with an input scale of {x.scale:g}; supported: up to"
                f" {_WIDEST_SOFTMAX * 10 / 65535:.2g}: quantise with a mask of about -50 instead of one that"
                " leaves no digits for the scores",
            )
            return Softmax16Params(*quantize_multiplier(real, 65535))
        return self.exponents(sig)

    def exponents(self, sig: Signature) -> SoftmaxParams:
        x = tensor_quant(sig.x)
        longest = 1 << _SOFTMAX_SUM_BITS
        depth = sig.x.shape[-1]
        require(depth < longest, f"softmax over {depth:,} elements; supported: fewer than {longest:,}")
        real = min(self.beta * x.scale * (1 << (31 - _SOFTMAX_INPUT_BITS)), 2.0**31 - 1)
        require(real > 1, "the input's scale is too fine for softmax")
        multiplier, shift = quantize_multiplier(real)
        return SoftmaxParams(multiplier, shift, -_radius(_SOFTMAX_INPUT_BITS, shift))

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        if scheme_of(sig.x).is_real:
            x = arrays[0].astype(np.float64)
            real = np.exp(self.beta * (x - x.max(axis=-1, keepdims=True)))
            return ((real / real.sum(axis=-1, keepdims=True)).astype(np.float32),)
        return (self._quantized(sig, arrays[0]),)

    def _quantized(self, sig: Signature, array: Array) -> Array:
        params = self.parameters(sig)
        if isinstance(params, Softmax16Params):
            return softmax16(params, array)
        x, scheme = array.astype(np.int64), scheme_of(sig.y)
        difference = x - x.max(axis=-1, keepdims=True)
        counts = difference >= params.diff_min
        exponent = saturating_rounding_doubling_high_mul(
            np.where(counts, difference, 0) << params.input_left_shift, params.input_multiplier
        )
        powers = exp_on_negative_values(exponent, _SOFTMAX_INPUT_BITS)
        terms = np.where(counts, rounding_divide_by_pot(powers, _SOFTMAX_SUM_BITS), 0)
        total = terms.sum(axis=-1, keepdims=True)
        bits = np.frexp(total.astype(np.float64))[1].astype(np.int64)  # total < 2**bits
        headroom = 32 - bits
        reciprocal = one_over_one_plus_x((total << headroom) - (1 << 31))
        share = saturating_rounding_doubling_high_mul(powers, reciprocal)
        bits_out = 8 * scheme.activations.itemsize
        scaled = rounding_divide_by_pot(share, _SOFTMAX_SUM_BITS - headroom + 31 - bits_out) + scheme.low
        return scheme.saturated(np.where(counts, scaled, scheme.low))


def _probability(scheme: Scheme) -> Quant:
    # The quantisation of what is between 0 and 1: the only one that softmax has.
    return Quant.tensor(1 / (scheme.high - scheme.low + 1), scheme.low)


def _require_probability(value: Value, wanted: Quant) -> None:
    # ``ValueError`` unless TFLite Micro takes the scale for ``wanted``, with which it computes either way.
    # That of int8 has to be equal, that of int16 to 0.1 %.
    quant = tensor_quant(value)
    near = abs(np.float32(quant.scale) - np.float32(wanted.scale)) <= np.float32(_NEAR * wanted.scale)
    fits = near and quant.zero_point == wanted.zero_point and scheme_of(value) is INT16
    require(fits or quant == wanted, f"the output has {quant} instead of {wanted}")


@dataclass(frozen=True, slots=True)
class SigmoidParams:
    """Integers of a quantised logistic or tanh.

    ``(x - input_zero_point) * input_multiplier * 2**(input_left_shift - 31)`` is the argument in Q4.27,
    saturated where ``|x - input_zero_point| >= input_range_radius``.
    """

    input_zero_point: int
    input_range_radius: int
    input_multiplier: int
    input_left_shift: int

    @classmethod
    def of(cls, sig: Signature, output: Quant) -> "SigmoidParams":
        """Compute the parameters from the input's scale. Raises ``ValueError`` unless the output has the one
        allowed quantisation.
        """
        x, y = tensor_quant(sig.x), tensor_quant(sig.y)
        require(y == output, f"the output has {y} instead of {output}")
        multiplier, shift = quantize_multiplier(x.scale * (1 << (31 - _SIGMOID_INPUT_BITS)))
        return cls(x.zero_point, _radius(_SIGMOID_INPUT_BITS, shift), multiplier, shift)


class _Sigmoid(_Unary, Tabulated):
    __slots__ = ()

    output: ClassVar[Quant]
    plain_shifts: ClassVar[tuple[int, ...]]
    """Shifts of an int16 input whose scales are powers of two, so that no multiplier is needed."""

    def parameters(self, sig: Signature) -> SigmoidParams | Sigmoid16Params:
        """Compute the parameters as TFLite Micro's kernels. Raises ``ValueError`` unless the output has the
        one allowed quantisation.
        """
        if scheme_of(sig.x) is INT16:
            require_fraction(tensor_quant(sig.y))
            return Sigmoid16Params.of(tensor_quant(sig.x), self.plain_shifts)
        return SigmoidParams.of(sig, self.output)

    def output_of(self, x: Value) -> Quant:
        # The quantisation of the output for an input.
        return Quant.tensor(1 / 32768) if scheme_of(x) is INT16 else self.output


@dataclass(frozen=True, slots=True)
class Logistic(_Sigmoid):
    """``1 / (1 + exp(-x))``; int8 has scale 1/256 and zero point -128."""

    name: ClassVar[str] = "logistic"
    output: ClassVar[Quant] = Quant.tensor(1 / 256, INT8.low)
    plain_shifts: ClassVar[tuple[int, ...]] = (0,)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        if scheme_of(sig.x).is_real:
            return ((0.5 + 0.5 * np.tanh(arrays[0].astype(np.float64) / 2)).astype(np.float32),)
        p = self.parameters(sig)
        if isinstance(p, Sigmoid16Params):
            return (logistic16(p, arrays[0]),)
        return (_sigmoid(p, arrays[0], logistic, 8, self.output.zero_point),)


@dataclass(frozen=True, slots=True)
class Tanh(_Sigmoid):
    """The hyperbolic tangent; int8 has scale 1/128 and zero point 0."""

    name: ClassVar[str] = "tanh"
    output: ClassVar[Quant] = Quant.tensor(1 / INT8.magnitude(0), 0)
    plain_shifts: ClassVar[tuple[int, ...]] = (0, 1)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        if scheme_of(sig.x).is_real:
            return (np.tanh(arrays[0].astype(np.float64)).astype(np.float32),)
        p = self.parameters(sig)
        if isinstance(p, Sigmoid16Params):
            return (tanh16(p, arrays[0]),)
        return (_sigmoid(p, arrays[0], tanh, 7, 0),)


def _sigmoid(
    params: SigmoidParams, array: Array, function: Callable[[Int64, int], Int64], bits: int, zero_point: int
) -> Array:
    centred = array.astype(np.int64) - params.input_zero_point
    radius = params.input_range_radius
    argument = multiply_by_quantized_multiplier(
        np.where(np.abs(centred) < radius, centred, 0), params.input_multiplier, params.input_left_shift
    )
    inside = rounding_divide_by_pot(function(argument, _SIGMOID_INPUT_BITS), 31 - bits) + zero_point
    saturated = np.where(centred <= -radius, INT8.low, np.where(centred >= radius, INT8.high, inside))
    return INT8.saturated(saturated)


def _radius(integer_bits: int, left_shift: int) -> int:
    # The greatest input whose scaled value stays within Q<integer_bits> (``CalculateInputRadius``).
    return math.floor(((1 << integer_bits) - 1) * 2.0 ** (31 - integer_bits - left_shift))


@dataclass(frozen=True, slots=True)
class ReluParams:
    """Integers of a quantised clamp.

    ``y = clamp(output_offset + (x + input_offset) * multiplier * 2**(shift - 31))``.
    """

    input_offset: int
    output_offset: int
    multiplier: int
    shift: int
    act_min: int
    act_max: int


@dataclass(frozen=True, slots=True)
class Relu(Formula, _Unary, Channelwise):
    """A clamp as a layer of its own; it requantises if the quantisations of input and output differ."""

    name: ClassVar[str] = "relu"
    monotonic: ClassVar[bool] = True

    kind: Activation = Activation.RELU

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        return along_all(sig, axes)

    def parameters(self, sig: Signature) -> ReluParams:
        """Compute the factor ``in / out`` in double, as TFLite Micro."""
        x, y = tensor_quant(sig.x), tensor_quant(sig.y)
        factor = quantize_multiplier(x.scale / y.scale, magnitude(sig.x))
        low, high = self.kind.quantized_range(sig.y)
        return ReluParams(-x.zero_point, y.zero_point, *factor, act_min=low, act_max=high)

    def formula(self, sig: Signature) -> Expr | None:
        if scheme_of(sig.x).is_real:
            return None
        p = self.parameters(sig)
        scaled = (operand(sig) + p.input_offset).scaled(p.multiplier, p.shift)
        return (scaled + p.output_offset).clamped(p.act_min, p.act_max)

    def plain(self, sig: Signature, arrays: Sequence[Array]) -> Array:
        return clamp_float(arrays[0].astype(np.float64), self.kind)


@dataclass(frozen=True, slots=True)
class LeakyReluParams:
    """Integers of a quantised leaky relu: one multiplier and shift for inputs below the zero point, one for
    others.

    ``y = clamp(output_offset + (x + input_offset) * multiplier * 2**(shift - 31))``.
    """

    input_offset: int
    output_offset: int
    below: tuple[int, int]
    above: tuple[int, int]


def _signed_multiplier(factor: float, bound: int) -> tuple[int, int]:
    # ``QuantizeMultiplier``, for factors that may be negative or zero.
    if factor == 0:
        return 0, 0
    multiplier, shift = quantize_multiplier(abs(factor), bound)
    return (multiplier if factor > 0 else -multiplier), shift


@dataclass(frozen=True, slots=True)
class LeakyRelu(Formula, _Unary, Tabulated):
    name: ClassVar[str] = "leaky_relu"

    alpha: float = 0.2

    def parameters(self, sig: Signature) -> LeakyReluParams:
        """Compute the factors ``in * alpha / out`` and ``in / out`` in double, as TFLite Micro."""
        x, y = tensor_quant(sig.x), tensor_quant(sig.y)
        factors = (x.scale * single(self.alpha) / y.scale, x.scale / y.scale)
        below, above = (_signed_multiplier(f, magnitude(sig.x)) for f in factors)
        return LeakyReluParams(-x.zero_point, y.zero_point, below, above)

    def formula(self, sig: Signature) -> Expr | None:
        if scheme_of(sig.x).is_real:
            return None
        p = self.parameters(sig)
        x = operand(sig) + p.input_offset
        scaled = x.split(lambda x: x.scaled(*p.above), lambda x: x.scaled(*p.below))
        return (scaled + p.output_offset).clamped(*scheme_of(sig.y).limits)

    def plain(self, sig: Signature, arrays: Sequence[Array]) -> Array:
        x = arrays[0].astype(np.float64)
        return np.where(x > 0, x, x * self.alpha).astype(np.float32)


def cases() -> Iterator[Case]:
    probability = Quant.tensor(1 / 256, -128)
    for name, scale, zero in (
        ("fine", 0.0004, 5),
        ("plain", 0.06, -12),
        ("coarse", 1.7, 100),
        ("huge", 15.0, 0),
    ):
        yield make(name, Softmax(), [int8s("x", (1, 10), scale, zero)], probability)
        yield make(name, Logistic(), [int8s("x", (2, 7, 19), scale, zero)], Logistic.output)
        yield make(name, Tanh(), [int8s("x", (2, 7, 19), scale, zero)], Tanh.output)
    yield make("rows", Softmax(0.5), [int8s("x", (3, 4, 33), 0.1, -128)], probability)
    yield make("pair", Softmax(), [int8s("x", (1, 2), 0.09, 127)], probability)
    yield make("long", Softmax(), [int8s("x", (2, 600), 0.1)], probability)
    yield make("single", Softmax(2.0), [int8s("x", (5, 1), 0.1)], probability)
    short = Quant.tensor(1.5259e-05, -32768)  # nearly 1/65536, as converters have written it
    for scale in (0.004, 0.1, 1.7):
        x = int8s("x", (2, 5, 33), scale, 9)
        yield make(f"int8_int16_{scale}", Softmax(to=DType.INT16), [x], short)
        yield make(
            f"int16_{scale}", Softmax(), [int16s("x", (2, 5, 33), scale / 256)], Quant.tensor(1 / 32768)
        )
    near = Quant.tensor(1.0009 / 32768)
    yield make("int16_long", Softmax(0.5), [int16s("x", (2, 1200), 0.0004)], near)
    yield make("f32_rows", Softmax(0.75), [floats("x", (3, 17))])
    yield make("f32_image", Softmax(), [floats("x", (2, 5, 13))])
    yield make("f32", Logistic(), [floats("x", (1, 5, 9))])
    yield make("f32", Tanh(), [floats("x", (1, 5, 9))])
    for scale in (1 / 4096, 1 / 2048, 0.00031, 0.0007, 0.01):
        for op in (Logistic(), Tanh()):
            x = int16s("x", (3, 211), scale)
            yield make(f"int16_{scale:.5f}", op, [x], op.output_of(x))
    yield make("int16", Relu(), [int16s("x", (3, 35))], Quant.tensor(0.0007))
    x = int16s("x", (1, 9000), 0.00136619)
    yield make("int16_near", Relu(), [x], Quant.tensor(0.00129418))
    yield make("int16_relu6", Relu(Activation.RELU6), [int16s("x", (3, 35))])
    for alpha in (0.3, -0.25):
        yield make(f"int16_{alpha}", LeakyRelu(alpha), [int16s("x", (3, 211))], Quant.tensor(0.0006))
    for kind in (Activation.RELU, Activation.RELU6, Activation.RELU_N1_1, Activation.RELU_0_1):
        name, x = kind.value, int8s("x", (1, 5, 3, 11), 0.06, -9)
        yield make(name, Relu(kind), [x])
        yield make(f"{name}_requantised", Relu(kind), [x], Quant.tensor(0.023, -128))
        yield make(f"{name}_f32", Relu(kind), [floats("x", (3, 35))])
    coarse = int8s("x", (1, 3, 35), 2.1, 4)
    yield make("coarse", Relu(Activation.RELU_N1_1), [coarse])  # one number is left
    for alpha in (0.125, 0.0, -0.25, 1.5):
        x, out = int8s("x", (1, 5, 3, 11), 0.06, -9), Quant.tensor(0.05, -20)
        yield make(f"alpha_{alpha}", LeakyRelu(alpha), [x], out)
        yield make(f"alpha_{alpha}_f32", LeakyRelu(alpha), [floats("x", (3, 35))])
