"""Forms of words that keep sums and bytes visible.

An operation on what depends on inputs is an ``Op``, which is always right. Two kinds of code need more. Sums
of products have to stay ``Linear``, so that they can be compared by one number. And bytes that were loaded
together, taken apart and packed again have to stay the bytes that they were. All rules are here.
"""

from crtproof.values import MASK, Bytes, Halves, Linear, Op, Piece, Symbol, Word, signed

__all__ = [
    "add",
    "byte_of",
    "chosen",
    "greatest",
    "half_of",
    "is_pair",
    "joined_fields",
    "linear",
    "masked",
    "multiply",
    "multiply_add",
    "operation",
    "packed",
    "same",
    "set_of_greatest",
    "shifted",
    "signed_byte",
    "subtract",
    "symbol_of",
    "together",
    "unsigned_byte",
    "word_of_bytes",
]


def linear(w: Word) -> Linear | None:
    """Return an integer sum that equals the word modulo 2^32, or None if no rule finds one."""
    if isinstance(w, Linear):
        return w
    if isinstance(w, int):
        n = signed(w)
        return Linear(n, 0, n, n, ())
    if isinstance(w, Halves):
        low, high = linear(w.low), linear(w.high)
        if low is not None and high is not None and low.low >= 0 and low.high <= 0xFFFF:
            return low.added(high, 0x10000)
    return None


def operation(name: str, *args: Word, numbers: tuple[int, ...] = ()) -> Word:
    """Return an operation on words: a number if all of them are, else an ``Op``."""
    made = Op(name, args, numbers)
    return made if any(not isinstance(a, int) for a in args) else _number(made)


def _number(op: Op) -> int:
    from crtproof.values import OPERATIONS

    low, high = OPERATIONS[op.name](
        op.numbers, tuple((signed(a), signed(a)) for a in op.args if isinstance(a, int))
    )
    assert low == high  # an operation on numbers is exact
    return low & MASK


def add(a: Word, b: Word) -> Word:
    if isinstance(a, int) and isinstance(b, int):
        return a + b & MASK
    x, y = linear(a), linear(b)
    if x is None or y is None:
        return a if b == 0 else b if a == 0 else _more(a, b) or _more(b, a) or Op("add", (a, b))
    return _simplest(x.added(y))


def _more(long: Word, n: Word) -> Word | None:
    # The lower word of a long sum, and a number.
    if isinstance(n, int) and isinstance(long, Op) and long.name == "long" and long.numbers[1] == 0:
        return Op("long", long.args, (long.numbers[0] + n, 0))
    return None


def subtract(a: Word, b: Word) -> Word:
    if isinstance(a, int) and isinstance(b, int):
        return a - b & MASK
    x, y = linear(a), linear(b)
    if x is None or y is None:
        return a if b == 0 else Op("sub", (a, b))
    return _simplest(x.added(y, -1))


def multiply(a: Word, b: Word) -> Word:
    if isinstance(a, int):
        a, b = b, a
    if isinstance(b, int):
        if isinstance(a, int):
            return a * b & MASK
        x, k = linear(a), signed(b)
        if k == 0:
            return 0
        if x is not None:
            return x.times(k)
    return Op("mul", (a, b))


def multiply_add(acc: Word, a: Word, b: Word, sign: int = 1) -> Word:
    """Return ``acc`` + ``sign`` * a * b."""
    if isinstance(a, int):
        a, b = b, a
    if isinstance(a, Linear) and isinstance(b, int) and (x := linear(acc)) is not None:
        k = signed(b)
        return x.added(a, sign * k) if k else acc
    product = multiply(a, b)
    return add(acc, product) if sign == 1 else subtract(acc, product)


def _simplest(x: Linear) -> Word:
    return x.const & MASK if x.low == x.high else x


