"""Convolutions: images become ``[N,H,W,C]`` around them."""

from collections.abc import Mapping, Sequence

import numpy as np

from crtgen.frontends.builder import Converted, Refused
from crtgen.frontends.onnx_convert.layer import Converter, Layer, Operand, reshaped
from crtgen.frontends.onnx_convert.window import Window, to_first, to_last, two, window_of
from crtgen.ir import Array, shape_text
from crtgen.ops import Concat, Conv2d, DepthwiseConv2d, Pad, Padding, StridedSlice

__all__ = ["CONVERTERS"]


def _bias(layer: Layer, outputs: int) -> Array:
    if not layer.has(2):
        return np.zeros(outputs, np.float32)
    bias = layer.constant(2, "biases")
    if bias.shape != (outputs,):
        raise ValueError(f"a bias of {shape_text(bias.shape)} for {outputs} outputs")
    return bias


def _conv(layer: Layer) -> Converted:
    weights = layer.constant(1, "weights")
    if weights.ndim != layer.rank:
        raise ValueError(f"weights of {shape_text(weights.shape)} on {shape_text(layer.x.shape)}")
    window = window_of(layer, weights.shape[2:])
    if tuple(weights.shape[2:]) != window.taps[4 - layer.rank :]:
        raise ValueError(f"a window of {window.taps} and weights of {shape_text(weights.shape)}")
    kernel = weights.reshape(*weights.shape[:2], *window.taps).transpose(0, 2, 3, 1)
    bias = _bias(layer, weights.shape[0])
    x = to_last(layer.x, window.image, layer.rank)
    made = _grouped(x, window, kernel, bias, layer.whole("group", 1))
    size = window.padding.output_size(window.image[2:], window.taps, window.stride, window.dilation)
    return to_first(made, (window.image[0], weights.shape[0], *size), layer.rank)


def _grouped(x: Operand, window: Window, kernel: Array, bias: Array, groups: int) -> Converted:
    """A convolution of ``[N,H,W,C]`` with ``kernel[O,kh,kw,C/groups]``."""
    outputs, depth, channels = kernel.shape[0], kernel.shape[3], window.image[1]
    if groups < 1 or depth * groups != channels or outputs % groups:
        raise ValueError(f"weights for {groups} times {depth} of {channels} channels, and {outputs} outputs")
    roles = ("weights", "bias")
    op = Conv2d(window.stride, window.padding, window.dilation)
    if groups == 1:
        return Converted(op, (x, kernel, bias), roles)
    if depth == 1:
        one = DepthwiseConv2d(window.stride, window.padding, window.dilation, outputs // groups)
        return Converted(one, (x, kernel.transpose(3, 1, 2, 0), bias), roles)
    each, (n, _, h, w) = outputs // groups, window.image
    parts = []
    for g in range(groups):
        cut = StridedSlice((0, 0, 0, g * depth), (n, h, w, (g + 1) * depth), (1,) * 4)
        own = np.s_[g * each : (g + 1) * each]
        parts.append(Converted(op, (Converted(cut, (x,)), kernel[own], bias[own]), roles))
    return Converted(Concat(3), tuple(parts))


def _conv_transpose(layer: Layer) -> Converted:
    """A convolution of the image with zeros between its pixels, with the weights turned round."""
    weights = layer.constant(1, "weights")
    groups, spatial = layer.whole("group", 1), layer.rank - 2
    if spatial not in (1, 2):
        raise Refused(f"{spatial} dimensions of space; supported: 1, 2")
    taps, stride, dilation = (
        two(layer, name, spatial, given)
        for name, given in (("kernel_shape", weights.shape[2:]), ("strides", ()), ("dilations", ()))
    )
    n, c, *size = layer.x.shape
    size = [1] * (2 - spatial) + size
    extents = [(t - 1) * d + 1 for t, d in zip(taps, dilation, strict=True)]
    pads, size_out = _transposed_sides(layer, size, extents, stride)
    each = weights.shape[1]
    kernel = weights.reshape(groups, c // groups, each, *taps)[..., ::-1, ::-1]
    kernel = kernel.transpose(0, 2, 3, 4, 1).reshape(groups * each, *taps, c // groups)
    x = to_last(layer.x, (n, c, size[0], size[1]), layer.rank)
    x = _stuffed(x, (n, *size, c), stride)
    before = [e - 1 - p for e, p in zip(extents, pads, strict=True)]
    stuffed = [(d - 1) * s + 1 for d, s in zip(size, stride, strict=True)]
    after = [o + e - 1 - b - d for o, e, b, d in zip(size_out, extents, before, stuffed, strict=True)]
    begin, end = [max(-b, 0) for b in before], [d + min(a, 0) for d, a in zip(stuffed, after, strict=True)]
    x = Converted(StridedSlice((0, *begin, 0), (n, *end, c), (1,) * 4), (x,))
    padding = Padding(max(before[0], 0), max(after[0], 0), max(before[1], 0), max(after[1], 0))
    image = (n, c, end[0] - begin[0], end[1] - begin[1])
    window = Window(image, taps, (1, 1), dilation, padding, Padding())
    made = _grouped(x, window, kernel, _bias(layer, groups * each), groups)
    return to_first(made, (n, groups * each, *size_out), layer.rank)


def _transposed_sides(
    layer: Layer, size: Sequence[int], extents: Sequence[int], stride: Sequence[int]
) -> tuple[list[int], list[int]]:
    """What is cut off before each axis of a transposed convolution's output, and the output's lengths."""
    spatial, first = layer.rank - 2, 4 - layer.rank
    listed = [int(p) for p in layer.attribute("pads") or [0] * (2 * spatial)]
    more = [0] * first + [int(p) for p in layer.attribute("output_padding") or [0] * spatial]
    asked = layer.attribute("output_shape")
    auto = layer.text("auto_pad", "NOTSET")
    full = [(d - 1) * s + e + m for d, s, e, m in zip(size, stride, extents, more, strict=True)]
    if asked is None and auto in ("NOTSET", "VALID"):
        pads = [0] * first + (listed[:spatial] if auto == "NOTSET" else [0] * spatial)
        ends = [0] * first + (listed[spatial:] if auto == "NOTSET" else [0] * spatial)
        return pads, [f - a - b for f, a, b in zip(full, pads, ends, strict=True)]
    given = (
        asked[-spatial:] if asked is not None else [d * s for d, s in zip(size, stride, strict=True)][first:]
    )
    wanted = [1] * first + [int(d) for d in given]
    totals = [max(f - d, 0) for f, d in zip(full, wanted, strict=True)]
    pads = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in totals]
    return pads, wanted


def _stuffed(x: Operand, shape: Sequence[int], stride: tuple[int, int]) -> Operand:
    """``[N,H,W,C]`` with ``stride - 1`` zeros between pixels: ``[N,(H-1)*s+1,(W-1)*s+1,C]``."""
    if stride == (1, 1):
        return x
    n, h, w, c = shape
    (down, across) = stride
    apart = reshaped(x, (n, h, 1, w, 1, c))
    spread = Converted(Pad((0,) * 6, (0, 0, down - 1, 0, across - 1, 0)), (apart,))
    whole = reshaped(spread, (n, h * down, w * across, c))
    end = (n, (h - 1) * down + 1, (w - 1) * across + 1, c)
    return Converted(StridedSlice((0,) * 4, end, (1,) * 4), (whole,))


CONVERTERS: Mapping[str, Converter] = {
    "Conv": Converter(_conv, ("conv",)),
    "ConvTranspose": Converter(_conv_transpose, ("conv_transpose",)),
}
