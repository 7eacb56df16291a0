"""Fields of a sum of 64 bits: sums themselves, where nothing carries from one into the next."""

from itertools import product

import pytest

from crtgen.proof.checker.algebra.long_sums import field, field_across, long_words
from crtgen.proof.checker.algebra.value import LinearSum, Symbol, Word, WordOp
from crtgen.proof.checker.algebra.words import shifted
from crtgen.proof.checker.core.instructions.data import put_above

A, B = Symbol(0, 0, -128, 127), Symbol(0, 1, -100, 3)
FIELDS = LinearSum((1 << 19) + (1 << 41) + (1 << 61), {A: 5 + (7 << 21) + (-9 << 42), B: -3 + (2 << 21)})
LOW, HIGH = long_words(FIELDS) or (0, 0)


def value(word: Word | None, a: int, b: int) -> int:
    assert isinstance(word, LinearSum), word
    return word.constant + sum(k * {A: a, B: b}[symbol] for symbol, k in word.terms().items())


@pytest.mark.parametrize(
    ("found", "place", "width"),
    [
        (field(LOW, 0, 21), 0, 21),
        (field_across(WordOp("lsr", LOW, 21), HIGH, 11, 10), 21, 21),
        (field(HIGH, 10, 22), 42, 22),
    ],
)
def test_each_is_a_sum(found: Word | None, place: int, width: int) -> None:
    for a, b in product((-128, -127, -1, 0, 1, 126, 127), (-100, -99, -1, 0, 3)):
        assert value(found, a, b) == (value(FIELDS, a, b) >> place) % (1 << width)


def test_an_upper_word_above_a_field_that_is_whole() -> None:
    """A field that begins in the lower word, and never reaches the upper one: BFI puts zeros above it."""
    total = LinearSum((1 << 19) + (900 << 21) + (1 << 61), {A: 5 + (7 << 21) + (-9 << 42)})
    low, high = long_words(total) or (0, 0)
    lower = shifted("lsr", low, 21)
    assert isinstance(lower, LinearSum)
    for a in range(-128, 128):
        assert value(put_above(lower, high, 11, 10), a, 0) == (value(total, a, 0) >> 21) % (1 << 21)
    assert put_above(lower, high, 8, 10) is None, "it has more bits than that"
    assert put_above(LinearSum(-1, {A: 1}), high, 11, 10) is None


def test_what_may_carry_is_none() -> None:
    """One that begins at zero borrows, one of few bits overflows, and another shift is no field."""
    assert field(LinearSum(0, {A: 1, B: 1 << 21}), 21, 11) is None
    assert field(LinearSum(0, {A: 1}), 0, 21) is None
    assert field(LOW, 0, 8) is None
    assert field_across(WordOp("lsr", LOW, 20), HIGH, 11, 10) is None
    assert field_across(LOW, HIGH, 11, 10) is None
