"""Scaling of accumulators: a product with 32 bits, then a right shift with one of three roundings.

========
========================================================================================================== TFL
two roundings, as TFLite's reference kernels: half of a doubled high product goes away from zero, then half
         of what the shift drops goes away from zero
TRUNCATE towards minus infinity
NATURAL  once, half goes up
========
==========================================================================================================
"""

import numpy as np
import numpy.typing as npt

__all__ = ["NATURAL", "TFL", "TRUNCATE", "Int64", "rescale"]

TFL, TRUNCATE, NATURAL = range(3)

Int64 = npt.NDArray[np.int64]


def rescale(value: Int64, scale: Int64 | int, shift: Int64 | int, rounding: int) -> Int64:
    """Return ``value * scale / 2**shift``, rounded; ``scale`` and ``shift`` may be arrays, too.

    Raises ``OverflowError`` if a product has more than 63 bits, which no stream needs that Vela writes.
    """
    scale, shift = np.asarray(scale, np.int64), np.asarray(shift, np.int64)
    return _tfl(value, scale, shift) if rounding == TFL else _once(value, scale, shift, rounding)


def _product(value: Int64, scale: Int64) -> Int64:
    largest = _greatest(value) * _greatest(scale)
    if largest >= 2.0**62:
        raise OverflowError("an accumulator times its scale has more than 63 bits")
    product: Int64 = value * scale
    return product


def _greatest(value: Int64) -> float:
    return float(np.abs(value.astype(np.float64)).max(initial=0))


def _once(value: Int64, scale: Int64, shift: Int64, rounding: int) -> Int64:
    product = _product(value, scale)
    if rounding == NATURAL:
        product = product + np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)
    result: Int64 = product >> shift
    return result


def _tfl(value: Int64, scale: Int64, shift: Int64) -> Int64:
    left, right = np.maximum(31 - shift, 0), np.maximum(shift - 31, 0)
    product = _product(value << left, scale)
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = np.where(nudged >= 0, nudged >> 31, -(-nudged >> 31))
    dropped = (np.int64(1) << right) - 1
    result: Int64 = (high >> right) + ((high & dropped) > (dropped >> 1) + (high < 0))
    return result
