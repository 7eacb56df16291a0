"""Convolutions with the DSP extension: windows packed three at a time, then the matrix micro-kernel."""

from dataclasses import dataclass

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.dsp.finish import rescale_of
from crtgen.kernels.dsp.matrix import Micro, Stream, micro, pack_stream, padded_steps
from crtgen.kernels.dsp.packing import Packing, order_weights
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.ops.conv import Conv2d, ConvParams, DepthwiseConv2d
from crtgen.ops.fixedpoint import Int64

__all__ = ["ConvView", "Geometry", "Walk", "Window", "conv2d", "matrix_kernel", "single_channel"]

_STEPS_WRITTEN_OUT = {"speed": 36, "balanced": 16, "size": 8}
_PIXELS = 3


@dataclass(frozen=True, slots=True)
class Window:
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

    def instructions(self, steps: int) -> float:
        """Of filling it and moving it ``steps`` times."""
        copied = self.kept * self.pitch + (self.rows - self.kept) * self.row_bytes
        return (0.75 * copied + 40) * steps + 1.75 * self.bytes


@dataclass(frozen=True, slots=True)
class Walk:
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
class ConvView:
    """A convolution of ``images`` images: ``groups`` groups of three pixels, then what is left."""

    images: int
    image_bytes: int
    channels: int
    groups: int
    micros: tuple[Micro, ...]
    packing: Packing
    walk: Walk
    window: Window | None
    even_words: int
    odd_words: int

    @property
    def column_bytes(self) -> int:
        return self.micros[0].activation_bytes

    @property
    def pack_unroll(self) -> int:
        return 2 if self.packing.words % 2 == 0 else 1


