"""Convolutions ``conv2d`` and ``depthwise_conv2d``, with the integer arithmetic of TFLite.

An accumulator is ``acc[o] = bias[o] + sum((x + input_offset) * w)`` over the taps of a window, in 32 bits for
int8 and in 64 bits for int16. The output is ``clamp(output_offset + acc * m * 2**(s - 31))``, where the real
factor ``scale_x * scale_w / scale_y`` of a channel is the multiplier ``m`` in [2**30, 2**31) with the shift
``s``. TFLite rounds twice for int8 (a rounding doubling high product, then a rounding shift), and once for
int16, with 15 bits of the multiplier. Rounding is part of the result, so the reference below follows it step
by step; kernels use cheaper forms that are proven equal (``crtgen.compiler.kernels.arithmetic.requant``).

ONNX networks are rescaled by a float32 product with ties to even, as ONNX Runtime does on a PC.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, DType, Index, Quant, Signature, Value, shape_text
from crtgen.network.ops.attrs import (
    NO_PADDING,
    Activation,
    Padding,
    clamp_float,
    magnitude,
    padded_elements,
    require,
    require_inputs,
    tensor_quant,
)
from crtgen.network.ops.case import (
    Case,
    by_float32,
    floats,
    in_eight_bits,
    in_four_bits,
    in_powers_of_two,
    int8s,
    int16s,
    make,
    of_few_values,
    of_few_values_each,
    weights_and_bias,
)
from crtgen.network.ops.fixedpoint import (
    Int64,
    multiply_by_quantized_multiplier,
    multiply_wide,
    quantize_multiplier,
    single,
)
from crtgen.network.ops.rescaling import Factors, by_float, product_factors, rounded_product
from crtgen.network.ops.scheme import INT8, INT16, Scheme, scheme_of
from crtgen.network.ops.traits import Clamping, Real, Weighted, Windowed

__all__ = [
    "Conv2d",
    "ConvParams",
    "DepthwiseConv2d",
    "cases",
    "check_weights",
    "pad_image",
    "parameters_of",
    "real_weights",
    "signed_sums",
    "sum_bounds",
    "weight_scales",
    "window_tap",
]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ConvParams:
    """Integers of a quantised convolution or fully connected layer.

    ``y[o] = clamp(output_offset + acc[o] * multipliers[o] * 2**(shifts[o] - 31))`` where ``acc[o]`` is
    ``bias[o] + sum((x + input_offset) * w)``; a positive shift is to the left. ``wide`` sums have 64 bits,
    and only 15 bits of the multiplier are used (``multiply_wide``). If there are ``factors``, a float32
    product with them is used instead (``rounded_product``), and multipliers and shifts only approximate them.
    ``is_sum``: the output is the accumulator itself, and only ``input_offset`` is used.
    """

    input_offset: int
    output_offset: int
    act_min: int
    act_max: int
    multipliers: npt.NDArray[np.int32]
    shifts: npt.NDArray[np.int32]
    scheme: Scheme
    wide: bool = False
    factors: Factors | None = None
    is_sum: bool = False

    @classmethod
    def sums(cls, input_offset: int, channels: int) -> "ConvParams":
        none = np.zeros(channels, np.int32)
        return cls(input_offset, 0, 0, 0, none, none, INT8, is_sum=True)

    @classmethod
    def of(
        cls, sig: Signature, factors: Sequence[float], activation: Activation, axis: int = 0
    ) -> "ConvParams":
        """Compute the parameters from the real factor of each output channel; channels are on ``axis`` of the
        weights.
        """
        x, y = tensor_quant(sig.x), tensor_quant(sig.y)
        wide = sig.inputs[2].dtype is DType.INT64
        bounds = sum_bounds(sig, axis)
        exact = None
        if by_float(sig.y):
            require(sig.inputs[1].dtype is scheme_of(sig.x).weights, "weights of four bits")
            exact = product_factors(x.scale, weight_scales(sig.inputs[1], len(bounds)), y.scale, bounds)
        scaled = max(f * b for f, b in zip(factors, bounds, strict=True))
        require(not wide or scaled < 2**31, f"sums are {scaled:,.0f} of its output's steps: too many")
        bounds = [0] * len(bounds) if wide or exact is not None else bounds
        pairs = np.array([quantize_multiplier(f, b) for f, b in zip(factors, bounds, strict=True)], np.int32)
        low, high = activation.quantized_range(sig.y)
        require(not wide or int(pairs[:, 1].max()) < 8, "the output's scale is too fine for sums of 64 bits")
        scheme = scheme_of(sig.y)
        multipliers, shifts = pairs[:, 0].copy(), pairs[:, 1].copy()
        return cls(-x.zero_point, y.zero_point, low, high, multipliers, shifts, scheme, wide, exact)

    def finish(self, acc: Real) -> Array:
        if self.factors is not None:
            scaled = rounded_product(acc.astype(np.int64), self.factors)
        else:
            multiply = multiply_wide if self.wide else multiply_by_quantized_multiplier
            scaled = multiply(acc.astype(np.int64), self.multipliers, self.shifts)
        return self.scheme.saturated(scaled + self.output_offset, self.act_min, self.act_max)


def sum_bounds(sig: Signature, axis: int) -> list[int]:
    """Return the largest possible magnitude of each output channel's accumulator."""
    weights = sig.inputs[1].array()
    axes = tuple(a for a in range(weights.ndim) if a != axis)
    positive, negative = signed_sums(weights, axes)
    sums = positive - negative
    bias = np.abs(sig.inputs[2].array().astype(np.int64))
    return [int(b) for b in sums * magnitude(sig.x) + bias]


