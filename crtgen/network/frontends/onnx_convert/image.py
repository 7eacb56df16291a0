"""Operators on images other than convolutions and poolings."""

from collections.abc import Mapping, Sequence
from functools import reduce
from math import prod

import numpy as np
import numpy.typing as npt

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    OnnxConverter,
    OnnxLayer,
    Operand,
    number,
    power,
    reshaped,
    transposed,
)
from crtgen.network.ir import Value, shape_text
from crtgen.network.ops import Add, Mul, Pad, StridedSlice
from crtgen.network.ops.function import Square
from crtgen.network.ops.grid import MODES, PADDINGS, GridSample
from crtgen.network.ops.matmul import BatchMatMul

__all__ = ["CONVERTERS", "spread"]

_MOST_CHANNELS = 64


def spread(x: Operand, shape: Sequence[int], axis: int, step: int) -> tuple[Operand, list[int]]:
    """Insert ``step - 1`` zeros between adjacent elements along an axis; also return the new shape."""
    made = list(shape)
    if step == 1:
        return x, made
    made[axis] = (shape[axis] - 1) * step + 1
    apart = reshaped(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    zeros = tuple(step - 1 if a == axis + 1 else 0 for a in range(len(shape) + 1))
    wide = Converted(Pad((0,) * len(zeros), zeros), (apart,))
    whole = reshaped(wide, (*shape[:axis], shape[axis] * step, *shape[axis + 1 :]))
    return Converted(StridedSlice((0,) * len(made), tuple(made), (1,) * len(made)), (whole,)), made


def _col2im(layer: OnnxLayer) -> Converted:
    # Sums of blocks at their places: ``[N, C * taps, places]`` to ``[N, C, ...]``.
    size, block = layer.integers(1, "lengths"), layer.integers(2, "lengths of blocks")
    spatial = len(size)
    strides, dilations = (
        [int(i) for i in layer.attribute(n) or [1] * spatial] for n in ("strides", "dilations")
    )
    pads = [int(p) for p in layer.attribute("pads") or [0] * (2 * spatial)]
    padded = [d + a + b for d, a, b in zip(size, pads[:spatial], pads[spatial:], strict=True)]
    axes = zip(padded, block, dilations, strides, strict=True)
    places = [(d - (k - 1) * spread_by - 1) // s + 1 for d, k, spread_by, s in axes]
    batch, rows, columns = layer.x.shape
    if min(places) < 1 or prod(places) != columns or rows % prod(block):
        raise ValueError(f"{shape_text(layer.x.shape)} for blocks {block} of {size}")
    channels = rows // prod(block)
    x = reshaped(layer.x, (batch, channels, prod(block), *places))
    parts = [
        _block(x, (batch, channels, *places), tap, strides, dilations, padded, n)
        for n, tap in enumerate(np.ndindex(*block))
    ]
    total = reduce(lambda a, b: Converted(Add(), (a, b)), parts)
    if not any(pads):
        return total
    begin = (0, 0, *pads[:spatial])
    end = (batch, channels, *(a + d for a, d in zip(pads, size, strict=False)))
    return Converted(StridedSlice(begin, end, (1,) * len(begin)), (total,))


def _block(
    x: Operand,
    shape: Sequence[int],
    tap: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    padded: Sequence[int],
    number_of: int,
) -> Converted:
    # Contribution of one tap of all blocks to the padded image.
    whole = [*shape[:2], 1, *shape[2:]]
    begin = [number_of if a == 2 else 0 for a in range(len(whole))]
    end = [begin[a] + d for a, d in enumerate(whole)]
    cut = Converted(StridedSlice(tuple(begin), tuple(end), (1,) * len(whole)), (x,))
    made: Operand = reshaped(cut, shape)
    lengths = list(shape)
    for axis, step in enumerate(strides, 2):
        made, lengths = spread(made, lengths, axis, step)
    before = [0, 0, *(t * d for t, d in zip(tap, dilations, strict=True))]
    after = [0, 0, *(p - n - b for p, n, b in zip(padded, lengths[2:], before[2:], strict=True))]
    return Converted(Pad(tuple(before), tuple(after)), (made,))


def _lrn(layer: OnnxLayer) -> Converted:
    # ``x / (bias + alpha / size * sum of squares of neighbouring channels) ** beta``.
    size = layer.whole("size")
    if layer.rank < 2 or size < 1:
        raise ValueError(f"{size} channels of {shape_text(layer.x.shape)}")
    furthest = layer.x.shape[1] - 1
    before, after = (min(n, furthest) for n in ((size - 1) // 2, size // 2))
    if before + after >= _MOST_CHANNELS:
        raise RefusedOperator(f"sums of {before + after + 1} channels; supported: {_MOST_CHANNELS}")
    ends = tuple(tuple(n if a == 1 else 0 for a in range(layer.rank)) for n in (before, after))
    padded = Converted(Pad(ends[0], ends[1]), (Converted(Square(), (layer.x,)),))
    parts = []
    for first in range(before + after + 1):
        begin = tuple(first if a == 1 else 0 for a in range(layer.rank))
        end = tuple(d + b for d, b in zip(layer.x.shape, begin, strict=True))
        parts.append(Converted(StridedSlice(begin, end, (1,) * layer.rank), (padded,)))
    total = reduce(lambda a, b: Converted(Add(), (a, b)), parts)
    scaled = Converted(Mul(), (total, number(layer.real("alpha", 1e-4) / size)), ("alpha",))
    base = Converted(Add(), (scaled, number(layer.real("bias", 1.0))), ("bias",))
    return Converted(Mul(), (layer.x, power(base, -layer.real("beta", 0.75))))


_OLD_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def _grid_sample(layer: OnnxLayer) -> Converted:
    # With channels last around it; before opset 20 the modes have other names.
    mode, padding = layer.text("mode", "linear"), layer.text("padding_mode", "zeros")
    mode = _OLD_MODES.get(mode, mode)
    if mode not in MODES or padding not in PADDINGS:
        known = ", ".join((*MODES, *PADDINGS))
        raise RefusedOperator(f"mode {mode}, padding {padding}; supported: {known}")
    op = GridSample(mode, padding, bool(layer.whole("align_corners")))
    spatial = range(2, layer.rank)
    made = Converted(op, (transposed(layer.x, (0, *spatial, 1)), layer.tensor(1)), ("grid",))
    return transposed(made, (0, layer.rank - 1, *range(1, layer.rank - 1)))


def _affine_grid(layer: OnnxLayer) -> Converted:
    # ``theta[N, n, n + 1]`` times the places of an image's elements, from -1 to 1, the last axis first. What
    # ONNX defines it by fails for N = 1: its Squeeze takes that axis, too.
    size = layer.integers(1, "the size")
    batch, rows, columns = layer.x.shape
    if rows not in (2, 3) or columns != rows + 1 or len(size) != rows + 2 or size[0] != batch:
        raise ValueError(f"{shape_text(layer.x.shape)} for an image of {shape_text(size)}")
    aligned = bool(layer.whole("align_corners"))
    lines = [_places(length, aligned) for length in size[2:]]
    along = [axis.ravel() for axis in reversed(np.meshgrid(*lines, indexing="ij"))]
    places = np.stack([*along, np.ones_like(along[0])], axis=1)[None].astype(np.float32)
    made = Converted(BatchMatMul(adj_y=True), (Value.constant("places", places), layer.x), ("theta",))
    return reshaped(made, (batch, *size[2:], rows))


def _places(length: int, aligned: bool) -> npt.NDArray[np.float64]:
    # Places along an axis, from the middle of the first element to that of the last if they are aligned. A
    # single one is the last, as in ONNX Runtime.
    if aligned:
        return np.linspace(-1, 1, length) if length > 1 else np.ones(1)
    return (2 * np.arange(length) + 1) / length - 1


CONVERTERS: Mapping[str, OnnxConverter] = {
    "AffineGrid": OnnxConverter(_affine_grid, ("affine_grid",)),
    "Col2Im": OnnxConverter(_col2im, ("col2im",)),
    "GridSample": OnnxConverter(_grid_sample, ("grid_sample",)),
    "LRN": OnnxConverter(_lrn, ("lrn",)),
}
