"""Conversion from a camera's formats to red, green and blue, and to grey, in integers equal to Pillow's and
OpenCV's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, DType, Op, Signature, Value, shape_text
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, make, plain

__all__ = [
    "NEUTRAL",
    "YUV_SHIFT",
    "Demosaic",
    "Grey",
    "Unpack565",
    "YuvFactors",
    "YuvToRgb",
    "cases",
]

_U8, _U16 = DType.UINT8, DType.UINT16
_Longs = npt.NDArray[np.int64]
_Outputs = tuple[tuple[tuple[int, ...], DType], ...]

YUV_SHIFT = 20
NEUTRAL = 1 << 7
"""Value of u and v without colour."""


class YuvFactors(IntEnum):
    """BT.601 with limited range, times 2^20: luma, then red from v, green from v and u, blue from u."""

    LUMA = 1220542
    RED_V = 1673527
    GREEN_V = -852492
    GREEN_U = -409993
    BLUE_U = 2116026


def _require_bytes(inputs: Sequence[Value], axes: int, last: int | None = None) -> Value:
    require_inputs(inputs, 1)
    (x,) = inputs
    good = x.dtype is _U8 and len(x.shape) == axes and last in (None, x.shape[-1])
    require(good, f"pixels of {shape_text(x.shape)} {x.dtype.value}")
    return x


def _bytes(numbers: Array) -> Array:
    return np.clip(numbers, 0, 255).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class Unpack565(Op):
    """``x[H, W] of uint16 -> y[H, W, 3] of uint8``: five bits red, six green, five blue, red on top.

    The upper bits of each component are repeated in its lower bits, so that all ones become 255.
    """

    name: ClassVar[str] = "unpack565"

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        require_inputs(inputs, 1)
        (x,) = inputs
        good = x.dtype is _U16 and len(x.shape) == 2
        require(good, f"pixels of {shape_text(x.shape)} {x.dtype.value}")
        return (((*x.shape, 3), _U8),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x = arrays[0].astype(np.int64)
        red, green, blue = x >> 11, (x >> 5) & 63, x & 31
        planes = [red << 3 | red >> 2, green << 2 | green >> 4, blue << 3 | blue >> 2]
        return (np.stack(planes, axis=-1).astype(np.uint8),)


@dataclass(frozen=True, slots=True)
class YuvToRgb(Op):
    """``x[H, W, 2] -> y[H, W, 3]`` of bytes: luma, and alternately u and v, each shared by two adjacent
    pixels.

    ``(LUMA * max(luma - 16, 0) + 2^19 + ... * (v - NEUTRAL) + ... * (u - NEUTRAL)) >> 20``, limited to a
    byte, with the factors of ``YuvFactors``, as in OpenCV's conversion from YUYV.
    """

    name: ClassVar[str] = "yuv_to_rgb"

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        x = _require_bytes(inputs, 3, 2)
        require(x.shape[1] % 2 == 0, f"a width of {x.shape[1]}: two pixels share a colour")
        return (((*x.shape[:2], 3), _U8),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x = arrays[0].astype(np.int64)
        luma = np.maximum(x[..., 0] - 16, 0) * YuvFactors.LUMA + (1 << (YUV_SHIFT - 1))
        u, v = (np.repeat(x[:, first::2, 1], 2, axis=1) - NEUTRAL for first in (0, 1))
        planes = [
            luma + YuvFactors.RED_V * v,
            luma + YuvFactors.GREEN_V * v + YuvFactors.GREEN_U * u,
            luma + YuvFactors.BLUE_U * u,
        ]
        return (_bytes(np.stack(planes, axis=-1) >> YUV_SHIFT),)


@dataclass(frozen=True, slots=True)
class Demosaic(Op):
    """``x[H, W] -> y[H, W, 3]`` of bytes: colours from a sensor with a Bayer pattern.

    Red is at ``row`` and ``column`` of the first two by two pixels, blue at the opposite corner. A missing
    colour of a pixel is the mean of the two or four neighbours that have it, with ties rounded up. The
    outermost rows and columns copy their inner neighbours.
    """

    name: ClassVar[str] = "demosaic"

    row: int
    column: int

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        x = _require_bytes(inputs, 2)
        require(min(x.shape) >= 3, f"a frame of {shape_text(x.shape)}; supported: from 3x3")
        require({self.row, self.column} <= {0, 1}, f"red at {self.row}, {self.column}")
        return (((*x.shape, 3), _U8),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x = arrays[0].astype(np.int64)
        own, across, down, cross, corners = _neighbours(x)
        rows, columns = np.indices(own.shape) + 1
        in_red_row, in_red_column = rows % 2 == self.row, columns % 2 == self.column
        red, blue = in_red_row & in_red_column, ~in_red_row & ~in_red_column
        beside_red, below_red = in_red_row & ~in_red_column, ~in_red_row & in_red_column
        planes = [
            np.select([red, beside_red, below_red], [own, across, down], corners),
            np.where(red | blue, cross, own),
            np.select([blue, below_red, beside_red], [own, across, down], corners),
        ]
        inner = np.stack(planes, axis=-1).astype(np.uint8)
        return (np.pad(inner, ((1, 1), (1, 1), (0, 0)), mode="edge"),)


def _neighbours(x: _Longs) -> tuple[_Longs, ...]:
    # For all pixels but the border: the pixel itself, then the means of left and right, of above and below,
    # of these four, of the corners.
    height, width = x.shape

    def at(row: int, column: int) -> _Longs:
        return x[1 + row : height - 1 + row, 1 + column : width - 1 + column]

    left, right, above, below = at(0, -1), at(0, 1), at(-1, 0), at(1, 0)
    corners = at(-1, -1) + at(-1, 1) + at(1, -1) + at(1, 1)
    return (
        at(0, 0),
        (left + right + 1) >> 1,
        (above + below + 1) >> 1,
        (left + right + above + below + 2) >> 2,
        (corners + 2) >> 2,
    )


@dataclass(frozen=True, slots=True)
class Grey(Op):
    """``x[..., 3] -> y[..., 1]`` of bytes: ``(red * r + green * g + blue * b + 2^(shift - 1)) >> shift``."""

    name: ClassVar[str] = "grey"

    red: int
    green: int
    blue: int
    shift: int

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        require_inputs(inputs, 1)
        (x,) = inputs
        good = x.dtype is _U8 and len(x.shape) > 0 and x.shape[-1] == 3
        require(good, f"colours of {shape_text(x.shape)} {x.dtype.value}")
        factors = (self.red, self.green, self.blue)
        whole = 1 <= self.shift <= 22 and min(factors) >= 0 and sum(factors) == 1 << self.shift
        require(whole, f"weights {factors}, which are not 2^{self.shift} together")
        return (((*x.shape[:-1], 1), _U8),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        factors = np.array([self.red, self.green, self.blue], np.int64)
        sums = (arrays[0].astype(np.int64) * factors).sum(axis=-1, keepdims=True)
        return (((sums + (1 << (self.shift - 1))) >> self.shift).astype(np.uint8),)


def cases() -> Iterator[Case]:
    yield make("frame_features", Unpack565(), [plain("x", (5, 7), _U16)])
    yield make("frame_features", YuvToRgb(), [plain("x", (5, 8, 2), _U8)])
    for row in (0, 1):
        for column in (0, 1):
            op = Demosaic(row, column)
            yield make(f"{row}{column}_features", op, [plain("x", (6, 7), _U8)])
    yield make("least_features", Demosaic(0, 1), [plain("x", (3, 3), _U8)])
    x = plain("x", (4, 5, 3), _U8)
    yield make("pillow_features", Grey(19595, 38470, 7471, 16), [x])
    yield make("opencv_features", Grey(9798, 19235, 3735, 15), [x])
