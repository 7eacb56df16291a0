"""Networks of Larq: binary convolutions, which pack 32 signs into an int32.

The options are those of Larq Compute Engine's operators, stored in a flexbuffer.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.tflite_convert.layer import TfliteConverter, TfliteLayer, pairs
from crtgen.network.ir import Array, DType, shape_text
from crtgen.network.ops import Activation, Add, Cast, Mul, Quantize, Relu, Sub
from crtgen.network.ops.attrs import Padding
from crtgen.network.ops.binarized import BinaryConv2d, PackedMaxPool2d, PackSigns, UnpackSigns

__all__ = ["CONVERTERS"]

# By TFLite's number.
_ACTIVATIONS = (Activation.NONE, Activation.RELU, Activation.RELU_N1_1, Activation.RELU6)


def _pack(layer: TfliteLayer) -> Converted:
    return Converted(PackSigns(), (layer.x,))


def _unpack(layer: TfliteLayer) -> Converted:
    # In int8, as the real numbers 1 and -1 are quantised.
    real = Converted(UnpackSigns(layer.y.shape[-1]), (layer.x,))
    return _as_output(layer, real)


def _as_output(layer: TfliteLayer, real: Converted) -> Converted:
    return real if layer.y.dtype is DType.FLOAT32 else Converted(Quantize(DType.INT8), (real,))


def _lengths(layer: TfliteLayer, kind: str, default: int = 0) -> tuple[int, int]:
    found = tuple(layer.number(name, default) for name in (f"{kind}height", f"{kind}width"))
    return found[0], found[1]


def _padding(
    layer: TfliteLayer, window: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int] = (1, 1)
) -> Padding:
    named = replace(layer, operator=replace(layer.operator, options={"Padding": layer.number("padding")}))
    return named.padding(window, stride, dilation)


def _max_pool(layer: TfliteLayer) -> Converted:
    window, stride = _lengths(layer, "filter_"), _lengths(layer, "stride_")
    return Converted(PackedMaxPool2d(window, stride, _padding(layer, window, stride)), (layer.x,))


def _conv(layer: TfliteLayer) -> Converted:
    # Sums, then what follows them: a factor and a bias, or a threshold for each channel.
    weights = layer.constant(1, "weights")
    if weights.ndim != 4:
        raise ValueError(f"weights of {shape_text(weights.shape)}")
    if weights.shape[3] != layer.x.shape[-1]:
        raise RefusedOperator("groups of channels; supported: one group")
    stride = _lengths(layer, "stride_")
    dilation = (layer.number("dilation_height_factor", 1), layer.number("dilation_width_factor", 1))
    padding = _padding(layer, (weights.shape[1], weights.shape[2]), stride, dilation)
    channels = layer.number("channels_in")
    op = BinaryConv2d(channels, stride, padding, dilation, layer.number("pad_values"))
    sums = Converted(op, (layer.x, layer.tensor(1)), ("weights",))
    if layer.y.dtype is DType.INT32:
        least = weights.shape[1] * weights.shape[2] * channels - 2 * _vector(layer, 4, np.int32)
        below = Converted(Sub(Activation.NONE), (sums, least.astype(np.int32)), ("threshold",))
        return Converted(PackSigns(), (below,))
    real = Converted(Cast(DType.FLOAT32), (sums,))
    number = layer.number("fused_activation_function")
    if not 0 <= number < len(_ACTIVATIONS):
        raise RefusedOperator(f"activation number {number}; supported: none, RELU, RELU_N1_TO_1, RELU6")
    clamped = real if number == 0 else Converted(Relu(_ACTIVATIONS[number]), (real,))
    scaled = Converted(Mul(Activation.NONE), (clamped, _vector(layer, 2, np.float32)), ("factor",))
    moved = Converted(Add(Activation.NONE), (scaled, _vector(layer, 3, np.float32)), ("bias",))
    return _as_output(layer, moved)


def _vector(layer: TfliteLayer, position: int, dtype: type[np.generic]) -> Array:
    # A number for each output channel.
    data = layer.constant(position, "numbers of channels")
    channels = layer.constant(1, "weights").shape[0]
    if data.dtype != dtype or data.shape != (channels,):
        raise ValueError(f"input {position} is {shape_text(data.shape)} of {data.dtype.name}")
    return data


_SIGNS = (DType.INT32,)
_NUMBERS = (DType.FLOAT32, DType.INT8)

CONVERTERS: Mapping[str, TfliteConverter] = {
    "CUSTOM LceBMaxPool2d": TfliteConverter(_max_pool, ("max_pool",), types=pairs(_SIGNS, _SIGNS)),
    "CUSTOM LceBconv2d": TfliteConverter(_conv, ("binary_conv",), types=pairs(_SIGNS, (*_NUMBERS, *_SIGNS))),
    "CUSTOM LceDequantize": TfliteConverter(_unpack, ("unpack",), types=pairs(_SIGNS, _NUMBERS)),
    "CUSTOM LceQuantize": TfliteConverter(_pack, ("pack",), types=pairs(_NUMBERS, _SIGNS)),
}
