"""Floats of low precision: rounding of float32 to types of sixteen, eight and four bits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Signature, Value
from crtgen.network.ops.attrs import require
from crtgen.network.ops.case import Case, floats, make
from crtgen.network.ops.elementwise import Elementwise

__all__ = ["FORMATS", "Format", "RoundTo", "cases"]

# Stored bits of a float32's significand.
_DIGITS = 23

# Bias of a float32's exponent.
_BIAS = (1 << 7) - 1


@dataclass(frozen=True, slots=True)
class Format:
    """A floating-point format: bits of the fraction, the exponent of the smallest normal number, the largest
    number, and whether it has infinity, NaN and negative zero.
    """

    digits: int
    least: int
    most: float
    has_infinity: bool = True
    has_nan: bool = True
    has_signed_zero: bool = True

    @property
    def dropped(self) -> int:
        return _DIGITS - self.digits

    @property
    def first(self) -> int:
        """Return the smallest normal number as the bits of a float32; 0 if the format has the exponent range
        of float32.
        """
        return (self.least + _BIAS) << _DIGITS if self.least + _BIAS > 1 else 0

    def beyond(self, saturate: bool) -> float:
        if saturate or not self.has_nan:
            return self.most
        return inf if self.has_infinity else nan


FORMATS: Mapping[str, Format] = {
    "float16": Format(10, -14, 65504.0),
    "bfloat16": Format(7, -126, (2 - 2.0**-7) * 2.0**_BIAS),
    "float8_e4m3fn": Format(3, -6, 448.0, has_infinity=False),
    "float8_e4m3fnuz": Format(3, -7, 240.0, has_infinity=False, has_signed_zero=False),
    "float8_e5m2": Format(2, -14, 57344.0),
    "float8_e5m2fnuz": Format(2, -15, 57344.0, has_infinity=False, has_signed_zero=False),
    "float4_e2m1fn": Format(1, 0, 6.0, has_infinity=False, has_nan=False),
}
"""Formats by their names in the ml_dtypes package."""


@dataclass(frozen=True, slots=True)
class RoundTo(Elementwise):
    """The nearest number of a format, as float32; ties are rounded to even.

    Values beyond the largest one become infinite, or NaN if the format has no infinity; with ``saturate``
    they become the largest one. NaN becomes zero if the format has no NaN.
    """

    name: ClassVar[str] = "round_to"

    to: str
    saturate: bool = False

    @property
    def format(self) -> Format:
        return FORMATS[self.to]

    def require_types(self, inputs: Sequence[Value]) -> None:
        require(inputs[0].dtype is DType.FLOAT32, f"the input is {inputs[0].dtype.value} instead of float32")

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, kind = arrays[0].astype(np.float64), self.format
        _, exponents = np.frexp(x)
        with np.errstate(invalid="ignore"):
            steps = np.ldexp(1.0, np.maximum(exponents - 1, kind.least) - kind.digits)
            near = np.rint(x / steps) * steps
        beyond = np.copysign(kind.beyond(self.saturate), near)
        made = np.where(np.abs(near) > kind.most, beyond, near)
        if not kind.has_nan:
            made = np.nan_to_num(made, nan=0.0)
        return ((made if kind.has_signed_zero else made + 0.0).astype(np.float32),)


def cases() -> Iterator[Case]:
    x = floats("x", (3, 67))
    for name, kind in FORMATS.items():
        tiny = 6 * 2.0 ** (kind.least - kind.digits)
        for word, most in (("one", 4.0), ("tiny", tiny), ("far", 1.5 * min(kind.most, 2.0**127))):
            for saturate in (False, True):
                label = f"{name}_{word}{'_saturated' if saturate else ''}_onnx"
                yield make(label, RoundTo(name, saturate), [x], limits={"x": (-most, most)})
