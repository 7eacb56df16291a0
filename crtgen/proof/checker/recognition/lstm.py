"""Cell and hidden states of an LSTM, recognised by their structure: two products of two values each.

The factors are tried for all of their values: a gate is a function of one sum, tanh a function of one cell
state. The function of a product is compared along its steps, or for each value if the expression may turn.
The function of the sum of two such terms is tried for all values of the sum.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from crtgen.proof.checker.algebra.expression import Node, evaluate, leaves, parts_of, shape_of
from crtgen.proof.checker.algebra.greatest import single_symbol
from crtgen.proof.checker.algebra.monotone import Course, course_of
from crtgen.proof.checker.algebra.value import LinearSum, Symbol, Word, WordOp
from crtgen.proof.checker.network.layer import Value
from crtgen.proof.checker.network.lstm import CELL, FORGET, INPUT, OUTPUT, LstmLayer, UnitTime
from crtgen.proof.checker.network.sums import fingerprint, steps_of
from crtgen.proof.checker.refusal import Refusal

__all__ = ["lstm_output"]

_CHUNK = 1 << 16
# Sums of two int16 values.
_SUMS = np.arange(-0x10000, 0xFFFF, dtype=np.int64)

Factor: TypeAlias = tuple[str, Any]
"""A factor: ("gate", number), ("cell", place) or ("tanh", place of the cell state)."""


@dataclass(frozen=True, slots=True)
class _FactorProducts:
    found: dict[frozenset[Factor], WordOp] = field(default_factory=dict)
    support: dict[int, frozenset[int]] = field(default_factory=dict)


def lstm_output(layer: LstmLayer, word: Word, bits: int, verdicts: dict[Any, bool]) -> Value | None:
    """Return the cell or hidden state that a word equals for every input, or None."""
    products = _FactorProducts()
    _support(layer, word, products, verdicts)
    factors = frozenset(products.found)
    numbers = [v for pair in factors for kind, v in pair if kind == "gate"]
    if not isinstance(word, WordOp):
        return None
    if not numbers:
        return _same_cell(layer, word, verdicts) if bits == 16 else None
    place = layer.in_time[min(numbers) // 4]
    keep, enter, show = _wanted(layer, place)
    if bits == layer.kinds.bits and factors == {show}:
        node = products.found[show]
        if _alike(layer, word, node, show, layer.next_hidden, verdicts):
            return layer.found(layer.index_of(place))
    begins = layer.cell[place._replace(time=place.time - 1)] == 0  # nothing is kept then
    whole = bits == 16 and factors == ({enter} if begins else {keep, enter})
    if whole and _is_cell(layer, word, products, (keep, enter), verdicts):
        return layer.found_cell(place)
    return None


def _same_cell(layer: LstmLayer, word: WordOp, verdicts: dict[Any, bool]) -> Value | None:
    # The cell state that a word still is: what enters a cell that keeps nothing is one already when nothing
    # is added to it, and when it is saturated and clipped.
    symbols = {symbol for leaf in leaves(word) for symbol in leaf.terms()}
    if len(symbols) != 1:
        return None
    (cell,) = symbols
    role = layer.roles.get(cell)
    if role is None or role[0] != "cell":
        return None
    values = np.arange(cell.low, cell.high + 1, dtype=np.int64)
    same = _same(layer, word, ("same", cell.low, cell.high), values, values, verdicts)
    return layer.found_cell(role[1]) if same else None


def _wanted(layer: LstmLayer, place: UnitTime) -> tuple[frozenset[Factor], ...]:
    # The factors of what is kept, of what enters, of what is shown.
    first = 4 * layer.in_time.index(place)
    same = layer.gates.same
    gates: list[Factor] = [("gate", same.get(first + gate, first + gate)) for gate in range(4)]
    before = place._replace(time=place.time - 1)
    return (
        frozenset((gates[FORGET], ("cell", before))),
        frozenset((gates[INPUT], gates[CELL])),
        frozenset((gates[OUTPUT], ("tanh", place))),
    )


def _support(
    layer: LstmLayer, e: Node, products: _FactorProducts, verdicts: dict[Any, bool]
) -> frozenset[int]:
    # The products that a node depends on, by ``id``; all else that it depends on shows later.
    if isinstance(e, int):
        return frozenset()
    known = products.support.get(id(e))
    if known is None:
        known = frozenset()
        factors = _factors(layer, e, verdicts)
        if isinstance(e, WordOp) and factors is not None:
            known = frozenset((id(products.found.setdefault(factors, e)),))
        else:
            for part in parts_of(e):
                known |= _support(layer, part, products, verdicts)
        products.support[id(e)] = known
    return known


def _factors(layer: LstmLayer, e: Node, verdicts: dict[Any, bool]) -> frozenset[Factor] | None:
    if not isinstance(e, WordOp) or e.name != "mul" or any(isinstance(a, int) for a in e.args):
        return None
    found = [_factor(layer, a, verdicts) for a in e.args]
    known = frozenset(f for f in found if f is not None)
    return known if len(known) == 2 else None


def _factor(layer: LstmLayer, e: Node, verdicts: dict[Any, bool]) -> Factor | None:
    # Factor of a product: a function of one cell state, or of one sum of two products.
    symbol = single_symbol(e)
    if symbol is not None:
        return layer.roles.get(symbol)
    found = leaves(e)
    symbols = {frozenset(leaf.terms()) for leaf in found}
    if len(symbols) != 1 or any(len({*leaf.terms().values()}) > 1 for leaf in found):
        return None
    first = found[0].terms()
    role = layer.roles.get(next(iter(first)))
    if len(first) == 1 and role is not None and role[0] == "cell":
        (cell,) = first
        values = np.arange(cell.low, cell.high + 1, dtype=np.int64)
        name: Any = cell.low, cell.high
        return ("tanh", role[1]) if _same(layer, e, name, values, layer.tanh(values), verdicts) else None
    values = np.arange(sum(s.low for s in first), sum(s.high for s in first) + 1, dtype=np.int64)
    for form in layer.gates.forms.get(fingerprint(dict.fromkeys(first, 1)), ()):
        name = "gate", form.channel, form.base, values[0], values[-1]
        wanted = layer.gates.function(form.channel, form.base + values)
        if form.factor == 1 and _same(layer, e, name, values, wanted, verdicts):
            return "gate", form.output
    return None


def _same(layer: LstmLayer, e: Node, name: Any, values: Any, wanted: Any, verdicts: dict[Any, bool]) -> bool:
    # True if a word, whose leaves are all multiples of one number, equals the wanted function.
    def line(leaf: LinearSum) -> tuple[int, int]:
        return next(iter(leaf.terms().values())), leaf.constant

    key = (layer, name, shape_of(e, line, {}))
    if key not in verdicts:
        layer.evaluations += wanted.size
        try:
            got = evaluate(e, lambda leaf: line(leaf)[0] * values + leaf.constant, {})
            verdicts[key] = bool((got == wanted).all())
        except Refusal:
            verdicts[key] = False
    return verdicts[key]


def _ends(layer: LstmLayer, factors: frozenset[Factor]) -> tuple[int, int]:
    # The least and the greatest product.
    ends = []
    for kind, which in factors:
        if kind == "cell":
            cell = layer.cell[which]
            assert isinstance(cell, Symbol)
            ends.append((cell.low, cell.high))
        else:
            ends.append((-0x8000, 0x7FFF) if kind == "tanh" or which % 4 == CELL else (0, 0x7FFF))
    corners = [x * y for x in ends[0] for y in ends[1]]
    return min(corners), max(corners)


def _alike(
    layer: LstmLayer,
    e: Node,
    node: WordOp,
    factors: frozenset[Factor],
    wanted: Callable[[Any], Any],
    verdicts: dict[Any, bool],
) -> bool:
    # True if a word is this monotonic function of a product.
    key = (layer, wanted.__name__, _ends(layer, factors), shape_of(e, _no_leaf, {id(node): "product"}))
    if key not in verdicts:
        low, high = _ends(layer, factors)
        course = course_of(e, _no_leaf, {id(node): Course(low, high, 1)})
        if course is not None and course.way >= 0:
            numbers = steps_of(wanted, low, high)
            verdicts[key] = _equal(layer, e, node, numbers, wanted)
        else:
            verdicts[key] = all(
                _equal(layer, e, node, np.arange(a, min(a + _CHUNK, high + 1), dtype=np.int64), wanted)
                for a in range(low, high + 1, _CHUNK)
            )
    return verdicts[key]


def _equal(layer: LstmLayer, e: Node, node: Node, numbers: Any, wanted: Callable[[Any], Any]) -> bool:
    layer.evaluations += numbers.size
    got = np.broadcast_to(evaluate(e, _no_leaf, {id(node): numbers}), numbers.shape)
    expected = wanted(numbers)
    wrong = np.nonzero(got != expected)[0]
    if wrong.size:
        i = wrong[0]
        layer.because(f"{wanted.__name__} of {numbers[i]} gives {got[i]}, the network says {expected[i]}")
    return not wrong.size


def _is_cell(
    layer: LstmLayer,
    word: Word,
    products: _FactorProducts,
    factors: tuple[frozenset[Factor], frozenset[Factor]],
    verdicts: dict[Any, bool],
) -> bool:
    keep, enter = factors
    if keep not in products.found:
        return _alike(layer, word, products.found[enter], enter, layer.first_cell, verdicts)
    both = frozenset(id(node) for node in products.found.values())
    total = _meeting(word, both, products.support)
    if total is None or total.name != "add":
        return False
    for factor, wanted in ((keep, layer.remembered), (enter, layer.entering)):
        node = products.found[factor]
        parts = [a for a in total.args if products.support.get(id(a)) == frozenset((id(node),))]
        if len(parts) != 1 or not _alike(layer, parts[0], node, factor, wanted, verdicts):
            return False
    key = (layer, "next_cell", shape_of(word, _no_leaf, {id(total): "sum"}))
    if key not in verdicts:
        verdicts[key] = _equal(layer, word, total, _SUMS, layer.next_cell)
    return verdicts[key]


def _meeting(word: Word, both: frozenset[int], support: dict[int, frozenset[int]]) -> WordOp | None:
    # The one node that depends on both products, and of which no part does.
    found: dict[int, WordOp] = {}
    todo: list[Node] = [word]
    while todo:
        e = todo.pop()
        deeper = [p for p in parts_of(e) if support.get(id(p)) == both]
        if not deeper and isinstance(e, WordOp):
            found[id(e)] = e
        todo += deeper
    return next(iter(found.values())) if len(found) == 1 else None


def _no_leaf(leaf: LinearSum) -> Any:
    raise Refusal("an element that is used otherwise than in the products of an LSTM")
