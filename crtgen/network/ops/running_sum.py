"""Sum of an image per channel, row by row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Op, Signature, Value
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, int8s, make

__all__ = ["RunningSum", "cases"]


@dataclass(frozen=True, slots=True)
class RunningSum(Op):
    """``rows[1,H,W,C], sums[C] -> sums[C]``: add int8 pixels to the int32 sum of each channel."""

    name: ClassVar[str] = "running_sum"

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 2)
        rows, sums = inputs
        require(rows.dtype is DType.INT8 and len(rows.shape) == 4, "rows are of int8, with four dimensions")
        require((sums.shape, sums.dtype) == (rows.shape[3:], DType.INT32), "a sum of int32 for each channel")
        return ((sums.shape, sums.dtype),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        rows, sums = arrays
        return ((sums + rows.sum(axis=(0, 1, 2), dtype=np.int64)).astype(np.int32),)


def cases() -> Iterator[Case]:
    for rows, width, channels in ((1, 1, 5), (1, 9, 1), (1, 5, 64), (3, 4, 6), (2, 7, 16)):
        x = int8s("x", (1, rows, width, channels))
        sums = Value("sums", (channels,), DType.INT32)
        yield make(f"{rows}x{width}x{channels}_sums_features", RunningSum(), [x, sums])