def shifted(kind: str, w: Word, n: int) -> Word:
    """Return a word shifted by a number: ``lsl``, ``lsr`` or ``asr`` by up to 31, or ``ror``."""
    if n == 0:
        return w
    if kind == "lsl" and (x := linear(w)) is not None:
        return _simplest(x.times(1 << n)) if not isinstance(w, int) else w << n & MASK
    if isinstance(w, int):
        return operation(kind, w, numbers=(n,))
    if kind == "lsr" and (field := _field(w, n, 32 - n)) is not None:
        return field
    if kind == "asr" and isinstance(w, Linear) and w.low >= -(1 << 31) and w.high < 1 << 31:
        halves = w.divided(n, 0)
        return _simplest(halves[0]) if halves else Op(kind, (w,), (n,))
    found = _shifted_parts(kind, w, n)
    return Op(kind, (w,), (n,)) if found is None else found


def _shifted_parts(kind: str, w: Linear | Halves | Bytes | Op, n: int) -> Word | None:
    # A shift by whole halves or bytes.
    if n == 16 and isinstance(w, Halves):
        if kind == "lsl":
            return packed(0, w.low)
        if kind == "asr":
            return w.high if not isinstance(w.high, int) else w.high & MASK
    if kind == "asr" and isinstance(w, Bytes) and n in (16, 24):
        return half_of(w, 1) if n == 16 else signed_byte(w.parts[3])
    if n % 8 == 0 and kind in ("lsl", "lsr", "ror"):
        parts, k = [byte_of(w, i) for i in range(4)], n // 8
        low = {"lsl": [0] * k + parts, "lsr": parts[k:] + [0] * k, "ror": parts[k:] + parts[:k]}[kind]
        return word_of_bytes(tuple(low[:4]))
    return None


def _field(w: Word, start: int, width: int) -> Word | None:
    # Bits of a word of a long sum, as a sum.
    if isinstance(w, Op) and w.name == "field" and isinstance(w.args[0], Linear):
        return _bits(w.args[0], w.numbers[0] + start, width)
    wide = isinstance(w, Linear) and w.high - w.low >= 1 << 24
    return _bits(w, start, width) if isinstance(w, Linear) and wide else None


def byte_of(w: Word, i: int) -> Piece:
    """Return byte ``i`` of a word, in the form that shows most."""
    if isinstance(w, int):
        return w >> 8 * i & 255
    if isinstance(w, Bytes):
        return w.parts[i]
    if isinstance(w, Halves):
        half = w.high if i >= 2 else w.low
        return half >> 8 * (i & 1) & 255 if isinstance(half, int) else _part(half, i & 1)
    return _part(w, i)


def _part(w: Word, i: int) -> Piece:
    # Byte ``i`` of a word that is in one piece.
    if isinstance(w, Linear):
        if i == 0:
            return symbol_of(w) or w
        if w.low >= 0 and w.high < 1 << 8 * i:
            return 0
    if isinstance(w, Op):
        if w.name in ("uxtb", "uxth") and i >= (1 if w.name == "uxtb" else 2):
            return 0
        if w.name == "usat" and w.numbers[0] <= 8 * i:
            return 0
        if w.name in ("uxtb", "sxtb", "uxth", "sxth") and i < (1 if w.name[3] == "b" else 2):
            return byte_of(w.args[0], i)
        if w.name == "orr":
            a, b = byte_of(w.args[0], i), byte_of(w.args[1], i)
            if a == 0 or b == 0:
                return b if a == 0 else a
    return _shift_of(w, i)


def _shift_of(w: Word, i: int) -> Word:
    return w if i == 0 else Op("lsr", (w,), (8 * i,))


def symbol_of(w: Linear) -> Symbol | None:
    """Return the symbol that a sum is, if it is just one."""
    if w.const or w.high - w.low > 0xFF:
        return None
    (found,) = (*w.terms().items(),) if len(w.terms()) == 1 else ((None, 0),)
    return found[0] if found[1] == 1 else None


def word_of_bytes(parts: tuple[Piece, ...]) -> Word:
    """Return the word of four bytes."""
    if all(isinstance(p, int) for p in parts):
        return sum(p << 8 * i for i, p in enumerate(parts) if isinstance(p, int))
    first = parts[0]
    whole = first.word if isinstance(first, Symbol) else first
    if not isinstance(whole, int) and all(
        isinstance(p, Op) and p.name == "lsr" and p.numbers == (8 * i,) and p.args[0] is whole
        for i, p in enumerate(parts)
        if i
    ):
        return whole
    return Bytes(parts)


