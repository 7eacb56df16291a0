"""TFLite's softmax of int16: interpolated tables of e^x and of 1 / (1 + x)."""

from dataclasses import dataclass

import numpy as np

from crtgen.network.ir import Array
from crtgen.network.ops.fixedpoint import Int64, multiply_by_quantized_multiplier
from crtgen.network.ops.interpolation import Table, looked_up, table_of

__all__ = ["Softmax16Params", "exp_table", "reciprocal_table", "softmax16"]

_LOW, _HIGH = -(1 << 15), (1 << 15) - 1


@dataclass(frozen=True, slots=True)
class Softmax16Params:
    """Integers of softmax of int16: ``(x - max) * multiplier * 2**(shift - 31)`` is the exponent in units of
    10.0 / 65535.
    """

    multiplier: int
    shift: int


def exp_table() -> Table:
    """Return the table of e^x for x from -10 to 0, with 15 fractional bits."""
    return table_of(lambda x: np.exp(x.astype(np.float64)).astype(np.float32), _scale(10), _HIGH, _scale(2))


def reciprocal_table() -> Table:
    """Return the table of 1 / (1 + x) for x from 0 to 1, with 15 fractional bits."""
    return table_of(lambda x: np.float32(1) / (np.float32(1) + x), _scale(1), _LOW, _scale(2))


def _scale(width: float) -> float:
    # Scale of int16 for an interval of real values.
    return float(np.float32(width) / np.float32(_HIGH - _LOW))


def softmax16(params: Softmax16Params, x: Array) -> Array:
    """Return softmax along the last axis with 15 fractional bits."""
    wide = x.astype(np.int64)
    difference = wide - wide.max(axis=-1, keepdims=True)
    scaled = multiply_by_quantized_multiplier(difference, params.multiplier, params.shift)
    powers = looked_up(exp_table(), np.clip(scaled + _HIGH, _LOW, _HIGH))
    total = powers.sum(axis=-1, keepdims=True)
    bits = np.frexp(total.astype(np.float64))[1].astype(np.int64)  # total < 2**bits
    fraction = ((total << (31 - bits)) + (1 << 13)) >> 14
    share = looked_up(reciprocal_table(), np.clip(fraction - (1 << 15) - (1 << 16), _LOW, _HIGH))
    right = bits - 1
    result: Int64 = (powers * share + (1 << (right - 1))) >> right
    return np.clip(result, 0, _HIGH).astype(np.int16)
