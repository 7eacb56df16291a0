"""Windows of convolutions and pools."""

from typing import Any, TypeAlias

from crtgen.proof.checker.network.layer import Layer
from crtgen.proof.checker.refusal import Refusal

__all__ = ["Window", "spread_windows", "windows"]

Window: TypeAlias = list[tuple[int, int]]
"""Pairs of indices, one for each cell within the input: in the input, and in the kernel."""

_SAME = 0


def windows(
    layer: Layer, kernel: tuple[int, int], o: Any, dilation: tuple[int, int]
) -> tuple[list[Window], bool]:
    """Return the window of each output position, and True if one of them reaches beyond the input.

    ``o`` are TFLite's options, with padding and strides.
    """
    shape, out = layer.file.shape(layer.operator.inputs[0]), layer.file.shape(layer.operator.output)
    if len(shape) != 4 or len(out) != 4:
        raise Refusal("the input must have four dimensions")
    strides = o.StrideH(), o.StrideW()
    rows = _axis(shape[1], out[1], kernel[0], strides[0], dilation[0], o.Padding())
    columns = _axis(shape[2], out[2], kernel[1], strides[1], dilation[1], o.Padding())
    padded = any(
        len(cells) < size for axis, size in ((rows, kernel[0]), (columns, kernel[1])) for cells in axis
    )
    return _of_all_images(shape, rows, columns, kernel[1]), padded


def _of_all_images(
    shape: tuple[int, ...], rows: list[Window], columns: list[Window], wide: int
) -> list[Window]:
    return [
        [((n * shape[1] + y) * shape[2] + x, a * wide + b) for y, a in row for x, b in column]
        for n in range(shape[0])
        for row in rows
        for column in columns
    ]


def _axis(size: int, out: int, kernel: int, stride: int, dilation: int, padding: int) -> list[Window]:
    # Along one axis: for each output the cells within the input, with their places in the kernel.
    missing = max((out - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    before = missing // 2 if padding == _SAME else 0
    return [
        [(p, k) for k in range(kernel) if 0 <= (p := o * stride - before + k * dilation) < size]
        for o in range(out)
    ]


def spread_windows(layer: Layer, kernel: tuple[int, int], o: Any) -> list[Window]:
    """Return the windows of a transposed convolution: a tap k adds to position ``p * stride - before +
    k``.
    """
    shape, out = layer.file.shape(layer.data_inputs()[0]), layer.file.shape(layer.operator.output)
    if len(shape) != 4 or len(out) != 4:
        raise Refusal("the input must have four dimensions")
    rows = _spread_axis(shape[1], out[1], kernel[0], o.StrideH(), o.Padding())
    columns = _spread_axis(shape[2], out[2], kernel[1], o.StrideW(), o.Padding())
    return _of_all_images(shape, rows, columns, kernel[1])


def _spread_axis(size: int, out: int, kernel: int, stride: int, padding: int) -> list[Window]:
    cells = -(-out // stride) if padding == _SAME else (out - kernel + stride) // stride
    before = max((cells - 1) * stride + kernel - out, 0) // 2 if padding == _SAME else 0
    return [[(p, k) for p in range(size) if 0 <= (k := o + before - p * stride) < kernel] for o in range(out)]
