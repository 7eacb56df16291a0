"""Float32 operations on words that hold the bits of floats.

Results are rounded to nearest, ties to even, which is a core's mode after reset. Operations whose names end
with ``_fz`` are Helium's: they replace subnormal operands and results by 0. An operation that meets NaN
raises ``Refusal``.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from crtgen.proof.checker.refusal import Refusal

__all__ = [
    "KEEPS_NAN",
    "OF_REALS",
    "ORDERED",
    "REAL_CONDITIONS",
    "REAL_NEGATED",
    "TO_INTEGERS",
    "fused",
    "number_of",
    "word_of_real",
]

V = Any
"""A signed 32-bit value: an int, or an int64 array."""

_SMALLEST = np.float32(2.0**-126)


def number_of(v: V) -> Any:
    """Return the float32 values with these bits. Raises ``Refusal`` for NaN."""
    found = (np.asarray(v) & 0xFFFFFFFF).astype(np.uint32).view(np.float32)
    if np.isnan(found).any():
        raise Refusal("an operation on what is no number (NaN)")
    return found


def word_of_real(x: Any) -> V:
    """Return the bits of floats as signed words; a single float gives an int."""
    if np.isnan(x).any():
        raise Refusal("an operation that gives no number (NaN)")
    bits = np.asarray(x, np.float32).view(np.int32).astype(np.int64)
    return bits if bits.ndim else int(bits)


def fused(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c rounded once: the product is exact in 53 bits, the sum is rounded to odd and then to
    float32.
    """
    product, c = a.astype(np.float64) * b.astype(np.float64), np.asarray(c, np.float64)
    total = np.asarray(product + c)
    other = total - product
    error = (product - (total - other)) + (c - other)
    bits = total.view(np.int64)
    outward = (error > 0) == (total > 0)
    odd = np.where((error != 0) & np.isfinite(total) & (bits & 1 == 0), np.where(outward, 1, -1), 0)
    return (bits + odd).view(np.float64).astype(np.float32)


def _larger(a: Any, b: Any) -> Any:
    return np.where(a == b, np.where(np.signbit(a), b, a), np.maximum(a, b))


def _smaller(a: Any, b: Any) -> Any:
    return np.where(a == b, np.where(np.signbit(a), a, b), np.minimum(a, b))


_ON_REALS: Mapping[str, Callable[..., Any]] = {
    "f_add": lambda a, b: a + b,
    "f_sub": lambda a, b: a - b,
    "f_mul": lambda a, b: a * b,
    "f_div": lambda a, b: a / b,
    "f_fma": lambda c, a, b: fused(a, b, c),
    "f_max": _larger,
    "f_min": _smaller,
    "f_neg": lambda a: -a,
    "f_abs": abs,
    "f_sqrt": np.sqrt,
}


def _whole(f: Callable[[Any], Any], bits: int = 32) -> Callable[[V], V]:
    # To integers, as far as these bits hold them.
    def convert(v: V) -> V:
        x = f(number_of(v).astype(np.float64))
        found = np.clip(x, -(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1).astype(np.int64)
        return found if found.ndim else int(found)

    return convert


def _operation(f: Callable[..., Any], flush: bool) -> Callable[..., V]:
    def operation(*args: V) -> V:
        numbers = [number_of(v) for v in args]
        with np.errstate(all="ignore"):
            if not flush:
                return word_of_real(f(*numbers))
            found = f(*(_flushed(x) for x in numbers))
            if (abs(found) == _SMALLEST).any():
                raise Refusal("a number that may have been too small before it was rounded")
            return word_of_real(_flushed(found))

    return operation


def _flushed(x: Any) -> Any:
    return np.where(abs(x) < _SMALLEST, np.copysign(np.float32(0), x), x)


def _compared(f: Callable[[Any, Any], Any]) -> Callable[[V, V], V]:
    def compare(a: V, b: V) -> V:
        found = np.asarray(f(number_of(a), number_of(b))).astype(np.int64)
        return found if found.ndim else int(found)

    return compare


_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "f_eq": lambda a, b: a == b,
    "f_ne": lambda a, b: a != b,
    "f_lt": lambda a, b: a < b,
    "f_ge": lambda a, b: a >= b,
    "f_gt": lambda a, b: a > b,
    "f_le": lambda a, b: a <= b,
    # true also if one of them is NaN
    "f_nlt": lambda a, b: ~(a < b),
    "f_nge": lambda a, b: ~(a >= b),
    "f_ngt": lambda a, b: ~(a > b),
    "f_nle": lambda a, b: ~(a <= b),
}

TO_INTEGERS = frozenset(("f_int", "f_int_even", "f_int_away", "f_int_16"))
"""Conversions to integers: towards zero, to the nearest with halves to even, or away from zero, and towards
zero to 16 bits.
"""

KEEPS_NAN = {name: _ON_REALS[name] for name in _ON_REALS if name not in ("f_max", "f_min")}
"""Operations on float32 numbers whose result is NaN if an operand is."""

OF_REALS: Mapping[str, Callable[..., V]] = {
    **{name: _operation(f, flush=False) for name, f in _ON_REALS.items()},
    **{f"{name}_fz": _operation(f, flush=True) for name, f in _ON_REALS.items()},
    **{name: _compared(f) for name, f in _COMPARISONS.items()},
    "f_of": lambda a: word_of_real(np.asarray(a, np.int64).astype(np.float32)),
    "f_int": _whole(np.trunc),
    "f_int_even": _whole(np.rint),
    "f_int_away": _whole(lambda x: np.copysign(np.floor(abs(x) + 0.5), x)),
    "f_int_16": _whole(np.trunc, bits=16),
}

REAL_CONDITIONS = {
    "eq": "f_eq", "ne": "f_ne", "mi": "f_lt", "lt": "f_nge", "cc": "f_lt", "pl": "f_nlt", "ge": "f_ge",
    "cs": "f_nlt", "gt": "f_gt", "hi": "f_nle", "le": "f_ngt", "ls": "f_le",
}  # fmt: skip
"""Meaning of conditions after a comparison of two floats, exact for NaN, which gives N=0, Z=0, C=1, V=1."""

REAL_NEGATED = {
    "f_eq": "f_ne", "f_ne": "f_eq", "f_lt": "f_nlt", "f_nlt": "f_lt", "f_ge": "f_nge", "f_nge": "f_ge",
    "f_gt": "f_ngt", "f_ngt": "f_gt", "f_le": "f_nle", "f_nle": "f_le",
}  # fmt: skip

ORDERED = {"f_nlt": "f_ge", "f_nge": "f_lt", "f_ngt": "f_le", "f_nle": "f_gt"}
"""Conditions that equal simpler ones if neither operand is NaN."""
