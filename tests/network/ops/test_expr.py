"""Integer expressions: what they mean, and between what they lie."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtgen.network.ir import DType, Signature, Value
from crtgen.network.ops import all_cases
from crtgen.network.ops.case import Case
from crtgen.network.ops.expr import Expr, Formula, number, operand
from crtgen.network.ops.fixedpoint import multiply_by_quantized_multiplier

_PAIR = Signature(
    (Value("a", (256, 1), DType.INT8), Value("b", (256,), DType.INT8)), (Value("y", (256, 256), DType.INT8),)
)
_EVERY = np.arange(-128, 128, dtype=np.int8)
_A, _B = operand(_PAIR, 0), operand(_PAIR, 1)


def _of(e: Expr) -> list[int]:
    """Its values for all pairs of int8 numbers."""
    values = e.of([_EVERY.reshape(256, 1), _EVERY])
    found: list[int] = np.broadcast_to(values, (256, 256)).ravel().tolist()
    return found


@pytest.mark.parametrize(
    ("e", "low", "high"),
    [
        (_A + 3, -125, 130),
        (_A - _B, -255, 255),
        (_A * _B, -16256, 16384),
        ((_A - _B) * (_A - _B), 0, 65025),
        (abs(_A), 0, 128),
        (_A.clamped(0, 6), 0, 6),
        (_A << 4, -2048, 2032),
        (_A + 0, -128, 127),
        (_A.scaled(1 << 30, 2), -256, 254),
        (_A.scaled(1 << 30, -1), -32, 32),
        (_A.split(lambda x: x * 2, lambda x: x + 200), 0, 254),
        (number(7) - _A, -120, 135),
    ],
)
def test_intervals_are_exact_at_their_ends(e: Expr, low: int, high: int) -> None:
    assert (min(_of(e)), max(_of(e))) == (e.low, e.high) == (low, high)


def test_what_leaves_32_bits_wraps_and_may_be_anything() -> None:
    e = _A << 25
    assert (e.wraps, e.low, e.high) == (True, -(2**31), 2**31 - 1)
    assert _of(e)[127 * 256] == -1 << 25
    assert _of(e)[0] == 0  # -128 * 2**25


@given(st.integers(1 << 30, (1 << 31) - 1), st.integers(-12, 12), st.integers(-20, 20))
def test_scaling_is_tflites(multiplier: int, shift: int, offset: int) -> None:
    e = (_A + offset).scaled(multiplier, shift)
    wanted = multiply_by_quantized_multiplier(_EVERY.astype(np.int64) + offset, multiplier, shift)
    assert _of(e)[::256] == wanted.tolist()
    assert (e.low, e.high) == (wanted.min(), wanted.max())


@pytest.mark.parametrize("case", [c for c in all_cases() if isinstance(c.op, Formula)], ids=str)
def test_outputs_are_within_the_interval(case: Case) -> None:
    assert isinstance(case.op, Formula)
    formula = case.op.formula(case.sig)
    if formula is not None:
        drawn = case.inputs(1)
        values = formula.of([v.array() if v.is_constant else drawn[v.name] for v in case.sig.inputs])
        assert formula.low <= values.min() <= values.max() <= formula.high
