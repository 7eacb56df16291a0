"""64-bit products on cores without them: libgcc's function is recognised as the product.

The function multiplies halves (Knuth, The Art of Computer Programming, 4.3.1). Its result is accepted as the
product only if both words match those of ``_by_halves``, operation by operation.
"""

from collections.abc import Callable, Hashable

from crtgen.proof.checker.algebra.expression import shape_of
from crtgen.proof.checker.algebra.meaning import apply
from crtgen.proof.checker.algebra.value import LinearSum, Word, WordOp
from crtgen.proof.checker.algebra.words import add, logic, mul, select, shifted

__all__ = ["as_product"]


def as_product(arguments: tuple[Word, ...], low: Word, high: Word) -> tuple[Word, Word]:
    """Return the words of the arguments' product if ``low`` and ``high`` are that product; otherwise return
    the two words unchanged.
    """
    u, u_high, v, v_high = arguments
    made = [_by_halves(u, u_high, v, v_high, lower) for lower in (_by_shifts, _by_mask)]
    names: dict[int, Hashable] = {id(a): ("argument", id(a)) for a in arguments if not isinstance(a, int)}
    found = [_shape(w, names) for w in (low, high)]
    if all([_shape(w, names) for w in words] != found for words in made):
        return low, high
    if _is_sign(u_high, u) and _is_sign(v_high, v):
        return WordOp("mul", u, v), WordOp("smulhi", u, v)
    return WordOp("mul", u, v), _upper(u, u_high, v, v_high, WordOp("umulhi", u, v))


def _is_sign(high: Word, w: Word) -> bool:
    # True if it is the word of the sign.
    if isinstance(w, int):
        return high == shifted("asr", w, 31)
    return isinstance(high, WordOp) and high.name == "asr" and high.args[0] is w and high.args[1] == 31


def _shape(w: Word, names: dict[int, Hashable]) -> Hashable:
    return shape_of(w, _leaf, {**names})


def _leaf(s: LinearSum) -> Hashable:
    return s.constant, frozenset(s.terms().items())


def _by_shifts(w: Word) -> Word:
    return shifted("lsr", shifted("lsl", w, 16), 16)


def _by_mask(w: Word) -> Word:
    return logic("and", w, 0xFFFF)


def _upper(u: Word, u_high: Word, v: Word, v_high: Word, carried: Word) -> Word:
    # The upper word of the product modulo 2^64, of which ``carried`` is that of the lower words' product.
    return add(add(mul(v_high, u), mul(u_high, v)), carried)


def _by_halves(
    u: Word, u_high: Word, v: Word, v_high: Word, lower: Callable[[Word], Word]
) -> tuple[Word, Word]:
    a, b, c, d = shifted("lsr", u, 16), lower(u), shifted("lsr", v, 16), lower(v)
    least, cross, most = mul(b, d), mul(a, d), mul(a, c)
    middle = add(shifted("lsr", least, 16), add(mul(c, b), cross))
    carried = apply("hi", cross, middle)
    if isinstance(carried, WordOp):
        most = select(carried, add(most, 0x10000), most)
    low = add(shifted("lsl", middle, 16), lower(least))
    return low, _upper(u, u_high, v, v_high, add(shifted("lsr", middle, 16), most))
