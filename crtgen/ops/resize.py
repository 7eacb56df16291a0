"""Resizing of images: ``resize_nearest``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.ir import Array, DType, Index, Op, Signature, Value
from crtgen.ops.attrs import require, require_inputs
from crtgen.ops.case import Case, floats, int8s, make
from crtgen.ops.traits import channelwise

__all__ = ["ResizeNearest", "cases"]


@dataclass(frozen=True, slots=True)
class ResizeNearest(Op):
    """``x[N,H,W,C] -> [N, *size, C]``: each output pixel is one input pixel."""

    name: ClassVar[str] = "resize_nearest"
    rising: ClassVar[bool] = True
    moves_only: ClassVar[bool] = True

    size: tuple[int, int]
    align_corners: bool = False
    half_pixel_centers: bool = False

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        require(len(x.shape) == 4, "the input must have four dimensions")
        return (((x.shape[0], *self.size, x.shape[3]), x.dtype),)

    def bundles(self, sig: Signature) -> tuple[Index | None, ...] | None:
        return channelwise(sig)

    def sources(self, sig: Signature) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """The input row of each output row and the input column of each output column."""
        rows, columns = (
            self._nearest(have, want) for have, want in zip(sig.x.shape[1:3], self.size, strict=True)
        )
        return rows, columns

    def _nearest(self, have: int, want: int) -> npt.NDArray[np.int32]:
        """In float32, as TFLite's ``GetNearestNeighbor``."""
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


def cases() -> Iterator[Case]:
    """Up and down, by whole and broken factors, with both corner rules."""
    x = int8s("x", (2, 3, 5, 4), 0.05, -7)
    yield make("twice", ResizeNearest((6, 10)), [x])
    yield make("broken", ResizeNearest((7, 4)), [x])
    yield make("aligned", ResizeNearest((7, 9), align_corners=True), [x])
    yield make("centres", ResizeNearest((2, 11), half_pixel_centers=True), [x])
    yield make("single", ResizeNearest((1, 1), align_corners=True), [x])
    yield make("f32", ResizeNearest((5, 5)), [floats("x", (1, 3, 4, 2))])
