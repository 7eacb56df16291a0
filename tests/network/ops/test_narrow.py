"""Rounding to types with few digits, against the ml_dtypes package."""

import ml_dtypes
import numpy as np
import pytest

from crtgen.network.ir import Array
from crtgen.network.ops.case import floats, make
from crtgen.network.ops.narrow import FORMATS, RoundTo


def _rounded(to: str, x: Array, saturate: bool = False) -> Array:
    case = make("drawn", RoundTo(to, saturate), [floats("x", x.shape)])
    (y,) = case.op.reference(case.sig, [x])
    return y


def _numbers() -> Array:
    """Numbers of all exponents, and halves between those of the formats."""
    bits = np.random.default_rng(1).integers(0, 1 << 32, 20_000, np.uint64).astype(np.uint32)
    halves = (np.arange(1 << 16, dtype=np.uint32) << 16) | 0x8000
    found = np.concatenate([bits, halves, (bits >> 12) << 12]).view(np.float32)
    special = np.array([0, -0.0, np.inf, -np.inf, 448, 464, 465, 65519, 65520, 61440, 61439], np.float32)
    return np.concatenate([found[~np.isnan(found)], special])


@pytest.mark.parametrize("to", FORMATS)
def test_the_numbers_are_those_of_the_type(to: str) -> None:
    x = _numbers()
    with np.errstate(all="ignore"):
        expected = x.astype(getattr(ml_dtypes, to, to)).astype(np.float32)
    got = _rounded(to, x)
    np.testing.assert_array_equal(got, expected)
    there = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(expected)[there])


@pytest.mark.parametrize("to", FORMATS)
def test_saturated_numbers_stay_within_the_type(to: str) -> None:
    x, most = _numbers(), FORMATS[to].most
    within = np.abs(_rounded(to, x)) <= most
    got = _rounded(to, x, saturate=True)
    np.testing.assert_array_equal(got[within], _rounded(to, x)[within])
    np.testing.assert_array_equal(got[~within], np.copysign(np.float32(most), x[~within]))


def test_what_is_no_number() -> None:
    x = np.array([np.nan], np.float32)
    made = {to: float(_rounded(to, x)[0]) for to in FORMATS}
    assert {to for to, y in made.items() if np.isnan(y)} == set(FORMATS) - {"float4_e2m1fn"}
    assert made["float4_e2m1fn"] == 0
