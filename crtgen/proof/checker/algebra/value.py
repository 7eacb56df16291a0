"""Values of 32-bit words, symbolic if they depend on inputs.

A word is an ``int`` from 0 to 2^32 - 1, or one of these:

- ``LinearSum``: c + sum of coefficient * symbol in the integers; the word is that modulo 2^32.
- ``Halves``: two halves, each an int (signed) or a word of which the lower 16 bits count.
- ``Bytes``: four bytes, each an int from 0 to 255, a ``Symbol`` of 8 bits, or a ``WordByte`` of a word.
- ``WordOp``: an operation of ``meaning.py`` on words.

Two values are opaque: the stack pointer at entry, a multiple of 8, and the address that the function returns
to. They are symbols of no tensor, so nothing that depends on them can be an output. An address in the stack
is the entry stack pointer plus an integer. The model of memory keeps the stack just below ``STACK_TOP``,
above all real addresses, so no integer can point into it.
"""

from typing import TypeAlias, final

__all__ = [
    "M32",
    "RETURN_ADDRESS",
    "STACK_TOP",
    "Byte",
    "Bytes",
    "Halves",
    "LinearSum",
    "Symbol",
    "Word",
    "WordByte",
    "WordOp",
    "place_of",
    "signed",
    "signed8",
    "signed16",
    "stack_word",
    "unknown",
]

M32 = 0xFFFFFFFF


def signed(v: int) -> int:
    v &= M32
    return v - (1 << 32) if v >> 31 else v


def signed16(v: int) -> int:
    v &= 0xFFFF
    return v - 0x10000 if v >> 15 else v


def signed8(v: int) -> int:
    v &= 0xFF
    return v - 0x100 if v >> 7 else v


@final
class Symbol:
    """An element of a tensor, by tensor and index: 8, 16 or 32 bits in memory.

    Its value is between ``low`` and ``high``; it is unsigned if ``low`` is not negative.
    """

    __slots__ = ("bits", "high", "index", "low", "tensor", "word")

    def __init__(self, tensor: int, index: int, low: int, high: int, bits: int = 8) -> None:
        self.tensor, self.index, self.low, self.high, self.bits = tensor, index, low, high, bits
        self.word = LinearSum(0, {self: 1})


@final
class LinearSum:
    """A linear form. The terms of a chain of multiply-accumulates are collected only when they are needed."""

    __slots__ = ("_bounds", "_chain", "_terms", "constant", "length")

    def __init__(
        self,
        constant: int,
        terms: "dict[Symbol, int] | None",
        chain: "tuple[Word | None, LinearSum, int] | None" = None,
    ) -> None:
        self.constant, self._terms, self._chain = constant, terms, chain
        self._bounds: tuple[int, int] | None = None
        self.length: int = 1 + (chain[0].length if chain and isinstance(chain[0], LinearSum) else 0)
        """Number of links in its chain."""

    def plus(self, n: int) -> "LinearSum":
        """Return the sum plus an integer; terms that are already collected are shared."""
        if self._terms is not None:
            return LinearSum(self.constant + n, self._terms)
        return LinearSum(self.constant + n, None, (self, _NOTHING, 1))

    def terms(self) -> "dict[Symbol, int]":
        if self._terms is None:
            self._terms = self._collected()
            self._chain = None
        return self._terms

    def _collected(self) -> "dict[Symbol, int]":
        todo: list[tuple[LinearSum, int]] = []
        at: Word | None = self
        while isinstance(at, LinearSum) and at._terms is None:
            assert at._chain is not None
            at, factor, weight = at._chain
            while factor._terms is None and factor._chain is not None and factor._chain[0] is None:
                _, factor, k = factor._chain
                weight *= k
            todo.append((factor, weight))
        terms = dict(at._terms or {}) if isinstance(at, LinearSum) else {}
        known = terms.get
        for factor, weight in todo:
            for symbol, k in factor.terms().items():
                terms[symbol] = known(symbol, 0) + k * weight
        return {symbol: k for symbol, k in terms.items() if k}

    def bounds(self) -> tuple[int, int]:
        if self._bounds is not None:
            return self._bounds
        low = high = self.constant
        for s, k in self.terms().items():
            low += k * (s.low if k > 0 else s.high)
            high += k * (s.high if k > 0 else s.low)
        self._bounds = low, high
        return low, high


_NOTHING = LinearSum(0, {})


@final
class Halves:
    __slots__ = ("high", "low")

    def __init__(self, low: "Word", high: "Word") -> None:
        self.low, self.high = low, high


@final
class Bytes:
    __slots__ = ("parts",)

    def __init__(self, parts: "tuple[Byte, ...]") -> None:
        self.parts = parts


@final
class WordByte:
    __slots__ = ("index", "word")

    def __init__(self, word: "Word", index: int) -> None:
        self.word, self.index = word, index


@final
class WordOp:
    """An operation: ``name`` is a key of ``meaning.OPS``; arguments are words or the operation's integer
    parameters.
    """

    __slots__ = ("args", "name")

    def __init__(self, name: str, *args: "Word") -> None:
        self.name, self.args = name, args


Word: TypeAlias = int | LinearSum | Halves | Bytes | WordOp
Byte: TypeAlias = int | Symbol | WordByte

STACK_TOP = 1 << 40
"""Stack pointer at the entry, as an address in memory."""

_STACK = {Symbol(-1, 0, 0, (1 << 29) - 1, 29): 8}
RETURN_ADDRESS = LinearSum(1, {Symbol(-1, 1, 0, (1 << 31) - 1, 31): 2})
"""LR at the entry: any address of Thumb code."""


def stack_word(place: int) -> LinearSum:
    return LinearSum(place - STACK_TOP, _STACK)


def place_of(word: Word) -> int | None:
    """Return the address that a word holds: below 2^32, or a place in the stack; None if it depends on an
    input.
    """
    if isinstance(word, int):
        return word
    if isinstance(word, LinearSum) and (word._terms is _STACK or word.terms() == _STACK):
        return STACK_TOP + signed(word.constant)
    return None


_counter = iter(range(1 << 62))


def unknown() -> WordOp:
    """Return a word of which nothing is known, not even that it equals itself when read twice."""
    return WordOp("unknown", next(_counter))