def signed_byte(p: Piece) -> Word:
    if isinstance(p, int):
        return signed(p, 8) & MASK
    if isinstance(p, Symbol):
        return p.word if p.high < 128 else Op("sxtb", (p.word,))
    return p if isinstance(p, Op) and p.name == "sxtb" else Op("sxtb", (p,))


def unsigned_byte(p: Piece) -> Word:
    if isinstance(p, int):
        return p
    if isinstance(p, Symbol):
        return p.word if p.low >= 0 else Op("uxtb", (p.word,))
    return Op("uxtb", (p,))


def half_of(w: Word, which: int) -> Word:
    """Return a halfword of a word as a signed word; ``which`` is 1 for the upper one."""
    if isinstance(w, int):
        return signed(w >> 16 * which, 16) & MASK
    if isinstance(w, Halves):
        half = w.high if which else w.low
        return half & MASK if isinstance(half, int) else half
    if isinstance(w, Bytes):
        low, high = w.parts[2 * which], w.parts[2 * which + 1]
        if isinstance(low, int) and isinstance(high, int):
            return signed(low | high << 8, 16) & MASK
        return Op("sxth", (Bytes((low, high, 0, 0)),))
    if which:
        return shifted("asr", w, 16) if isinstance(w, Linear) else Op("asr", (w,), (16,))
    return _low_half(w)


def _low_half(w: Linear | Op) -> Word:
    if isinstance(w, Linear):
        if w.low >= -0x8000 and w.high < 0x8000:
            return w
        parts = w.divided(16, -0x8000)
        return _simplest(parts[1]) if parts else Op("sxth", (w,))
    if w.name == "uxth":
        return half_of(w.args[0], 0)
    if w.name in ("sxtb", "uxtb", "sxth"):
        return w
    narrow = (w.name == "ssat" and w.numbers[0] <= 16) or (w.name == "asr" and w.numbers[0] >= 16)
    return w if narrow else Op("sxth", (w,))


def packed(low: Word, high: Word) -> Word:
    """Return the word with these lower halves of words."""
    if isinstance(low, int) and isinstance(high, int):
        return low & 0xFFFF | (high & 0xFFFF) << 16
    a, b = half_of(low, 0), half_of(high, 0)
    return Halves(signed(a, 16) if isinstance(a, int) else a, signed(b, 16) if isinstance(b, int) else b)


def masked(w: Word, mask: int) -> Word:
    if isinstance(w, int):
        return w & mask
    if mask in (0, MASK):
        return w if mask else 0
    if mask & mask + 1 == 0 and (field := _field(w, 0, mask.bit_length())) is not None:
        return field
    low = mask ^ MASK
    if isinstance(w, Linear) and low < 16 and low & low + 1 == 0:
        halves = w.divided(low.bit_length(), 0)
        if halves and halves[1].low == halves[1].high:
            return w.plus(-halves[1].low)  # a stack pointer that is aligned
    if all(mask >> 8 * i & 255 in (0, 255) for i in range(4)):
        return word_of_bytes(tuple(byte_of(w, i) if mask >> 8 * i & 255 else 0 for i in range(4)))
    return Op("and", (w, mask))


