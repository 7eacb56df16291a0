"""Numbers of float32: sums of products that are rounded once, and what is said of them without trying all."""

import numpy as np
import pytest

from crtgen.proof.checker.algebra.meaning import OPS
from crtgen.proof.checker.algebra.monotone import Course, course_of
from crtgen.proof.checker.algebra.real import fused, number_of, word_of_real
from crtgen.proof.checker.algebra.spans import where_wrong
from crtgen.proof.checker.algebra.value import LinearSum, Symbol, Word, WordOp
from crtgen.proof.checker.refusal import Refusal

X = Symbol(0, 0, -(1 << 31), (1 << 31) - 1, 32)


def word(x: float) -> int:
    return int(word_of_real(np.float32(x))) & 0xFFFFFFFF


def test_a_sum_of_a_product_is_rounded_once() -> None:
    """The product is half between two numbers, and what is added is below the last bit of double."""
    a = np.float32(1 + 2.0**-12)
    for c, wanted in ((2.0**-100, 1 + 2.0**-11 + 2.0**-23), (-(2.0**-100), 1 + 2.0**-11)):
        assert fused(a, a, np.float32(c)) == np.float32(wanted)


def test_what_is_no_number_is_not_followed() -> None:
    infinite, none = word(np.inf), 0x7FC00000
    for name, args in (("f_sub", (infinite, infinite)), ("f_add", (none, 0)), ("f_lt", (none, 0))):
        with pytest.raises(Refusal, match="no number"):
            OPS[name](*args)


def test_what_is_too_small_is_0_in_a_vector() -> None:
    small = 0x00000005
    assert OPS["f_add"](small, small) == 10
    assert OPS["f_add_fz"](small, small) == 0
    with pytest.raises(Refusal, match="too small before it was rounded"):
        OPS["f_mul_fz"](word(2.0**-63), word(2.0**-63))


def ordered(k: np.ndarray) -> np.ndarray:
    return np.where(k >= 0, k, -(1 << 31) - k)


ENDS = -0x7F800000, 0x7F800000


def scaled(factor: np.float32) -> WordOp:
    return WordOp("ssat", 8, WordOp("f_int_even", WordOp("f_mul", X.word, word(float(factor)))))


def test_a_factor_that_is_another_in_its_last_bit_is_seen() -> None:
    factor = np.float32(0.37)

    def wanted(bits: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.array(np.clip(np.rint(number_of(bits) * factor), -128, 127))

    assert where_wrong(scaled(factor), ENDS, ordered, wanted) is None
    found = where_wrong(scaled(np.nextafter(factor, np.float32(1))), ENDS, ordered, wanted)
    assert found is not None
    place, got = found
    assert wanted(ordered(np.array([place])))[0] != got


def through(e: Word) -> Course | None:
    """The course of an expression over the numbers from -2 to 3."""

    def leaf(_: LinearSum) -> Course:
        raise Refusal("used as an integer")

    return course_of(e, leaf, {~id(X.word): Course(word(-2) - (1 << 32), word(3), 1)})


def test_courses() -> None:
    x, one, two = X.word, word(1), word(2)
    assert through(WordOp("f_int", WordOp("f_mul", x, two))) == (-4, 6, 1)
    assert through(WordOp("f_int", WordOp("f_sub", one, x))) == (-2, 3, -1)
    assert through(WordOp("sel", WordOp("f_ge", x, one), 7, WordOp("f_int", x))) == (-2, 7, 1)
    assert through(WordOp("sel", WordOp("f_lt", x, one), WordOp("f_int", x), 7)) == (-2, 7, 1)
    assert through(WordOp("sel", WordOp("f_gt", x, one), -1 & 0xFFFFFFFF, WordOp("f_int", x))) is None, (
        "it turns"
    )
    assert through(WordOp("f_int", WordOp("f_abs", x))) is None
    assert through(WordOp("f_int", WordOp("f_div", one, x))) is None, "on the other side of 0 it is below"
    assert through(WordOp("f_int", WordOp("f_mul", x, x))) is None
    assert through(WordOp("f_int", WordOp("f_mul", x, word(np.inf)))) is None, "0 times it is no number"
    with pytest.raises(Refusal, match="used as an integer"):
        through(WordOp("add", x, 1))


def test_an_integer_is_no_number_of_float32() -> None:
    """From -2^31 on, the bits of x in the integers are a number that falls: f_int(f_int(x) * 1.0) turns."""
    x, one = X.word, word(1)
    inner = WordOp("f_int", WordOp("f_mul", x, word(2.0**28)))
    assert through(inner) is not None
    for outer in (WordOp("f_mul", inner, one), WordOp("f_add", inner, one)):
        assert through(WordOp("f_int", outer)) is None
    assert through(WordOp("f_int", WordOp("f_of", inner))) is not None


@pytest.mark.parametrize("zero", [0, 0x80000000], ids=["0", "-0"])
def test_a_division_by_zero_is_not_followed(zero: int) -> None:
    """It jumps from one infinity to the other, and 0 / 0 is no number."""
    quotient = WordOp("f_div", X.word, zero)
    assert through(WordOp("f_int", quotient)) is None
    with pytest.raises(Refusal, match="a division by 0"):
        where_wrong(WordOp("f_int", quotient), ENDS, ordered, lambda bits: bits * 0)
