"""Which values an index may have: those of its symbol, as far as the way that is run lets them."""

import numpy as np

from crtgen.proof.checker.algebra.tried import TriedIndices, tried_values
from crtgen.proof.checker.algebra.value import Symbol, WordOp, unknown

X = Symbol(0, 0, -128, 127)
PLACE = WordOp("lsr", WordOp("add", X.word, 128), 4)
BELOW = WordOp("cc", PLACE, 8)


def test_values_of_a_way() -> None:
    assert sorted({*tried_values(PLACE).tolist()}) == list(range(16))
    assert sorted({*tried_values(PLACE, [(BELOW, True)]).tolist()}) == list(range(8))
    assert sorted({*tried_values(PLACE, [(BELOW, False)]).tolist()}) == list(range(8, 16))


def test_conditions_of_something_else() -> None:
    """Of another symbol, or of what is not known: nothing is left out."""
    other = WordOp("cc", Symbol(0, 1, -128, 127).word, 8)
    for condition in (other, WordOp("eq", unknown(), 0), WordOp("eq", WordOp("add", X.word, unknown()), 0)):
        assert tried_values(PLACE, [(condition, True)]).size == 256


def test_a_way_that_no_value_takes() -> None:
    assert tried_values(PLACE, [(BELOW, True), (BELOW, False)]).size == 256


def test_symbols_with_too_many_values() -> None:
    """Of a word: there is no list of four thousand million numbers."""
    word = Symbol(0, 0, -(1 << 31), (1 << 31) - 1, 32).word
    assert tried_values(WordOp("lsr", word, 4)) is None
    short = Symbol(0, 0, -(1 << 15), (1 << 15) - 1, 16).word
    assert np.ptp(tried_values(WordOp("asr", short, 4))) == 4095


def test_indices_that_are_alike() -> None:
    """Of another element, under another condition, from another limit on, and twice as far apart."""
    tried, other, short = TriedIndices(), Symbol(0, 1, -128, 127), Symbol(0, 2, 0, 127)
    for symbol, first in ((X, 0), (other, 0), (short, 8)):
        place = WordOp("lsr", WordOp("add", symbol.word, 128), 4)
        above = WordOp("cs", place, 8)
        assert tried.span(place, []) == (first, 15, 0)
        assert tried.span(place, [(above, True)]) == (8, 15, 0)
        neither = 8 if symbol is not X else 0  # of X there is none, and then all count
        assert tried.span(place, [(above, True), (BELOW, True)]) == (neither, 15, 0)
        assert tried.span(WordOp("lsl", place, 1), [(above, True)]) == (16, 30, 1)
    assert tried.span(unknown(), []) is None
