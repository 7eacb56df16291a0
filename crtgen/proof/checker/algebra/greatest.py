"""Maxima and minima of several symbols, as sets: the order of the comparisons does not matter."""

from typing import Any

from crtgen.proof.checker.algebra.expression import parts_of
from crtgen.proof.checker.algebra.value import LinearSum, Symbol, Word, WordOp, signed

__all__ = ["greatest_of", "least_of", "single_symbol"]


def greatest_of(word: Word, least: int = -128) -> tuple[frozenset[Symbol], int] | None:
    """Return the symbols and the constant whose maximum the word is, or None if it is not a maximum.

    Constants below ``least`` are ignored.
    """
    return _extreme_of(word, "max", least)


def least_of(word: Word, most: int) -> tuple[frozenset[Symbol], int] | None:
    """Return the symbols whose minimum the word is, or None; constants above ``most`` are ignored."""
    return _extreme_of(word, "min", most)


def _extreme_of(word: Word, name: str, end: int) -> tuple[frozenset[Symbol], int] | None:
    symbols: set[Symbol] = set()
    pick = max if name == "max" else min
    bits = 32
    todo: list[Any] = [word]
    seen: set[int] = set()
    while todo:
        e = todo.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        kept = _KEPT.get((e.name, e.args[0] if len(e.args) > 1 else 0)) if isinstance(e, WordOp) else None
        if kept and isinstance(e.args[-1], WordOp) and e.args[-1].name == name:
            e, bits = e.args[-1], min(bits, kept)
        if isinstance(e, int):
            end = pick(end, signed(e))
        elif isinstance(e, WordOp) and e.name == name:
            todo.extend(parts_of(e))
        else:
            symbol = single_symbol(e)
            if symbol is None:
                return None
            symbols.add(symbol)
    half = 1 << bits - 1
    within = all(-half <= s.low and s.high < half for s in symbols) and -half <= end < half
    return (frozenset(symbols), end) if within else None


def single_symbol(e: Any) -> Symbol | None:
    if isinstance(e, LinearSum) and e.constant == 0 and len(e.terms()) == 1:
        ((symbol, k),) = e.terms().items()
        return symbol if k == 1 else None
    return None


# Limits that do not change an extreme of values of this many bits.
_KEPT: dict[tuple[str, Any], int] = {("sxtb", 0): 8, ("ssat", 8): 8, ("sxth", 0): 16, ("ssat", 16): 16}
