"""The greatest of several symbols, as a set: in which order they were compared does not matter."""

from typing import Any

from crtgen.prove.expression import parts_of
from crtgen.prove.value import Op, Sum, Symbol, Word, signed

__all__ = ["greatest_of", "single_symbol"]


def greatest_of(word: Word) -> tuple[frozenset[Symbol], int] | None:
    """The symbols, and the greatest number, of which a word is the greatest; None if it is anything else."""
    symbols: set[Symbol] = set()
    least = -128
    todo: list[Any] = [word]
    seen: set[int] = set()
    while todo:
        e = todo.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        e = _within_byte(e)
        if isinstance(e, int):
            least = max(least, signed(e))
        elif isinstance(e, Op) and e.name == "max":
            todo.extend(parts_of(e))
        else:
            symbol = single_symbol(e)
            if symbol is None:
                return None
            symbols.add(symbol)
    return frozenset(symbols), least


def single_symbol(e: Any) -> Symbol | None:
    """The symbol that a word is, sign extended."""
    if isinstance(e, Sum) and e.constant == 0 and len(e.terms()) == 1:
        ((symbol, k),) = e.terms().items()
        return symbol if k == 1 else None
    return None


def _within_byte(e: Any) -> Any:
    """What is extended or saturated to a signed byte: of a greatest of such bytes that changes nothing."""
    if isinstance(e, Op) and (e.name == "sxtb" or (e.name == "ssat" and e.args[0] == 8)):
        inner = e.args[-1]
        return inner if isinstance(inner, Op) and inner.name == "max" else e
    return e
