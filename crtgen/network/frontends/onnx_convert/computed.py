"""Convolutions with weights that are computed at run time, as matrix products."""

from itertools import product
from math import prod

from crtgen.network.frontends.builder import Converted, NamedTensor, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import OnnxLayer, Operand, reshaped, transposed
from crtgen.network.frontends.onnx_convert.window import ImageWindow, to_first, to_last, window_of
from crtgen.network.ir import shape_text
from crtgen.network.ops import Concat, Pad, StridedSlice
from crtgen.network.ops.matmul import BatchMatMul

__all__ = ["by_computed_weights"]

_MOST_TAPS = 64


def by_computed_weights(layer: OnnxLayer, weights: NamedTensor) -> Converted:
    """Multiply by computed weights ``[groups, positions, taps x channels]``, without a bias."""
    groups, (outputs, depth) = layer.whole("group", 1), weights.shape[:2]
    window = window_of(layer, weights.shape[2:])
    taps = prod(weights.shape[2:])
    if taps > _MOST_TAPS:
        raise RefusedOperator(
            f"{taps} weights of a window that are computed at run time; supported: {_MOST_TAPS}"
        )
    if groups < 1 or depth * groups != layer.x.shape[1] or outputs % groups:
        raise ValueError(f"weights of {shape_text(weights.shape)} in {groups} groups")
    n, shape = layer.x.shape[0], (window.taps, window.stride, window.dilation)
    size = window.padding.output_size(window.image[2:], *shape)
    places = n * prod(size)
    seen = reshaped(_patches(layer, window, size), (places, taps, groups, depth))
    rows = reshaped(transposed(seen, (2, 0, 1, 3)), (groups, places, taps * depth))
    split = transposed(reshaped(weights, (groups, outputs // groups, depth, taps)), (0, 3, 2, 1))
    columns = reshaped(split, (groups, taps * depth, outputs // groups))
    made = transposed(Converted(BatchMatMul(), (rows, columns), ("weights",)), (1, 0, 2))
    return to_first(reshaped(made, (n, *size, outputs)), (n, outputs, *size), layer.rank)


def _patches(layer: OnnxLayer, window: ImageWindow, size: tuple[int, int]) -> Converted:
    # ``[N, ..., taps x channels]``: what the window sees at each place.
    (n, c), p = window.image[:2], window.padding
    x: Operand = to_last(layer.x, window.image, layer.rank)
    if any((p.top, p.bottom, p.left, p.right)):
        x = Converted(Pad((0, p.top, p.left, 0), (0, p.bottom, p.right, 0)), (x,))
    parts = []
    for tap in product(*map(range, window.taps)):
        first = [t * d for t, d in zip(tap, window.dilation, strict=True)]
        last = [f + (o - 1) * s + 1 for f, o, s in zip(first, size, window.stride, strict=True)]
        cut = StridedSlice((0, *first, 0), (n, *last, c), (1, *window.stride, 1))
        parts.append(Converted(cut, (x,)))
    return Converted(Concat(3), tuple(parts))
