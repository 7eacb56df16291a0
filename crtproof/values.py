"""Words that depend on inputs, and what operations on them can give.

A word is an ``int`` from 0 to 2^32 - 1, or one of these:

- ``Linear``: an integer combination of symbols and a number, modulo 2^32.
- ``Halves``: two halfwords, each an int or a word that is between -2^15 and 2^15 - 1.
- ``Bytes``: four bytes, each an int from 0 to 255, a ``Symbol``, or a word of which the lowest 8 bits count.
- ``Op``: an operation of ``OPERATIONS`` on words.

**Linear forms without coefficients.** To compare two sums of a thousand products one may compare all their
coefficients. It is enough to compare one number: each symbol gets a secret number below the prime
P = 2^127 - 1, drawn anew in each run, and the ``mark`` of a sum is the same sum of the secret numbers. Two
sums with different coefficients d_i != 0 have equal marks only if the secret numbers solve
sum(d_i * secret_i) = 0 modulo P, which happens with a probability of 1 / P (Schwartz and Zippel). So a
multiply-accumulate costs one multiplication, however many terms the sum has.

**Operations on intervals.** An operation has one meaning: a function from intervals of its operands to an
interval that holds all results. On intervals of one number it gives the exact result. So the same twenty
lines run code on numbers, and show that a whole range of sums gives the same output (``compare``).
"""

import secrets
from collections.abc import Callable
from typing import TypeAlias, final

__all__ = [
    "ALL",
    "MASK",
    "OPERATIONS",
    "RETURN_ADDRESS",
    "STACK_TOP",
    "Bytes",
    "Halves",
    "Interval",
    "Linear",
    "Op",
    "P",
    "Piece",
    "Refused",
    "Symbol",
    "Word",
    "place_of",
    "signed",
    "stack_word",
    "unknown",
]

MASK = 0xFFFFFFFF
P = (1 << 127) - 1
_TOP = 1 << 31


class Refused(Exception):
    """Raised when the image is wrong, or when something in it is not followed."""


def signed(v: int, bits: int = 32) -> int:
    """Return the lowest bits of a number as a number with a sign."""
    v &= (1 << bits) - 1
    return v - (1 << bits) if v >> (bits - 1) else v


@final
class Symbol:
    """An element of a tensor, 8 bits wide, from ``low`` to ``high``."""

    __slots__ = ("high", "index", "low", "tensor", "word")

    def __init__(self, tensor: int, index: int, low: int, high: int) -> None:
        self.tensor, self.index, self.low, self.high = tensor, index, low, high
        self.word = Linear(0, secrets.randbelow(P), low, high, ((self, 1),))


@final
class Linear:
    """The integer ``const`` + sum of k * symbol, which is between ``low`` and ``high``.

    Its coefficients are found from the sums that it was made of, in the few places that need them.
    """

    __slots__ = ("_parts", "_terms", "const", "high", "low", "mark")

    def __init__(
        self, const: int, mark: int, low: int, high: int, parts: "tuple[tuple[Linear | Symbol, int], ...]"
    ) -> None:
        self.const, self.mark, self.low, self.high = const, mark, low, high
        self._parts = parts
        self._terms: dict[Symbol, int] | None = None

    def plus(self, n: int) -> "Linear":
        return Linear(self.const + n, self.mark, self.low + n, self.high + n, ((self, 1),))

    def times(self, k: int) -> "Linear":
        ends = (self.low * k, self.high * k) if k > 0 else (self.high * k, self.low * k)
        return Linear(self.const * k, self.mark * k, *ends, ((self, k),))

    def added(self, other: "Linear", k: int = 1) -> "Linear":
        """Return the sum of this and ``k`` times the other."""
        ends = (other.low * k, other.high * k) if k > 0 else (other.high * k, other.low * k)
        return Linear(
            self.const + other.const * k,
            self.mark + other.mark * k,
            self.low + ends[0],
            self.high + ends[1],
            ((self, 1), (other, k)),
        )

    def terms(self) -> "dict[Symbol, int]":
        """Return the coefficients by symbol; none is 0."""
        if self._terms is None:
            found: dict[Symbol, int] = {}
            todo = list(self._parts)
            while todo:
                part, k = todo.pop()
                if isinstance(part, Symbol):
                    found[part] = found.get(part, 0) + k
                elif part._terms is not None:
                    for symbol, n in part._terms.items():
                        found[symbol] = found.get(symbol, 0) + k * n
                else:
                    todo += [(inner, k * n) for inner, n in part._parts]
            self._terms = {symbol: k for symbol, k in found.items() if k}
            self._parts = ()
        return self._terms

    def divided(self, n: int, least: int) -> "tuple[Linear, Linear] | None":
        """Return two sums, q and r, with this one = 2^n * q + r and r from ``least`` to ``least`` + 2^n - 1.

        None if the coefficients do not show such sums.
        """
        half = 1 << (n - 1)
        high, low = {}, {}
        for symbol, k in self.terms().items():
            high[symbol], low[symbol] = (k + half) >> n, (k + half) % (1 << n) - half
        const = (_sum_of(self.const, low).low - least) >> n
        q, r = _sum_of(const, high), _sum_of(self.const - (const << n), low)
        return (q, r) if least <= r.low and r.high < least + (1 << n) else None


