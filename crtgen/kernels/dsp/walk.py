"""How a convolution goes over an image: from window to window, and through padded rows in scratch."""

from dataclasses import dataclass

import numpy as np

from crtgen.ir import Signature
from crtgen.kernels.asm import Runs
from crtgen.kernels.cost import Work
from crtgen.kernels.dsp.copy import copied
from crtgen.ops.conv import Conv2d, DepthwiseConv2d
from crtgen.ops.fixedpoint import Int64

__all__ = ["PIXELS", "Geometry", "PaddedRows", "PixelSteps", "groups_lead"]

PIXELS = 3  # computed at a time


@dataclass(frozen=True, slots=True)
class PaddedRows:
    """Rows of the input, padded with its zero point, that slide over the image in scratch.

    ``rows`` of ``pitch`` bytes with the image from byte ``left`` on; the first one is row ``first`` of the
    image, and each step moves them by ``stride`` rows, of which ``kept`` are there already.
    """

    rows: int
    pitch: int
    left: int
    row_bytes: int
    input_pitch: int
    height: int
    first: int
    stride: int
    zero_point: int

    @property
    def kept(self) -> int:
        return max(self.rows - self.stride, 0)

    @property
    def bytes(self) -> int:
        return self.rows * self.pitch

    def work(self, work: Work, outputs: int, images: int, row: Runs | None = None) -> None:
        """Of filling it and moving it on, for so many rows of outputs; ``row`` is what bringing one takes."""
        tops = self.first + self.stride * np.arange(outputs)
        fresh = np.arange(self.rows - self.kept, 0, -1)
        first = np.append(self.first + np.arange(self.rows), tops[1:, None] + self.rows - fresh)
        inside = images * int(((first >= 0) & (first < self.height)).sum())
        outside = images * first.size - inside
        work.block("slide", images * (outputs - 1)).block("row", inside).fill(self.row_bytes, outside)
        work.assembly += inside * (copied(self.row_bytes) if row is None else row)
        work.assembly += images * (outputs - 1) * copied(self.kept * self.pitch)


@dataclass(frozen=True, slots=True)
class PixelSteps:
    """From one window to the next: ``pixel_step`` bytes on; after ``width`` of them, ``row_advance`` more."""

    width: int
    height: int
    pixel_step: int
    row_advance: int

    @property
    def wraps(self) -> bool:
        return self.height > 1

    @property
    def pixels(self) -> int:
        return self.width * self.height

    def starts(self) -> Int64:
        """Where the windows of all pixels begin."""
        rows = np.arange(self.height) * (self.width * self.pixel_step + self.row_advance)
        return (rows[:, None] + np.arange(self.width) * self.pixel_step).reshape(-1)


@dataclass(frozen=True, slots=True)
class Geometry:
    """A convolution with its sizes; a pointwise one without stride is one long row.

    ``pixel_bytes`` are those of an input pixel.
    """

    images: int
    size: tuple[int, int]
    output: tuple[int, int]
    window: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    corner: tuple[int, int]
    padded: bool
    pixel_bytes: int

    @classmethod
    def of(cls, op: Conv2d | DepthwiseConv2d, sig: Signature) -> "Geometry":
        n, h, w, c = *sig.x.shape[:3], sig.x.shape[3] * sig.x.dtype.itemsize
        _, oh, ow, _ = sig.y.shape
        window = (sig.inputs[1].shape[1], sig.inputs[1].shape[2])
        pad = op.padding
        padded = any((pad.top, pad.bottom, pad.left, pad.right))
        if window == (1, 1) and op.stride == (1, 1) and not padded:
            return cls.rows(n * h * w, c)
        corner = (pad.top, pad.left)
        return cls(n, (h, w), (oh, ow), window, op.stride, op.dilation, corner, padded, c)

    @classmethod
    def rows(cls, count: int, pixel_bytes: int) -> "Geometry":
        """``count`` pixels of so many bytes, of which each is a window of its own."""
        return cls(1, (1, count), (1, count), (1, 1), (1, 1), (1, 1), (0, 0), False, pixel_bytes)

    @property
    def image_bytes(self) -> int:
        return self.size[0] * self.size[1] * self.pixel_bytes

    def _rows_at_once(self, pixels: int) -> int:
        """How many rows of outputs a group of so many pixels can touch."""
        width, height = self.output[1], self.output[0]
        return min(height, 1 if width % pixels == 0 else max(2, pixels // width))

    def _extent(self, axis: int) -> int:
        """Rows or columns that a window reaches over."""
        return (self.window[axis] - 1) * self.dilation[axis] + 1

    def _columns(self) -> int:
        """Columns of the padded image that the windows of a row reach over."""
        return (self.output[1] - 1) * self.stride[1] + self._extent(1)

    @property
    def sees_image(self) -> bool:
        """Whether a window of a row reaches beyond the padding on its left."""
        return self._columns() > self.corner[1]

    def slide(self, zero_point: int, pixels: int = PIXELS) -> PaddedRows | None:
        """The padded rows for groups of pixels; None without padding: the input itself is read."""
        if not self.padded:
            return None
        rows = self._extent(0) + (self._rows_at_once(pixels) - 1) * self.stride[0]
        columns = self._columns()
        seen = min(self.size[1], columns - self.corner[1])
        return PaddedRows(
            rows=rows,
            pitch=-(-columns * self.pixel_bytes // 4) * 4,
            left=self.corner[1] * self.pixel_bytes,
            row_bytes=seen * self.pixel_bytes,
            input_pitch=self.size[1] * self.pixel_bytes,
            height=self.size[0],
            first=-self.corner[0],
            stride=self.stride[0],
            zero_point=zero_point,
        )

    def walk(self, pitch: int) -> PixelSteps:
        """The walk over rows of ``pitch`` bytes."""
        step = self.stride[1] * self.pixel_bytes
        height, width = self.output
        return PixelSteps(width, height, step, self.stride[0] * pitch - width * step)


def groups_lead(
    walk: PixelSteps,
    window: PaddedRows | None,
    images: int,
    image_bytes: int,
    pixel_bytes: int,
    pixels: int = PIXELS,
    tiles: bool = False,
) -> int:
    """The lead where groups of so many pixels are read until their outputs are complete.

    ``pixel_bytes`` are those of an output pixel. With ``tiles``, which have outputs in several rows, a row of
    them counts as written with its first one.
    """
    ends = np.minimum(np.arange(0, walk.pixels, pixels) + pixels, walk.pixels)
    written = (-(-ends // walk.width) * walk.width if tiles else ends) * pixel_bytes
    if window is None:
        read = np.append(walk.starts(), image_bytes)[ends]
    else:
        rows = window.first + (ends - 1) // pixels * pixels // walk.width * window.stride
        read = np.clip(rows + window.rows, 0, window.height) * window.input_pitch
    image = np.arange(images)[:, None]
    ahead = (written + image * walk.pixels * pixel_bytes) - (read + image * image_bytes)
    unread = read + image * image_bytes < images * image_bytes
    return max(0, int(ahead[unread].max(initial=0)))
