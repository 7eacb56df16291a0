"""Poolings: images become ``[N,H,W,C]`` around them."""

from collections.abc import Mapping
from math import prod

from crtgen.frontends.builder import Converted, Refused
from crtgen.frontends.onnx_convert.layer import Converter, Layer, Operand, number, reshaped
from crtgen.frontends.onnx_convert.window import Window, to_first, to_last, window_of
from crtgen.ops import AveragePool2d, MaxPool2d, Mul, Pad, Padding
from crtgen.ops.function import Abs, Sqrt, Square

__all__ = ["CONVERTERS"]


def _max_pool(layer: Layer) -> Converted:
    if layer.outputs[1:] not in ((), (None,)):
        raise Refused("the places of the greatest numbers as an output; supported: the numbers")
    window = window_of(layer, ())
    if window.dilation != (1, 1):
        raise Refused(f"dilation {window.dilation}; supported: 1")
    return _pooled(layer, window, MaxPool2d(window.taps, window.stride, window.around), layer.x)


def _pooled(layer: Layer, window: Window, op: AveragePool2d | MaxPool2d, x: Operand) -> Converted:
    made = Converted(op, (to_last(x, window.image, layer.rank),))
    size = op.padding.output_size(window.image[2:], window.taps, window.stride)
    return to_first(made, (*window.image[:2], *size), layer.rank)


def _average_pool(layer: Layer) -> Converted:
    return _averaged(layer, layer.x, bool(layer.whole("count_include_pad")))


def _averaged(layer: Layer, x: Operand, counts: bool) -> Converted:
    """The mean of each window; ``counts``: with the zeros around the image."""
    window = window_of(layer, ())
    if window.dilation != (1, 1):
        raise Refused(f"dilation {window.dilation}; supported: 1")
    p, (n, c, h, w) = window.padding, window.image
    if not counts or p == Padding():
        return _pooled(layer, window, AveragePool2d(window.taps, window.stride, window.around), x)
    x = x if layer.rank == 4 else reshaped(x, window.image)
    padded = Converted(Pad((0, 0, p.top, p.left), (0, 0, p.bottom, p.right)), (x,))
    image = (n, c, h + p.top + p.bottom, w + p.left + p.right)
    op = AveragePool2d(window.taps, window.stride, window.beyond)
    made = Converted(op, (to_last(padded, image, 4),))
    return to_first(made, (n, c, *op.padding.output_size(image[2:], op.window, op.stride)), layer.rank)


def _lp_pool(layer: Layer) -> Converted:
    """The p-th root of the sum of the p-th powers."""
    layer.refuse("p", 2, 1)
    if layer.whole("ceil_mode"):
        raise Refused("ceil_mode; supported: without")
    squares = layer.whole("p", 2) == 2
    inner = Converted(Square() if squares else Abs(), (layer.x,))
    count = float(prod(window_of(layer, ()).taps))
    total = Converted(Mul(), (_averaged(layer, inner, True), number(count)), ("count",))
    return Converted(Sqrt(), (total,)) if squares else total


CONVERTERS: Mapping[str, Converter] = {
    "AveragePool": Converter(_average_pool, ("average_pool",)),
    "LpPool": Converter(_lp_pool, ("lp_pool",)),
    "MaxPool": Converter(_max_pool, ("max_pool",)),
}
