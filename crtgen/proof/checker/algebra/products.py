"""Sums of products of two symbols, as linear forms.

A product of matrices that are both inputs adds up x(i) * y(i). Each product of two symbols becomes a symbol
of its own, with the bounds of the product; then a sum of products is a ``LinearSum``, and everything that is
known of these holds: bounds, comparison by a fingerprint, functions of a sum. Example, with zero points 3 and
-1:

    (x - 3) * (y + 1) = xy + x - 3y - 3        three terms: the symbols xy, x and y

Two forms with the same coefficients are the same polynomial, whatever the code adds first. Forms that differ
may still be equal for all values that the symbols have (x * x and x, for x of 0 and 1): then an output is not
recognised, which is no wrong verdict. The bounds are too wide if a symbol occurs in several terms; a function
is compared for more sums than there are.
"""

from collections.abc import Mapping

from crtgen.proof.checker.algebra.value import (
    M32,
    Bytes,
    Halves,
    LinearSum,
    Symbol,
    Word,
    WordByte,
    WordOp,
    signed,
)
from crtgen.proof.checker.algebra.words import add, mul

__all__ = ["SymbolProducts"]

# Terms of a factor: two operands less their zero points have one each.
_MOST_TERMS = 4


class SymbolProducts:
    """Symbols that stand for products of two. ``factors`` has both factors of each.

    ``tensors`` are those whose elements are multiplied in 64 bits.
    """

    def __init__(self) -> None:
        self.tensors: set[int] = set()
        self.factors: dict[Symbol, tuple[Symbol, Symbol]] = {}
        self._known: dict[frozenset[Symbol], Symbol] = {}
        self._sums: dict[int, tuple[Word, LinearSum | None]] = {}
        self._rewritten: dict[int, tuple[Word, Word]] = {}

    def of(self, x: Symbol, y: Symbol) -> Symbol:
        key = frozenset((x, y))
        if key not in self._known:
            corners = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
            product = Symbol(x.tensor, x.index, min(corners), max(corners), 32)
            self._known[key], self.factors[product] = product, (x, y)
        return self._known[key]

    def multiplied(
        self, a: Mapping[Symbol, int], first: int, b: Mapping[Symbol, int], second: int
    ) -> tuple[int, dict[Symbol, int]]:
        """Multiply two linear forms: return the constant and the coefficients."""
        terms: dict[Symbol, int] = {}
        for x, k in a.items():
            terms[x] = terms.get(x, 0) + k * second
            for y, n in b.items():
                product = self.of(x, y)
                terms[product] = terms.get(product, 0) + k * n
        for y, n in b.items():
            terms[y] = terms.get(y, 0) + n * first
        return first * second, {s: k for s, k in terms.items() if k}

    def product(self, a: Word, b: Word) -> LinearSum | None:
        """Return the product of two elements of ``tensors``, each less a number; None for other words."""
        if not self.tensors or not isinstance(a, LinearSum) or not isinstance(b, LinearSum):
            return None
        p, q = a.terms(), b.terms()
        if len(p) != 1 or len(q) != 1 or any(s.tensor not in self.tensors for s in (*p, *q)):
            return None
        if any(s in self.factors for s in (*p, *q)):
            return None
        return LinearSum(*self.multiplied(p, a.constant, q, b.constant))

    def rewritten(self, e: Word) -> Word:
        if isinstance(e, int | LinearSum):
            return e
        if id(e) not in self._rewritten:
            self._rewritten[id(e)] = e, self._sum_of(e) or self._with_parts(e)
        return self._rewritten[id(e)][1]

    def _with_parts(self, e: Word) -> Word:
        if isinstance(e, Halves):
            return Halves(self.rewritten(e.low), self.rewritten(e.high))
        if isinstance(e, Bytes):
            parts = (
                WordByte(self.rewritten(b.word), b.index) if isinstance(b, WordByte) else b for b in e.parts
            )
            return Bytes(tuple(parts))
        if not isinstance(e, WordOp) or e.name == "unknown":
            return e
        return WordOp(e.name, *(self.rewritten(a) for a in e.args))

    def _sum_of(self, e: Word) -> LinearSum | None:
        # The polynomial that a word is modulo 2^32. Long chains of additions are followed without recursion.
        todo = [e]
        while todo:
            node = todo[-1]
            if isinstance(node, int | LinearSum) or id(node) in self._sums:
                todo.pop()
                continue
            wanted = _summands(node)
            missing = [p for p in wanted if not isinstance(p, int | LinearSum) and id(p) not in self._sums]
            if missing:
                todo += missing
                continue
            todo.pop()
            self._sums[id(node)] = node, self._joined(node) if wanted else None
        return _reduced(self._form(e))

    def _form(self, e: Word) -> LinearSum | None:
        if isinstance(e, int):
            return LinearSum(signed(e), {})
        return e if isinstance(e, LinearSum) else self._sums[id(e)][1]

    def _joined(self, e: Word) -> LinearSum | None:
        assert isinstance(e, WordOp)
        a, b = (self._form(p) for p in e.args)
        if a is None or b is None:
            return None
        if e.name != "mul":
            made = add(a, b, 1 if e.name == "add" else -1)
            return (
                made
                if isinstance(made, LinearSum)
                else LinearSum(signed(made), {})
                if isinstance(made, int)
                else None
            )
        p, q = a.terms(), b.terms()
        if not p or not q:
            made = mul(a if p else b, (b if p else a).constant & M32)
            return made if isinstance(made, LinearSum) else None
        if max(len(p), len(q)) > _MOST_TERMS or any(s in self.factors for s in (*p, *q)):
            return None
        return LinearSum(*self.multiplied(p, a.constant, q, b.constant))


def _reduced(form: LinearSum | None) -> LinearSum | None:
    # Coefficients are modulo 2^32: GCC multiplies by -2 as twice 2^31 - 1. What is no number of 32 bits then,
    # either, is left as it is: the high word of it may be asked for, by which long products are recognised.
    if form is None or all(abs(k) < 1 << 31 for k in form.terms().values()):
        return form
    terms = {s: n for s, k in form.terms().items() if (n := signed(k & M32))}
    small = LinearSum(signed(form.constant & M32), terms)
    low, high = small.bounds()
    return small if low >= -(1 << 31) and high < 1 << 31 else form


def _summands(e: Word) -> tuple[Word, ...]:
    # The operands of an operation that is followed.
    return e.args if isinstance(e, WordOp) and e.name in ("add", "sub", "mul") else ()