def together(a: Word, b: Word) -> Word:
    """Return the OR of two words, byte by byte where one of the two bytes is 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a | b
    found_whole = _long_shift(a, b) or _long_shift(b, a) or _upper_and_lower(a, b) or _upper_and_lower(b, a)
    if found_whole is not None:
        return found_whole
    found: list[Piece] = []
    for i in range(4):
        p, q = byte_of(a, i), byte_of(b, i)
        if p != 0 and q != 0:
            return Op("orr", (a, b))
        found.append(p if q == 0 else q)
    return word_of_bytes(tuple(found))


def _upper_and_lower(a: Word, b: Word) -> Word | None:
    # The lower half of a word, and 2^16 times a sum.
    if isinstance(a, Op) and a.name == "uxth" and isinstance(b, Linear):
        halves = b.divided(16, 0)
        if halves and halves[1].low == halves[1].high == 0:
            return packed(a.args[0], halves[0])
    return None


def _long_shift(a: Word, b: Word) -> Word | None:
    # (low lsr n) | (high lsl 32 - n), where both are words of the same 64 bits.
    if isinstance(a, Op) and isinstance(b, Op) and (a.name, b.name) == ("lsr", "lsl"):
        low, high = a.args[0], b.args[0]
        if a.numbers[0] + b.numbers[0] == 32 and is_pair(low, high):
            assert isinstance(high, Op)
            return Op("long", high.args, (high.numbers[0], a.numbers[0]))
    return None


def joined_fields(low: Word, high: Word, at: int, width: int) -> Word | None:
    """Return a field that two words of one long sum have parts of: BFI of the upper word at bit ``at``."""
    if isinstance(low, Op) and isinstance(high, Op) and (low.name, high.name) == ("lsr", "field"):
        (start,), total = low.numbers, low.args[0]
        if isinstance(total, Linear) and high.args[0] is total and at == 32 - start and high.numbers == (32,):
            return _bits(total, start, at + width)
    return None


def _bits(x: Linear, start: int, width: int) -> Word | None:
    # Bits of a sum as a sum of their own, if the coefficients show one.
    halves = x.divided(start, 0) if start else (x, x)
    if halves is None:
        return None
    field = halves[0]
    if field.low >= 0 and field.high < 1 << width:
        return _simplest(field)
    halves = field.divided(width, 0)
    return _simplest(halves[1]) if halves else None


def same(a: Word, b: Word) -> bool:
    """Check that two words are one object, or one number, or bytes that are the same."""
    if isinstance(a, Bytes) and isinstance(b, Bytes):
        return all(x is y or (isinstance(x, int) and x == y) for x, y in zip(a.parts, b.parts, strict=True))
    return a is b or (isinstance(a, int) and isinstance(b, int) and a == b)


def greatest(a: Word, b: Word) -> Word:
    return a if same(a, b) else operation("max", a, b)


def set_of_greatest(w: Piece) -> frozenset[Symbol | int] | None:
    """Return the elements and numbers of which a word is the greatest; None if it is no such word.

    The least number of 8 bits is left out. All elements have 8 bits, which a saturation to as many keeps.
    """
    found: set[Symbol | int] = set()
    todo: list[Piece] = [w]
    while todo:
        w = todo.pop()
        if isinstance(w, Op) and (w.name in ("max", "sxtb") or (w.name == "ssat" and w.numbers[0] >= 8)):
            todo += w.args
        elif isinstance(w, Symbol | int):
            found.add(w if isinstance(w, Symbol) else signed(w))
        else:
            symbol = symbol_of(w) if isinstance(w, Linear) else None
            if symbol is None:
                return None
            found.add(symbol)
    if any(isinstance(v, Symbol) and not -128 <= v.low <= v.high < 128 for v in found):
        return None
    return frozenset(found - {-128})


def chosen(condition: Op, a: Word, b: Word) -> Word:
    """Return ``a`` where a condition holds, else ``b``; a maximum if the condition compares these two."""
    if condition.name in ("gt", "ge"):
        x, y = condition.args
        if (same(a, x) and same(b, y)) or (same(a, y) and same(b, x)):
            return operation("max" if same(a, x) else "min", x, y)
    return operation("sel", condition, a, b)


def is_pair(low: Word, high: Word) -> bool:
    """Check that two words are the lower and the upper half of one long sum, which the upper one names."""
    return (
        isinstance(low, Op)
        and isinstance(high, Op)
        and low.name == high.name == "long"
        and (low.numbers[1], high.numbers[1]) == (0, 32)
        and (low.numbers[0] - high.numbers[0]) & MASK == 0
        and len(low.args) == len(high.args)
        and all(x is y or (isinstance(x, int) and x == y) for x, y in zip(low.args, high.args, strict=True))
    )