@dataclass(frozen=True, slots=True)
class Geometry:
    """A convolution with its sizes; a pointwise one without stride is one long row."""

    images: int
    size: tuple[int, int]
    output: tuple[int, int]
    window: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    corner: tuple[int, int]
    padded: bool
    channels: int

    @classmethod
    def of(cls, op: Conv2d | DepthwiseConv2d, sig: Signature) -> "Geometry":
        n, h, w, c = sig.x.shape
        _, oh, ow, _ = sig.y.shape
        window = (sig.inputs[1].shape[1], sig.inputs[1].shape[2])
        pad = op.padding
        padded = any((pad.top, pad.bottom, pad.left, pad.right))
        if window == (1, 1) and op.stride == (1, 1) and not padded:
            return cls.rows(n * h * w, c)
        corner = (pad.top, pad.left)
        return cls(n, (h, w), (oh, ow), window, op.stride, op.dilation, corner, padded, c)

    @classmethod
    def rows(cls, count: int, channels: int) -> "Geometry":
        """``count`` pixels of which each is a window of its own."""
        return cls(1, (1, count), (1, count), (1, 1), (1, 1), (1, 1), (0, 0), False, channels)

    @property
    def rows_at_once(self) -> int:
        """How many rows of outputs a group of three pixels can touch."""
        width, height = self.output[1], self.output[0]
        return min(height, 1 if width % _PIXELS == 0 else max(2, _PIXELS // width))

    def slide(self, zero_point: int) -> Window | None:
        """The window of padded rows; None without padding, where the input itself is read."""
        if not self.padded:
            return None
        extent = [(t - 1) * d + 1 for t, d in zip(self.window, self.dilation, strict=True)]
        rows = extent[0] + (self.rows_at_once - 1) * self.stride[0]
        columns = (self.output[1] - 1) * self.stride[1] + extent[1]
        seen = min(self.size[1], columns - self.corner[1])
        return Window(
            rows=rows,
            pitch=-(-columns * self.channels // 4) * 4,
            left=self.corner[1] * self.channels,
            row_bytes=seen * self.channels,
            input_pitch=self.size[1] * self.channels,
            height=self.size[0],
            first=-self.corner[0],
            stride=self.stride[0],
            zero_point=zero_point,
        )

    def walk(self, pitch: int) -> Walk:
        """The walk over rows of ``pitch`` bytes."""
        step = self.stride[1] * self.channels
        return Walk(self.output[1], self.output[0], step, self.stride[0] * pitch - self.output[1] * step)


@design(Conv2d, weights=(1, 2))
def conv2d(op: Conv2d, sig: Signature, target: Target) -> Kernel | None:
    """The matrix design for int8; None without the DSP extension, for one output channel, or if inexact."""
    x, w, b = sig.inputs
    if not target.core.dsp or x.dtype is not DType.INT8:
        return None
    weights = w.array().astype(np.int64).reshape(w.shape[0], -1)
    geometry = Geometry.of(op, sig)
    return matrix_kernel(geometry, op.parameters(sig), weights, b.array().astype(np.int64), target)


@design(DepthwiseConv2d, weights=(1, 2))
def single_channel(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """A depthwise convolution of one input channel is a convolution."""
    x, w, b = sig.inputs
    if not target.core.dsp or x.dtype is not DType.INT8 or x.shape[3] > 1:
        return None
    weights = w.array().astype(np.int64).reshape(-1, w.shape[3]).T
    geometry = Geometry.of(op, sig)
    return matrix_kernel(geometry, op.parameters(sig), weights, b.array().astype(np.int64), target)


def matrix_kernel(
    geometry: Geometry, params: ConvParams, weights: Int64, bias: Int64, target: Target
) -> Kernel | None:
    """The kernel for ``weights[O, inputs of a window]``; None for one output channel, or if inexact."""
    window = geometry.slide(-params.input_offset)
    pitch = window.pitch if window else geometry.size[1] * geometry.channels
    packing = Packing.of(geometry.window, geometry.dilation, geometry.channels, pitch)
    most = _STEPS_WRITTEN_OUT[target.optimize]
    steps = padded_steps(packing.steps, most)
    rescale = rescale_of(params, weights, bias)
    folded = bias + params.input_offset * weights.sum(axis=1)
    stream = pack_stream(order_weights(weights, packing, steps), folded, rescale)
    if stream is None:
        return None
    view = _view(geometry, window, packing, stream, steps, most)
    return Kernel(
        design="dsp_matrix",
        template="dsp/conv.c.j2",
        view=view,
        consts=(Const("weights", stream.data, 4, "per pair of channels: start, weights, requantisation"),),
        scratch=view.column_bytes + (window.bytes if window else 0),
        inplace=(InPlace(lead=_lead(view)),),
        cost=_cost(view, stream),
    )


def _view(
    geometry: Geometry, window: Window | None, packing: Packing, stream: Stream, steps: int, most: int
) -> ConvView:
    pitch = window.pitch if window else geometry.size[1] * geometry.channels
    walk = geometry.walk(pitch)
    channels = stream.pairs * 2 - stream.odd
    groups, left = divmod(walk.pixels, _PIXELS)
    counts = [pixels for pixels in (_PIXELS if groups else 0, left) if pixels]
    micros = tuple(
        micro(pixels, steps, channels, stream.finish, most if pixels == _PIXELS else min(most, 8))
        for pixels in counts
    )
    return ConvView(
        images=geometry.images,
        image_bytes=geometry.size[0] * geometry.size[1] * geometry.channels,
        channels=channels,
        groups=groups,
        micros=micros,
        packing=packing,
        walk=walk,
        window=window,
        even_words=stream.even * stream.pair_words,
        odd_words=stream.pair_words if stream.odd else 0,
    )


def _lead(view: ConvView) -> int:
    """How far the output must lie before the input so that it overwrites nothing still to be read."""
    pixels = view.walk.pixels
    ends = np.minimum(np.arange(0, pixels, _PIXELS) + _PIXELS, pixels)
    written = ends * view.channels
    if view.window is None:
        read = np.append(view.walk.starts(), view.image_bytes)[ends]
    else:
        rows = view.window.first + (ends - 1) // _PIXELS * _PIXELS // view.walk.width * view.window.stride
        read = np.clip(rows + view.window.rows, 0, view.window.height) * view.window.input_pitch
    image = np.arange(view.images)[:, None]
    ahead = (written + image * pixels * view.channels) - (read + image * view.image_bytes)
    unread = read + image * view.image_bytes < view.images * view.image_bytes
    return max(0, int(ahead[unread].max(initial=0)))


def _cost(view: ConvView, stream: Stream) -> float:
    counts = {m.pixels: view.groups if m.pixels == _PIXELS else 1 for m in view.micros}
    groups = sum(
        counts[m.pixels]
        * (m.instructions(stream.pairs) + view.packing.instructions(m.pixels) + 12 * m.pixels)
        for m in view.micros
    )
    window = view.window.instructions(view.walk.height) if view.window else 0.0
    return view.images * (groups + window) + 20