def signed_sums(weights: Array, axes: int | tuple[int, ...]) -> tuple[Int64, Int64]:
    """Return the sums of the positive integers along these axes, and those of the negative ones."""
    positive: Int64 = np.maximum(weights, 0).sum(axis=axes, dtype=np.int64)
    return positive, weights.sum(axis=axes, dtype=np.int64) - positive


def weight_scales(weights: Value, channels: int) -> tuple[float, ...]:
    """Return one scale per output channel. Raises ``ValueError`` unless the weights are symmetric."""
    quant = weights.quant
    if quant is None:
        raise ValueError(f"{weights.name} has no quantisation")
    require(not any(quant.zero_points), f"the zero point of {weights.name} is not 0")
    if len(quant.scales) == 1:
        return quant.scales * channels
    require(len(quant.scales) == channels, f"{weights.name} has {len(quant.scales)} scales, not {channels}")
    return quant.scales


def real_weights(weights: Value) -> Real:
    numbers = weights.array().astype(np.float64)
    if weights.quant is None:
        return numbers
    shape = [-1 if axis == weights.quant.axis else 1 for axis in range(numbers.ndim)]
    scaled: Real = numbers * np.array(weights.quant.scales).reshape(shape)
    return scaled


def check_weights(inputs: Sequence[Value], channels: int) -> None:
    """Raise ``ValueError`` unless the types of input, weights and bias match and the bias has ``channels``
    elements.
    """
    require_inputs(inputs, 3)
    x, w, bias = inputs
    scheme = scheme_of(x)
    require(
        w.dtype in (scheme.weights, scheme.narrow_weights), f"weights of {w.dtype.value} on {x.dtype.value}"
    )
    if scheme.is_real and w.dtype is scheme.narrow_weights:
        weight_scales(w, channels)
    biases = (scheme.biases, DType.INT32) if scheme is INT16 else (scheme.biases,)
    require(bias.dtype in biases, f"a bias of {bias.dtype.value} on {x.dtype.value}")
    require(bias.shape == (channels,), f"a bias of {shape_text(bias.shape)} for {channels} channels")


class _Ends(NamedTuple):
    # Facts about a convolution's input or output.
    name: str
    dtype: DType
    quant: Quant | None

    @classmethod
    def of(cls, value: Value) -> "_Ends":
        return cls(value.name, value.dtype, value.quant)


@lru_cache(maxsize=64)
def _parameters(
    x: _Ends, y: _Ends, weights: Value, bias: Value, activation: Activation, axis: int, one: bool
) -> ConvParams:
    # Designs ask for those of a layer again and again, also for some of its rows only.
    sig = Signature((Value(x.name, (), *x[1:]), weights, bias), (Value(y.name, (), *y[1:]),))
    x_quant, y_quant = tensor_quant(sig.x), tensor_quant(sig.y)
    scales = weight_scales(weights, weights.shape[axis])
    products = [x_quant.scale * s for s in scales]
    if one and weights.quant is not None and len(weights.quant.scales) == 1:
        products = [single(products[0])] * len(products)
    return ConvParams.of(sig, [p / y_quant.scale for p in products], activation, axis)


