"""TFLite's softmax of int16: tables of e^x and of 1 / (1 + x), interpolated."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtgen.ir import Array
from crtgen.ops.fixedpoint import Int64, multiply_by_quantized_multiplier

__all__ = ["Softmax16Params", "exp_table", "reciprocal_table", "softmax16"]

Table = npt.NDArray[np.int16]

_STEPS = 512
_BITS = 7  # between two steps
_LOW, _HIGH = -(1 << 15), (1 << 15) - 1
_EXTENT = np.float32(_HIGH - _LOW)


@dataclass(frozen=True, slots=True)
class Softmax16Params:
    """``(x - max) * multiplier * 2**(shift - 31)`` counts 65535 for 10.0."""

    multiplier: int
    shift: int


def exp_table() -> Table:
    """e^x for x from -10 to 0, in fractions of 15 bits."""
    return _table(10.0, _HIGH, lambda x: np.exp(x.astype(np.float64)).astype(np.float32))


def reciprocal_table() -> Table:
    """1 / (1 + x) for x from 0 to 1, in fractions of 15 bits."""
    return _table(1.0, _LOW, lambda x: np.float32(1) / (np.float32(1) + x))


def _table(
    width: float, zero: int, function: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]
) -> Table:
    """The function at 513 places from one end of int16 to the other, in float32 as TFLite's ``LUTPopulate``.

    Each place is moved by half of the error that interpolation has in the middle to the next one.
    """
    scale = np.float32(width) / _EXTENT
    low, high = scale * np.float32(_LOW - zero), scale * np.float32(_HIGH - zero)
    step = (high - low) / np.float32(_STEPS)
    outer = np.float32(2) / _EXTENT
    factor = np.float32(_HIGH - _LOW + 1) / (outer * np.float32(_HIGH) - outer * np.float32(_LOW))
    places = np.arange(_STEPS, dtype=np.float32)
    here = function(low + places * step) * factor
    following = function(low + (places + np.float32(1)) * step) * factor
    middle = _rounded(function(low + places * step + step / np.float32(2)) * factor)
    error = _rounded((following + _rounded(here)) / np.float32(2)) - middle
    bent = _rounded(here) - _rounded(error / np.float32(2))
    last = _rounded(function(np.array([high], np.float32)) * factor)
    table: Table = np.clip(np.concatenate([bent, last]), _LOW, _HIGH).astype(np.int16)
    return table


def _rounded(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    away: npt.NDArray[np.float32] = np.copysign(np.floor(np.abs(x) + np.float32(0.5)), x)
    return away


def _looked_up(table: Table, x: Int64) -> Int64:
    """Between the places of a table, which are ``1 << _BITS`` apart."""
    wide, part = table.astype(np.int64), x & ((1 << _BITS) - 1)
    place = _STEPS // 2 + (x >> _BITS)
    slope = wide[place + 1] - wide[place]
    found: Int64 = wide[place] + ((slope * part + (1 << (_BITS - 1))) >> _BITS)
    return found


def softmax16(params: Softmax16Params, x: Array) -> Array:
    """Along the last axis, in fractions of 15 bits."""
    wide = x.astype(np.int64)
    difference = wide - wide.max(axis=-1, keepdims=True)
    scaled = multiply_by_quantized_multiplier(difference, params.multiplier, params.shift)
    powers = _looked_up(exp_table(), np.clip(scaled + _HIGH, _LOW, _HIGH))
    total = powers.sum(axis=-1, keepdims=True)
    bits = np.frexp(total.astype(np.float64))[1].astype(np.int64)  # total < 2**bits
    fraction = ((total << (31 - bits)) + (1 << 13)) >> 14
    share = _looked_up(reciprocal_table(), np.clip(fraction - (1 << 15) - (1 << 16), _LOW, _HIGH))
    right = bits - 1
    result: Int64 = (powers * share + (1 << (right - 1))) >> right
    return np.clip(result, 0, _HIGH).astype(np.int16)
