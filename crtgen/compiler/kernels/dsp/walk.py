"""Movement of a convolution over an image: from window to window, through padded rows in scratch."""

from dataclasses import dataclass, replace

import numpy as np

from crtgen.compiler.kernels.asm import Runs
from crtgen.compiler.kernels.dsp.copy import copied
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.window import WindowShape
from crtgen.network.ir import Signature
from crtgen.network.ops.conv import Conv2d, DepthwiseConv2d
from crtgen.network.ops.fixedpoint import Int64

__all__ = ["PIXELS", "PaddedRows", "Walk", "sees_image", "window_of"]

PIXELS = 3  # computed at a time


def window_of(op: Conv2d | DepthwiseConv2d, sig: Signature) -> WindowShape:
    """Return the window of a convolution, with bytes as channels; a pointwise convolution is over one long
    row.
    """
    window = WindowShape.of(op, sig)
    window = replace(window, channels=window.channels * sig.x.dtype.itemsize)
    return WindowShape.line(window.pixels, window.channels) if window.is_pointwise else window


def sees_image(window: WindowShape) -> bool:
    """Return True if the first window of a row extends beyond the padding on its left."""
    return window.columns > window.left


@dataclass(frozen=True, slots=True)
class PaddedRows:
    """Rows of the input with a border of its zero point, in scratch memory, which move over the image.

    ``rows`` rows of ``pitch`` bytes hold the image from byte ``left`` on. The first one is row ``first`` of
    the image; each step moves by ``stride`` rows, of which ``kept`` are already there.
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


@dataclass(frozen=True, slots=True)
class Walk:
    """A walk over the windows of images, ``at_once`` windows at a time, read from ``rows`` or directly from
    the image.

    Windows are ``pixel_step`` bytes apart; after ``width`` of them ``row_advance`` more bytes are skipped.
    """

    images: int
    image_bytes: int
    width: int
    height: int
    pixel_step: int
    row_advance: int
    rows: PaddedRows | None
    at_once: int

    @classmethod
    def of(cls, window: WindowShape, zero_point: int, at_once: int = PIXELS, repeats: int = 1) -> "Walk":
        """Return the walk over a window with bytes as channels; each input is written into the rows
        ``repeats`` times.
        """
        rows = None
        if window.padded or repeats > 1:
            # so many rows of outputs can a group touch
            touched = 1 if window.out_width % at_once == 0 else max(2, at_once // window.out_width)
            rows = PaddedRows(
                rows=window.rows + (min(window.out_height, touched) - 1) * window.stride_y,
                pitch=-(-window.columns * window.channels // 4) * 4,
                left=window.left * window.channels,
                row_bytes=min(window.width, window.columns - window.left) * window.channels,
                input_pitch=window.pitch // repeats,
                height=window.height,
                first=-window.top,
                stride=window.stride_y,
                zero_point=zero_point,
            )
        step, pitch = window.stride_x * window.channels, rows.pitch if rows else window.pitch
        return cls(
            images=window.batch,
            image_bytes=window.height * window.pitch // repeats,
            width=window.out_width,
            height=window.out_height,
            pixel_step=step,
            row_advance=window.stride_y * pitch - window.out_width * step,
            rows=rows,
            at_once=at_once,
        )

    @property
    def wraps(self) -> bool:
        return self.height > 1

    @property
    def pixels(self) -> int:
        return self.width * self.height

    @property
    def groups(self) -> int:
        return self.pixels // self.at_once

    @property
    def counts(self) -> tuple[int, ...]:
        left = self.pixels % self.at_once
        return tuple(count for count in (self.at_once if self.groups else 0, left) if count)

    @property
    def scratch(self) -> int:
        return self.rows.bytes if self.rows else 0

    def work(self, work: Work, row: Runs | None = None) -> None:
        w, moves = self.rows, self.images * (self.height - 1)
        if w is None:
            return
        tops = w.first + w.stride * np.arange(self.height)
        fresh = np.arange(w.rows - w.kept, 0, -1)
        first = np.append(w.first + np.arange(w.rows), tops[1:, None] + w.rows - fresh)
        inside = self.images * int(((first >= 0) & (first < w.height)).sum())
        outside = self.images * first.size - inside
        work.block("slide", moves).block("row", inside).fill(w.row_bytes, outside)
        work.assembly += inside * (copied(w.row_bytes) if row is None else row)
        work.assembly += moves * copied(w.kept * w.pitch)

    def lead(self, pixel_bytes: int, tiles: bool = False) -> int:
        """Return the lead of a kernel that reads groups of windows before it writes their outputs.

        ``pixel_bytes`` is the size of an output pixel. With ``tiles``, whose outputs are in several rows, a
        row of tiles counts as written together with its first row.
        """
        ends = np.minimum(np.arange(0, self.pixels, self.at_once) + self.at_once, self.pixels)
        written = (-(-ends // self.width) * self.width if tiles else ends) * pixel_bytes
        if self.rows is None:
            read = np.append(self._starts(), self.image_bytes)[ends]
        else:
            w = self.rows
            tops = w.first + (ends - 1) // self.at_once * self.at_once // self.width * w.stride
            read = np.clip(tops + w.rows, 0, w.height) * w.input_pitch
        image = np.arange(self.images)[:, None]
        ahead = (written + image * self.pixels * pixel_bytes) - (read + image * self.image_bytes)
        unread = read + image * self.image_bytes < self.images * self.image_bytes
        return max(0, int(ahead[unread].max(initial=0)))

    def _starts(self) -> Int64:
        # First elements of all windows.
        rows = np.arange(self.height) * (self.width * self.pixel_step + self.row_advance)
        return (rows[:, None] + np.arange(self.width) * self.pixel_step).reshape(-1)
