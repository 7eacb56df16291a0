"""Expressions in which a symbol, or a condition, has a known value."""

from collections.abc import Mapping

from crtgen.proof.checker.algebra.meaning import apply
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
)
from crtgen.proof.checker.algebra.words import (
    add,
    bytes_of,
    halves_of,
    logic,
    low_byte,
    mul,
    pair,
    select,
    shifted,
    word_of,
)

__all__ = ["fixed", "is_low_part"]


def fixed(e: Word, known: Mapping[Symbol, int], memo: dict[int, Word]) -> Word:
    """Return the word with these symbols replaced by their values, and simplified.

    ``memo`` may have words for nodes by their ``id``; nodes that are made here are kept in it.
    """
    if isinstance(e, int):
        return e
    if id(e) not in memo:
        memo[id(e)] = _fixed(e, known, memo)
    return memo[id(e)]


def _fixed(e: Word, known: Mapping[Symbol, int], memo: dict[int, Word]) -> Word:
    if isinstance(e, LinearSum):
        terms = e.terms()
        if not any(s in known for s in terms):
            return e
        rest = {s: k for s, k in terms.items() if s not in known}
        constant = e.constant + sum(k * known[s] for s, k in terms.items() if s in known)
        return LinearSum(constant, rest) if rest else constant & M32
    if isinstance(e, Halves):
        return pair(*(fixed(half, known, memo) for half in (e.low, e.high)))
    if isinstance(e, Bytes):
        return word_of(tuple(_fixed_byte(b, known, memo) for b in e.parts))
    assert isinstance(e, WordOp)
    if e.name == "unknown":
        return e
    args = [fixed(a, known, memo) for a in e.args]
    if all(a is b for a, b in zip(args, e.args, strict=True)):
        return e
    return _remade(e.name, args)


def _fixed_byte(b: Byte, known: Mapping[Symbol, int], memo: dict[int, Word]) -> Byte:
    if isinstance(b, Symbol):
        return known[b] & 255 if b in known else b
    return bytes_of(fixed(b.word, known, memo))[b.index] if isinstance(b, WordByte) else b


def _remade(name: str, args: list[Word]) -> Word:
    # An operation with other operands, by the rules that simplify it.
    if name == "sel":
        taken, a, b = args
        if isinstance(taken, int):
            return a if taken else b
        assert isinstance(taken, WordOp)  # a condition
        return select(taken, a, b)
    if name in ("add", "sub"):
        return add(args[0], args[1], 1 if name == "add" else -1)
    if name == "mul":
        made = mul(args[0], args[1])
        low, high = made.bounds() if isinstance(made, LinearSum) else (0, 0)
        within = low >= -(1 << 31) and high < 1 << 31  # else it is the lower word of a long product
        return made if within else WordOp(name, *args)
    if name in ("and", "orr", "eor"):
        return logic(name, args[0], args[1])
    if name in ("lsl", "lsr", "asr") and isinstance(n := args[1], int) and n < 32:
        return shifted(name, args[0], n)
    return apply(name, *args)


def is_low_part(e: Word, value: int | Symbol, bits: int) -> bool:
    """Check that the lowest ``bits`` bits of a word are those of a symbol of that size, or of a number."""
    if bits == 8:
        byte = low_byte(_modulo_256(e))
        return byte is value or (isinstance(byte, int) and isinstance(value, int) and byte == value & 255)
    low = e if bits == 32 else halves_of(e)[0]
    if isinstance(value, int):
        return isinstance(low, int) and (low ^ value) & (1 << bits) - 1 == 0
    return isinstance(low, LinearSum) and low.constant == 0 and low.terms() == {value: 1}


def _modulo_256(e: Word) -> Word:
    # A word with the same lowest byte: a byte's sign does not matter, nor in the sums of bytes of Helium.
    if not isinstance(e, WordOp):
        return e
    if e.name in ("sxtb", "uxtb"):
        return _modulo_256(e.args[0])
    if e.name in ("add", "sub"):
        a, b = map(_modulo_256, e.args)
        return add(a, b, 1 if e.name == "add" else -1)
    return e
