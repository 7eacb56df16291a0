"""Choices: SELECT, and the place of an extreme.

An output of SELECT is one operand if the condition's symbol is 1, and the other if it is 0. So the word is
simplified with either value, and must be the operand then: whatever operations a compiler chose by.

A place is found by comparing one element after the other:

    place(0) = 0
    place(i) = i if x(i) > max(x(0), ..., x(i - 1)) else place(i - 1)

By induction it is the first place of the greatest. The comparisons are looked at from the last one on; each
must be with the maximum of exactly the elements before.
"""

from crtgen.proof.checker.algebra.fixed import fixed, is_low_part
from crtgen.proof.checker.algebra.greatest import greatest_of, least_of, single_symbol
from crtgen.proof.checker.algebra.value import LinearSum, Symbol, Word, WordOp, signed
from crtgen.proof.checker.network.choices import ChoiceLayer, ExtremePlace
from crtgen.proof.checker.network.layer import Value

__all__ = ["chosen_output", "place_output"]


def chosen_output(layer: ChoiceLayer, word: Word, found: list[LinearSum]) -> int | None:
    """Return the output that the word is, if it is the right operand for both values of a condition."""
    symbols = frozenset[Value](s for leaf in found for s in leaf.terms())
    ways: dict[tuple[Symbol, int], Word] = {}
    for output in layer.choices.get(symbols, ()):
        taken, *operands = layer.operands[output]
        assert isinstance(taken, Symbol)  # otherwise it is a copy
        if (taken.low, taken.high) == (0, 1):
            for value in (0, 1):
                if (taken, value) not in ways:
                    ways[taken, value] = fixed(word, {taken: value}, {})
            bits = layer.type.bits
            if all(is_low_part(ways[taken, k], operands[1 - k], bits) for k in (0, 1)):
                return output
    return None


def place_output(layer: ExtremePlace, word: Word, found: list[LinearSum]) -> int | None:
    """Return the output that the word is, if it compares the elements of a row from the first to the last."""
    symbols = {s for leaf in found for s in leaf.terms()}
    rows = (row for row in layer.of if {v for v in row if isinstance(v, Symbol)} == symbols)
    return next((layer.of[row] for row in rows if _is_place(layer, word, row)), None)


def _is_place(layer: ExtremePlace, word: Word, row: tuple[Value, ...]) -> bool:
    at = word
    for i in range(len(row) - 1, 0, -1):
        if not isinstance(at, WordOp) or at.name != "sel" or not isinstance(at.args[0], WordOp):
            return False
        taken, one, other = at.args
        assert isinstance(taken, WordOp)
        beyond = _beyond(layer, taken, row, i)
        here, at = (one, other) if beyond else (other, one)
        if beyond is None or here != i:
            return False
    return at == 0


def _beyond(layer: ExtremePlace, taken: WordOp, row: tuple[Value, ...], i: int) -> bool | None:
    # True if the condition says that an element is beyond all before, False if it says that it is not.
    if taken.name not in ("gt", "ge", "lt", "le"):
        return None
    a, b = taken.args
    if taken.name in ("lt", "le"):  # a < b is b > a
        a, b = b, a
    strict = taken.name in ("gt", "lt")
    if layer.takes_least:
        a, b = b, a
    # Now the greater side comes first, for a greatest; the lesser one for a least.
    x, before = (a, b) if strict else (b, a)
    if not _is(x, row[i]) or not _is_extreme(layer, before, row[:i]):
        return None
    return strict


def _is(word: Word, value: Value) -> bool:
    if isinstance(value, int):
        return isinstance(word, int) and signed(word) == value
    return single_symbol(word) is value


def _is_extreme(layer: ExtremePlace, word: Word, row: tuple[Value, ...]) -> bool:
    of, end = (least_of, layer.kind.high) if layer.takes_least else (greatest_of, layer.kind.low)
    pick = min if layer.takes_least else max
    symbols = frozenset(v for v in row if isinstance(v, Symbol))
    return of(word, end) == (symbols, pick([end, *(v for v in row if isinstance(v, int))]))
