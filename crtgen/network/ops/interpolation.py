"""Functions of int16 that are tabulated at 513 points and linearly interpolated: ``interpolation``."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, AxisMap, DType, Quant, Signature, Value
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, int16s, make
from crtgen.network.ops.fixedpoint import Int64
from crtgen.network.ops.scheme import INT16
from crtgen.network.ops.traits import Channelwise, along_all

__all__ = ["Interpolation", "Reals", "Table", "cases", "looked_up", "table_of"]

Reals: TypeAlias = npt.NDArray[np.float32]
Table: TypeAlias = npt.NDArray[np.int16]

_STEPS = 512
_BITS = 7  # between two steps


@dataclass(frozen=True, slots=True)
class Interpolation(Channelwise):
    """Interpolation of each int16 in a ``table`` of 513 values; ``label`` names the function."""

    name: ClassVar[str] = "interpolation"

    table: tuple[int, ...]
    label: str = ""

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        return along_all(sig, axes)

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        require(inputs[0].dtype is DType.INT16, f"the input is {inputs[0].dtype.value}")
        whole = len(self.table) == _STEPS + 1 and all(INT16.low <= n <= INT16.high for n in self.table)
        require(whole, f"the table has not {_STEPS + 1} numbers of int16")
        return ((inputs[0].shape, DType.INT16),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (looked_up(np.array(self.table, np.int16), arrays[0].astype(np.int64)).astype(np.int16),)


def table_of(function: Callable[[Reals], Reals], scale: float, zero: int, step: float) -> Table:
    """Tabulate a function at 513 points over the range of int16, in float32 as TFLite's ``LUTPopulate`` does.

    ``scale`` and ``zero`` are the input's; ``step`` is the output's scale, whose zero point is 0. Each entry
    is moved by half of the interpolation error at the middle of the interval to the next one.
    """
    single = np.float32
    low, high = (single(scale) * single(end - zero) for end in INT16.limits)
    width = (high - low) / single(_STEPS)
    factor = single(INT16.high - INT16.low + 1) / (
        single(step) * single(INT16.high) - single(step) * single(INT16.low)
    )
    places = np.arange(_STEPS, dtype=single)
    here = function(low + places * width) * factor
    following = function(low + (places + single(1)) * width) * factor
    middle = _rounded(function(low + places * width + width / single(2)) * factor)
    error = _rounded((following + _rounded(here)) / single(2)) - middle
    bent = _rounded(here) - _rounded(error / single(2))
    last = _rounded(function(np.array([high], single)) * factor)
    table: Table = np.clip(np.concatenate([bent, last]), *INT16.limits).astype(np.int16)
    return table


def _rounded(x: Reals) -> Reals:
    away: Reals = np.copysign(np.floor(np.abs(x) + np.float32(0.5)), x)
    return away


def looked_up(table: Table, x: Int64) -> Int64:
    """Return values interpolated between entries of the table, which are ``1 << _BITS`` apart."""
    wide, part = table.astype(np.int64), x & ((1 << _BITS) - 1)
    place = _STEPS // 2 + (x >> _BITS)
    slope = wide[place + 1] - wide[place]
    found: Int64 = wide[place] + ((slope * part + (1 << (_BITS - 1))) >> _BITS)
    return found


def cases() -> Iterator[Case]:
    table = table_of(lambda x: np.sin(x * np.float32(7)), 2**-15, 0, 2**-15)
    yield make(
        "sine_onnx",
        Interpolation(tuple(table.tolist()), "sine"),
        [int16s("x", (1, 7, 50))],
        Quant.tensor(2**-15),
    )
