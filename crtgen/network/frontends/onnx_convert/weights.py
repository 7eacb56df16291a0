"""Convolutions, between transpositions to ``[N,H,W,C]`` and back.

A float convolution in three dimensions is a sum of convolutions of images, one for each tap along the first
dimension.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

import numpy as np

from crtgen.network.frontends.builder import Converted
from crtgen.network.frontends.onnx_convert.computed import by_computed_weights
from crtgen.network.frontends.onnx_convert.image import spread
from crtgen.network.frontends.onnx_convert.layer import (
    OnnxConverter,
    OnnxLayer,
    Operand,
    reshaped,
    transposed,
)
from crtgen.network.frontends.onnx_convert.transposed import (
    TransposedWeights,
    Turned,
    transposed_conv,
    turned_lines,
)
from crtgen.network.frontends.onnx_convert.volume import (
    VOLUME_FIRST,
    VOLUME_LAST,
    flat_window,
    volume_of_integers,
)
from crtgen.network.frontends.onnx_convert.window import (
    REAL,
    ConvStorage,
    grouped,
    lines_of,
    to_first,
    to_last,
    window_of,
)
from crtgen.network.ir import Array, shape_text
from crtgen.network.ops import Add, Pad, StridedSlice

__all__ = ["CONVERTERS", "bias_of", "convolved", "turned"]


def bias_of(layer: OnnxLayer, outputs: int, place: int = 2) -> Array:
    if not layer.has(place):
        return np.zeros(outputs, np.float32)
    bias = layer.constant(place, "biases")
    if bias.shape != (outputs,):
        raise ValueError(f"a bias of {shape_text(bias.shape)} for {outputs} outputs")
    return bias


def _conv(layer: OnnxLayer) -> Converted:
    # Weights and bias are constants, or at least one of them is computed.
    shape, bias = layer.tensor(1).shape, layer.tensor(2) if layer.has(2) else None
    if bias is not None and (bias.data is None or layer.tensor(1).data is None):
        if bias.shape != shape[:1]:
            raise ValueError(f"a bias of {shape_text(bias.shape)} for {shape[0]} outputs")
        made = _conv(replace(layer, inputs=layer.inputs[:2]))
        return Converted(Add(), (made, reshaped(bias, (*bias.shape, *(1,) * (layer.rank - 2)))), ("bias",))
    if layer.tensor(1).data is None and len(shape) == layer.rank < 5:
        return by_computed_weights(layer, layer.tensor(1))
    weights = layer.constant(1, "weights")
    if weights.ndim != layer.rank:
        raise ValueError(f"weights of {shape_text(weights.shape)} on {shape_text(layer.x.shape)}")
    if layer.rank == 5:
        return _volume(layer, weights)
    return convolved(layer, layer.x, weights, bias_of(layer, weights.shape[0]), REAL)


def convolved(layer: OnnxLayer, x: Operand, weights: Array, bias: Array, numbers: ConvStorage) -> Converted:
    """Convolve a 1-D, 2-D or 3-D integer input with ``weights[O, C/groups, ...]``."""
    if layer.rank == 5:
        return volume_of_integers(layer, x, weights, bias, numbers)
    window = window_of(layer, weights.shape[2:])
    if tuple(weights.shape[2:]) != window.taps[4 - layer.rank :]:
        raise ValueError(f"a window of {window.taps} and weights of {shape_text(weights.shape)}")
    kernel = weights.reshape(*weights.shape[:2], *window.taps).transpose(0, 2, 3, 1)
    images = to_last(x, window.image, layer.rank)
    made = grouped(images, window, kernel, bias, layer.whole("group", 1), numbers)
    size = window.padding.output_size(window.image[2:], window.taps, window.stride, window.dilation)
    return to_first(made, (window.image[0], weights.shape[0], *size), layer.rank)


def _volume(layer: OnnxLayer, weights: Array) -> Converted:
    # ``[N,C,D,H,W]``: for each tap along D, images of the depths that it sees.
    deep, *flat = lines_of(layer, weights.shape[2:])
    n, c, _, h, w = layer.x.shape
    x: Operand = transposed(layer.x, VOLUME_LAST)
    ends = deep.before, deep.after
    if any(ends):
        x = Converted(Pad((0, ends[0], 0, 0, 0), (0, ends[1], 0, 0, 0)), (x,))
    window = flat_window((n * deep.outputs, c, h, w), flat)
    kernel, zeros = weights.transpose(2, 0, 3, 4, 1), np.zeros(weights.shape[0], np.float32)
    if kernel.shape[0] != deep.taps:
        raise ValueError(f"a window of {deep.taps} and weights of {shape_text(weights.shape)}")
    parts = []
    for tap in range(deep.taps):
        begin = (0, tap * deep.dilation, 0, 0, 0)
        end = (n, begin[1] + (deep.outputs - 1) * deep.stride + 1, h, w, c)
        seen = Converted(StridedSlice(begin, end, (1, deep.stride, 1, 1, 1)), (x,))
        images = reshaped(seen, (n * deep.outputs, h, w, c))
        bias = zeros if tap else bias_of(layer, weights.shape[0])
        parts.append(grouped(images, window, kernel[tap], bias, layer.whole("group", 1)))
    total = reduce(lambda a, b: Converted(Add(), (a, b)), parts)
    size = (n, deep.outputs, *(line.outputs for line in flat), weights.shape[0])
    return transposed(reshaped(total, size), VOLUME_FIRST)


def _conv_transpose(layer: OnnxLayer) -> Converted:
    return turned(layer, layer.x, layer.constant(1, "weights"))


def turned(
    layer: OnnxLayer,
    x: Operand,
    weights: Array,
    bias: Array | None = None,
    numbers: ConvStorage = REAL,
) -> Converted:
    """Apply a transposed convolution with ``weights[C, O / groups, ...]`` to ``x[N, C, ...]``.

    Without ``bias[O]`` it is the layer's own, of float32. Three dimensions are supported for floats only.
    """
    groups = layer.whole("group", 1)
    if weights.ndim != layer.rank or groups < 1 or weights.shape[0] != layer.x.shape[1]:
        raise ValueError(f"weights of {shape_text(weights.shape)} on {shape_text(layer.x.shape)}")
    lines = turned_lines(layer, weights.shape[2:])
    if layer.rank == 5:
        return _volume_transposed(layer, weights, groups, lines)
    image = (*layer.x.shape[:2], *(1,) * (4 - layer.rank), *layer.x.shape[2:])
    pair = (*(Turned(1, 1, 1, 1, 0, 1),) * (4 - layer.rank), *lines)
    outputs = groups * weights.shape[1]
    shape = (*weights.shape[:2], *(line.taps for line in pair))
    n, c, h, w = image
    own = bias_of(layer, outputs) if bias is None else bias
    kernel = TransposedWeights(weights.reshape(shape), own, groups)
    images = to_last(x, (n, c, h, w), layer.rank)
    made = transposed_conv(images, (n, h, w), (pair[0], pair[1]), kernel, numbers)
    return to_first(made, (n, outputs, *(line.outputs for line in pair)), layer.rank)


def _volume_transposed(layer: OnnxLayer, weights: Array, groups: int, lines: tuple[Turned, ...]) -> Converted:
    # ``[N,C,D,H,W]``: for each tap along D, images that are added to the depths that it reaches.
    deep, down, across = lines
    n, c, d, h, w = layer.x.shape
    outputs, rows = (
        groups * weights.shape[1],
        max((d - 1) * deep.stride + deep.extent, deep.before + deep.outputs),
    )
    x = reshaped(transposed(layer.x, VOLUME_LAST), (n * d, h, w, c))
    parts = []
    for tap in range(deep.taps):
        kernel = TransposedWeights(weights[:, :, tap], np.zeros(outputs, np.float32), groups)
        images = transposed_conv(x, (n * d, h, w), (down, across), kernel)
        shape = [n, d, down.outputs, across.outputs, outputs]
        made, shape = spread(reshaped(images, shape), shape, 1, deep.stride)
        first = tap * deep.dilation
        ends = (0, first, 0, 0, 0), (0, rows - first - shape[1], 0, 0, 0)
        parts.append(Converted(Pad(*ends), (made,)))
    total = reduce(lambda a, b: Converted(Add(), (a, b)), parts)
    begin, end = (
        (0, deep.before, 0, 0, 0),
        (n, deep.before + deep.outputs, down.outputs, across.outputs, outputs),
    )
    cut = Converted(StridedSlice(begin, end, (1,) * 5), (total,))
    return transposed(Converted(Add(), (cut, bias_of(layer, outputs)), ("bias",)), VOLUME_FIRST)


CONVERTERS: Mapping[str, OnnxConverter] = {
    "Conv": OnnxConverter(_conv, ("conv",)),
    "ConvTranspose": OnnxConverter(_conv_transpose, ("conv_transpose",)),
}
