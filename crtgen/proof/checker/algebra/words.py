"""Operations on symbolic words, in forms that keep what recognition needs.

An expression tree of every instruction would be correct and useless: no rule could see that four shifted
bytes are a word that was loaded, or that two accumulators of SMLAD are one sum. So each operation looks for
the most telling form that is *equal modulo 2^32 for every value of the symbols*:

- Additions, and multiplications by constants, stay a ``LinearSum``, exact over the integers.
- Packing and unpacking (UXTB, SXTB16, PKHBT, BFI, shifts by 8) stay ``Bytes`` or ``Halves``, so that a byte
  that went through registers is the same ``Symbol`` when it is stored.
- Everything else becomes a ``WordOp``: an operation of ``meaning`` on words, evaluated later.

A rule may only be applied if its condition is shown, not assumed. Example: ``x & ~(x asr 31)`` is max(x, 0)
because ``x asr 31`` is a mask of the sign; with any other shift it is not, and the rule checks the shift. If
no rule applies, the operation stays as it is, which is always right.
"""

from collections.abc import Hashable
from typing import TypeVar

from crtgen.proof.checker.algebra.expression import shape_of
from crtgen.proof.checker.algebra.long_sums import field, high_part, long_shift
from crtgen.proof.checker.algebra.meaning import NEGATED, apply
from crtgen.proof.checker.algebra.value import (
    M32,
    Byte,
    Bytes,
    Halves,
    LinearSum,
    Symbol,
    Word,
    WordByte,
    WordOp,
    signed,
    signed8,
    signed16,
)

__all__ = [
    "add",
    "byte_word",
    "bytes_of",
    "complement",
    "halves_of",
    "is_same",
    "logic",
    "low_byte",
    "low_half",
    "mac",
    "moved_byte",
    "mul",
    "pair",
    "raw_halves",
    "select",
    "shifted",
    "subtract",
    "unsigned_byte",
    "word_of",
]


def byte_word(b: Byte) -> Word:
    if isinstance(b, int):
        return signed8(b) & M32
    if isinstance(b, Symbol):
        return b.word if b.high < 128 else WordOp("sxtb", b.word)
    return WordOp("sxtb", b.word if b.index == 0 else WordOp("lsr", b.word, 8 * b.index))


def moved_byte(x: Word) -> WordByte | None:
    """Return the lowest byte of a symbol plus a number, as a byte of a word from 0 to 255; None for others.

    Kernels pack computed int8 values as ``x + 128`` if only unsigned bytes can be loaded quickly.
    """
    if isinstance(x, WordOp) and x.name in ("sxtb", "uxtb"):
        (x,) = x.args
    if not isinstance(x, LinearSum) or list(x.terms().values()) != [1]:
        return None
    low, high = x.bounds()
    moved = LinearSum(x.constant - (low & ~255), x.terms())
    return WordByte(moved, 0) if high - (low & ~255) <= 255 else None


def unsigned_byte(b: Byte) -> Word:
    if isinstance(b, int):
        return b
    if isinstance(b, Symbol):
        return b.word if b.low >= 0 else WordOp("uxtb", b.word)
    if (
        b.index == 0
        and isinstance(b.word, LinearSum)
        and b.word.bounds()[0] >= 0
        and b.word.bounds()[1] <= 255
    ):
        return b.word
    return WordOp("uxtb", b.word if b.index == 0 else WordOp("lsr", b.word, 8 * b.index))


