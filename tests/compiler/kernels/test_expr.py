"""Integer expressions in C, and their cheaper forms, which are equal for every value."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtgen.compiler.kernels.portable.expr import cheaper, spelled
from crtgen.network.ir import Array, DType, Quant, Signature, Value
from crtgen.network.ops.expr import Expr, operand
from crtgen.network.ops.fixedpoint import quantize_multiplier

_Y = Value("y", (65536,), DType.INT8, Quant.tensor(1.0))
_SIG = Signature((Value("a", _Y.shape, DType.INT8), Value("b", _Y.shape, DType.INT16)), (_Y,))
_A, _B = operand(_SIG, 0), operand(_SIG, 1)
_VALUES: list[Array] = [np.arange(65536).astype(np.int8), np.arange(-32768, 32768).astype(np.int16)]

_MULTIPLIERS = st.integers(1 << 30, (1 << 31) - 1)
_OFFSETS = st.integers(-128, 128)


def _equal(e: Expr) -> Expr:
    """The cheaper form, which is the same on all values."""
    found = cheaper(e)
    assert np.all(found.of(_VALUES) == e.of(_VALUES))
    assert np.all(cheaper(e, narrow=True).of(_VALUES) == e.of(_VALUES))
    return found


@settings(max_examples=60, deadline=None)
@given(_MULTIPLIERS, st.integers(-9, 5), _OFFSETS, _OFFSETS, st.integers(0, 7), st.booleans())
def test_roundings_of_few_values_are_as_they_were(
    multiplier: int, shift: int, offset: int, zero: int, left: int, negative: bool
) -> None:
    scaled = ((_A + offset) << left).scaled(-multiplier if negative else multiplier, shift)
    _equal(scaled)
    _equal((scaled + zero).clamped(-128, 127))


@settings(max_examples=60, deadline=None)
@given(_MULTIPLIERS, st.integers(-15, -6), _OFFSETS, st.integers(-128, 0), st.integers(1, 127))
def test_roundings_of_many_values_are_as_they_were(
    multiplier: int, shift: int, zero: int, low: int, high: int
) -> None:
    _equal((_B.scaled(multiplier, shift) + zero).clamped(low, high))
    both = _B.split(lambda x: x.scaled(multiplier, shift), lambda x: (x * _A).scaled(multiplier, shift - 7))
    _equal((both + zero).clamped(low, high))


@pytest.mark.parametrize("scale", [0.04 * 0.04 / 0.21, 0.04 * 0.04 / 0.011, 0.003, 0.0301])
def test_products_take_no_long_multiplication_on_narrow_cores(scale: float) -> None:
    a, b = np.divmod(np.arange(65536), 256) - np.array([[128], [128]])
    x = operand(_SIG, 0) + 5
    y = Expr("operand", (), -128, 127, place=1) - 9
    e = ((x * y).scaled(*quantize_multiplier(scale)) + 3).clamped(-128, 127)
    found = cheaper(e, narrow=True)
    assert np.all(found.of([a, b]) == e.of([a, b]))
    text = " ".join(spelled(found, _Y))
    assert "int64" not in text
    assert "scale" not in text


def test_half_of_what_fills_32_bits_does_not_wrap() -> None:
    c = Expr("operand", (), -(2**31), 2**31 - 1)
    found = cheaper(c.scaled(1 << 30, 0))
    assert found.of([np.array([2**31 - 1, -(2**31), 3])]).tolist() == [2**30, -(2**30), 2]


def test_a_rounding_and_another_number_are_not_a_rounding_and_a_zero_point() -> None:
    _equal((_B.scaled(1_200_000_000, -9) + _A).clamped(-128, 127))


@pytest.mark.parametrize(
    ("e", "lines"),
    [
        (_A + -3, ("a - 3",)),
        ((_A + 3) * (_B + 4) - _A, ("((a + 3) * (b + 4)) - a",)),
        ((_A << 25) + 8, ("crt_add32(crt_shift_left(a, 25), 8)",)),
        ((_B - _A) * (_B - _A), ("const int32_t v0 = b - a;", "v0 * v0")),
        (abs(_A), ("(a >= 0) ? a : (0 - a)",)),
        (_B.scaled(1_200_000_000, -3), ("crt_scale_down(b, 1200000000, 2)",)),
        (_B.scaled(1_200_000_000, 3), ("crt_scale(b, 1200000000, 3)",)),
        ((_B << 14).scaled(1_200_000_000, -3), ("crt_scale_down(crt_shift_left(b, 14), 1200000000, 2)",)),
        ((_B << 15).scaled(1_200_000_000, -3), ("crt_scale(crt_shift_left(b, 15), 1200000000, -3)",)),
        (_B.scaled(1 << 30, 0), ("(b + 1) >> 1",)),
        ((_B << 5).scaled(1 << 30, 0), ("crt_shift_left(b, 4)",)),
        ((_A << 7).scaled(1 << 30, -3), ("a * 8",)),
        (_A.scaled(1 << 30, -1), ("crt_scale_down(a, 1073741824, 0)",)),
        (((_A + 20) << 8).scaled(1_503_238_528, 0), ("((a * 11744051) + 234913791) >> 16",)),
        (_A.compared("<=", _B + 1), ("a <= (b + 1)",)),
        (((_A + 5) << 7).scaled(1_200_000_000, 0), ("((a * 9374996) + 46940516) >> 17",)),
    ],
)
def test_how_it_is_spelled(e: Expr, lines: tuple[str, ...]) -> None:
    assert spelled(_equal(e), Value("y", _Y.shape, DType.INT32)) == lines


@pytest.mark.parametrize(
    ("e", "line"),
    [
        ((_A + 3).clamped(0, 6), "crt_int8(a + 3, 0, 6)"),
        ((_A + 3).clamped(-125, 130), "(int8_t)(a + 3)"),
        ((_A.scaled(1 << 30, 1) + 3).clamped(-128, 127), "crt_int8(a + 3, -128, 127)"),
        (abs(_A).scaled(1 << 30, 0).clamped(-128, 127), "(int8_t)((((a >= 0) ? a : (0 - a)) + 1) >> 1)"),
        (
            (_B.scaled(1_200_000_000, -7) + 5).clamped(-100, 100),
            "crt_int8(crt_scale_down(b, 1200000000, 6) + 5, -100, 100)",
        ),
    ],
)
def test_only_what_may_be_beyond_is_clamped(e: Expr, line: str) -> None:
    assert spelled(_equal(e), _Y) == (line,)


def test_one_value_is_no_line() -> None:
    """At a zero point of 127 nothing is above zero but zero: any slope would do, of any number of bits."""
    above = (_A - 127).split(lambda x: x.scaled(1_500_000_000, 9), lambda x: x)
    found = _equal(above.clamped(-128, 127))
    line = "crt_int8((v0 >= 0) ? (int32_t)((int64_t)(v0) * 0 >> 32) : v0, -128, 127)"
    assert spelled(found, _Y) == ("const int32_t v0 = a - 127;", line)
