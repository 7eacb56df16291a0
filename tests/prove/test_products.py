"""Products of two words that compilers write in several ways."""

from crtgen.prove.softmax import rounded_product
from crtgen.prove.value import Op, Word, unknown

A, B, Z, W = unknown(), unknown(), unknown(), unknown()
PRODUCT = Op("mul", A, B)


def rounded(upper: Word) -> Op:
    """The upper word and that of the product, and 2^30, shifted by 31."""
    carry = Op("carry", PRODUCT, 1 << 30, 0)
    return Op("high", Op("add", upper, carry), Op("add", PRODUCT, 1 << 30), 31)


def test_words_of_signs_are_asked_for() -> None:
    signs = Op("add", Op("mul", A, Z), Op("mul", W, B))
    assert rounded_product(rounded(Op("add", signs, Op("umulhi", B, A)))) == (A, B, [W, Z])
    assert rounded_product(rounded(Op("smulhi", A, B))) == (A, B, [])


def test_anything_else_is_no_product() -> None:
    upper = Op("umulhi", A, B)
    for wrong in (
        Op("add", upper, upper),
        Op("add", upper, Z),
        Op("add", upper, Op("mul", Z, W)),
        Op("mul", A, Z),
        Op("umulhi", A, Z),
    ):
        assert rounded_product(rounded(wrong)) is None