def _sum_of(const: int, terms: "dict[Symbol, int]") -> Linear:
    mark, low, high = 0, const, const
    for symbol, k in terms.items():
        mark += k * symbol.word.mark
        low += k * (symbol.low if k > 0 else symbol.high)
        high += k * (symbol.high if k > 0 else symbol.low)
    return Linear(const, mark, low, high, tuple(terms.items()))


@final
class Halves:
    __slots__ = ("high", "low")

    def __init__(self, low: "Word", high: "Word") -> None:
        self.low, self.high = low, high


@final
class Bytes:
    __slots__ = ("parts",)

    def __init__(self, parts: "tuple[Piece, ...]") -> None:
        self.parts = parts


@final
class Op:
    """An operation: ``name`` is a key of ``OPERATIONS``; ``numbers`` are constants that it needs."""

    __slots__ = ("args", "name", "numbers")

    def __init__(self, name: str, args: "tuple[Word, ...]", numbers: tuple[int, ...] = ()) -> None:
        self.name, self.args, self.numbers = name, args, numbers


Word: TypeAlias = int | Linear | Halves | Bytes | Op
Piece: TypeAlias = int | Symbol | Linear | Halves | Bytes | Op


_SP, _LR = Symbol(-1, 0, 0, (1 << 29) - 1), Symbol(-1, 1, 0, (1 << 31) - 1)
RETURN_ADDRESS = _LR.word.times(2).plus(1)
"""The link register at the call: any address of Thumb code."""
STACK_TOP = 1 << 40
"""Place of the stack pointer at the call, above all addresses."""


def stack_word(offset: int) -> Linear:
    """Return an address relative to the stack pointer at the call, which is any multiple of 8."""
    return _SP.word.times(8).plus(offset)


_STACK_MARK = 8 * _SP.word.mark % P


def place_of(w: Word) -> int | None:
    """Return where in memory an address is; None if it depends on an input."""
    if isinstance(w, int):
        return w
    if isinstance(w, Linear) and w.mark % P == _STACK_MARK:
        return STACK_TOP + w.const
    return None


def unknown() -> Op:
    """Return a word of which nothing is known: whoever evaluates it is refused."""
    return Op("unknown", ())


Interval: TypeAlias = tuple[int, int]
ALL: Interval = (-_TOP, _TOP - 1)
"""All words, as numbers with a sign."""


def _wrapped(low: int, high: int, bits: int = 32) -> Interval:
    # An interval of integers modulo 2^bits, as numbers with a sign; all of them if it crosses the middle.
    half = 1 << (bits - 1)
    turns = (low + half) >> bits
    if turns != (high + half) >> bits:
        return -half, half - 1
    return low - (turns << bits), high - (turns << bits)


def _unsigned(a: Interval, bits: int = 32) -> Interval:
    low, high = a
    turns = low >> bits
    if turns != high >> bits:
        return 0, (1 << bits) - 1
    return low - (turns << bits), high - (turns << bits)


def _product(a: Interval, b: Interval) -> Interval:
    ends = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return min(ends), max(ends)


def _at_points(function: Callable[[int, int], int]) -> Callable[[Interval, Interval], Interval]:
    # An operation that is known where both operands are.
    def of(a: Interval, b: Interval) -> Interval:
        if a[0] == a[1] and b[0] == b[1]:
            v = signed(function(a[0] & MASK, b[0] & MASK))
            return v, v
        return ALL

    return of


