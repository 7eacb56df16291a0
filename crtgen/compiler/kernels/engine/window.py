"""Geometry of sliding windows, and the distance that an in-place output must keep from its input."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Signature
from crtgen.network.ops.attrs import NO_PADDING
from crtgen.network.ops.conv import Conv2d
from crtgen.network.ops.dense import FullyConnected
from crtgen.network.ops.traits import Windowed

__all__ = [
    "WindowShape",
    "as_column",
    "as_row",
    "gathered_window",
    "is_row",
    "least_lead",
    "ring_lead",
    "rows_lead",
    "tiles_lead",
]


def is_row(op: Conv2d | FullyConnected, sig: Signature) -> bool:
    """Return True if a layer multiplies one row of inputs by the weights; this includes a convolution over
    the whole image.
    """
    x, w = sig.inputs[:2]
    if isinstance(op, FullyConnected):
        return sig.y.elements == w.shape[0]
    return sig.y.shape[:3] == (1, 1, 1) and op.padding == NO_PADDING and w.shape[1:] == x.shape[1:]


def gathered_window(op: Conv2d | FullyConnected, sig: Signature) -> "WindowShape | None":
    """Return the window that gathers the inputs of an output; None if these are contiguous in memory."""
    window = WindowShape.of(op, sig) if isinstance(op, Conv2d) else None
    return None if window is None or window.is_pointwise else window


@dataclass(frozen=True, slots=True)
class WindowShape:
    """A window over ``[batch, height, width, channels]``: taps, steps, and the size of the output.

    ``top`` and ``left`` are the padding before the image; the padding after it follows from the output's
    size.
    """

    batch: int
    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    taps_y: int
    taps_x: int
    stride_y: int
    stride_x: int
    dilation_y: int
    dilation_x: int
    top: int
    left: int

    @classmethod
    def of(cls, op: Windowed, sig: Signature) -> "WindowShape":
        """Return the window that computes ``sig.y`` from ``sig.x``, both NHWC."""
        batch, height, width, channels = sig.x.shape
        sizes = batch, height, width, channels, sig.y.shape[1], sig.y.shape[2]
        return cls(*sizes, *op.taps(sig), *op.stride, *op.spread, op.padding.top, op.padding.left)

    @classmethod
    def pixel(cls, sig: Signature) -> "WindowShape":
        """Return a 1x1 window: each output pixel depends on the same input pixel."""
        batch, height, width, channels = sig.x.shape
        outputs = sig.y.shape[1], sig.y.shape[2]
        return cls(batch, height, width, channels, *outputs, 1, 1, 1, 1, 1, 1, 0, 0)

    @classmethod
    def line(cls, pixels: int, channels: int) -> "WindowShape":
        """Return ``pixels`` pixels in a row, each a window of its own."""
        return cls(1, 1, pixels, channels, 1, pixels, 1, 1, 1, 1, 1, 1, 0, 0)

    @classmethod
    def whole(cls, images: int, pixels: int, channels: int) -> "WindowShape":
        """Return a window that covers all pixels of an image, treated as one row."""
        return cls(images, 1, pixels, channels, 1, 1, 1, pixels, 0, 0, 1, 1, 0, 0)

    @property
    def turned(self) -> "WindowShape":
        sizes = self.batch, self.width, self.height, self.channels, self.out_width, self.out_height
        steps = self.taps_x, self.taps_y, self.stride_x, self.stride_y, self.dilation_x, self.dilation_y
        return WindowShape(*sizes, *steps, self.left, self.top)

    @property
    def pitch(self) -> int:
        """Elements between the starts of two rows of the image."""
        return self.width * self.channels

    @property
    def rows(self) -> int:
        return (self.taps_y - 1) * self.dilation_y + 1

    @property
    def columns(self) -> int:
        """Input columns on which a row of outputs depends, including padding."""
        return (self.out_width - 1) * self.stride_x + (self.taps_x - 1) * self.dilation_x + 1

    @property
    def padded_rows(self) -> bool:
        """True if any output reads padding above or below the image."""
        return self.top > 0 or (self.out_height - 1) * self.stride_y + self.rows - self.top > self.height

    @property
    def padded(self) -> bool:
        return self.padded_rows or self.left > 0 or self.columns - self.left > self.width

    @property
    def is_pointwise(self) -> bool:
        """True if output pixel i depends on input pixel i only."""
        single = self.taps_y == self.taps_x == self.stride_y == self.stride_x == 1
        return single and not self.padded

    @property
    def pixels(self) -> int:
        return self.batch * self.out_height * self.out_width

    def inside(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the number of window rows inside the image, by output row, and of window columns, by output
        column.
        """
        rows, columns = self.taps_inside()
        return rows.sum(axis=1), columns.sum(axis=1)

    def taps_inside(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return which taps are inside the image: rows as ``[out_height, taps_y]``, columns as ``[out_width,
        taps_x]``.
        """
        along = (
            (self.out_height, self.stride_y, self.top, self.taps_y, self.dilation_y),
            (self.out_width, self.stride_x, self.left, self.taps_x, self.dilation_x),
        )
        at = [np.arange(n)[:, None] * s - p + np.arange(t) * d for n, s, p, t, d in along]
        sizes = self.height, self.width
        rows, columns = (((a >= 0) & (a < size)).astype(np.int64) for a, size in zip(at, sizes, strict=True))
        return rows, columns

    @property
    def within(self) -> float:
        """Fraction of all window taps that are inside the image; 1 if taps of a row are dilated."""
        if self.dilation_x > 1:
            return 0.0
        rows, columns = self.taps_inside()
        return float(rows.all(axis=1).mean()) * float(columns.all(axis=1).mean())

    def first_reads(self) -> npt.NDArray[np.int64]:
        """Return, for each output pixel in order, the first input element that it may read."""
        rows = np.maximum(np.arange(self.out_height) * self.stride_y - self.top, 0)
        columns = np.maximum(np.arange(self.out_width) * self.stride_x - self.left, 0)
        images = np.arange(self.batch) * self.height * self.width
        pixels = images[:, None, None] + rows[None, :, None] * self.width + columns[None, None, :]
        first: npt.NDArray[np.int64] = pixels.ravel() * self.channels
        return first


def least_lead(written: Sequence[int] | npt.NDArray[np.int64], unread: npt.NDArray[np.int64]) -> int:
    """Return the smallest lead at which no write destroys input that is still needed.

    Work proceeds in steps: after step i the output is written up to byte ``written[i]``, and later steps do
    not read input before byte ``unread[i]``.
    """
    ends = np.asarray(written, np.int64)
    starts = np.minimum.accumulate(np.asarray(unread, np.int64)[::-1])[::-1]
    return max(0, int((ends - starts).max(initial=0)))


def rows_lead(
    window: WindowShape,
    written: npt.NDArray[np.int64],
    taken: npt.NDArray[np.int64],
    outputs: int,
) -> int:
    """Return the lead of a kernel that computes an image in steps of rows.

    After step i, ``written[i]`` output rows with ``outputs`` elements per pixel exist, and no row of the
    image before ``taken[i]`` is read again.
    """
    images = np.arange(window.batch)[:, None]
    ends = (images * window.out_height + written).ravel() * window.out_width * outputs
    unread = (images * window.height + np.clip(taken, 0, window.height)).ravel() * window.pitch
    pending = unread < window.batch * window.height * window.pitch
    return least_lead(ends[pending], unread[pending])


def ring_lead(window: WindowShape, outputs: int) -> int:
    """Return the lead of a kernel that copies all rows of its windows to a ring before it writes a row of
    outputs.
    """
    rows = np.arange(window.out_height)
    return rows_lead(window, rows + 1, rows * window.stride_y + window.rows - window.top, outputs)


def tiles_lead(reads: npt.NDArray[np.int64], tile: int, outputs: int, whole: bool) -> int:
    """Return the lead of a kernel that computes ``tile`` pixels at a time, with the last tile moved back to
    fit.

    ``reads`` has, for each pixel, the first input element that it may read; a pixel has ``outputs`` output
    elements. With ``whole``, a tile is read completely before any of it is written.
    """
    starts = np.minimum(np.arange(0, len(reads), tile), len(reads) - tile)
    unread = np.minimum.accumulate(reads[::-1])[::-1][starts]
    written = (starts + tile) * outputs
    return least_lead(written[:-1], unread[1:]) if whole else least_lead(written, unread)


def as_row(window: WindowShape) -> WindowShape:
    """Return an image of one column as an image of one row; results only differ where a window reads nothing
    but padding.
    """
    if window.width > 1 or window.taps_x > 1 or window.out_width > 1 or window.left > 0:
        return window
    return replace(window.turned, stride_y=1, dilation_y=1)


def as_column(window: WindowShape) -> WindowShape | None:
    """Return windows along one axis as images of one column each; None if rows depend on one another."""
    if window.width == window.taps_x == window.out_width == 1 and window.left == 0:
        return window
    if window.taps_y > 1 or window.top > 0 or window.out_height != window.height:
        return None
    rows = window.batch * window.height
    return replace(window.turned, batch=rows, width=1, out_width=1, stride_x=1, dilation_x=1)
