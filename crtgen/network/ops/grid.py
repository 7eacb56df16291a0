"""``grid_sample``: samples an image at points that are computed at run time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, DType, Index, Op, Signature, Value, shape_text
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, floats, make
from crtgen.network.ops.traits import Real

__all__ = ["MODES", "PADDINGS", "GridSample", "cases"]

MODES = {"nearest": 1, "linear": 2, "cubic": 4}
"""Number of pixels that a point reads along each axis, by mode."""

PADDINGS = ("zeros", "border", "reflection")
_CUBIC = -0.75


@dataclass(frozen=True, slots=True)
class GridSample(Op):
    """``x[N,...,C], grid[N,...,k] -> y[N,...,C]``: samples a k-dimensional image at the points of ``grid``.

    A point's coordinates are in reverse order: the first belongs to the image's last axis. They go from -1 to
    1 between the centres of the outermost pixels if ``corners``, otherwise between their outer edges.
    Outside, the image is zero, extended by its nearest pixel, or mirrored.
    """

    name: ClassVar[str] = "grid_sample"

    mode: str = "linear"
    padding: str = "zeros"
    corners: bool = False

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 2)
        x, grid = inputs
        known = self.mode in MODES and self.padding in PADDINGS
        require(known, f"mode {self.mode} with padding {self.padding}")
        require(x.dtype is grid.dtype is DType.FLOAT32, f"{x.dtype.value} at {grid.dtype.value}")
        spatial = len(x.shape) - 2
        fits = spatial > 0 and len(grid.shape) > 1 and grid.shape[-1] == spatial
        require(fits and grid.shape[0] == x.shape[0], f"{shape_text(x.shape)} at {shape_text(grid.shape)}")
        return (((*grid.shape[:-1], x.shape[-1]), DType.FLOAT32),)

    def borders(self, length: int) -> tuple[float, float]:
        return (0.0, length - 1.0) if self.corners else (-0.5, length - 0.5)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, grid = arrays[0].astype(np.float64), arrays[1].astype(np.float32)
        batch, *size, channels = x.shape
        points = grid.reshape(batch, -1, len(size))
        axes = [self._axis(points[..., len(size) - 1 - a], length) for a, length in enumerate(size)]
        y = np.zeros((batch, points.shape[1], channels))
        rows = np.arange(batch)[:, None]
        for taps in product(range(MODES[self.mode]), repeat=len(size)):
            places = tuple(at[tap] for tap, (at, _) in zip(taps, axes, strict=True))
            weight = np.prod([w[tap] for tap, (_, w) in zip(taps, axes, strict=True)], axis=0)
            y += weight[..., None] * x[(rows, *places)]
        return (y.reshape(sig.y.shape).astype(np.float32),)

    def _axis(self, points: npt.NDArray[np.float32], length: int) -> tuple[Index, Real]:
        # For each tap, its index along an axis and its weight.
        one, size = np.float32(1), np.float32(length)
        v = (points + one) / 2 * (size - one) if self.corners else ((points + one) * size - one) / 2
        if self.mode == "nearest":
            v = np.rint(v)
        low, high = self.borders(length)
        beyond = (v < low) | (v > high)
        if self.padding == "zeros":
            v = np.clip(v, -4, length + 3)
        elif self.padding == "border":
            v = np.where(beyond, np.clip(v, 0, length - 1), v)
        else:
            v = np.where(beyond, self._mirrored(v, length), v)
        taps = MODES[self.mode]
        first = np.floor(v)
        weights = _weights(taps, (v - first).astype(np.float64))
        at = np.stack([first.astype(np.int64) + tap - (taps == 4) for tap in range(taps)])
        if self.padding == "zeros":
            weights = np.where((at >= 0) & (at < length), weights, 0.0)
        elif self.padding == "reflection":
            at = np.where((at < low) | (at > high), self._mirrored(at.astype(np.float32), length), at)
        return np.clip(at.astype(np.int64), 0, length - 1), weights

    def _mirrored(self, v: Array, length: int) -> Array:
        low, high = self.borders(length)
        span = high - low
        if span == 0:
            return np.full_like(v, low)
        apart = np.fmod(np.abs(v.astype(np.float64) - low), 2 * span)
        return np.where(apart < span, low + apart, high - (apart - span)).astype(np.float32)


def _weights(taps: int, t: Real) -> Real:
    # Weight of each tap, for a point between the first two taps, or with four taps between the second and
    # third.
    if taps == 1:
        return np.ones((1, *t.shape))
    if taps == 2:
        return np.stack([1 - t, t])
    a = _CUBIC

    def near(s: Real) -> Real:
        return ((a + 2) * s - (a + 3)) * s * s + 1

    def far(s: Real) -> Real:
        return ((a * s - 5 * a) * s + 8 * a) * s - 4 * a

    return np.stack([far(t + 1), near(t), near(1 - t), far(2 - t)])


def cases() -> Iterator[Case]:
    x, grid = floats("x", (2, 5, 4, 3)), floats("g", (2, 3, 6, 2))
    far = {"g": (-1.7, 1.7)}
    for mode in MODES:
        for number, padding in enumerate(PADDINGS):
            op = GridSample(mode, padding, bool(number % 2))
            yield make(f"{mode}_{padding}_onnx", op, [x, grid], limits=far)
    deep = [floats("x", (1, 3, 2, 4, 2)), floats("g", (1, 2, 3, 2, 3))]
    yield make("volume_onnx", GridSample(corners=True), deep, limits=far)
    line = [floats("x", (1, 7, 1)), floats("g", (1, 9, 1))]
    yield make("line_onnx", GridSample(padding="reflection"), line, limits=far)
