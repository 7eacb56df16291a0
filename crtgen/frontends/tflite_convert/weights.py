"""Layers with weights, and poolings."""

from collections.abc import Mapping

import numpy as np

from crtgen.frontends.builder import Converted, Refused
from crtgen.frontends.tflite_convert.layer import Convert, Converter, Layer, same
from crtgen.ir import DType, Op, shape_text
from crtgen.ops import AveragePool2d, Conv2d, DepthwiseConv2d, FullyConnected, MaxPool2d
from crtgen.ops.normalize import L2Pool2d

__all__ = ["CONVERTERS"]


def _with_weights(layer: Layer, op: Op, channels: int) -> Converted:
    """The operands of a layer with weights and an optional bias."""
    x, w = layer.tensor(0), layer.tensor(1)
    if w.dtype is not x.dtype:
        raise Refused(
            f"weights of {w.type_name} on {x.type_name}; supported: INT8 on INT8, FLOAT32 on FLOAT32"
        )
    layer.constant(1, "weights")
    bias = layer.inputs[2] if len(layer.inputs) > 2 else None
    roles = ("weights", "bias")
    expected = DType.FLOAT32 if x.dtype is DType.FLOAT32 else DType.INT32
    if bias is None:
        return Converted(op, (x, w, np.zeros(channels, expected.numpy)), roles)
    layer.constant(2, "biases")
    if bias.dtype is not expected:
        raise Refused(f"a bias of {bias.type_name} on {x.type_name}; supported: {expected.name}")
    return Converted(op, (x, w, bias), roles)


def _conv2d(layer: Layer) -> Converted:
    layer.image()
    window, stride, dilation = layer.image(1), layer.pair("Stride"), layer.pair("Dilation", "Factor")
    padding = layer.padding(window, stride, dilation)
    channels, depth = layer.tensor(1).shape[0], layer.tensor(1).shape[3]
    if depth != layer.x.shape[3]:
        raise Refused(
            f"grouped convolution, weights for {depth} of {layer.x.shape[3]} channels; supported: one group"
        )
    return _with_weights(layer, Conv2d(stride, padding, dilation, layer.activation()), channels)


def _depthwise_conv2d(layer: Layer) -> Converted:
    layer.image()
    window, stride, dilation = layer.image(1), layer.pair("Stride"), layer.pair("Dilation", "Factor")
    padding = layer.padding(window, stride, dilation)
    channels = layer.tensor(1).shape[3]
    multiplier = channels // layer.x.shape[3]
    op = DepthwiseConv2d(stride, padding, dilation, multiplier, layer.activation())
    return _with_weights(layer, op, channels)


def _fully_connected(layer: Layer) -> Converted:
    if layer.option("WeightsFormat") != 0:
        raise Refused(f"weights format number {layer.option('WeightsFormat')}; supported: DEFAULT")
    shape = layer.tensor(1).shape
    if len(shape) != 2:
        raise ValueError(f"weights of shape {shape_text(shape)} instead of two dimensions")
    op = FullyConnected(layer.activation(), bool(layer.option("KeepNumDims")))
    return _with_weights(layer, op, shape[0])


def _pool(kind: type[AveragePool2d] | type[MaxPool2d] | type[L2Pool2d]) -> Convert:
    def convert(layer: Layer) -> Converted:
        height, width = int(layer.option("FilterHeight")), int(layer.option("FilterWidth"))
        stride = layer.pair("Stride")
        padding = layer.padding((height, width), stride)
        return Converted(kind((height, width), stride, padding, layer.activation()), (layer.x,))

    return convert


_WINDOW = ("Padding", "StrideH", "StrideW", "FusedActivationFunction")
_CONVOLUTION = (*_WINDOW, "DilationHFactor", "DilationWFactor")
_DEPTHWISE = (*_CONVOLUTION, "DepthMultiplier")
_POOLING = (*_WINDOW, "FilterHeight", "FilterWidth")
_DENSE = ("FusedActivationFunction", "WeightsFormat", "KeepNumDims")

_L2_POOL = Converter(_pool(L2Pool2d), ("l2_pool2d",), "Pool2DOptions", _POOLING, same(DType.FLOAT32))

CONVERTERS: Mapping[str, Converter] = {
    "L2_POOL_2D": _L2_POOL,
    "AVERAGE_POOL_2D": Converter(
        _pool(AveragePool2d),
        ("average_pool2d", "average_pooling2d"),
        "Pool2DOptions",
        _POOLING,
    ),
    "CONV_2D": Converter(_conv2d, ("conv2d",), "Conv2DOptions", _CONVOLUTION),
    "DEPTHWISE_CONV_2D": Converter(
        _depthwise_conv2d,
        ("depthwise_conv2d",),
        "DepthwiseConv2DOptions",
        _DEPTHWISE,
    ),
    "FULLY_CONNECTED": Converter(
        _fully_connected,
        ("fully_connected", "dense"),
        "FullyConnectedOptions",
        _DENSE,
    ),
    "MAX_POOL_2D": Converter(
        _pool(MaxPool2d),
        ("max_pool2d", "max_pooling2d"),
        "Pool2DOptions",
        _POOLING,
    ),
}
