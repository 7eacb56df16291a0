"""Number schemes: how tensors store real values, and how operators compute with them.

Schemes differ only in the properties defined here: operators, passes, front ends and kernels ask the scheme
of a tensor. A new scheme is another object, with kernels of its own.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, DType, Value

__all__ = [
    "FLOAT32",
    "INT8",
    "INT16",
    "SCHEMES",
    "UINT8",
    "Scheme",
    "has_narrow_weights",
    "is_plain",
    "scheme_of",
]


@dataclass(frozen=True, slots=True)
class Scheme:
    """A numeric scheme: types and range of stored values.

    ``activations``, ``weights`` and ``biases`` are the types of tensors, ``accumulators`` that of sums.
    Weights may also have the type ``narrow_weights``. Values of a quantised scheme are integers from ``low``
    to ``high``, and results saturate; a float scheme has no limits.
    """

    name: str
    activations: DType
    weights: DType
    biases: DType
    accumulators: DType
    narrow_weights: DType | None = None

    @property
    def is_real(self) -> bool:
        return not self.activations.is_integer

    @property
    def low(self) -> int:
        return int(np.iinfo(self.activations.value).min)

    @property
    def high(self) -> int:
        return int(np.iinfo(self.activations.value).max)

    @property
    def limits(self) -> tuple[int, int]:
        return self.low, self.high

    def every_number(self) -> Array:
        return np.arange(self.low, self.high + 1).astype(self.activations.numpy)

    def saturated(self, numbers: npt.ArrayLike, low: int | None = None, high: int | None = None) -> Array:
        """Return integers as elements of a quantised tensor: clamped to the type's limits, or to narrower
        ones.
        """
        least, most = (self.low if low is None else low), (self.high if high is None else high)
        return np.clip(numbers, least, most).astype(self.activations.numpy)

    def magnitude(self, zero_point: int) -> int:
        return max(self.high - zero_point, zero_point - self.low)


INT8 = Scheme("int8", DType.INT8, DType.INT8, DType.INT32, DType.INT32, DType.INT4)
"""TFLite's int8: activations and weights of int8, weights symmetric and possibly of four bits, sums in 32
bits.
"""

INT16 = Scheme("int16x8", DType.INT16, DType.INT8, DType.INT64, DType.INT64)
"""TFLite's 16x8: int16 activations with zero point 0, int8 weights, 64-bit sums."""

UINT8 = Scheme("uint8", DType.UINT8, DType.UINT8, DType.INT32, DType.INT32)
"""uint8, at the edges of a network only: there are operators from and to int8."""

FLOAT32 = Scheme("float32", DType.FLOAT32, DType.FLOAT32, DType.FLOAT32, DType.FLOAT32, DType.INT8)
"""float32. Weights may have eight bits and scales, as TFLite's dynamic-range quantisation writes them."""

SCHEMES = (INT8, INT16, UINT8, FLOAT32)


def scheme_of(value: Value) -> Scheme:
    """Return the scheme of an activation. Raises ``ValueError`` if its type has none."""
    for scheme in SCHEMES:
        if value.dtype is scheme.activations:
            return scheme
    raise ValueError(f"{value.name} is {value.dtype.value}")


def has_narrow_weights(x: Value, weights: Value) -> bool:
    return any((s.activations, s.narrow_weights) == (x.dtype, weights.dtype) for s in SCHEMES)


def is_plain(value: Value) -> bool:
    """Return True if the value holds plain (unquantised) integers or booleans."""
    return value.dtype is not DType.FLOAT32 and value.quant is None
