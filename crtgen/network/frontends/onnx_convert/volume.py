"""Integer convolutions in three dimensions, as convolutions of images whose channels are those of several
slices.

Output slice d of ``[N,C,D,H,W]`` depends on a window of slices. With these slices concatenated as channels,
the integer sums stay within one layer and are rescaled once, as in ONNX Runtime. Within each channel group
the slices come first, so the groups remain groups.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.network.frontends.builder import Converted
from crtgen.network.frontends.onnx_convert.layer import OnnxLayer, Operand, reshaped, transposed
from crtgen.network.frontends.onnx_convert.window import (
    AxisWindow,
    ConvStorage,
    ImageWindow,
    grouped,
    lines_of,
)
from crtgen.network.ir import Array, shape_text
from crtgen.network.ops import Concat, Pad, Padding, StridedSlice

__all__ = ["VOLUME_FIRST", "VOLUME_LAST", "flat_window", "volume_of_integers"]

VOLUME_LAST = (0, 2, 3, 4, 1)
VOLUME_FIRST = (0, 4, 1, 2, 3)


@dataclass(frozen=True, slots=True)
class _Slices:
    deep: AxisWindow
    batch: int
    size: tuple[int, int]
    groups: int
    channels: int

    def side_by_side(self, x: Operand) -> Converted:
        """Return ``[N * OD, H, W, taps * C]`` of ``x[N,D,H,W,C]``."""
        deep = self.deep
        if deep.before or deep.after:
            x = Converted(Pad((0, deep.before, 0, 0, 0), (0, deep.after, 0, 0, 0)), (x,))
        each = (self.groups, self.channels // self.groups)
        parts = []
        for tap in range(deep.taps):
            first = tap * deep.dilation
            end = (self.batch, first + (deep.outputs - 1) * deep.stride + 1, *self.size, self.channels)
            seen = Converted(StridedSlice((0, first, 0, 0, 0), end, (1, deep.stride, 1, 1, 1)), (x,))
            parts.append(reshaped(seen, (self.batch * deep.outputs, *self.size, *each)))
        joined = Converted(Concat(4), tuple(parts)) if len(parts) > 1 else parts[0]
        whole = (self.batch * deep.outputs, *self.size, deep.taps * self.channels)
        return reshaped(joined, whole)


def volume_of_integers(
    layer: OnnxLayer, x: Operand, weights: Array, bias: Array, numbers: ConvStorage
) -> Converted:
    """Convolve ``x[N,C,D,H,W]`` with ``weights[O, C/groups, KD, KH, KW]``."""
    deep, *flat = lines_of(layer, weights.shape[2:])
    if weights.shape[2:] != (deep.taps, *(line.taps for line in flat)):
        raise ValueError(f"a window of {deep.taps} slices and weights of {shape_text(weights.shape)}")
    n, c, _, h, w = layer.x.shape
    groups, outputs = layer.whole("group", 1), weights.shape[0]
    if groups < 1 or c % groups:
        raise ValueError(f"{groups} groups of {c} channels")
    slices = _Slices(deep, n, (h, w), groups, c)
    images = slices.side_by_side(transposed(x, VOLUME_LAST))
    window = flat_window((n * deep.outputs, deep.taps * c, h, w), flat)
    kernel = weights.transpose(0, 3, 4, 2, 1).reshape(outputs, *window.taps, -1)
    made = grouped(images, window, np.ascontiguousarray(kernel), bias, groups, numbers)
    size = (n, deep.outputs, *(line.outputs for line in flat), outputs)
    return transposed(reshaped(made, size), VOLUME_FIRST)


def flat_window(image: tuple[int, int, int, int], lines: list[AxisWindow]) -> ImageWindow:
    down, across = lines
    padding = Padding(down.before, down.after, across.before, across.after)
    taps, stride, dilation = (
        (getattr(down, name), getattr(across, name)) for name in ("taps", "stride", "dilation")
    )
    return ImageWindow(image, taps, stride, dilation, padding, Padding())
