"""64-bit sums that are held in two words.

The lower word is a ``LinearSum`` over the integers, taken modulo 2^32; the upper word is the operation
``upper`` of the same sum. Code that makes such a pair must ensure that the sum fits into 64 bits.
"""

from crtgen.proof.checker.algebra.value import M32, LinearSum, Word, WordOp, signed

__all__ = ["as_long", "field", "field_across", "high_part", "long_add", "long_shift", "long_words"]


def as_long(low: Word, high: Word) -> LinearSum | None:
    if isinstance(low, int):
        return LinearSum(signed(high) << 32 | low, {}) if isinstance(high, int) else None
    if not isinstance(low, LinearSum) or not isinstance(high, WordOp):
        return None
    of = high.args[0]
    same = of is low or (
        isinstance(of, LinearSum) and of.constant == low.constant and of.terms() == low.terms()
    )
    if high.name == "asr" and high.args[1] == 31:
        least, most = low.bounds()
        same = same and least >= -(1 << 31) and most < 1 << 31
    return low if same and high.name in ("upper", "asr") else None


def long_words(total: LinearSum) -> tuple[Word, Word] | None:
    """Return the two words of a sum, or None if it may need more than 64 bits."""
    least, most = total.bounds()
    if least < -(1 << 63) or most >= 1 << 63:
        return None
    if not total.terms():
        return total.constant & M32, total.constant >> 32 & M32
    return total, WordOp("upper", total)


def long_add(
    a: tuple[Word, Word], b: tuple[Word, Word], factor: int = 1, short: bool = False
) -> tuple[Word, Word] | None:
    """Return a + factor * b of two 64-bit numbers, if both are sums and, unless ``short``, one is made of
    symbols.
    """
    x, y = as_long(*a), as_long(*b)
    if x is None or y is None or not (short or _is_upper(a[1]) or _is_upper(b[1])):
        return None
    return long_words(LinearSum(x.constant + factor * y.constant, None, (x, y, factor)))


def _is_upper(w: Word) -> bool:
    return isinstance(w, WordOp) and w.name == "upper"


def long_shift(high: Word, low: Word, n: int) -> Word:
    """Return the lower word of a 64-bit value shifted right by ``n`` < 32."""
    if isinstance(high, int) and isinstance(low, int):
        return (high << 32 | low) >> n & M32
    whole = as_long(low, high) if _is_upper(high) else None
    if whole is not None:
        least, most = whole.bounds()
        if least >> n >= -(1 << 31) and most >> n < 1 << 31:
            shifted = high_part(whole, n)
            if shifted is not None:
                return shifted
    return WordOp("high", high, low, n)


def high_part(v: LinearSum, n: int) -> Word | None:
    """Return floor(v / 2^n) as a sum, if the remainders of the coefficients add up to less than 2^n."""
    return _floor(v, 1 << n) if n < 32 else None


def _floor(v: LinearSum, step: int) -> Word | None:
    # floor(v / step), in the same way.
    low = {s: rest for s, k in v.terms().items() if (rest := _nearest(k, step))}
    high = {s: n for s, k in v.terms().items() if (n := (k - low.get(s, 0)) // step)}
    least, most = LinearSum(v.constant, low).bounds()
    if least // step != most // step:
        return None
    return LinearSum(least // step, high) if high else least // step & M32


def field(w: Word, place: int, width: int) -> Word | None:
    """Return ``width`` bits, starting at bit ``place``, of a 32-bit or 64-bit sum or of its upper word, if
    they are a sum.

    A field is a sum if the bits below it never carry into it and it never overflows its own bits.
    """
    if isinstance(w, WordOp) and w.name == "upper":
        return _field(w.args[0], place + 32, width)
    return _field(w, place, width)


def field_across(low: Word, high: Word, place: int, width: int) -> Word | None:
    """Return the field that spans both words of a 64-bit sum: ``width`` bits of the upper one, joined to the
    lower one, which was already shifted right.
    """
    if not isinstance(low, WordOp) or low.name != "lsr" or low.args[1] != 32 - place:
        return None
    whole = as_long(low.args[0], high)
    return _field(whole, 32 - place, place + width) if whole is not None else None


def _field(v: Word, place: int, width: int) -> Word | None:
    if not isinstance(v, LinearSum):
        return None
    size = 1 << place + width
    rest = LinearSum(v.constant, {s: k for s, c in v.terms().items() if (k := _nearest(c, size))})
    least, most = rest.bounds()
    if least // size != most // size:
        return None
    return _floor(LinearSum(rest.constant - least // size * size, rest.terms()), 1 << place)


def _nearest(k: int, size: int) -> int:
    # Remainder modulo ``size`` that is nearest to zero.
    return (k + size // 2) % size - size // 2
