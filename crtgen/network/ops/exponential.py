"""Exponential function in float32, each product and sum rounded; the inverse of ``ScaledLog``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, DType, Op, Signature, Value
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, make

__all__ = ["EXP_TERMS", "LEAST", "LN2_HIGH", "LN2_LOW", "LOG2_E", "MOST", "ScaledExp", "cases"]

_F32 = DType.FLOAT32

LEAST, MOST = np.float32(-87.0), np.float32(88.0)
"""Limits of the exponent for which the power is a normal number."""

_BIAS = 0x7F  # of exponents of float32
LOG2_E = np.float32(1 / log(2))
LN2_HIGH = np.float32(0.693359375)
LN2_LOW = np.float32(log(2) - 0.693359375)
"""Two parts of ln 2. The first one has so few bits that its products with the exponents are exact."""

EXP_TERMS = tuple(
    np.float32(term)
    for term in (1.9875691e-4, 1.3981999e-3, 8.3334519e-3, 4.1665796e-2, 1.6666665e-1, 5.0000001e-1)
)
"""``(e^r - 1 - r) / r^2`` for r within ln(2) / 2, from the highest power on: Cephes's ``expf``."""


@dataclass(frozen=True, slots=True)
class ScaledExp(Op):
    """``x -> y``: ``scale * e^x + offset``, with x limited to the range -87 to 88.

    ``e^x = 2^k e^r`` with ``k = floor(x / ln 2 + 1/2)``; ``e^r`` is a polynomial, ``EXP_TERMS``.
    """

    name: ClassVar[str] = "scaled_exp"

    scale: float
    offset: float

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        require(x.dtype is _F32, f"powers of {x.dtype.value}")
        return ((x.shape, _F32),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x = arrays[0].astype(np.float32)
        x = np.where(x > LEAST, x, LEAST)
        x = np.where(x < MOST, x, MOST)
        with np.errstate(over="ignore"):
            return (np.float32(self.scale) * _power(x) + np.float32(self.offset),)


def _power(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    whole = np.floor(x * LOG2_E + np.float32(0.5))
    rest = (x - whole * LN2_HIGH) - whole * LN2_LOW
    total = np.full_like(rest, EXP_TERMS[0])
    for term in EXP_TERMS[1:]:
        total = total * rest + term
    power = (total * (rest * rest) + rest) + np.float32(1)
    scale = ((whole.astype(np.int32) + _BIAS) << 23).view(np.float32)
    made: npt.NDArray[np.float32] = power * scale
    return made


def cases() -> Iterator[Case]:
    x = Value("x", (50,), _F32)
    yield make("wide_features", ScaledExp(1.0, 0.0), [x], limits={"x": (-90.0, 90.0)})
    yield make("float32_features", ScaledExp(2.0, -1.5), [x], limits={"x": (-3.0, 2.0)})