def _and(a: Interval, b: Interval) -> Interval:
    if b[0] == b[1] and b[0] >= 0:
        mask = b[0]
        if mask & (mask + 1) == 0:
            return _unsigned(a, mask.bit_length()) if mask else (0, 0)
        if a[0] != a[1]:
            return 0, mask
    return _at_points(lambda x, y: x & y)(a, b)


def _or(a: Interval, b: Interval) -> Interval:
    if a[0] == a[1] and b[0] == b[1]:
        return a[0] | b[0], a[0] | b[0]
    if a[0] >= 0 and b[0] >= 0:  # no less than both, no more than their sum
        return max(a[0], b[0]), min(a[1] + b[1], (1 << max(a[1], b[1]).bit_length()) - 1)
    return ALL


def _shifted_right(a: Interval, n: int) -> Interval:
    low, high = _unsigned(a)
    return _wrapped(low >> n, high >> n)


def _clipped(a: Interval, low: int, high: int) -> Interval:
    return max(low, min(high, a[0])), max(low, min(high, a[1]))


def _divided(a: Interval, b: Interval) -> Interval:
    # Towards zero, as SDIV does.
    n = b[0]
    if b[0] != b[1] or n == 0 or (n < 0 and a[0] != a[1]):
        raise Refused("a division by what is not a positive number")
    low, high = (abs(v) // abs(n) * (1 if (v < 0) == (n < 0) else -1) for v in a)
    return _wrapped(low, high)


def _divided_unsigned(a: Interval, b: Interval) -> Interval:
    low, high = _unsigned(a)
    n = b[0] & MASK
    if b[0] != b[1] or n == 0:
        raise Refused("a division by what is not a number")
    return _wrapped(low // n, high // n)


def _leading_zeros(a: Interval) -> Interval:
    low, high = _unsigned(a)
    return 32 - high.bit_length(), 32 - low.bit_length()


def _long(numbers: tuple[int, ...], factors: tuple[Interval, ...]) -> Interval:
    # 64 bits: the sum of two products of words, or one, and a number.
    low = high = numbers[0]
    for i in range(0, len(factors), 2):
        a, b = _product(factors[i], factors[i + 1])
        low, high = low + a, high + b
    return low, high


def _compared(name: str, a: Interval, b: Interval) -> Interval:
    if name in ("hi", "cs"):
        a, b = _unsigned(a), _unsigned(b)
    if name == "eq":
        if a[1] < b[0] or b[1] < a[0]:
            return 0, 0
        return (1, 1) if a[0] == a[1] == b[0] == b[1] else (0, 1)
    if name in ("gt", "hi"):
        return int(a[0] > b[1]), int(a[1] > b[0])
    return int(a[0] >= b[1]), int(a[1] >= b[0])


def _sum_compared(numbers: tuple[int, ...], a: Interval, b: Interval, c: Interval) -> Interval:
    # a + b + c, or a - b - 1 + c, without wrapping: at least ``numbers[1]``? So N and V say after it.
    sign, least = numbers
    if sign > 0:
        low, high = a[0] + b[0] + c[0], a[1] + b[1] + c[1]
    else:
        low, high = a[0] - b[1] - 1 + c[0], a[1] - b[0] - 1 + c[1]
    return int(low >= least), int(high >= least)


def _shifted_by(name: str, a: Interval, n: Interval) -> Interval:
    # By the lowest byte of a word.
    if n[0] != n[1]:
        return ALL
    by = n[0] & 255
    if name == "asr":
        return a[0] >> by, a[1] >> by
    if by > 31:
        return 0, 0
    return _wrapped(a[0] << by, a[1] << by) if name == "lsl" else _shifted_right(a, by)


def _case(of: Interval, words: tuple[Interval, ...]) -> Interval:
    # The words for -255, -254, ..., 0.
    some = words[max(of[0], -255) + 255 : min(of[1], 0) + 256]
    return (min(w[0] for w in some), max(w[1] for w in some)) if some else ALL


def _carry(a: Interval, b: Interval) -> Interval:
    # The carry of a sum of unsigned words.
    (a, b) = _unsigned(a), _unsigned(b)
    return a[0] + b[0] >> 32, a[1] + b[1] >> 32


def _selected(condition: Interval, a: Interval, b: Interval) -> Interval:
    if condition[0] == condition[1]:
        return a if condition[0] else b
    return min(a[0], b[0]), max(a[1], b[1])


def _halves(low: Interval, high: Interval) -> Interval:
    a, b = _unsigned(low, 16), _wrapped(*high, 16)
    return a[0] + (b[0] << 16), a[1] + (b[1] << 16)


def _bytes(*parts: Interval) -> Interval:
    ends = [_unsigned(part, 8) for part in parts[:3]] + [_wrapped(*parts[3], 8)]
    return sum(e[0] << 8 * i for i, e in enumerate(ends)), sum(e[1] << 8 * i for i, e in enumerate(ends))


OPERATIONS: dict[str, Callable[[tuple[int, ...], tuple[Interval, ...]], Interval]] = {
    "add": lambda n, a: _wrapped(a[0][0] + a[1][0], a[0][1] + a[1][1]),
    "sub": lambda n, a: _wrapped(a[0][0] - a[1][1], a[0][1] - a[1][0]),
    "mul": lambda n, a: _wrapped(*_product(a[0], a[1])),
    "and": lambda n, a: _and(a[0], a[1]),
    "orr": lambda n, a: _or(a[0], a[1]),
    "eor": lambda n, a: _at_points(lambda x, y: x ^ y)(a[0], a[1]),
    "mvn": lambda n, a: (~a[0][1], ~a[0][0]),
    "asr": lambda n, a: (a[0][0] >> n[0], a[0][1] >> n[0]),
    "lsl": lambda n, a: _wrapped(a[0][0] << n[0], a[0][1] << n[0]),
    "lsr": lambda n, a: _shifted_right(a[0], n[0]),
    "ror": lambda n, a: _at_points(lambda x, y: (x >> y | x << (32 - y)) & MASK)(a[0], (n[0], n[0])),
    "sxtb": lambda n, a: _wrapped(*a[0], 8),
    "sxth": lambda n, a: _wrapped(*a[0], 16),
    "uxtb": lambda n, a: _unsigned(a[0], 8),
    "uxth": lambda n, a: _unsigned(a[0], 16),
    "ssat": lambda n, a: _clipped(a[0], -(1 << (n[0] - 1)), (1 << (n[0] - 1)) - 1),
    "usat": lambda n, a: _clipped(a[0], 0, (1 << n[0]) - 1),
    "min": lambda n, a: (min(a[0][0], a[1][0]), min(a[0][1], a[1][1])),
    "max": lambda n, a: (max(a[0][0], a[1][0]), max(a[0][1], a[1][1])),
    "sdiv": lambda n, a: _divided(a[0], a[1]),
    "udiv": lambda n, a: _divided_unsigned(a[0], a[1]),
    "clz": lambda n, a: _leading_zeros(a[0]),
    "eq": lambda n, a: _compared("eq", a[0], a[1]),
    "gt": lambda n, a: _compared("gt", a[0], a[1]),
    "ge": lambda n, a: _compared("ge", a[0], a[1]),
    "hi": lambda n, a: _compared("hi", a[0], a[1]),
    "cs": lambda n, a: _compared("cs", a[0], a[1]),
    "carry": lambda n, a: _carry(a[0], a[1]),
    "sel": lambda n, a: _selected(a[0], a[1], a[2]),
    # with numbers 1 or -1, and 0 or 1
    "sum_ge": lambda n, a: _sum_compared(n, *a),
    "lslr": lambda n, a: _shifted_by("lsl", *a),
    "lsrr": lambda n, a: _shifted_by("lsr", *a),
    "asrr": lambda n, a: _shifted_by("asr", *a),
    # a function of a difference from -255 to 0: the difference, and 256 words
    "cases": lambda n, a: _case(a[0], a[1:]),
    "halves": lambda n, a: _halves(a[0], a[1]),
    "bytes": lambda n, a: _bytes(*a),
    # words of the 64 bits n[0] + a[0] * a[1] + ..., which are shifted to the right by n[1]
    "long": lambda n, a: _wrapped(*(v >> n[1] for v in _long(n, a))),
    # the same of a product of two unsigned words
    "ulong": lambda n, a: _wrapped(*(v >> n[0] for v in _product(_unsigned(a[0]), _unsigned(a[1])))),
}