def parameters_of(sig: Signature, activation: Activation, axis: int, one: bool = False) -> ConvParams:
    """Compute the factors ``in * filter / out`` in double; with ``one`` and a single scale, in float32."""
    _, weights, bias = sig.inputs
    return _parameters(_Ends.of(sig.x), _Ends.of(sig.y), weights, bias, activation, axis, one)


class _Convolution(Weighted, Windowed, Clamping):
    # Common parts of both convolutions: everything but the sum of products. Float64 sums of quantised inputs
    # are exact, since they stay far below 2**53.
    __slots__ = ()

    slides: ClassVar[bool] = True

    dilation: tuple[int, int]

    @property
    def spread(self) -> tuple[int, int]:
        return self.dilation

    def taps(self, sig: Signature) -> tuple[int, int]:
        return sig.inputs[1].shape[1], sig.inputs[1].shape[2]

    def padding_value(self, x: Value) -> int | None:
        return x.quant.zero_point if x.quant is not None else 0

    def parameters(self, sig: Signature) -> ConvParams:
        # Factors as TFLite's convolutions have them.
        return parameters_of(sig, self.activation, self.channel_axis)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, w, bias = (a.astype(np.float64) for a in arrays)
        if scheme_of(sig.x).is_real:
            w = w if sig.inputs[1].quant is None else real_weights(sig.inputs[1])
            return (clamp_float(self.sums(x, w, sig) + bias, self.activation),)
        params = self.parameters(sig)
        return (params.finish(self.sums(x + params.input_offset, w, sig) + bias),)


@dataclass(frozen=True, slots=True)
class Conv2d(_Convolution):
    """``x[N,H,W,C], w[O,kh,kw,C], bias[O] -> [N,oh,ow,O]``.

    int8 has an int32 bias. int16 with int8 weights has an int64 bias, or an int32 bias with 32-bit sums.
    """

    name: ClassVar[str] = "conv2d"
    channel_axis: ClassVar[int] = 0
    mixes: ClassVar[bool] = True

    stride: tuple[int, int] = (1, 1)
    padding: Padding = NO_PADDING
    dilation: tuple[int, int] = (1, 1)
    activation: Activation = Activation.NONE

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 3)
        x, w, _ = inputs
        require(len(x.shape) == 4 and len(w.shape) == 4, "input and weights must have four dimensions")
        require(w.shape[3] == x.shape[3], f"weights for {w.shape[3]} channels on {x.shape[3]}")
        check_weights(inputs, w.shape[0])
        padded_elements(x.shape, self.padding)
        window = (w.shape[1], w.shape[2])
        size = self.padding.output_size((x.shape[1], x.shape[2]), window, self.stride, self.dilation)
        return (((x.shape[0], *size, w.shape[0]), x.dtype),)

    def macs(self, sig: Signature) -> int:
        return sig.y.elements * prod(sig.inputs[1].shape[1:])

    def working_elements(self, sig: Signature) -> int:
        """Return the number of elements of the padded image and of all windows side by side."""
        outputs = sig.y.shape[-1]
        columns = 2 * (sig.y.elements // outputs) * (sig.inputs[1].elements // outputs)
        return Windowed.working_elements(self, sig) + columns

    def taps_seen(self, sig: Signature) -> Real:
        taps = self.taps(sig)
        if self.padding == NO_PADDING:
            return np.ones((1, taps[0] * taps[1]))
        starts = (self.padding.top, self.padding.left)
        rows, columns = (
            np.unique(_inside(*along), axis=0)
            for along in zip(
                sig.y.shape[1:3], taps, self.stride, self.dilation, starts, sig.x.shape[1:3], strict=True
            )
        )
        both: Real = rows[:, None, :, None] * columns[None, :, None, :]
        return both.reshape(len(rows) * len(columns), -1)

    def sums(self, x: Real, w: Real, sig: Signature) -> Real:
        """Return the sums ``[N,oh,ow,O]`` without bias; the zero point is already subtracted from ``x``, so
        padding is 0.
        """
        padded = pad_image(x, self.padding)
        taps = [
            window_tap(padded, (i, j), self.stride, self.dilation, sig)
            for i in range(w.shape[1])
            for j in range(w.shape[2])
        ]
        columns = np.concatenate(taps, axis=3)
        acc: Real = columns @ w.reshape(w.shape[0], -1).T
        return acc


@dataclass(frozen=True, slots=True)
class DepthwiseConv2d(_Convolution):
    """``x[N,H,W,C], w[1,kh,kw,C*multiplier], bias -> [N,oh,ow,C*multiplier]``.

    Output channel ``c * multiplier + m`` reads input channel ``c``.
    """

    name: ClassVar[str] = "depthwise_conv2d"
    channel_axis: ClassVar[int] = 3
    mixes: ClassVar[bool] = False

    stride: tuple[int, int] = (1, 1)
    padding: Padding = NO_PADDING
    dilation: tuple[int, int] = (1, 1)
    multiplier: int = 1
    activation: Activation = Activation.NONE

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 3)
        x, w, _ = inputs
        require(len(x.shape) == 4 and len(w.shape) == 4, "input and weights must have four dimensions")
        require(w.shape[0] == 1, f"the first dimension of the weights is {w.shape[0]}, not 1")
        channels = x.shape[3] * self.multiplier
        require(w.shape[3] == channels, f"weights for {w.shape[3]} output channels, not {channels}")
        check_weights(inputs, channels)
        padded_elements(x.shape, self.padding)
        window = (w.shape[1], w.shape[2])
        size = self.padding.output_size((x.shape[1], x.shape[2]), window, self.stride, self.dilation)
        return (((x.shape[0], *size, channels), x.dtype),)

    def macs(self, sig: Signature) -> int:
        return sig.y.elements * prod(sig.inputs[1].shape[1:3])

    def channel_groups(self, sig: Signature) -> tuple[Index | None, ...] | None:
        if not all(v.is_constant for v in sig.inputs[1:]):
            return None
        channels = np.arange(sig.x.shape[-1])
        return channels, None, None, np.repeat(channels, self.multiplier)

    def sums(self, x: Real, w: Real, sig: Signature) -> Real:
        """Return the sums ``[N,oh,ow,C*multiplier]`` without bias; the zero point is already subtracted from
        ``x``, so padding is 0.
        """
        padded = pad_image(x, self.padding)
        acc: Real = np.zeros(sig.y.shape)
        for i in range(w.shape[1]):
            for j in range(w.shape[2]):
                tap = window_tap(padded, (i, j), self.stride, self.dilation, sig)
                acc += np.repeat(tap, self.multiplier, axis=3) * w[0, i, j]
        return acc


