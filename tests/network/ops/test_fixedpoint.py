"""Fixed-point arithmetic against exact rationals and against the real functions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtgen.network.ops import fixedpoint as fp
from crtgen.network.ops import gemmlowp

_INT32 = st.integers(-(2**31), 2**31 - 1)


def _array(x: int) -> fp.Int64:
    return np.array([x], np.int64)


def _half_away(x: Fraction) -> int:
    return int(math.copysign(math.floor(abs(x) + Fraction(1, 2)), x)) if x else 0


@pytest.mark.parametrize(
    ("real", "expected"),
    [
        (0.0, (0, 0)),
        (1.0, (1 << 30, 1)),
        (0.5, (1 << 30, 0)),
        (0.75, (3 << 29, 0)),
        (2.0**-32, (1 << 30, -31)),
        (2.0**-33, (0, 0)),
        (1 - 2.0**-40, (1 << 30, 1)),
        (2.0**31 - 1, (2**31 - 1, 31)),
        (5e-324, (0, 0)),
    ],
)
def test_quantize_multiplier(real: float, expected: tuple[int, int]) -> None:
    assert fp.quantize_multiplier(real) == expected


@pytest.mark.parametrize("real", [-1.0, math.inf, math.nan, 2.0**31])
def test_quantize_multiplier_refuses_what_32_bits_cannot_scale_by(real: float) -> None:
    with pytest.raises(ValueError, match="ratio of its scales"):
        fp.quantize_multiplier(real)


def test_quantize_multiplier_refuses_to_shift_a_value_out_of_32_bits() -> None:
    assert fp.quantize_multiplier(1.5, 2**30 - 1) == (3 << 29, 1)
    for real, bound in ((1.5, 2**30), (0.01, 2**31)):
        with pytest.raises(
            ValueError, match=f"^values up to {bound:,}, .* of {real}, are more than 32 bits hold"
        ):
            fp.quantize_multiplier(real, bound)


@given(st.floats(2.0**-31, 2.0**30))
def test_quantize_multiplier_is_the_nearest_31_bit_mantissa(real: float) -> None:
    multiplier, shift = fp.quantize_multiplier(real)
    assert 2**30 <= multiplier < 2**31
    assert abs(Fraction(multiplier) * Fraction(2) ** (shift - 31) / Fraction(real) - 1) <= Fraction(1, 2**31)


@given(_INT32, _INT32)
def test_high_mul_is_the_nearest_integer_and_saturates(a: int, b: int) -> None:
    nearest = math.floor(Fraction(a * b, 2**31) + Fraction(1, 2))
    result = fp.saturating_rounding_doubling_high_mul(_array(a), b)
    assert result.tolist() == [min(nearest, 2**31 - 1)]


@given(_INT32, st.integers(0, 31))
def test_divide_by_pot_rounds_halves_away_from_zero(x: int, exponent: int) -> None:
    assert fp.rounding_divide_by_pot(_array(x), exponent).tolist() == [_half_away(Fraction(x, 2**exponent))]


@given(st.integers(-(2**20), 2**20), st.integers(2**30, 2**31 - 1), st.integers(-31, 10))
def test_multiply_rounds_twice(x: int, multiplier: int, shift: int) -> None:
    product = math.floor(Fraction(x * 2 ** max(shift, 0) * multiplier, 2**31) + Fraction(1, 2))
    expected = _half_away(Fraction(product, 2 ** max(-shift, 0)))
    assert fp.multiply_by_quantized_multiplier(_array(x), multiplier, shift).tolist() == [expected]


def test_exp_is_exact_to_six_digits() -> None:
    x = np.linspace(-31.9, 0, 4001)
    raw = np.round(x * 2**26).astype(np.int64)
    result = gemmlowp.exp_on_negative_values(raw, 5) / 2.0**31
    np.testing.assert_allclose(result, np.exp(raw / 2.0**26), rtol=0, atol=3e-7)


def test_logistic_and_tanh_are_exact_to_six_digits() -> None:
    raw = np.round(np.linspace(-15.9, 15.9, 4001) * 2**27).astype(np.int64)
    real = raw / 2.0**27
    np.testing.assert_allclose(
        gemmlowp.logistic(raw, 4) / 2.0**31, 1 / (1 + np.exp(-real)), rtol=0, atol=3e-7
    )
    np.testing.assert_allclose(gemmlowp.tanh(raw, 4) / 2.0**31, np.tanh(real), rtol=0, atol=6e-7)


def test_reciprocal_is_exact_to_eight_digits() -> None:
    raw = np.round(np.linspace(0, 1 - 2.0**-31, 4001) * 2**31).astype(np.int64)
    expected = 1 / (1 + raw / 2.0**31)
    np.testing.assert_allclose(gemmlowp.one_over_one_plus_x(raw) / 2.0**31, expected, rtol=0, atol=1e-8)
