"""Statistics of vibrations and movements: moments of rows, and filters of second-order sections."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, DType, Op, Signature, Value, shape_text
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, make

__all__ = ["MOMENTS", "Biquads", "Moments", "cases"]

Floats = npt.NDArray[np.float32]
_F32 = DType.FLOAT32
_Outputs = tuple[tuple[tuple[int, ...], DType], ...]

MOMENTS = ("mean", "min", "max", "rms", "std", "skew", "kurtosis")
"""Results of ``Moments``, in this order."""


def _require_rows(inputs: Sequence[Value], count: int) -> Value:
    require_inputs(inputs, count)
    x = inputs[0]
    require(x.dtype is _F32 and len(x.shape) > 0, f"rows of {shape_text(x.shape)} {x.dtype.value}")
    return x


def _total(rows: Floats) -> Floats:
    # The sum of each row, from the first number to the last.
    total = np.zeros(rows.shape[:-1], np.float32)
    for i in range(rows.shape[-1]):
        total = total + rows[..., i]
    return total


@dataclass(frozen=True, slots=True)
class Moments(Op):
    """``x[..., N] -> y[..., 7]``: mean, minimum, maximum, root mean square, deviation, skew, kurtosis.

    The last three are population moments after the mean is subtracted: the square root of the second moment,
    the third moment over the deviation's third power, and the fourth over its fourth power, minus 3. If the
    deviation is 0, they are 0.
    """

    name: ClassVar[str] = "moments"

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        x = _require_rows(inputs, 1)
        return (((*x.shape[:-1], len(MOMENTS)), _F32),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x = arrays[0].astype(np.float32)
        count = np.float32(x.shape[-1])
        mean = _total(x) / count
        rest = x - mean[..., None]
        squares = rest * rest
        second = _total(squares) / count
        third = _total(squares * rest) / count
        fourth = _total(squares * squares) / count
        deviation = np.sqrt(second)
        safe = np.where(second > 0, second, np.float32(1))
        skew = np.where(second > 0, third / (safe * np.sqrt(safe)), np.float32(0))
        kurtosis = np.where(second > 0, fourth / (safe * safe) - np.float32(3), np.float32(0))
        rms = np.sqrt(_total(x * x) / count)
        found = [mean, x.min(axis=-1), x.max(axis=-1), rms, deviation, skew, kurtosis]
        return (np.stack(found, axis=-1).astype(np.float32),)


@dataclass(frozen=True, slots=True)
class Biquads(Op):
    """``x[..., N], sections[S, 5] -> y[..., N]``: second-order filters, applied one after another, starting
    from zero state.

    A section has ``b0, b1, b2, a1, a2``: ``y = b0 x + s1``, ``s1 = b1 x - a1 y + s2``, ``s2 = b2 x - a2 y``.
    """

    name: ClassVar[str] = "biquads"

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        x = _require_rows(inputs, 2)
        sections = inputs[1]
        good = sections.dtype is _F32 and len(sections.shape) == 2 and sections.shape[1] == 5
        require(good, f"sections of {shape_text(sections.shape)}")
        return ((x.shape, _F32),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        y = arrays[0].astype(np.float32).copy()
        for b0, b1, b2, a1, a2 in arrays[1].astype(np.float32):
            first = np.zeros(y.shape[:-1], np.float32)
            second = np.zeros(y.shape[:-1], np.float32)
            for i in range(y.shape[-1]):
                x = y[..., i].copy()
                y[..., i] = b0 * x + first
                first = (b1 * x - a1 * y[..., i]) + second
                second = b2 * x - a2 * y[..., i]
        return (y,)


def cases() -> Iterator[Case]:
    yield make("float32_features", Moments(), [Value("x", (3, 20), _F32)])
    yield make("float32_one_features", Moments(), [Value("x", (1,), _F32)])
    sections = np.array([[0.1, 0.2, 0.1, -0.9, 0.3], [1.0, -2.0, 1.0, -0.4, 0.1]], np.float32)
    yield make("float32_features", Biquads(), [Value("x", (2, 30), _F32), Value.constant("s", sections)])