def _inside(outputs: int, taps: int, step: int, spread: int, start: int, size: int) -> Real:
    # Along one axis: ``[outputs, taps]``, 1 where the tap is on the image.
    at = np.arange(outputs)[:, None] * step - start + np.arange(taps) * spread
    return ((at >= 0) & (at < size)).astype(np.float64)


def pad_image(x: Real, padding: Padding, fill: float = 0.0) -> Real:
    """Return ``x[N,H,W,C]`` surrounded by rows and columns of ``fill``."""
    border = ((0, 0), (padding.top, padding.bottom), (padding.left, padding.right), (0, 0))
    return np.pad(x, border, constant_values=fill)


def window_tap(
    padded: Real, tap: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int], sig: Signature
) -> Real:
    """Return ``[N,oh,ow,C]``: for every output position, the input under one tap of its window."""
    row, column = tap[0] * dilation[0], tap[1] * dilation[1]
    rows = slice(row, row + (sig.y.shape[1] - 1) * stride[0] + 1, stride[0])
    columns = slice(column, column + (sig.y.shape[2] - 1) * stride[1] + 1, stride[1])
    return padded[:, rows, columns]


def _case(
    name: str,
    op: Conv2d | DepthwiseConv2d,
    x: Value,
    kernel: tuple[int, ...],
    out: Quant,
    per_axis: bool = True,
    bias: DType | None = None,
) -> Case:
    axis = 0 if isinstance(op, Conv2d) else 3
    return make(name, op, [x, *weights_and_bias(name, x, kernel, axis, per_axis, bias)], out)


def cases() -> Iterator[Case]:
    yield from _conv_cases()
    yield from _depthwise_cases()


