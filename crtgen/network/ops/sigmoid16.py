"""TFLite's logistic and tanh of int16: a table of the logistic function, interpolated."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, Quant
from crtgen.network.ops.attrs import require

__all__ = ["Sigmoid16Params", "logistic16", "require_fraction", "sigmoid_places", "sigmoid_table", "tanh16"]

_NEAR = 1e-3  # in powers of two: what counts as one
_INTEGER_BITS = 3
_ABOVE = (4, 8, 12, 14, 15, 16, 17, 19, 20, 21, 22, 25, 27, 28, 29, 30, 31, 33, 34, 35, 37, 39, 40, 41, 43,
          44, 45, 46, 49, 50, 54, 62, 63, 64, 66, 82, 86, 93, 100, 103, 112, 116, 135, 255)  # fmt: skip


def sigmoid_table() -> npt.NDArray[np.uint16]:
    """Return ``65536 / (1 + exp(-i / 24))`` for i from 0 to 255, rounded; some entries are 1 higher, as in
    TFLite.
    """
    table = np.rint(65536 / (1 + np.exp(-np.arange(256) / 24)))
    table[list(_ABOVE)] += 1
    return table.astype(np.uint16)


def sigmoid_places(logistic: bool) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16]]:
    """Return the table with the value used beyond its end, and the differences of entries, which are 0
    there.
    """
    table = sigmoid_table().astype(np.int64)
    slopes = np.append(np.diff(table), 0)
    table[-1] = 65534 if logistic else 65535
    return table.astype(np.uint16), slopes.astype(np.uint16)


@dataclass(frozen=True, slots=True)
class Sigmoid16Params:
    """``(x * multiplier + (1 << shift >> 1)) >> shift`` is the argument times 3 * 4096."""

    multiplier: int
    shift: int

    @classmethod
    def of(cls, x: Quant, plain_shifts: tuple[int, ...]) -> "Sigmoid16Params":
        """Compute the parameters: the scale times 3 * 4096, truncated to 15 bits; some powers of two use
        plain shifts without rounding.
        """
        require(x.zero_point == 0, f"the input has the zero point {x.zero_point}; supported: 0")
        power = round(math.log2(x.scale))
        shift = 15 - _INTEGER_BITS + power
        if abs(math.log2(x.scale) - power) < _NEAR and shift in plain_shifts:
            return cls(3 << shift, 0)
        real, shift = x.scale * 4096 * 3, 0
        while real <= 32767 / 2 and shift <= 30:
            real, shift = real * 2, shift + 1
        require(real < 32768, f"the input's scale is {x.scale:g}; supported: up to 2.66")
        return cls(int(real), shift)


def require_fraction(y: Quant) -> None:
    """Raise ``ValueError`` unless the scale is 1/32768 and the zero point 0."""
    fits = y.zero_point == 0 and abs(math.log2(y.scale) + 15) < _NEAR
    require(fits, f"the output has {y} instead of {Quant.tensor(1 / 32768)}")


def _arguments(params: Sigmoid16Params, x: Array) -> npt.NDArray[np.int64]:
    argument: npt.NDArray[np.int64] = (
        x.astype(np.int64) * params.multiplier + ((1 << params.shift) >> 1)
    ) >> params.shift
    return argument


def _interpolated(magnitude: npt.NDArray[np.int64], bits: int, beyond: int) -> npt.NDArray[np.int64]:
    # The table between its places, which are ``1 << bits`` apart; ``beyond`` from its end on.
    table = sigmoid_table().astype(np.int64)
    place = magnitude >> bits
    left, right = table[np.minimum(place, 254)], table[np.minimum(place, 254) + 1]
    inside = (left << bits) + (magnitude & ((1 << bits) - 1)) * (right - left)
    return np.where(place >= 255, beyond, inside)


def logistic16(params: Sigmoid16Params, x: Array) -> Array:
    """Return ``1 / (1 + exp(-x))`` with 15 fractional bits."""
    argument = _arguments(params, x)
    value = _interpolated(np.abs(argument), 9, 0x7FFF << 10)
    signed = np.where(argument >= 0, value + (1 << 9), (1 << 25) - value + (1 << 9) - 1)
    return (signed >> 10).astype(np.int16)


def tanh16(params: Sigmoid16Params, x: Array) -> Array:
    """Return the hyperbolic tangent with 15 fractional bits, from the logistic function of twice the
    argument.
    """
    argument = _arguments(params, x)
    value = _interpolated(np.abs(argument), 8, 0xFFFF << 8) - (1 << 23)
    signed = np.where(argument >= 0, value + (1 << 7), -value + (1 << 7) - 1)
    return (signed >> 8).astype(np.int16)
