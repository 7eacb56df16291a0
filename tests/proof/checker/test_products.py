"""Products of two words that compilers write in several ways, and operands of instructions."""

from types import SimpleNamespace
from typing import cast

import pytest

from crtgen.proof.checker.algebra.long_sums import as_long, long_words
from crtgen.proof.checker.algebra.value import LinearSum, Symbol, Word, WordOp, unknown
from crtgen.proof.checker.core.instructions.multiply import _accumulated
from crtgen.proof.checker.core.machine import Machine
from crtgen.proof.checker.core.operands import second
from crtgen.proof.checker.recognition.softmax import rounded_product
from crtgen.proof.checker.refusal import Refusal

A, B, Z, W = unknown(), unknown(), unknown(), unknown()
PRODUCT = WordOp("mul", A, B)


def rounded(upper: Word) -> WordOp:
    """The upper word and that of the product, and 2^30, shifted by 31."""
    carry = WordOp("carry", PRODUCT, 1 << 30, 0)
    return WordOp("high", WordOp("add", upper, carry), WordOp("add", PRODUCT, 1 << 30), 31)


def test_words_of_signs_are_asked_for() -> None:
    signs = WordOp("add", WordOp("mul", A, Z), WordOp("mul", W, B))
    assert rounded_product(rounded(WordOp("add", signs, WordOp("umulhi", B, A)))) == (A, B, [W, Z])
    assert rounded_product(rounded(WordOp("smulhi", A, B))) == (A, B, [])


def test_anything_else_is_no_product() -> None:
    upper = WordOp("umulhi", A, B)
    for wrong in (
        WordOp("add", upper, upper),
        WordOp("add", upper, Z),
        WordOp("add", upper, WordOp("mul", Z, W)),
        WordOp("mul", A, Z),
        WordOp("umulhi", A, Z),
    ):
        assert rounded_product(rounded(wrong)) is None


def test_a_product_is_added_once_to_a_long_sum() -> None:
    """SMLAL and its kin: to a sum in two words, and to 0."""
    x = Symbol(0, 0, -128, 127)
    before, product = LinearSum(5, {x: 3 << 20}), LinearSum(1 << 40, {x: 2})
    for words, total in (
        (long_words(before), LinearSum(5 + (1 << 40), {x: (3 << 20) + 2})),
        ((0, 0), product),
    ):
        assert words is not None
        found = _accumulated(words, product)
        assert found is not None
        whole = as_long(*found)
        assert whole is not None
        assert (whole.constant, whole.terms()) == (total.constant, total.terms())
    assert _accumulated((A, B), product) is None


@pytest.mark.parametrize("tokens", [["pc"], ["r1", "lsl #2", "r3"]])
def test_operands_that_are_not_followed(tokens: list[str]) -> None:
    with pytest.raises(Refusal, match="an operand that is not followed"):
        second(cast(Machine, SimpleNamespace(r=[])), tokens)