def _conv_cases() -> Iterator[Case]:
    out, relu = Quant.tensor(0.3, 5), Activation.RELU
    x = int8s("x", (1, 7, 9, 3), 0.07, -11)
    yield _case("3x3", Conv2d(), x, (5, 3, 3, 3), out)
    same = Padding.same((7, 9), (3, 3), (2, 2))
    yield _case("same_s2_relu", Conv2d((2, 2), same, activation=Activation.RELU), x, (4, 3, 3, 3), out)
    skew = Padding(2, 0, 1, 3)
    yield _case("skew", Conv2d((1, 3), skew, (2, 1), Activation.RELU6), x, (3, 2, 5, 3), out)
    yield _case("per_tensor", Conv2d(activation=Activation.RELU_N1_1), x, (6, 1, 2, 3), out, False)
    pointwise = int8s("x", (2, 5, 4, 16), 0.02, 127)
    yield _case("1x1_batch2", Conv2d(), pointwise, (8, 1, 1, 16), Quant.tensor(0.08, -128))
    yield _case("1x1_s2", Conv2d((2, 2)), pointwise, (7, 1, 1, 16), Quant.tensor(0.05, 127))
    yield _case("1x1_odd", Conv2d(), int8s("x", (1, 3, 3, 13), 0.05, -128), (9, 1, 1, 13), out)
    yield _case("one_channel", Conv2d(), int8s("x", (1, 8, 6, 1), 0.1, 3), (1, 3, 2, 1), out)
    yield _case("fine_output", Conv2d(), x, (2, 2, 2, 3), Quant.tensor(0.0001, 0))
    yield _case("coarse_output", Conv2d(), x, (2, 2, 2, 3), Quant.tensor(40.0, 1))
    tiles = int8s("x", (2, 6, 4, 8), 0.05, 7)
    yield _case("3x3_even", Conv2d((1, 1), Padding(1, 1, 1, 1)), tiles, (6, 3, 3, 8), out)
    yield _case("whole_image", Conv2d(), x, (10, 7, 9, 3), Quant.tensor(1.5, 0))
    blank, column = Conv2d((2, 2), Padding(1, 1, 1, 0)), int8s("x", (1, 9, 1, 4), 0.07, -11)
    yield _case("column_of_padding", blank, column, (3, 2, 1, 4), out)
    yield in_four_bits(_case("3x3", Conv2d(), x, (5, 3, 3, 3), out))
    yield of_few_values(_case("3x3_even", Conv2d((1, 1), Padding(1, 1, 1, 1)), tiles, (9, 3, 3, 8), out))
    yield of_few_values(_case("1x1", Conv2d(), int8s("x", (1, 3, 5, 40)), (24, 1, 1, 40), out), 1)
    yield of_few_values_each(_case("1x1", Conv2d(), int8s("x", (1, 3, 5, 80)), (11, 1, 1, 80), out))
    yield of_few_values(_case("whole_image", Conv2d(), x, (10, 7, 9, 3), Quant.tensor(1.5, 0)), 3)
    yield in_four_bits(_case("1x1", Conv2d(), pointwise, (7, 1, 1, 16), Quant.tensor(0.08, -128)))
    wide = int16s("x", (1, 7, 9, 3), 0.0004)
    fine = Quant.tensor(0.0011)
    coarse = Quant.tensor(0.25, -128)
    yield by_float32(_case("3x3", Conv2d(), x, (5, 3, 3, 3), out))
    yield by_float32(_case("3x3_per_tensor", Conv2d(activation=relu), x, (6, 3, 3, 3), coarse, False))
    yield by_float32(_case("1x1", Conv2d(), pointwise, (17, 1, 1, 16), Quant.tensor(0.08, -128)))
    yield by_float32(_case("1x1_relu", Conv2d(activation=relu), pointwise, (8, 1, 1, 16), out))
    halves = int8s("x", (1, 9, 9, 8), 0.5, 4)
    yield by_float32(in_powers_of_two(_case("halves", Conv2d(), halves, (8, 3, 3, 8), Quant.tensor(16.0, 3))))
    yield _case("int16", Conv2d((2, 2), same, activation=Activation.RELU6), wide, (5, 3, 3, 3), fine)
    yield _case("int16_1x1", Conv2d(), int16s("x", (1, 3, 4, 16)), (6, 1, 1, 16), Quant.tensor(0.0003))
    yield _case("int16_deep", Conv2d(), int16s("x", (1, 2, 2, 600)), (3, 1, 2, 600), Quant.tensor(0.002))
    yield _case("int16_bias32", Conv2d(), wide, (4, 2, 2, 3), fine, bias=DType.INT32)
    real = floats("x", (1, 7, 9, 3))
    yield _case("f32_same_s2", Conv2d((2, 2), same, activation=Activation.RELU), real, (4, 3, 3, 3), out)
    yield _case("f32_skew", Conv2d((1, 3), skew, (2, 1), Activation.RELU6), real, (3, 2, 5, 3), out)
    yield _case("f32_1x1", Conv2d(), floats("x", (2, 3, 4, 8)), (5, 1, 1, 8), out)
    yield in_eight_bits(_case("f32_skew", Conv2d((1, 3), skew, (2, 1)), real, (3, 2, 5, 3), out))
    yield in_eight_bits(_case("f32_1x1", Conv2d(activation=Activation.RELU6), real, (5, 1, 1, 3), out), 1)


