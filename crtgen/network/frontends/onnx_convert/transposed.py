"""Transposed convolutions of images, as convolutions whose output channels are the pixels of a block."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import OnnxLayer, Operand, reshaped, transposed
from crtgen.network.frontends.onnx_convert.window import (
    REAL,
    ConvStorage,
    ImageWindow,
    along,
    grouped,
)
from crtgen.network.ir import Array, shape_text
from crtgen.network.ops import Padding, StridedSlice

__all__ = ["TransposedWeights", "Turned", "transposed_conv", "turned_lines"]

_MOST_WEIGHTS = 1 << 26


@dataclass(frozen=True, slots=True)
class Turned:
    """A transposed convolution along one axis; ``before`` is the number of outputs removed at the start."""

    length: int
    taps: int
    stride: int
    dilation: int
    before: int
    outputs: int

    @property
    def extent(self) -> int:
        return (self.taps - 1) * self.dilation + 1


@dataclass(frozen=True, slots=True, eq=False)
class TransposedWeights:
    """Weights of a transposed convolution, ``weights[C, O / groups, kh, kw]``, and ``bias[O]``."""

    weights: Array
    bias: Array
    groups: int


def turned_lines(layer: OnnxLayer, kernel: Sequence[int]) -> tuple[Turned, ...]:
    """Return the transposed convolution along each axis of the image.

    The output length follows from the padding or the attributes.
    """
    spatial = layer.rank - 2
    if spatial not in (1, 2, 3):
        raise RefusedOperator(f"{spatial} dimensions of space; supported: 1, 2, 3")
    taps, stride, dilation = (
        along(layer, name, spatial, given)
        for name, given in (("kernel_shape", kernel), ("strides", ()), ("dilations", ()))
    )
    if list(kernel) != taps:
        raise ValueError(f"a window of {taps} and weights of {shape_text(kernel)}")
    found = []
    for axis, (d, k, s, spread_by) in enumerate(zip(layer.x.shape[2:], taps, stride, dilation, strict=True)):
        before, outputs = _cut(layer, axis, (d - 1) * s + (k - 1) * spread_by + 1, d * s)
        found.append(Turned(d, k, s, spread_by, before, outputs))
    return tuple(found)


def _cut(layer: OnnxLayer, axis: int, full: int, same: int) -> tuple[int, int]:
    # Outputs cut off at the start, and the length of the rest; ``same`` is that of SAME padding.
    spatial = layer.rank - 2
    pads = [int(p) for p in layer.attribute("pads") or [0] * (2 * spatial)]
    full += [int(p) for p in layer.attribute("output_padding") or [0] * spatial][axis]
    asked, auto = layer.attribute("output_shape"), layer.text("auto_pad", "NOTSET")
    if asked is None and auto in ("NOTSET", "VALID"):
        before, after = (pads[axis], pads[axis + spatial]) if auto == "NOTSET" else (0, 0)
        return before, full - before - after
    wanted = int(asked[axis - spatial]) if asked is not None else same
    total = max(full - wanted, 0)
    return total // 2 if auto == "SAME_UPPER" else total - total // 2, wanted


def transposed_conv(
    x: Operand,
    image: tuple[int, int, int],
    lines: tuple[Turned, Turned],
    kernel: TransposedWeights,
    numbers: ConvStorage = REAL,
) -> Converted:
    """Convert a transposed convolution from ``[N,H,W,C]`` to ``[N,H,W,O]``; ``image`` is (N, H, W).

    With stride s, output ``s * q + r - before`` is the sum over d of input ``q - d`` times tap ``r + s * d``:
    for each r this is a convolution with stride 1, with every s-th tap in reverse order. Taps beyond the
    window are zero. In each group, the channels of that convolution are the pixels of a block, which are then
    moved to their positions.
    """
    (down, across), n = lines, image[0]
    blocks = [-(-line.extent // line.stride) for line in lines]
    first = [line.before // line.stride for line in lines]
    last = [(line.before + line.outputs - 1) // line.stride for line in lines]
    before = [b - 1 - f for b, f in zip(blocks, first, strict=True)]
    after = [max(end - (line.length - 1), 0) for end, line in zip(last, lines, strict=True)]
    if min(before) < 0:
        raise RefusedOperator(
            f"padding of {[line.before for line in lines]}; supported: less than the window"
        )
    padding = Padding(before[0], after[0], before[1], after[1])
    channels, each = kernel.weights.shape[:2]
    groups, pixels = kernel.groups, down.stride * across.stride
    order = np.repeat(np.arange(groups * each).reshape(groups, 1, each), pixels, axis=1).reshape(-1)
    window = ImageWindow(
        (n, channels, *image[1:]), (blocks[0], blocks[1]), (1, 1), (1, 1), padding, Padding()
    )
    weights = _blocks(kernel, lines, blocks)
    made = grouped(x, window, weights, kernel.bias[order], groups, numbers.reordered(order))
    rows, columns = padding.output_size(image[1:], window.taps, (1, 1))
    if pixels > 1:
        s, t = down.stride, across.stride
        apart = reshaped(made, (n, rows, columns, groups, s, t, each))
        made = reshaped(transposed(apart, (0, 1, 4, 2, 5, 3, 6)), (n, rows * s, columns * t, groups * each))
    corner = [line.before - f * line.stride for line, f in zip(lines, first, strict=True)]
    end = (n, corner[0] + down.outputs, corner[1] + across.outputs, groups * each)
    return Converted(StridedSlice((0, *corner, 0), end, (1,) * 4), (made,))


def _blocks(kernel: TransposedWeights, lines: Sequence[Turned], blocks: Sequence[int]) -> Array:
    # ``weights[O,kh,kw,C/groups]`` of the pixels of a block, backwards.
    channels, each = kernel.weights.shape[:2]
    size = [b * line.stride for b, line in zip(blocks, lines, strict=True)]
    if channels * each * prod(size) > _MOST_WEIGHTS:
        raise RefusedOperator(
            f"a stride of {[n.stride for n in lines]}: {channels * each * prod(size):,} weights"
        )
    wide = np.zeros((channels, each, *size), kernel.weights.dtype)
    steps = tuple(slice(0, line.extent, line.dilation) for line in lines)
    wide[(slice(None), slice(None), *steps)] = kernel.weights
    (s, t), (rows, columns), g = (line.stride for line in lines), blocks, kernel.groups
    parts = wide.reshape(g, channels // g, each, rows, s, columns, t)[:, :, :, ::-1, :, ::-1]
    array = parts.transpose(0, 4, 6, 2, 3, 5, 1).reshape(g * s * t * each, rows, columns, channels // g)
    return np.ascontiguousarray(array)
