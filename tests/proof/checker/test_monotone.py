"""Expressions that never turn, and some that look like it."""

import numpy as np
import pytest

from crtgen.proof.checker.algebra.expression import evaluate
from crtgen.proof.checker.algebra.meaning import OPS
from crtgen.proof.checker.algebra.monotone import Course, course_of
from crtgen.proof.checker.algebra.value import LinearSum, Symbol, WordOp

X = LinearSum(0, {Symbol(0, 0, 0, 127): 8})
LOW = WordOp("sxtb", WordOp("sub", X, 128))


def course(e: WordOp) -> Course | None:
    return course_of(e, lambda leaf: Course(*leaf.bounds(), 1), {})


@pytest.mark.parametrize(
    "e",
    [WordOp("sel", WordOp("hi", X, 255), 127, LOW), WordOp("sel", WordOp("le", X, 255), LOW, 127)],
    ids=["hi", "le"],
)
def test_a_limit_by_a_branch(e: WordOp) -> None:
    assert course(e) == Course(-128, 127, 1)


def test_a_limit_below() -> None:
    """What GCC makes of a clamp after ADDS."""
    least = -128 & 0xFFFFFFFF
    y = WordOp("sub", X, 200)
    assert course(WordOp("sel", WordOp("sum_ge", y, 128, 0), y, least)) == Course(-128, 816, 1)
    assert course(WordOp("sel", WordOp("sum_lt", y, 128, 0), least, y)) == Course(-128, 816, 1)
    assert course(WordOp("sel", WordOp("sum_ge", y, 129, 0), y, least)) is None  # -129 is less
    assert course(WordOp("sel", WordOp("sum_ge", y, 126, 0), least, y)) is None  # -127 is more


Y = LinearSum(0, {Symbol(0, 0, 0, 255): 1})


@pytest.mark.parametrize(
    ("e", "expected"),
    [
        (WordOp("sel", WordOp("eq", Y, 255), 254, Y), Course(0, 254, 1)),
        (WordOp("sel", WordOp("eq", Y, 0), 1, Y), Course(1, 255, 1)),
        (WordOp("sel", WordOp("eq", Y, 256), 0, Y), Course(0, 255, 1)),
        (WordOp("sel", WordOp("eq", Y, 255), 3, Y), None),
        (WordOp("sel", WordOp("eq", Y, 254), 254, Y), None),
    ],
    ids=["at its end", "at its beginning", "beyond", "falls", "within"],
)
def test_a_limit_by_an_equality(e: WordOp, expected: Course | None) -> None:
    """What GCC makes of a clamp where a number is above by one at most."""
    assert course(e) == expected


def test_a_rounding_shift_by_a_word() -> None:
    """Of a sum of 512 and more powers softmax's shares are shifted by 32 bits: nothing is left."""
    expected = {31: (0, 1), 32: (0, 0), 33: (0, 0)}
    word = LinearSum(0, {Symbol(0, 0, 0, (1 << 31) - 1, 32): 1})
    for by, ends in expected.items():
        found = course(WordOp("vrshl_any", word, -by & 0xFFFFFFFF))
        assert found is not None
        assert found[:2] == ends
    numbers = np.array([-(1 << 31), -1, 5, (1 << 31) - 1])
    assert OPS["vrshl_any"](numbers, np.array([-32, -33, -128, -40])).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "e",
    [
        WordOp("sel", WordOp("hi", X, 255), 126, LOW),  # falls from 127 to 126
        WordOp("sel", WordOp("hi", X, 256), 127, LOW),  # 256 wraps
        WordOp("sel", WordOp("ls", X, 255), 127, LOW),
        WordOp("sel", WordOp("eq", X, 255), 127, LOW),
        LOW,
    ],
)
def test_what_turns_or_wraps(e: WordOp) -> None:
    assert course(e) is None


J = LinearSum(0, {Symbol(0, 0, -(1 << 29), (1 << 29) - 1, 32): 1})


def rounded(k: int, shift: int = 1, sign: int = 31, bit: int = 31, above: WordOp | None = None) -> WordOp:
    """J shifted left, times k, and the upper word rounded: on Armv6-M, with libgcc's product."""
    twice, above = WordOp("lsl", J, shift), above or WordOp("asr", J, sign)
    upper = WordOp("add", WordOp("mul", above, k), WordOp("umulhi", twice, k))
    return WordOp("add", WordOp("lsr", WordOp("mul", twice, k), bit), upper)


def test_a_long_product_that_is_rounded() -> None:
    """Its course is that of the number, and it is the number: evaluated on its ends and between."""
    k = 0x686AF5D1
    numbers = np.array([-(1 << 29), -(1 << 29) + 1, -12345, -1, 0, 1, 777, (1 << 29) - 1])
    wanted = (2 * numbers * k + (1 << 31)) >> 32
    assert course(rounded(k)) == Course(int(wanted.min()), int(wanted.max()), 1)
    found = evaluate(rounded(k), lambda _: numbers, {})
    assert ((found - wanted) % (1 << 32) == 0).all()
    for e in (rounded(k, sign=30), rounded(k, shift=2), rounded(k, bit=30), rounded(k | 1 << 31)):
        assert course(e) is None
    low, high = ((8 * n * 5 + (1 << 31)) >> 32 for n in (-(1 << 29), (1 << 29) - 1))
    assert course(rounded(5, shift=3, sign=29)) == Course(low, high, 1)


def test_bits_that_leave_a_word_that_is_shifted_left() -> None:
    """With the sign of the same word above them, and no other."""
    k, other = 0x686AF5D1, LinearSum(0, {Symbol(0, 1, -(1 << 29), (1 << 29) - 1, 32): 1})
    right = WordOp("high", WordOp("asr", J, 31), J, 31)
    assert course(rounded(k, above=right)) == course(rounded(k))
    for sign in (WordOp("lsr", J, 31), WordOp("asr", J, 30), WordOp("asr", other, 31)):
        assert course(rounded(k, above=WordOp("high", sign, J, 31))) is None
    assert course(rounded(k, above=WordOp("high", WordOp("asr", J, 31), other, 31))) is None
    assert course(rounded(k, above=WordOp("high", WordOp("asr", J, 31), J, 30))) is None


def test_half_of_a_sum_that_is_rounded() -> None:
    """GCC computes a product with 2^30 as (x & 1) + (x >> 1), with the half in 64 bits or in 32."""
    x = WordOp("add", X, 5)
    twice = [WordOp("lsl", x, 1) for _ in range(2)]
    long_half = WordOp("high", WordOp("asr", twice[0], 31), twice[1], 2)
    bit = WordOp("and", x, 1)
    for half in (long_half, WordOp("asr", x, 1)):
        assert course(WordOp("add", half, bit)) == course(WordOp("add", bit, half)) == Course(3, 511, 1)
    assert course(WordOp("add", WordOp("and", X, 1), long_half)) is None  # of another word
    assert course(WordOp("add", WordOp("high", WordOp("asr", twice[0], 31), twice[1], 3), bit)) is None
    assert course(WordOp("add", WordOp("asr", x, 2), bit)) is None
    y = LinearSum(0, {Symbol(0, 0, -(1 << 30), 1 << 30): 1})  # which wraps where it is shifted left
    assert course(WordOp("add", WordOp("asr", y, 1), WordOp("and", y, 1))) is None