def bytes_of(x: Word) -> tuple[Byte, ...]:
    if isinstance(x, int):
        return (x & 255, x >> 8 & 255, x >> 16 & 255, x >> 24)
    if isinstance(x, Bytes):
        return x.parts
    if isinstance(x, Halves):
        return (*_half_bytes(x.low), *_half_bytes(x.high))
    if isinstance(x, LinearSum):
        symbol = _alone(x)
        return _parts(x) if symbol is None else (symbol, *_parts(x)[1:])
    if x.name == "uxtb":
        return (bytes_of(x.args[0])[0], 0, 0, 0)
    if x.name == "uxth":
        return (*bytes_of(x.args[0])[:2], 0, 0)
    if x.name == "sxtb":
        return (bytes_of(x.args[0])[0], *_parts(x)[1:])
    if x.name == "lsr" and isinstance(n := x.args[1], int) and n % 8 == 0 and n < 32:
        return (*bytes_of(x.args[0])[n // 8 :], *(0,) * (n // 8))
    if x.name == "high" and isinstance(n := x.args[2], int) and n % 8 == 0:
        return (*bytes_of(x.args[1])[n // 8 :], *bytes_of(x.args[0])[: n // 8])
    return _parts(x)


def _parts(x: Word) -> tuple[Byte, ...]:
    if isinstance(x, WordOp) and x.name == "usat" and x.args[0] == 8:
        return (WordByte(x, 0), 0, 0, 0)
    return tuple(WordByte(x, i) for i in range(4))


def _half_bytes(half: Word) -> tuple[Byte, ...]:
    return (half & 255, half >> 8 & 255) if isinstance(half, int) else bytes_of(half)[:2]


def _alone(x: LinearSum) -> Symbol | None:
    # The symbol of a byte, where the sum is one and nothing else.
    terms = x.terms()
    if len(terms) == 1 and x.constant == 0:
        ((symbol, k),) = terms.items()
        return symbol if k == 1 and symbol.bits == 8 else None
    return None


def low_byte(x: Word) -> Byte:
    return x & 255 if isinstance(x, int) else bytes_of(x)[0]


def word_of(b: tuple[Byte, ...]) -> Word:
    b0, b1, b2, b3 = b
    if isinstance(b0, int) and isinstance(b1, int) and isinstance(b2, int) and isinstance(b3, int):
        return b0 | b1 << 8 | b2 << 16 | b3 << 24
    if isinstance(b1, WordByte) and isinstance(b2, WordByte) and isinstance(b3, WordByte) and b1.index == 1:
        w = b1.word
        if b2.word is w and b3.word is w and b2.index == 2 and b3.index == 3:
            if isinstance(b0, WordByte) and b0.index == 0 and b0.word is w:
                return w
            if isinstance(b0, Symbol) and b0.word is w:
                return w
    if (
        isinstance(b0, WordByte)
        and isinstance(b1, WordByte)
        and isinstance(b2, WordByte)
        and isinstance(b3, WordByte)
    ):
        whole = b0.word is b1.word and b2.word is b3.word
        if whole and (b0.index, b1.index, b2.index, b3.index) == (0, 1, 0, 1):
            return Halves(b0.word, b2.word)
        return _across((b0, b1, b2, b3)) or Bytes((b0, b1, b2, b3))
    return Bytes((b0, b1, b2, b3))


def _across(b: tuple[WordByte, ...]) -> Word | None:
    # The upper bytes of one word and the lower ones of another: a shift of the 64 bits.
    low, high, n = b[0].word, b[3].word, b[0].index
    places = [(p.word is (low if n + i < 4 else high), p.index) for i, p in enumerate(b)]
    whole = n > 0 and places == [(True, n + i & 3) for i in range(4)]
    return long_shift(high, low, 8 * n) if whole else None


def pair(low: Word, high: Word) -> Word:
    if isinstance(low, int):
        low = signed16(low)
        if isinstance(high, int):
            return low & 0xFFFF | (high & 0xFFFF) << 16
    elif isinstance(high, int):
        high = signed16(high)
    return Halves(low, high)


def halves_of(x: Word) -> tuple[Word, Word]:
    """Return the signed halfwords of a word, each as a word; constants become signed integers."""
    if isinstance(x, int):
        return signed16(x), signed16(x >> 16)
    if isinstance(x, Halves):
        return _half(x.low), _half(x.high)
    if isinstance(x, LinearSum):
        low, high = x.bounds()
        if low >= -0x8000 and high <= 0x7FFF:
            return x, WordOp("asr", x, 31)
    if isinstance(x, Bytes):
        p = x.parts
        return _half_of_bytes(p[0], p[1]), _half_of_bytes(p[2], p[3])
    return WordOp("sxth", x), WordOp("asr", x, 16)


def _half(v: Word) -> Word:
    # The lower half of a word, signed.
    if isinstance(v, int):
        return v
    if isinstance(v, Halves):
        return _half(v.low)
    if isinstance(v, LinearSum):
        low, high = v.bounds()
        if low >= -0x8000 and high <= 0x7FFF:
            return v
    return WordOp("sxth", v)


def _half_of_bytes(low: Byte, high: Byte) -> Word:
    if isinstance(low, int):
        if isinstance(high, int):
            return signed16(low | high << 8)
        if isinstance(high, Symbol) and high.high < 128:
            return LinearSum(low, {high: 256})
    if isinstance(low, WordByte) and isinstance(high, WordByte) and (low.index, high.index) == (0, 1):
        return _half(low.word) if low.word is high.word else WordOp("sxth", Bytes((low, high, 0, 0)))
    return WordOp("sxth", Bytes((low, high, 0, 0)))


def low_half(x: Word) -> Word:
    if isinstance(x, WordOp) and x.name == "sel":
        taken, a, b = x.args
        if isinstance(taken, WordOp) and isinstance(a, Halves) and isinstance(b, Halves):
            return select(taken, a.low, b.low)
    return x.low if isinstance(x, Halves) else halves_of(x)[0] if isinstance(x, Bytes) else x


def raw_halves(x: Word) -> tuple[Word, Word]:
    """Return the two halves of a word; only the lower 16 bits of each result count."""
    return (x.low, x.high) if isinstance(x, Halves) else halves_of(x)


def sum_of(x: Word) -> LinearSum | None:
    """Return the word as a sum modulo 2^32, or None if it is not one."""
    if isinstance(x, LinearSum):
        return x
    if isinstance(x, int):
        return LinearSum(signed(x), {})
    if isinstance(x, Halves):
        low, high = sum_of(x.low), sum_of(x.high)
        if low is None or high is None:
            return None
        least, most = low.bounds()
        if least >= 0 and most <= 0xFFFF:  # the lower half does not borrow from the upper one
            word = add(low, mul(high, 0x10000))
            return word if isinstance(word, LinearSum) else None
    return None


def add(a: Word, b: Word, factor: int = 1) -> Word:
    """Return a + factor * b, for a factor of 1 or -1."""
    if isinstance(a, int) and isinstance(b, int):
        return (a + factor * b) & M32
    x, y = sum_of(a), sum_of(b)
    if x is None or y is None:
        if isinstance(b, int) and b == 0:
            return a
        if isinstance(a, int) and a == 0 and factor == 1:
            return b
        rounded = (_rounded(a, b) or _rounded(b, a)) if factor == 1 else None
        return rounded or apply("add" if factor == 1 else "sub", a, b)
    if isinstance(b, int):
        return x.plus(factor * y.constant)
    if factor == 1 and y.length > x.length:
        x, y = y, x
    total = LinearSum(x.constant + factor * y.constant, None, (x, y, factor))
    return total if factor == 1 or total.terms() else total.constant & M32


def _rounded(upper: Word, bit: Word) -> WordOp | None:
    # The upper word of a product and the highest bit of the lower one: the product rounded.
    if isinstance(bit, WordOp) and bit.name == "and" and bit.args[1] == 1:
        bit = bit.args[0]
    if (
        not isinstance(upper, WordOp)
        or not isinstance(bit, WordOp)
        or (upper.name, bit.name) != ("smulhi", "lsr")
    ):
        return None
    low = bit.args[0]
    if bit.args[1] != 31 or not isinstance(low, WordOp) or low.name != "mul":
        return None
    whole = all(_is(u, v) for u, v in zip(low.args, upper.args, strict=True))
    return WordOp("vrmulh", *upper.args) if whole else None


def subtract(a: Word, b: Word) -> Word:
    return add(a, b, -1)


def mul(a: Word, b: Word) -> Word:
    if isinstance(a, int):
        a, b = b, a
    if isinstance(b, int):
        if isinstance(a, int):
            return a * b & M32
        k = signed(b)
        if k == 0:
            return 0
        x = sum_of(a)
        if x is not None:
            return x if k == 1 else LinearSum(x.constant * k, None, (None, x, k))
        if k == 1:
            return a
        b = k & M32
    return WordOp("mul", a, b)


def mac(acc: Word, h: Word, w: Word) -> Word:
    """Return acc + h * w; constants among ``h`` and ``w`` are signed."""
    if not isinstance(w, int):
        h, w = w, h
    if isinstance(w, int):
        if w == 0:
            return acc
        if isinstance(h, int):
            return add(acc, h * w & M32)
        if isinstance(h, LinearSum):
            if isinstance(acc, int):
                return LinearSum(signed(acc) + w * h.constant, None, (None, h, w))
            if isinstance(acc, LinearSum):
                return LinearSum(acc.constant + w * h.constant, None, (acc, h, w))
        return add(acc, mul(h, w & M32))
    return add(acc, mul(h, w))


def shifted(kind: str, v: Word, n: int) -> Word:
    """Return a word shifted by a constant: ``lsl``, ``lsr``, ``asr`` or ``ror``."""
    if n == 0:
        return v
    if isinstance(v, int):
        return apply(kind, v, n)
    special = _SHIFTS[kind](v, n)
    return special if special is not None else WordOp(kind, v, n)


def _lsl(v: Word, n: int) -> Word | None:
    if isinstance(v, LinearSum):
        if n > 28 and not any(k << n & M32 for k in v.terms().values()):
            return v.constant << n & M32  # the lowest bits of a stack pointer, as memset looks at them
        return mul(v, 1 << n) if n < 32 else 0
    if n == 16 and isinstance(v, Halves):
        return pair(0, v.low)
    if n == 31 and isinstance(v, WordOp) and v.name == "fpscr":  # its lowest bit
        return shifted("lsl", v.args[0], 31)
    if n % 8 == 0 and n < 32:
        return word_of((0,) * (n // 8) + bytes_of(v)[: 4 - n // 8])
    return None


def _asr(v: Word, n: int) -> Word | None:
    if isinstance(v, LinearSum):
        least, most = v.bounds()
        return high_part(v, n) if least >= -(1 << 31) and most < 1 << 31 else None
    if n == 16 and isinstance(v, Halves):
        high = halves_of(v)[1]
        return high & M32 if isinstance(high, int) else high
    return None


def _lsr(v: Word, n: int) -> Word | None:
    if n < 32 and isinstance(v, LinearSum | WordOp) and (found := field(v, n, 32 - n)) is not None:
        return found
    if n % 8 == 0 and n < 32 and not isinstance(v, LinearSum):
        return word_of(bytes_of(v)[n // 8 :] + (0,) * (n // 8))
    return None


def _ror(v: Word, n: int) -> Word | None:
    if n % 8 == 0 and n < 32 and not isinstance(v, LinearSum):
        b = bytes_of(v)
        return word_of(b[n // 8 :] + b[: n // 8])
    return None


_SHIFTS = {"lsl": _lsl, "lsr": _lsr, "asr": _asr, "ror": _ror}


def complement(x: Word) -> Word:
    return x ^ M32 if isinstance(x, int) else WordOp("mvn", x)


def logic(name: str, x: Word, y: Word) -> Word:
    """Return ``and``, ``orr`` or ``eor`` of two words; masking and combining whole bytes gives ``Bytes``."""
    if isinstance(x, int):
        x, y = y, x
    if isinstance(x, int) and isinstance(y, int):
        return x & y if name == "and" else x | y if name == "orr" else x ^ y
    if isinstance(y, int):
        if name == "and":
            return _masked(x, y)
        if y == 0:
            return x
        if name == "eor" and isinstance(x, Bytes) and y & 0x7F7F7F7F == 0:
            return word_of(tuple(_turned(b, y >> 8 * i & 255) for i, b in enumerate(x.parts)))
    if name == "and" and (_is_sign_mask(x, y) or _is_sign_mask(y, x)):
        return WordOp("max", x if _is_sign_mask(x, y) else y, 0)
    if name == "orr":
        together = _long_shift(x, y) or _long_shift(y, x) or _together(x, y)
        if together is not None:
            return together
    return WordOp(name, x, y)


def _turned(b: Byte, bit: int) -> Byte:
    # A byte with its highest bit as it is, or turned: that is the byte less 128, modulo 256.
    return low_byte(add(unsigned_byte(b), -bit & M32)) if bit else b


def _is_sign_mask(x: Word, mask: Word) -> bool:
    # Check that a mask is ~(x asr 31), or (~x) asr 31: all ones where ``x`` is not negative, else 0.
    return _inner(_inner(mask, "mvn"), "asr") is x or _inner(_inner(mask, "asr"), "mvn") is x


def _inner(e: Word | None, name: str) -> Word | None:
    # ``e`` is the complement (``mvn``) or the sign in all bits (``asr``) of the word that this returns.
    if not isinstance(e, WordOp) or e.name != name or (name == "asr" and e.args[1] != 31):
        return None
    return e.args[0]


def _masked(x: Word, mask: int) -> Word:
    if mask == 0:
        return 0
    if isinstance(x, WordOp) and x.name == "fpscr" and mask == M32 - 1:  # the flag is cleared
        return WordOp("fpscr", 0, x.args[1])
    if isinstance(x, LinearSum) and (masked := _masked_sum(x, mask)) is not None:
        return masked
    if mask == 0xFF:
        return unsigned_byte(bytes_of(x)[0])
    if mask == 0xFFFF:
        return pair(raw_halves(x)[0], 0)
    if all(mask >> 8 * i & 255 in (0, 255) for i in range(4)):
        return word_of(tuple(b if mask >> 8 * i & 255 else 0 for i, b in enumerate(bytes_of(x))))
    return WordOp("and", x, mask)


def _masked_sum(x: LinearSum, mask: int) -> Word | None:
    # The sum without its lowest bits, or these alone, if all terms are multiples of what is above them.
    low = mask if mask & mask + 1 == 0 else mask ^ M32
    if low & low + 1 or any(k & low for k in x.terms().values()):
        return None
    rest = x.constant & low
    return rest if mask == low else x.plus(-rest)


def _together(x: Word, y: Word) -> Word | None:
    # The word, where of each half, or of each byte, one of the two has only zeros.
    p, q = _two_halves(x), _two_halves(y)
    halves = _only_one(p, q) if p and q else None
    if halves is not None:
        return pair(*halves)
    found = _only_one(bytes_of(x), bytes_of(y))
    return None if found is None else word_of(found)


def _two_halves(x: Word) -> tuple[Word, ...] | None:
    # The halves of a word that is put together of two, or of which only the upper one is not 0.
    if isinstance(x, Halves):
        return x.low, x.high
    if isinstance(x, LinearSum) and all(k & 0xFFFF == 0 for k in (x.constant, *x.terms().values())):
        return 0, LinearSum(x.constant >> 16, {s: k >> 16 for s, k in x.terms().items()})
    return None


_Piece = TypeVar("_Piece", Word, Byte)


def _only_one(x: tuple[_Piece, ...], y: tuple[_Piece, ...]) -> tuple[_Piece, ...] | None:
    # Of each two pieces the one that is not 0; None unless one is 0.
    out = []
    for a, b in zip(x, y, strict=True):
        if not isinstance(a, int) or a:
            a, b = b, a
        if not isinstance(a, int) or a:
            return None
        out.append(b)
    return tuple(out)


def _long_shift(x: Word, y: Word) -> Word | None:
    # LSR of a low word or-ed with LSL of the high word is a shift of the 64 bits.
    if isinstance(x, WordOp) and isinstance(y, WordOp) and x.name == "lsr" and y.name in ("lsl", "add"):
        n = x.args[1]
        left: Word = y.args[1]
        if y.name == "add":
            left = 1 if y.args[0] is y.args[1] else 0
        if isinstance(n, int) and isinstance(left, int) and n + left == 32 and 0 < n < 32:
            return long_shift(y.args[0], x.args[0], n)
    return None


def select(taken: WordOp, a: Word, b: Word) -> Word:
    """Return ``a`` if the condition holds, else ``b``; maxima and minima of two words are recognised."""
    a, b = _chosen(taken, True, a), _chosen(taken, False, b)
    if is_same(a, b):
        return a
    x, y = (taken.args[0], taken.args[1]) if len(taken.args) == 2 else (0, 0)
    if taken.name in ("ge", "gt", "lt", "le"):
        same, crossed = _is(a, x) and _is(b, y), _is(a, y) and _is(b, x)
        if same or crossed:
            return WordOp("max" if same == (taken.name in ("ge", "gt")) else "min", x, y)
    if isinstance(a, WordOp) and a.name == "add" and _is(a.args[0], b):
        return WordOp("add", b, select(taken, a.args[1], 0))
    if isinstance(b, WordOp) and b.name == "add" and _is(b.args[0], a):
        negated = WordOp(NEGATED[taken.name], *taken.args)
        return WordOp("add", a, select(negated, b.args[1], 0))
    if taken.name not in _PLAIN_CONDITIONS:
        taken, a, b = WordOp(NEGATED[taken.name], *taken.args), b, a
    if isinstance(a, WordOp) and isinstance(b, WordOp) and a.name == b.name == "sel" and _alike(a, b):
        return a
    return WordOp("sel", taken, a, b)


def _chosen(taken: WordOp, holds: bool, x: Word) -> Word:
    # A value where a condition holds or not: of a choice by the same condition, or its negation, one way.
    while isinstance(x, WordOp) and x.name == "sel":
        inner, a, b = x.args
        if not isinstance(inner, WordOp) or len(inner.args) != len(taken.args):
            break
        if inner.name not in (taken.name, NEGATED[taken.name]) or not all(map(_is, inner.args, taken.args)):
            break
        x = a if (inner.name == taken.name) == holds else b
    return x


# Those that a choice is written with; of the others the negation is.
_PLAIN_CONDITIONS = frozenset(
    ("eq", "gt", "ge", "hi", "cs", "mi", "sum_ge", "f_eq", "f_gt", "f_ge", "f_ngt", "f_nge")
)


def _alike(a: WordOp, b: WordOp) -> bool:
    # True if two choices are the same, operation by operation.
    memo: dict[int, Hashable] = {}

    def shape(e: Word) -> Hashable:
        return shape_of(e, lambda s: (s.constant, frozenset(s.terms().items())), memo)

    return all(shape(x) == shape(y) for x, y in zip(a.args, b.args, strict=True))


def is_same(a: Word, b: Word) -> bool:
    """Return True if two words are the same object, integer, or sum (possibly built twice)."""
    if _is(a, b):
        return True
    if not isinstance(a, LinearSum) or not isinstance(b, LinearSum):
        return False
    return a.constant == b.constant and a.terms() == b.terms()


def _is(a: Word, b: Word) -> bool:
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)
