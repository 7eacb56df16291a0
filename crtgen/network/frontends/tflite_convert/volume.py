"""Three-dimensional convolutions, as convolutions of images whose channels are those of several slices.

Output slice d of ``x[N,D,H,W,C]`` depends on a window of slices. With these slices concatenated as channels,
each output slice is an image, and all slices are the batch of a convolution with ``KD * C`` channels, for
which the kernels of images can be used, including fast ones. The price is RAM: each slice is in memory once
for each tap along the depth.
"""

from collections.abc import Mapping

import numpy as np

from crtgen.network.frontends.builder import Converted, NamedTensor, RefusedOperator
from crtgen.network.frontends.tflite_convert.layer import TfliteConverter, TfliteLayer, same
from crtgen.network.ir import DType, shape_text
from crtgen.network.ops import Concat, Conv2d, Pad, Padding, Reshape, StridedSlice

__all__ = ["CONVERTERS"]


def _conv3d(layer: TfliteLayer) -> Converted:
    # Convert ``x[N,D,H,W,C], w[KD,KH,KW,C,O], bias[O] -> [N,OD,OH,OW,O]``.
    x, weights = layer.x, layer.constant(1, "weights")
    if len(x.shape) != 5 or weights.ndim != 5 or weights.shape[3] != x.shape[4]:
        raise ValueError(f"weights of {shape_text(weights.shape)} on {shape_text(x.shape)}")
    if weights.dtype != np.float32:
        raise RefusedOperator(f"weights of {weights.dtype.name}; supported: float32")
    deep, outputs = weights.shape[0], weights.shape[4]
    bias = layer.constant(2, "biases") if layer.has(2) else np.zeros(outputs, np.float32)
    stride, dilation = layer.pair("Stride"), layer.pair("Dilation", "Factor")
    step, spread = int(layer.option("StrideD")), int(layer.option("DilationDFactor"))
    if min(step, spread) < 1:
        raise ValueError(f"stride {step} and dilation {spread} along the depth must be positive")
    depth = layer.padding((deep, 1), (step, 1), (spread, 1), (x.shape[1], 1))
    image = layer.padding(weights.shape[1:3], stride, dilation, x.shape[2:4])
    slices, count = _side_by_side(x, (depth.top, depth.bottom), deep, step, spread)
    kernel = weights.transpose(4, 1, 2, 0, 3).reshape(outputs, *weights.shape[1:3], -1)
    conv = Conv2d(stride, image, dilation, layer.activation())
    made = Converted(conv, (slices, np.ascontiguousarray(kernel), bias), ("weights", "bias"))
    size = image.output_size(x.shape[2:4], weights.shape[1:3], stride, dilation)
    return Converted(Reshape((x.shape[0], count, *size, outputs)), (made,))


def _side_by_side(
    x: NamedTensor, around: tuple[int, int], taps: int, step: int, spread: int
) -> tuple[Converted, int]:
    # ``[N * OD, H, W, taps * C]``, and OD.
    batch, depth, *image, channels = x.shape
    padded: NamedTensor | Converted = x
    if any(around):
        padded = Converted(Pad((0, around[0], 0, 0, 0), (0, around[1], 0, 0, 0)), (x,))
    (count, _) = Padding(*around).output_size((depth, 1), (taps, 1), (step, 1), (spread, 1))
    parts = []
    for tap in range(taps):
        first = tap * spread
        end = (batch, first + (count - 1) * step + 1, *image, channels)
        parts.append(Converted(StridedSlice((0, first, 0, 0, 0), end, (1, step, 1, 1, 1)), (padded,)))
    joined = Converted(Concat(4), tuple(parts)) if taps > 1 else parts[0]
    return Converted(Reshape((batch * count, *image, taps * channels)), (joined,)), count


_FIELDS = (
    "Padding", "StrideD", "StrideH", "StrideW", "FusedActivationFunction", "DilationDFactor",
    "DilationHFactor", "DilationWFactor",
)  # fmt: skip

CONVERTERS: Mapping[str, TfliteConverter] = {
    "CONV_3D": TfliteConverter(_conv3d, ("conv3d",), "Conv3DOptions", _FIELDS, same(DType.FLOAT32)),
}
