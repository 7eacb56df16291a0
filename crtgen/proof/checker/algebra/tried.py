"""Enumerates the values of an expression of one symbol or one sum, if there are few."""

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np

from crtgen.proof.checker.algebra.expression import evaluate, leaves, shape_of
from crtgen.proof.checker.algebra.value import LinearSum, Symbol, Word, WordOp
from crtgen.proof.checker.refusal import Refusal

__all__ = ["TriedIndices", "tried_values"]

_MOST_TRIED = 1 << 20

Assumed = Iterable[tuple[WordOp, bool]]
"""Conditions with whether they hold."""


class _Domain(NamedTuple):
    # The variable of an expression with its range: a symbol, or if that is None, the sum of these terms.
    terms: dict[Symbol, int]
    symbol: Symbol | None
    low: int
    high: int

    def has(self, s: LinearSum) -> bool:
        return s.terms().keys() == self.terms.keys() if self.symbol else s.terms() == self.terms

    def line(self, s: LinearSum) -> tuple[int, int]:
        # Factor of a leaf in the value, and its addend.
        return s.terms()[self.symbol] if self.symbol else 1, s.constant

    def within(self, assumed: Assumed) -> list[tuple[WordOp, bool]]:
        # The conditions that say something of it.
        of = ((condition, holds, leaves(condition)) for condition, holds in assumed)
        return [(condition, holds) for condition, holds, found in of if found and all(map(self.has, found))]


def _domain_of(v: Word) -> _Domain | None:
    found = leaves(v)
    if not found:
        return None
    first = found[0].terms()
    symbol = next(iter(first)) if len(first) == 1 else None
    low, high = (symbol.low, symbol.high) if symbol else (e - found[0].constant for e in found[0].bounds())
    domain = _Domain(first, symbol, low, high)
    return domain if high - low < _MOST_TRIED and all(map(domain.has, found)) else None


def tried_values(v: Word, assumed: Assumed = ()) -> Any:
    """Return all values that a function of one symbol or one sum takes under the conditions ``assumed``, if
    there are few.
    """
    domain = _domain_of(v)
    return None if domain is None else _values(v, domain, domain.within(assumed))


def _values(v: Word, domain: _Domain, assumed: Assumed) -> Any:
    values = np.arange(domain.low, domain.high + 1, dtype=np.int64)

    def value(s: LinearSum) -> Any:
        k, constant = domain.line(s)
        return constant + k * values

    def known(e: Word) -> Any:
        try:
            return np.broadcast_to(evaluate(e, value, {}), values.shape)
        except Refusal:
            return None

    got, taken = known(v), np.ones(values.shape, bool)
    for condition, holds in assumed:
        said = known(condition)
        taken &= True if said is None else (said != 0) == holds
    return got[taken] if got is not None and taken.any() else got


class TriedIndices:
    """Enumerated table indices; an index that is the same function of the same symbol or sum is enumerated
    once.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[int, int, int] | None] = {}

    def span(self, v: Word, assumed: Assumed) -> tuple[int, int, int] | None:
        """Return the smallest and the largest value, and how many low bits are always 0: 0, 1 or 2."""
        domain = _domain_of(v)
        if domain is None:
            return None
        conditions = domain.within(assumed)
        said = tuple((shape_of(condition, domain.line, {}), holds) for condition, holds in conditions)
        name = domain.low, domain.high, shape_of(v, domain.line, {}), said
        if name not in self._known:
            values = _values(v, domain, conditions)
            self._known[name] = values if values is None else _span(values)
        return self._known[name]


def _span(values: Any) -> tuple[int, int, int]:
    low, high = int(values.min()), int(values.max())
    rest = int(np.bitwise_or.reduce(values - low))
    return low, high, 2 if rest & 3 == 0 and rest else 1 if rest & 1 == 0 and rest else 0
