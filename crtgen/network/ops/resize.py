"""Resizing of images: ``resize_nearest``, ``resize_bilinear``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, DType, Signature, Value
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, floats, int8s, int16s, make
from crtgen.network.ops.fixedpoint import rounding_divide_by_pot
from crtgen.network.ops.scheme import INT8, scheme_of
from crtgen.network.ops.traits import Channelwise

__all__ = ["Lines", "ResizeBilinear", "ResizeBytes", "ResizeLinear", "ResizeNearest", "Sides", "cases"]


@dataclass(frozen=True, slots=True)
class _Resize(Channelwise):
    unscaled: ClassVar[bool] = True

    size: tuple[int, int]
    align_corners: bool = False
    half_pixel_centers: bool = False

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        require(len(x.shape) == 4, "the input must have four dimensions")
        return (((x.shape[0], *self.size, x.shape[3]), x.dtype),)


@dataclass(frozen=True, slots=True)
class ResizeNearest(_Resize):
    """``x[N,H,W,C] -> [N, *size, C]``: each output pixel copies one input pixel."""

    name: ClassVar[str] = "resize_nearest"
    monotonic: ClassVar[bool] = True

    def sources(self, sig: Signature) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return the input row of each output row and the input column of each output column."""
        rows, columns = (
            self._nearest(have, want) for have, want in zip(sig.x.shape[1:3], self.size, strict=True)
        )
        return rows, columns

    def _nearest(self, have: int, want: int) -> npt.NDArray[np.int32]:
        aligned = self.align_corners and want > 1
        scale = (
            np.float32(have - 1) / np.float32(want - 1) if aligned else np.float32(have) / np.float32(want)
        )
        offset = np.float32(0.5 if self.half_pixel_centers else 0.0)
        at = (np.arange(want, dtype=np.float32) + offset) * scale
        index = np.floor(at + np.float32(0.5)) if self.align_corners else np.floor(at)
        inside: npt.NDArray[np.int32] = np.clip(index, 0, have - 1).astype(np.int32)
        return inside

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        rows, columns = self.sources(sig)
        return (np.ascontiguousarray(arrays[0][:, rows][:, :, columns]),)


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """Interpolation along one axis: for each output, two neighbours in the input.

    ``part`` is the weight of ``upper``, in 1/1024 for integers; ``lower`` has the rest.
    """

    lower: npt.NDArray[np.int32]
    upper: npt.NDArray[np.int32]
    part: npt.NDArray[np.int32] | npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ResizeBilinear(_Resize):
    """``x[N,H,W,C] -> [N, *size, C]``: each output pixel is interpolated between four input pixels.

    Weights are float32, or multiples of 1/1024 for quantised images, as in TFLite.
    """

    name: ClassVar[str] = "resize_bilinear"

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        made = _Resize.infer(self, inputs)
        scheme_of(inputs[0])
        return made

    def parameters(self, sig: Signature) -> tuple[Lines, Lines]:
        if sig.x.quant != sig.y.quant:
            raise ValueError("input and output are quantised differently")
        lines = self.lines if scheme_of(sig.x).is_real else self._whole
        rows, columns = (lines(have, want) for have, want in zip(sig.x.shape[1:3], self.size, strict=True))
        return rows, columns

    def _whole(self, have: int, want: int) -> Lines:
        aligned = self.align_corners and want > 1
        above, below = (have - 1, want - 1) if aligned else (have, want)
        step = (_ONE * above + below // 2) // below
        at = np.arange(want, dtype=np.int64) * step
        at += step // 2 - _ONE // 2 if self.half_pixel_centers else 0
        cut = np.sign(at) * (np.abs(at) // _ONE)
        over = at + _ONE - 1
        lower = np.clip(cut, 0, have - 1).astype(np.int32)
        upper = np.minimum(np.sign(over) * (np.abs(over) // _ONE), have - 1).astype(np.int32)
        return Lines(lower, upper, (at - _ONE * lower).astype(np.int32))

    def lines(self, have: int, want: int) -> Lines:
        aligned = self.align_corners and want > 1
        above, below = (have - 1, want - 1) if aligned else (have, want)
        step, half = np.float32(above) / np.float32(below), np.float32(0.5)
        at = np.arange(want, dtype=np.float32)
        at = (at + half) * step - half if self.half_pixel_centers else at * step
        lower = np.clip(np.floor(at), 0, have - 1).astype(np.int32)
        upper = np.minimum(np.ceil(at), have - 1).astype(np.int32)
        return Lines(lower, upper, (at - lower.astype(np.float32)).astype(np.float32))

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        rows, columns = self.parameters(sig)
        real = scheme_of(sig.x).is_real
        x = arrays[0].astype(np.float64 if real else np.int64)
        one = 1 if real else _ONE
        down = rows.part.astype(x.dtype)[:, None, None]
        across = columns.part.astype(x.dtype)[:, None]
        mixed = x[:, rows.lower] * (one - down) + x[:, rows.upper] * down
        total = mixed[:, :, columns.lower] * (one - across) + mixed[:, :, columns.upper] * across
        if real:
            return (total.astype(np.float32),)
        return (rounding_divide_by_pot(total.astype(np.int64), 2 * _BITS).astype(sig.y.dtype.numpy),)


@dataclass(frozen=True, slots=True)
class ResizeBytes(_Resize):
    """Bilinear resizing of uint8 minus 128 as TFLite computes it: in float32, adding one pixel's share after
    another.

    int8 images are resized in integers instead, and occasionally differ by a step.
    """

    name: ClassVar[str] = "resize_bytes"

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        made = _Resize.infer(self, inputs)
        require(inputs[0].dtype is DType.INT8, f"the input is {inputs[0].dtype.value} instead of int8")
        return made

    def lines(self, sig: Signature) -> tuple[Lines, Lines]:
        real = ResizeBilinear(self.size, self.align_corners, self.half_pixel_centers)
        rows, columns = (
            real.lines(have, want) for have, want in zip(sig.x.shape[1:3], self.size, strict=True)
        )
        return rows, columns

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        rows, columns = self.lines(sig)
        x, one = arrays[0].astype(np.float32) - np.float32(INT8.low), np.float32(1)
        down = rows.part.astype(np.float32)[:, None, None]
        across = columns.part.astype(np.float32)[:, None]
        above, below = x[:, rows.lower], x[:, rows.upper]
        total = (above[:, :, columns.lower] * (one - down)) * (one - across)
        total = total + (below[:, :, columns.lower] * down) * (one - across)
        total = total + (above[:, :, columns.upper] * (one - down)) * across
        total = total + (below[:, :, columns.upper] * down) * across
        return (((total + np.float32(0.5)).astype(np.int32) + INT8.low).astype(np.int8),)


@dataclass(frozen=True, slots=True, eq=False)
class Sides:
    """Interpolation along one axis in float32: for each output two neighbours, and the weight of each."""

    places: npt.NDArray[np.int32]
    shares: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ResizeLinear(Channelwise):
    """``x[N,H,W,C] -> [N, *size, C]``: ONNX's linear Resize of float32, rounded as ONNX Runtime rounds.

    The four weights are products of float32, and the sum goes from the upper left to the lower right pixel. A
    following QuantizeLinear meets frequent ties, which the rounding errors of the sum decide. With
    ``centres`` the centre of pixel i is at i + 1/2, otherwise at i; with ``corners`` the first and the last
    pixel keep their positions. ``scales`` are those of the file; an axis with scale 1 is unchanged.
    """

    name: ClassVar[str] = "resize_linear"
    unscaled: ClassVar[bool] = True

    size: tuple[int, int]
    scales: tuple[float, float]
    centres: bool = True
    corners: bool = False

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        require(len(x.shape) == 4, "the input must have four dimensions")
        require(x.dtype is DType.FLOAT32, f"the input is {x.dtype.value} instead of float32")
        return (((x.shape[0], *self.size, x.shape[3]), x.dtype),)

    def sides(self, sig: Signature) -> tuple[Sides, Sides]:
        rows, columns = (
            self._sides(have, want, np.float32(scale))
            for have, want, scale in zip(sig.x.shape[1:3], self.size, self.scales, strict=True)
        )
        return rows, columns

    def _sides(self, have: int, want: int, scale: np.float32) -> Sides:
        at = np.arange(want, dtype=np.float32)
        half, last = np.float32(0.5), np.float32(have - 1)
        if scale != 1 and self.corners:
            at = at * last / np.float32(max(want - 1, 1))
        elif scale != 1:
            at = (at + half) / scale - half if self.centres else at / scale
        at = np.clip(at, 0, last)
        first = at.astype(np.int32)
        second = np.minimum(first + 1, have - 1).astype(np.int32)
        shares = np.stack([abs(at - second), abs(at - first)], axis=1).astype(np.float32)
        shares[first == second] = half
        return Sides(np.stack([first, second], axis=1), shares)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        rows, columns = self.sides(sig)
        x = arrays[0].astype(np.float32)
        parts = [
            (rows.shares[:, i, None] * columns.shares[:, j])[:, :, None]
            * x[:, rows.places[:, i]][:, :, columns.places[:, j]]
            for i in range(2)
            for j in range(2)
        ]
        return (np.ascontiguousarray(((parts[0] + parts[1]) + parts[2]) + parts[3]),)


_BITS = 10
_ONE = 1 << _BITS


def cases() -> Iterator[Case]:
    x = int8s("x", (2, 3, 5, 4), 0.05, -7)
    for name, value in (("", x), ("f32_", floats("x", (2, 3, 5, 4)))):
        yield make(f"{name}twice", ResizeBilinear((6, 10)), [value])
        yield make(f"{name}broken", ResizeBilinear((7, 4)), [value])
        yield make(f"{name}aligned", ResizeBilinear((7, 9), align_corners=True), [value])
        yield make(f"{name}centres", ResizeBilinear((2, 11), half_pixel_centers=True), [value])
        yield make(f"{name}single", ResizeBilinear((1, 1), align_corners=True), [value])
    yield make("broken_uint8", ResizeBytes((7, 4)), [x])
    yield make("aligned_uint8", ResizeBytes((7, 9), align_corners=True), [x])
    yield make("centres_uint8", ResizeBytes((5, 11), half_pixel_centers=True), [x])
    real = floats("x", (2, 3, 5, 4))
    yield make("linear_twice_onnx", ResizeLinear((6, 10), (2, 2)), [real])
    yield make("linear_broken_onnx", ResizeLinear((7, 4), (7 / 3, 0.8), centres=False), [real])
    yield make("linear_aligned_onnx", ResizeLinear((7, 1), (7 / 3, 0.2), corners=True), [real])
    yield make("linear_rows_onnx", ResizeLinear((6, 5), (2, 1)), [real])
    short = int16s("x", (1, 3, 5, 4))
    yield make("int16_broken_own", ResizeBilinear((7, 4)), [short])
    yield make("int16_centres_own", ResizeBilinear((4, 11), half_pixel_centers=True), [short])
    yield make("int16_twice_own", ResizeBilinear((6, 10), half_pixel_centers=True), [short])
    few = {"x": (-9, 9)}  # so that many sums are between two outputs
    yield make("int16_halves_own", ResizeBilinear((6, 15)), [int16s("x", (1, 3, 5, 3))], limits=few)
    yield make("int16", ResizeNearest((5, 5)), [int16s("x", (1, 3, 4, 2))])
    yield make("twice", ResizeNearest((6, 10)), [x])
    yield make("broken", ResizeNearest((7, 4)), [x])
    yield make("aligned", ResizeNearest((7, 9), align_corners=True), [x])
    yield make("centres", ResizeNearest((2, 11), half_pixel_centers=True), [x])
    yield make("single", ResizeNearest((1, 1), align_corners=True), [x])
    yield make("f32", ResizeNearest((5, 5)), [floats("x", (1, 3, 4, 2))])
