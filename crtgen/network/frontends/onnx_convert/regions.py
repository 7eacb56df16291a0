"""Regions of images, and deformable convolutions: both sample images at computed points."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, prod

import numpy as np

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    OnnxConverter,
    OnnxLayer,
    Operand,
    ask_for_room,
    cast,
    number,
    reshaped,
    transposed,
)
from crtgen.network.frontends.onnx_convert.weights import bias_of, convolved
from crtgen.network.frontends.onnx_convert.window import REAL, AxisWindow, lines_of
from crtgen.network.ir import Array, DType, Op, shape_text
from crtgen.network.ops import Add, Mean, Mul, StridedSlice, Sub
from crtgen.network.ops.compare import GreaterEqual, LessEqual, LogicalAnd, Maximum, Minimum, Select
from crtgen.network.ops.gather import Gather
from crtgen.network.ops.grid import GridSample
from crtgen.network.ops.reduce import ReduceMin
from crtgen.network.ops.suppression import NonMaxSuppression

__all__ = ["CONVERTERS"]

_HALF = "half_pixel"


def _suppressed(layer: OnnxLayer) -> Converted:
    # The largest possible number of rows; unused rows hold -1.
    most, overlap, least = (_single(layer, place, default) for place, default in ((2, 0), (3, 0), (4, -inf)))
    if most < 1:
        raise RefusedOperator("no boxes at all (max_output_boxes_per_class)")
    op = NonMaxSuppression(
        min(int(most), layer.x.shape[1]),
        float(np.float32(overlap)),
        float(np.float32(least)),
        bool(layer.whole("center_point_box")),
    )
    return Converted(op, (layer.x, layer.tensor(1)), ("scores",))


def _single(layer: OnnxLayer, place: int, default: float) -> float:
    return float(layer.constant(place, "limits").reshape(-1)[0].item()) if layer.has(place) else default


def _deform_conv(layer: OnnxLayer) -> Converted:
    # A convolution of lines: for each output, the pixels that its taps see, side by side.
    weights, offsets = layer.constant(1, "weights"), layer.tensor(2)
    if layer.rank != 4 or weights.ndim != 4:
        raise RefusedOperator(f"{layer.rank - 2} dimensions; supported: two")
    (n, c, *size), groups = layer.x.shape, layer.whole("offset_group", 1)
    lines, taps = lines_of(layer, weights.shape[2:]), weights.shape[2] * weights.shape[3]
    places = tuple(line.outputs for line in lines)
    if groups < 1 or c % groups or offsets.shape != (n, groups * taps * 2, *places):
        raise ValueError(f"offsets of {shape_text(offsets.shape)} in {groups} groups for {c} channels")
    batch, each = n * groups, c // groups
    split = reshaped(offsets, (batch, taps, 2, *places))
    across = Converted(Gather(2), (split, np.array([1, 0], np.int32)), ("order",))
    steps = np.array([[[2 / size[1]]], [[2 / size[0]]]], np.float32)
    scaled = Converted(Mul(), (across, steps), ("steps",))
    grid = transposed(Converted(Add(), (scaled, _unmoved(lines)), ("places",)), (0, 1, 3, 4, 2))
    images = transposed(reshaped(layer.x, (batch, each, *size)), (0, 2, 3, 1))
    seen = Converted(GridSample(), (images, grid), ("grid",))
    if layer.has(4):
        seen = Converted(Mul(), (seen, reshaped(layer.tensor(4), (batch, taps, *places, 1))), ("mask",))
    rows = places[0] * places[1]
    ordered = transposed(reshaped(seen, (batch, taps, rows, each)), (0, 3, 2, 1))
    own = _of_lines(layer, (n, c, rows, taps))
    kernel = weights.reshape(*weights.shape[:2], 1, taps)
    line = reshaped(ordered, own.x.shape)
    made = convolved(own, line, kernel, bias_of(layer, len(weights), 3), REAL)
    return reshaped(made, (n, len(weights), *places))


def _unmoved(lines: Sequence[AxisWindow]) -> Array:
    # ``[taps, 2, ...]``: where taps are without offsets, from -1 to 1, across first.
    taps, places = [line.taps for line in lines], [line.outputs for line in lines]
    ask_for_room((12, *taps, *places))
    found = []
    for axis, line in enumerate(lines):
        tap, place = np.indices((*taps, *places))[[axis, axis + 2]]
        pixel = place * line.stride - line.before + tap * line.dilation
        found.append((2 * pixel + 1) / line.length - 1)
    both = np.stack(found[::-1], axis=2).astype(np.float32)
    return both.reshape(taps[0] * taps[1], 2, *places)


def _of_lines(layer: OnnxLayer, shape: tuple[int, ...]) -> OnnxLayer:
    # The layer on lines, without what it does along the axes of its image.
    attributes = {"group": layer.whole("group", 1)}
    inputs = (replace(layer.x, shape=shape), *layer.inputs[1:])
    return replace(layer, node=replace(layer.node, attributes=attributes), inputs=inputs)


def _roi_align(layer: OnnxLayer) -> Converted:
    # The mean of points in each part of a region; what is beyond the image by more than a pixel counts 0.
    layer.refuse("mode", "avg")
    count = layer.whole("sampling_ratio")
    if count < 1:
        raise RefusedOperator(f"sampling_ratio {count}, points by the size of a region; supported: from 1 on")
    (n, c, *size), regions = layer.x.shape, layer.tensor(1).shape[0]
    places = layer.whole("output_height", 1), layer.whole("output_width", 1)
    shape = (regions, *places, count, count)
    where = _sampled(layer, shape)
    beyond = [Converted(op, (where, bound), ("bound",)) for op, bound in _borders(size)]
    inside = Converted(Select(), (Converted(LogicalAnd(), tuple(beyond)), number(1), number(0)))
    counted = Converted(ReduceMin((5,), True), (inside,))
    clamped = Converted(Maximum(), (where, number(0)), ("first",))
    edges = np.array([size[1] - 1, size[0] - 1], np.float32)
    within = _in_batch(layer, Converted(Minimum(), (clamped, edges), ("last",)), n, size[0])
    scale = np.array([2 / size[1], 2 / (n * size[0])], np.float32)
    scaled = Converted(Mul(), (within, scale), ("scale",))
    grid = Converted(Add(), (scaled, scale / 2 - 1), ("first",))
    stacked = reshaped(transposed(layer.x, (0, 2, 3, 1)), (1, n * size[0], size[1], c))
    seen = Converted(GridSample(), (stacked, reshaped(grid, (1, prod(shape), 2))), ("grid",))
    kept = Converted(Mul(), (reshaped(seen, (*shape, c)), counted), ("counted",))
    return transposed(Converted(Mean((3, 4), False), (kept,)), (0, 3, 1, 2))


def _borders(size: Sequence[int]) -> tuple[tuple[Op, Array], ...]:
    # Within what points count, across and down.
    return (GreaterEqual(), number(-1)), (LessEqual(), np.array([size[1], size[0]], np.float32))


def _sampled(layer: OnnxLayer, shape: tuple[int, ...]) -> Converted:
    # ``[*shape, 2]``: the points of all regions in pixels, across first.
    half = layer.text("coordinate_transformation_mode", _HALF if layer.opset >= 16 else "") == _HALF
    corners = []
    for first in (0, 2):
        cut = StridedSlice((0, first), (shape[0], first + 2), (1, 1))
        scale = number(layer.real("spatial_scale", 1.0))
        scaled = Converted(Mul(), (Converted(cut, (layer.tensor(1),)), scale), ("scale",))
        corners.append(Converted(Sub(), (scaled, number(0.5 if half else 0)), ("half",)))
    lengths: Operand = Converted(Sub(), (corners[1], corners[0]))
    if not half:
        lengths = Converted(Maximum(), (lengths, number(1)), ("least",))
    ask_for_room((12, *shape[1:]))
    down, across, below, beside = np.indices(shape[1:])
    x, y = (across + (beside + 0.5) / shape[4]) / shape[2], (down + (below + 0.5) / shape[3]) / shape[1]
    shares = np.stack([x, y], axis=-1).astype(np.float32)
    start, whole = (reshaped(each, (shape[0], 1, 1, 1, 1, 2)) for each in (corners[0], lengths))
    return Converted(Add(), (Converted(Mul(), (whole, shares), ("shares",)), start))


def _in_batch(layer: OnnxLayer, points: Converted, count: int, height: int) -> Converted:
    # Points of images that are one below the other.
    if count == 1:
        return points
    image = reshaped(cast(layer.tensor(2), DType.FLOAT32), (layer.tensor(2).shape[0], 1, 1, 1, 1, 1))
    down = Converted(Mul(), (image, np.array([0, height], np.float32)), ("height",))
    return Converted(Add(), (points, down))


CONVERTERS: Mapping[str, OnnxConverter] = {
    "DeformConv": OnnxConverter(_deform_conv, ("deform_conv",)),
    "NonMaxSuppression": OnnxConverter(_suppressed, ("suppression",), is_bounded=True),
    "RoiAlign": OnnxConverter(_roi_align, ("roi_align",)),
}
