"""Products of two words that compilers write in several ways."""

from crtgen.proof.checker.algebra.value import Word, WordOp, unknown
from crtgen.proof.checker.recognition.softmax import rounded_product

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
