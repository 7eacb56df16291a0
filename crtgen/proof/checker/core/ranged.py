"""A core that decides comparisons by the ranges of what is compared.

A function that takes a count, an integer in a range, often takes one way for the whole range: a call with 1
to 99 samples fills a window of 200 nowhere. Such a call is followed once, with the count as a symbol.
"""

from crtgen.proof.checker.algebra.meaning import OPS
from crtgen.proof.checker.algebra.value import M32, LinearSum, Word, WordOp, signed
from crtgen.proof.checker.algebra.words import add
from crtgen.proof.checker.core.machine import Machine

__all__ = ["RangedMachine"]


class RangedMachine(Machine):
    def holds(self, c: str) -> bool | WordOp:
        found = super().holds(c)
        return _decided(found) if isinstance(found, WordOp) else found

    def branch(self, holds: WordOp, pc: int, taken: int, following: int) -> int:
        found = _decided(holds)  # of CBZ, which asks no flags
        if isinstance(found, WordOp):
            return super().branch(found, pc, taken, following)
        return taken if found else following


def _decided(condition: WordOp) -> bool | WordOp:
    # The condition, or what it is for all values of both sides.
    name, (a, b) = condition.name, condition.args[:2]
    if isinstance(a, LinearSum) and isinstance(b, LinearSum) and name in _ORDERS:
        distance = add(a, b, -1)  # of two words that do not wrap, it decides
        if all(_unsigned(_range(word)) for word in (a, b)) and _range(distance):
            name, a, b = _UNSIGNED.get(name, name), distance, 0
    one, other = _range(a), _range(b)
    if name in _UNSIGNED:
        name, one, other = _UNSIGNED[name], _unsigned(one), _unsigned(other)
    if name in ("mi", "pl") and b == 0:
        name = {"mi": "lt", "pl": "ge"}[name]
    if name in ("lt", "ge", "gt", "le") and one and other:
        ends = {OPS[name](x, y) for x in one for y in other}
        return bool(ends.pop()) if len(ends) == 1 else condition
    if name in ("eq", "ne") and one and other and (one[1] < other[0] or one[0] > other[1]):
        return name == "ne"
    if name in ("eq", "ne") and one and other and one[0] == one[1] == other[0] == other[1]:
        return name == "eq"
    return condition


_ORDERS = frozenset(("eq", "ne", "lt", "ge", "gt", "le", "hi", "ls", "cs", "cc"))
_UNSIGNED = {"hi": "gt", "ls": "le", "cs": "ge", "cc": "lt"}


def _range(word: Word) -> tuple[int, int] | None:
    if isinstance(word, int):
        return signed(word), signed(word)
    low, high = word.bounds() if isinstance(word, LinearSum) else (0, 1 << 32)
    return (low, high) if low >= -(1 << 31) and high < 1 << 31 else None


def _unsigned(span: tuple[int, int] | None) -> tuple[int, int] | None:
    if span is None or span[0] < 0 <= span[1]:
        return None
    return (span[0] & M32, span[1] & M32)
