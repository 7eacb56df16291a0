"""Layers with weights, and poolings."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import cast

import numpy as np

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.tflite_convert.layer import Convert, TfliteConverter, TfliteLayer, pairs, same
from crtgen.network.frontends.tflite_file import FileTensor
from crtgen.network.frontends.wide import wide_sums
from crtgen.network.ir import Array, DType, Quant, Value, shape_text
from crtgen.network.ops import (
    Activation,
    Add,
    AveragePool2d,
    Concat,
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    MaxPool2d,
    Padding,
    Quantize,
    Relu,
    Reshape,
    StridedSlice,
    Transpose,
)
from crtgen.network.ops.accumulate import Accumulate
from crtgen.network.ops.attrs import NO_PADDING
from crtgen.network.ops.fixedpoint import single
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.normalize import L2Pool2d
from crtgen.network.ops.scheme import FLOAT32, INT8, INT16, Scheme

__all__ = ["CONVERTERS"]

_MOST_WEIGHTS = 1 << 24
_APART = 1e-6
_COMPUTED = (INT8, INT16, FLOAT32)


@dataclass(frozen=True, slots=True)
class _TypedWeights:
    """Weights of one type with output channels first, and the bias, of a layer on an input of ``scheme``."""

    scheme: Scheme
    dtype: DType
    array: Array
    quant: Quant | None
    bias: Array
    bias_quant: Quant | None

    def part(self, first: int, last: int) -> "_TypedWeights":
        quant, bias_quant = (_part(q, first, last) for q in (self.quant, self.bias_quant))
        parts = self.array[first:last], quant, self.bias[first:last], bias_quant
        return _TypedWeights(self.scheme, self.dtype, *parts)

    def operands(self, axis: int = 0) -> tuple[Value, Value]:
        # Both as constants; output channels change places with that axis of the weights.
        quant = self.quant
        if quant is not None and quant.axis is not None:
            quant = replace(quant, axis=axis)
        weights = Value.constant("weights", np.swapaxes(self.array, 0, axis), quant, self.dtype)
        return weights, Value.constant("bias", self.bias, self.bias_quant)


def _part(quant: Quant | None, first: int, last: int) -> Quant | None:
    # The quantisation of some of the channels.
    if quant is None or quant.axis is None:
        return quant
    return Quant(quant.scales[first:last], quant.zero_points[first:last], 0)


def _symmetric(tensor: FileTensor, dense: bool, wide: bool) -> tuple[Array, Quant | None]:
    # Weights without a zero point, of nine bits if they may be ``wide``. Of weights of uint8 it counts.
    # TFLite Micro subtracts that of a whole tensor of int8 in a fully connected layer, and takes no notice of
    # others.
    array, quant = cast(Array, tensor.data), tensor.quant
    if quant is None or not any(quant.zero_points):
        return array, quant
    if (dense or tensor.is_unsigned) and len(quant.scales) == 1:
        made = array.astype(np.int64) - quant.zero_point
        info = np.iinfo(array.dtype.name)
        if made.size and (made.min() < info.min or made.max() > info.max):
            if wide:
                return made, Quant(quant.scales, (0,), quant.axis)
            reach = f"weights that reach {made.min()} to {made.max()} without their zero point"
            raise RefusedOperator(
                f"{reach} {quant.zero_point}; supported: {info.min} to {info.max}",
                "convert the model anew: converters make weights whose zero point is 0",
            )
        array = made.astype(array.dtype)
    return array, Quant(quant.scales, (0,) * len(quant.scales), quant.axis)


def _single_product(x: FileTensor, quant: Quant | None) -> Quant | None:
    # The scale of weights of uint8 with which its product with the input's is rounded to float32. So TFLite's
    # GetQuantizedConvolutionMultipler has it; of int8, convolutions multiply in double.
    if quant is None or x.quant is None:
        return quant
    product = single(single(x.quant.scale) * single(quant.scale))
    return Quant((product / x.quant.scale,), quant.zero_points, quant.axis)


def _weights(
    layer: TfliteLayer, at: int = 1, x_at: int = 0, dense: bool = False, wide: bool = False
) -> _TypedWeights:
    # The constants of a layer with weights and an optional bias behind them.
    x, w = layer.tensor(x_at), layer.tensor(at)
    scheme = next((s for s in _COMPUTED if s.activations is x.dtype), None)
    hybrid = scheme is FLOAT32 and w.dtype is FLOAT32.narrow_weights and w.quant is not None
    if hybrid and w.quant is not None and any(w.quant.zero_points):
        w = _real(w, layer.constant(at, "weights"), w.quant)
    if scheme is None or not (w.dtype is scheme.weights or hybrid):
        text = "; ".join(f"{s.weights.name} on {s.activations.name}" for s in _COMPUTED)
        raise RefusedOperator(f"weights of {w.type_name} on {x.type_name}; supported: {text}")
    layer.constant(at, "weights")
    weights, quant = _symmetric(w, dense, wide and w.is_unsigned)
    if w.is_unsigned and not dense and len(w.quant.scales if w.quant else ()) == 1:
        quant = _single_product(x, quant)
    last = layer.operator.code == "DEPTHWISE_CONV_2D"  # its channels are behind the window
    dtype, channels = _dtype(w, weights, scheme), w.shape[-1 if last else 0] if w.shape else 1
    place = max(at, x_at) + 1
    bias = layer.inputs[place] if len(layer.inputs) > place else None
    if bias is None:
        return _TypedWeights(scheme, dtype, weights, quant, np.zeros(channels, scheme.biases.numpy), None)
    expected = (scheme.biases, DType.INT32) if scheme is INT16 else (scheme.biases,)
    given = layer.constant(place, "biases")
    given = given.reshape(-1) if given.size == channels else given  # some have the rank of the output
    if x_at == 2 and scheme is INT16:  # of a transposed convolution, where 16 bits stand for 64
        expected, given = (scheme.biases, DType.INT16), given.astype(np.int64)
    if bias.dtype not in expected:
        names = " or ".join(dtype.name for dtype in expected)
        raise RefusedOperator(f"a bias of {bias.type_name} on {x.type_name}; supported: {names}")
    return _TypedWeights(scheme, dtype, weights, quant, given, bias.quant)


def _dtype(tensor: FileTensor, weights: Array, scheme: Scheme) -> DType:
    # Type of weights: 4-bit weights keep their type unless a zero point was subtracted.
    if scheme.is_real and tensor.dtype is not None:
        return tensor.dtype
    if scheme.narrow_weights is None or tensor.type_name != scheme.narrow_weights.name or not weights.size:
        return scheme.weights
    numbers = weights.astype(np.int64)
    return scheme.narrow_weights if numbers.min() >= -8 and numbers.max() < 8 else scheme.weights


def _real(tensor: FileTensor, data: Array, quant: Quant) -> FileTensor:
    # Weights of int8 on an input of float32, as the real numbers that they stand for.
    shape = [-1 if quant.axis == axis else 1 for axis in range(data.ndim)]
    scales, zeros = (np.array(n, np.float64) for n in (quant.scales, quant.zero_points))
    if quant.axis is not None:
        scales, zeros = scales.reshape(shape), zeros.reshape(shape)
    real = ((data.astype(np.float64) - zeros) * scales).astype(np.float32)
    return replace(tensor, dtype=DType.FLOAT32, data=real, quant=None)


def _with_weights(layer: TfliteLayer, op: Conv2d | DepthwiseConv2d | FullyConnected) -> Converted:
    # A layer as the file has it.
    made, weights = _weights(layer, dense=isinstance(op, FullyConnected), wide=True), layer.tensor(1)
    if made.array.dtype == np.int64:
        return _by_sums(layer, op, made)
    bias = layer.inputs[2] if len(layer.inputs) > 2 else None
    if made.dtype is not weights.dtype and made.array is weights.data:
        weights = replace(weights, key=f"{weights.key} {made.dtype.value}", dtype=made.dtype)
    same = made.array is weights.data and made.quant is weights.quant
    operands = (
        weights if same else Value.constant("weights", made.array, made.quant, made.dtype),
        made.bias if bias is None or bias.shape != made.bias.shape else bias,
    )
    return Converted(op, (layer.x, *operands), ("weights", "bias"))


def _by_sums(
    layer: TfliteLayer, op: Conv2d | DepthwiseConv2d | FullyConnected, made: _TypedWeights
) -> Converted:
    # Several int8 layers whose sums are added before they are rescaled.
    x, product = layer.x.quant, made.quant
    if x is None or product is None or layer.y.quant is None:
        raise ValueError("input, weights or output have no scale")
    inner, roles = Accumulate(replace(op, activation=Activation.NONE)), ("weights", "bias")
    sums = wide_sums(
        lambda part, start: Converted(inner, (layer.x, part, start), roles),
        made.array.astype(np.int64),
        made.bias,
        not isinstance(op, DepthwiseConv2d),
    )
    scale = single(single(x.scale) * single(product.scale))
    rescaled = Converted(Quantize(DType.INT8), (replace(sums, quant=Quant.tensor(scale)),))
    if op.activation is Activation.NONE:
        return rescaled
    return Converted(Relu(op.activation), (replace(rescaled, quant=layer.y.quant),))


def _conv2d(layer: TfliteLayer) -> Converted:
    layer.image()
    window, stride, dilation = layer.image(1), layer.pair("Stride"), layer.pair("Dilation", "Factor")
    padding = layer.padding(window, stride, dilation)
    (outputs, _, _, depth), inputs = layer.tensor(1).shape, layer.x.shape[3]
    op = Conv2d(stride, padding, dilation, layer.activation())
    if depth == inputs:
        return _with_weights(layer, op)
    groups = inputs // max(depth, 1)
    if groups * depth != inputs or outputs % groups:
        raise ValueError(f"weights for {depth} of {inputs} channels, and {outputs} outputs")
    weights = _weights(layer)
    if depth == 1:
        one = DepthwiseConv2d(stride, padding, dilation, outputs // groups, layer.activation())
        return Converted(one, (layer.x, *weights.operands(3)), ("weights", "bias"))
    each, parts = outputs // groups, []
    for group in range(groups):
        operands = weights.part(group * each, (group + 1) * each).operands()
        image = _channels(layer, group * depth, (group + 1) * depth)
        parts.append(Converted(op, (image, *operands), ("weights", "bias"), quant=layer.y.quant))
    return Converted(Concat(3), tuple(parts))


def _channels(layer: TfliteLayer, first: int, last: int) -> Converted:
    shape = layer.x.shape
    return Converted(StridedSlice((0, 0, 0, first), (*shape[:3], last), (1,) * 4), (layer.x,))


def _transpose_conv(layer: TfliteLayer) -> Converted:
    """Convert to a convolution whose output channels are the pixels of a block, which are then moved to their
    positions.

    With stride s, output row ``s * q + r - padding`` is the sum over d of input row ``q - d`` times row ``r +
    s * d`` of the weights: for each r this is a convolution with stride 1, with every s-th row of the weights
    in reverse order. Rows beyond the weights are zero.
    """
    size = layer.y.shape if layer.x.data is None else tuple(layer.integers(0, "lengths of the output"))
    return _turned(layer, layer.tensor(2), size, _weights(layer, 1, 2), layer.activation())


def _turned(
    layer: TfliteLayer,
    x: FileTensor,
    size: tuple[int, ...],
    weights: _TypedWeights,
    activation: Activation,
) -> Converted:
    stride = layer.pair("Stride")
    if not len(size) == len(x.shape) == len(layer.tensor(1).shape) == 4 or min(*stride, *size) < 1:
        raise ValueError(f"{shape_text(size)} outputs of {shape_text(x.shape)}, with the stride {stride}")
    _, height, width, _ = size
    outputs, *taps, _ = weights.array.shape
    same = layer.padding((taps[0], taps[1]), stride, size=(height, width))
    starts = (same.top, same.left)
    blocks = [-(-t // s) for t, s in zip(taps, stride, strict=True)]
    first = [p // s for p, s in zip(starts, stride, strict=True)]
    last = [(p + n - 1) // s for p, n, s in zip(starts, (height, width), stride, strict=True)]
    before = [b - 1 - f for b, f in zip(blocks, first, strict=True)]
    after = [max(n - (d - 1), 0) for n, d in zip(last, x.shape[1:3], strict=True)]
    if min(before) < 0:
        raise RefusedOperator(f"padding {same} of a window of {taps}; supported: less than the window")
    padding = Padding(before[0], after[0], before[1], after[1])
    conv = Conv2d((1, 1), padding, activation=activation)
    made = Converted(conv, (x, *_blocks(weights, stride, blocks)), ("weights", "bias"), quant=layer.y.quant)
    rows, columns = padding.output_size((x.shape[1], x.shape[2]), (blocks[0], blocks[1]), (1, 1))
    apart = Converted(Reshape((x.shape[0], rows, columns, *stride, outputs)), (made,))
    moved = Converted(Transpose((0, 1, 3, 2, 4, 5)), (apart,))
    whole = Converted(Reshape((x.shape[0], rows * stride[0], columns * stride[1], outputs)), (moved,))
    corner = [p - f * s for p, f, s in zip(starts, first, stride, strict=True)]
    end = (x.shape[0], corner[0] + height, corner[1] + width, outputs)
    return Converted(StridedSlice((0, *corner, 0), end, (1,) * 4), (whole,))


def _transpose_conv_with_bias(layer: TfliteLayer) -> Converted:
    """Convert MediaPipe's own operator, whose options are the bytes of a C struct: padding and both strides.

    With padding SAME the output has the size of TensorFlow's gradient of a convolution, which is less than
    input times stride if the window is shorter than the stride.
    """
    padding, *stride = _words(layer, 3)
    named = replace(
        layer.operator, options={"Padding": padding - 1, "StrideW": stride[0], "StrideH": stride[1]}
    )
    layer, x = replace(layer, operator=named), layer.x
    if len(x.shape) != 4 or len(layer.tensor(1).shape) != 4 or padding not in (1, 2) or min(stride) < 1:
        raise ValueError(f"padding {padding}, stride {stride} of {shape_text(x.shape)}")
    lengths = []
    for length, taps, step in zip(
        x.shape[1:3], layer.tensor(1).shape[1:3], layer.pair("Stride"), strict=True
    ):
        cut = max(0, taps - (length - 1) % step - 1) if padding == 1 else 0
        lengths.append(step * (length - 1) + taps - cut)
    size = (x.shape[0], *lengths, layer.tensor(1).shape[0])
    return _turned(layer, x, size, _weights(layer), Activation.NONE)


def _words(layer: TfliteLayer, count: int) -> list[int]:
    # The first integers of 32 bits of a custom operator's options.
    data = layer.option("bytes")
    if not isinstance(data, bytes) or len(data) < 4 * count:
        raise ValueError(f"options that are not {count} integers of 32 bits")
    return list(struct.unpack_from(f"<{count}i", data))


def _blocks(weights: _TypedWeights, stride: tuple[int, int], blocks: list[int]) -> tuple[Value, Value]:
    # Weights of the pixels of a block, backwards, and their bias.
    outputs, *taps, depth = weights.array.shape
    shape = (outputs, blocks[0] * stride[0], blocks[1] * stride[1], depth)
    if prod(shape) > _MOST_WEIGHTS:
        raise RefusedOperator(f"a stride of {stride} for windows of {taps}: {prod(shape):,} weights")
    padded = np.zeros(shape, weights.array.dtype)
    padded[:, : taps[0], : taps[1]] = weights.array
    parts = padded.reshape(outputs, blocks[0], stride[0], blocks[1], stride[1], depth)[:, ::-1, :, ::-1]
    pixels = stride[0] * stride[1]
    array = parts.transpose(2, 4, 0, 1, 3, 5).reshape(pixels * outputs, *blocks, depth)
    quants = [
        q if q is None or q.axis is None else Quant(q.scales * pixels, q.zero_points * pixels, 0)
        for q in (weights.quant, weights.bias_quant)
    ]
    bias = np.tile(weights.bias, pixels)
    made = np.ascontiguousarray(array)
    return _TypedWeights(weights.scheme, weights.dtype, made, quants[0], bias, quants[1]).operands()


def _depthwise_conv2d(layer: TfliteLayer) -> Converted:
    layer.image()
    window, stride, dilation = layer.image(1), layer.pair("Stride"), layer.pair("Dilation", "Factor")
    padding = layer.padding(window, stride, dilation)
    channels = layer.tensor(1).shape[3]
    multiplier = channels // layer.x.shape[3]
    op = DepthwiseConv2d(stride, padding, dilation, multiplier, layer.activation())
    return _with_weights(layer, op)


def _fully_connected(layer: TfliteLayer) -> Converted:
    if layer.option("WeightsFormat") != 0:
        raise RefusedOperator(f"weights format number {layer.option('WeightsFormat')}; supported: DEFAULT")
    shape = layer.tensor(1).shape
    if len(shape) != 2:
        raise ValueError(f"weights of shape {shape_text(shape)} instead of two dimensions")
    bias = layer.inputs[2] if len(layer.inputs) > 2 else None
    computed = layer.tensor(1).data is None, bias is not None and bias.data is None
    if any(computed) and (layer.x.dtype is DType.FLOAT32 or (computed[0] and bias is None)):
        return _of_computed(layer, bias)
    op = FullyConnected(layer.activation(), bool(layer.option("KeepNumDims")))
    return _with_weights(layer, op)


def _of_computed(layer: TfliteLayer, bias: FileTensor | None) -> Converted:
    # Convert a layer whose weights or biases are computed at run time to a product of matrices and a sum.
    outputs, depth = layer.tensor(1).shape
    rows, activation = prod(layer.x.shape) // max(depth, 1), layer.activation()
    quant = layer.y.quant
    x = Converted(Reshape((rows, depth)), (layer.x,), quant=layer.x.quant)
    made = Converted(BatchMatMul(adj_y=True), (x, layer.tensor(1)), ("operand",), quant=quant)
    if bias is not None:
        flat = Converted(Reshape((outputs,)), (bias,))
        made = Converted(Add(), (made, flat), ("operand",))
    if activation is not Activation.NONE:
        made = Converted(Relu(activation), (made,), quant=quant)
    keeps = bool(layer.option("KeepNumDims"))
    return Converted(Reshape((*layer.x.shape[:-1], outputs) if keeps else (rows, outputs)), (made,))


def _nearly_alike(layer: TfliteLayer) -> bool:
    # TFLite Micro treats input and output as equally quantised if their scales differ by at most 1e-6.
    x, y = layer.x.quant, layer.y.quant
    if x is None or y is None or len(x.scales) != 1 or len(y.scales) != 1:
        return False
    apart = abs(np.float32(x.scale) - np.float32(y.scale))
    return x.zero_points == y.zero_points and bool(apart <= _APART)


def _pool(kind: type[AveragePool2d] | type[MaxPool2d] | type[L2Pool2d]) -> Convert:
    def convert(layer: TfliteLayer) -> Converted:
        if not _nearly_alike(layer):
            layer.require_alike([layer.x], types=(DType.INT8, DType.INT16))
        height, width = int(layer.option("FilterHeight")), int(layer.option("FilterWidth"))
        stride = layer.pair("Stride")
        padding = layer.padding((height, width), stride)
        op = kind((height, width), stride, padding, layer.activation())
        even = padding != NO_PADDING or height * width % 2 == 0
        if isinstance(op, AveragePool2d) and even and layer.x.is_unsigned:
            return _rounded_up(layer, op)
        return Converted(op, (layer.x,))

    return convert


def _rounded_up(layer: TfliteLayer, op: AveragePool2d) -> Converted:
    """Convert averages of bytes, which round ties up instead of away from zero, as non-negative int16."""
    x, y = layer.x, layer.y.quant
    if y is None:
        raise ValueError("the output has no scale")
    byte, short = Quant.tensor(y.scale, INT8.low), Quant.tensor(y.scale)
    counted = Converted(Reshape(x.shape), (x,), quant=byte)
    wide = Converted(Quantize(DType.INT16), (counted,), quant=short)
    average = Converted(replace(op, activation=Activation.NONE), (wide,), quant=short)
    narrow = Converted(Quantize(DType.INT8), (average,), quant=byte)
    rows, columns = op.padding.output_size((x.shape[1], x.shape[2]), op.window, op.stride)
    bytes_ = Converted(Reshape((x.shape[0], rows, columns, x.shape[3])), (narrow,), quant=y)
    return bytes_ if op.activation is Activation.NONE else Converted(Relu(op.activation), (bytes_,))


_LAYERS = same(*(scheme.activations for scheme in _COMPUTED))
_WINDOW = ("Padding", "StrideH", "StrideW", "FusedActivationFunction")
_CONVOLUTION = (*_WINDOW, "DilationHFactor", "DilationWFactor")
_DEPTHWISE = (*_CONVOLUTION, "DepthMultiplier")
_POOLING = (*_WINDOW, "FilterHeight", "FilterWidth")
_DENSE = ("FusedActivationFunction", "WeightsFormat", "KeepNumDims")

_L2_POOL = TfliteConverter(_pool(L2Pool2d), ("l2_pool2d",), "Pool2DOptions", _POOLING, same(DType.FLOAT32))

CONVERTERS: Mapping[str, TfliteConverter] = {
    "L2_POOL_2D": _L2_POOL,
    "AVERAGE_POOL_2D": TfliteConverter(
        _pool(AveragePool2d),
        ("average_pool2d", "average_pooling2d"),
        "Pool2DOptions",
        _POOLING,
        _LAYERS,
    ),
    "CONV_2D": TfliteConverter(_conv2d, ("conv2d",), "Conv2DOptions", _CONVOLUTION, _LAYERS),
    "DEPTHWISE_CONV_2D": TfliteConverter(
        _depthwise_conv2d,
        ("depthwise_conv2d",),
        "DepthwiseConv2DOptions",
        _DEPTHWISE,
        _LAYERS,
    ),
    "FULLY_CONNECTED": TfliteConverter(
        _fully_connected,
        ("fully_connected", "dense"),
        "FullyConnectedOptions",
        _DENSE,
        _LAYERS,
    ),
    "TRANSPOSE_CONV": TfliteConverter(
        _transpose_conv,
        ("transpose_conv", "conv2d_transpose"),
        "TransposeConvOptions",
        ("Padding", "StrideH", "StrideW", "FusedActivationFunction"),
        pairs([DType.INT32], [scheme.activations for scheme in _COMPUTED]),
    ),
    "CUSTOM Convolution2DTransposeBias": TfliteConverter(
        _transpose_conv_with_bias, ("conv2d_transpose",), types=same(DType.FLOAT32)
    ),
    "MAX_POOL_2D": TfliteConverter(
        _pool(MaxPool2d),
        ("max_pool2d", "max_pooling2d"),
        "Pool2DOptions",
        _POOLING,
        _LAYERS,
    ),
}