def _line(channels: int) -> Value:
    return int8s("x", (1, 49, 1, channels))


def _depthwise_cases() -> Iterator[Case]:
    out = Quant.tensor(0.25, -9)
    x = int8s("x", (1, 9, 7, 4), 0.06, 17)
    same = Padding.same((9, 7), (3, 3), (2, 2))
    relu = Activation.RELU
    yield _case("3x3", DepthwiseConv2d(), x, (1, 3, 3, 4), out)
    yield _case("same_s2", DepthwiseConv2d((2, 2), same, activation=relu), x, (1, 3, 3, 4), out)
    around = Padding(1, 1, 1, 1)
    wide = int8s("x", (1, 6, 6, 16), 0.05, -128)
    yield _case("3x3_same", DepthwiseConv2d((1, 1), around, activation=relu), wide, (1, 3, 3, 16), out)
    odd = DepthwiseConv2d((1, 2), Padding(0, 2, 1, 0), (2, 1), 3, Activation.RELU6)
    yield _case("multiplier3", odd, x, (1, 3, 2, 12), out)
    yield _case("one_channel", DepthwiseConv2d(multiplier=8), int8s("x", (2, 6, 5, 1)), (1, 4, 3, 8), out)
    yield _case("per_tensor", DepthwiseConv2d(), x, (1, 2, 2, 4), out, False)
    yield _case("whole_image", DepthwiseConv2d(), x, (1, 9, 7, 4), out)
    yield _case("5x1", DepthwiseConv2d((1, 1), Padding(2, 2), activation=relu), _line(16), (1, 5, 1, 16), out)
    yield _case("10x1", DepthwiseConv2d(), _line(18), (1, 10, 1, 18), out)
    near = int8s("x", (1, 8, 9, 6), 0.06, 17)
    yield _case(
        "5x5_same", DepthwiseConv2d((1, 1), Padding(2, 2, 2, 2), activation=relu), near, (1, 5, 5, 6), out
    )
    yield in_four_bits(_case("3x3", DepthwiseConv2d((1, 1), around), wide, (1, 3, 3, 16), out))
    yield in_four_bits(_case("multiplier3", odd, x, (1, 3, 2, 12), out))
    yield in_four_bits(_case("5x5", DepthwiseConv2d(), x, (1, 5, 5, 4), out))
    yield by_float32(_case("3x3", DepthwiseConv2d((1, 1), around), wide, (1, 3, 3, 16), out))
    yield by_float32(_case("same_s2", DepthwiseConv2d((2, 2), same, activation=relu), x, (1, 3, 3, 4), out))
    yield by_float32(_case("multiplier3", odd, x, (1, 3, 2, 12), out))
    yield by_float32(_case("5x5", DepthwiseConv2d(), x, (1, 5, 5, 4), out, False))
    short = int16s("x", (1, 9, 7, 4), 0.0004)
    fine = Quant.tensor(0.0009)
    yield _case("int16_same_s2", DepthwiseConv2d((2, 2), same, activation=relu), short, (1, 3, 3, 4), fine)
    yield _case("int16_multiplier3", odd, short, (1, 3, 2, 12), fine)
    real = floats("x", (1, 9, 7, 4))
    yield _case("f32_same_s2", DepthwiseConv2d((2, 2), same, activation=relu), real, (1, 3, 3, 4), out)
    yield _case("f32_multiplier3", odd, real, (1, 3, 2, 12), out)
    yield in_eight_bits(_case("f32_multiplier3", odd, real, (1, 3, 2, 12), out))
