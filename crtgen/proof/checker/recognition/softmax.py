"""Softmax, proven in parts.

A row's maximum M is a set of symbols. Each difference d = s - M has 256 values, and so has its power. The sum
adds functions of one difference each. Functions of the sum alone are tried for every sum. An output is a
function of d, of the values derived from the sum, and of the product of a power and the reciprocal of the
sum: for each d and each shift that a sum can require, it is compared along all products.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from crtgen.proof.checker.algebra.expression import Node, evaluate, parts_of, shape_of
from crtgen.proof.checker.algebra.greatest import greatest_of, single_symbol
from crtgen.proof.checker.algebra.monotone import Course, course_of
from crtgen.proof.checker.algebra.value import LinearSum, Symbol, Word, WordOp
from crtgen.proof.checker.network.others import SoftmaxLayer
from crtgen.proof.checker.refusal import Refusal

__all__ = ["SoftmaxRow", "rounded_product", "softmax_output"]

_DIFFERENCES = np.arange(-255, 1, dtype=np.int64)
_CHUNK = 1 << 14
_MOST_SUMS = 1 << 30

# By shift: the least and the greatest reciprocal, and the rest of the sum that an element uses.
_Shifts: TypeAlias = dict[int, tuple[int, int, tuple[int, ...]]]

_MOST_TRIED = 64
# Functions that are right for all sums, kept for the next run.
_TRIED: dict[Hashable, _Shifts] = {}


def softmax_output(layer: SoftmaxLayer, word: Word, verdicts: dict[Any, bool]) -> int | None:
    """Return the output that a word equals for every input, or None. Raises ``Refusal`` with the reason."""
    row = layer.seen = layer.seen or SoftmaxRow(layer)
    total = row.total_of(word)
    if total is None:
        return None
    symbols = row.support(total)
    number = layer.row_of(symbols)
    if number is None:
        raise Refusal("a sum that is not that of a row of softmax")
    row.check_total(total, number, verdicts)
    own = row.support(word, {id(total): frozenset()})
    if len(own) != 1:
        raise Refusal("an element of softmax depends on several inputs beside the sum")
    (symbol,) = own
    name = (layer.number, "output", shape_of(word, _no_leaf, {**row.names(), id(total): "total"}))
    if name not in verdicts:
        verdicts[name] = False
        _Element(row, word, total).check()
        verdicts[name] = True
    if not verdicts[name]:
        raise Refusal("an element of softmax that is not what the network says")
    return layer.place_of[number, symbol]


def _no_leaf(leaf: LinearSum) -> Any:
    raise Refusal("an element of softmax depends on its input beside the difference")


@dataclass(eq=False)
class SoftmaxRow:
    """Facts about a layer's expressions.

    ``differences`` are the nodes s - M or M - s by id: the symbol and the sign.
    """

    layer: SoftmaxLayer
    totals: set[int] = field(default_factory=set)
    differences: dict[int, tuple[Symbol, int]] = field(default_factory=dict)
    _supports: dict[int, frozenset[Symbol]] = field(default_factory=dict)
    _kept: list[Node] = field(default_factory=list)

    def names(self) -> dict[int, Any]:
        """Return names for nodes under which differences of either sign are the same."""
        return {key: ("difference", sign) for key, (_, sign) in self.differences.items()}

    def values(self, d: Any) -> dict[int, Any]:
        # Return a memo for evaluation in which every difference is ``d``.
        return {key: d * sign for key, (_, sign) in self.differences.items()}

    def support(self, e: Node, known: dict[int, frozenset[Symbol]] | None = None) -> frozenset[Symbol]:
        memo = self._supports if known is None else known
        if isinstance(e, int):
            return frozenset()
        if id(e) not in memo:
            self._kept.append(e)  # so that its id stays its own
            memo[id(e)] = self._difference(e) or self._of_parts(e, known)
        return memo[id(e)]

    def _of_parts(self, e: Node, known: dict[int, frozenset[Symbol]] | None) -> frozenset[Symbol]:
        if isinstance(e, LinearSum | Symbol):
            raise Refusal("softmax uses an input otherwise than by its difference to the greatest")
        return frozenset[Symbol]().union(*(self.support(p, known) for p in parts_of(e)))

    def _difference(self, e: Node) -> frozenset[Symbol]:
        if not isinstance(e, WordOp) or e.name != "sub":
            return frozenset()
        for (x, y), sign in ((e.args, 1), (reversed(e.args), -1)):
            symbol, greatest = single_symbol(x), greatest_of(y)
            if symbol and greatest and len(greatest[0]) > 1 and self._is_row(symbol, greatest):
                self.differences[id(e)] = symbol, sign
                return frozenset((symbol,))
        return frozenset()

    def _is_row(self, symbol: Symbol, greatest: tuple[frozenset[Symbol], int]) -> bool:
        return greatest[1] == -128 and symbol in greatest[0] and self.layer.row_of(greatest[0]) is not None

    def total_of(self, word: Word) -> WordOp | None:
        """Return the node that adds, for each symbol of a row, a function of its difference."""
        todo: list[Node] = [word]
        seen: set[int] = set()
        while todo:
            e = todo.pop()
            if id(e) in seen or isinstance(e, int):
                continue
            seen.add(id(e))
            if id(e) in self.totals and isinstance(e, WordOp):
                return e
            is_sum = isinstance(e, WordOp) and e.name == "add" and len(self.support(e)) > 1
            if isinstance(e, WordOp) and is_sum and all(len(self.support(t)) <= 1 for t in _terms(e)):
                self.totals.add(id(e))
                return e
            todo.extend(parts_of(e))
        return None

    def check_total(self, total: WordOp, number: int, verdicts: dict[Any, bool]) -> None:
        """Check that each symbol contributes its term to the network's sum, as often as it occurs in the
        row.
        """
        name = ("total", self.layer.number, number, id(total))
        if name in verdicts:
            return
        d, depth = _DIFFERENCES, self.layer.depth
        found: dict[Symbol, Any] = {}
        for term in _terms(total):
            (symbol,) = self.support(term) or (None,)
            if symbol is None:
                raise Refusal("the sum of softmax has a constant")
            found[symbol] = found.get(symbol, 0) + evaluate(term, _no_leaf, self.values(d))
        row = self.layer.inputs[number * depth : (number + 1) * depth]
        for symbol, share in found.items():
            wrong = np.nonzero(np.broadcast_to(share, d.shape) != self.layer.share(d) * row.count(symbol))[0]
            if wrong.size:
                raise Refusal(f"the difference {d[wrong[0]]} adds something else to the sum of softmax")
        verdicts[name] = True
        self.layer.kept.append(total)


def _terms(e: Node) -> Iterator[Node]:
    todo = [e]
    while todo:
        node = todo.pop()
        if isinstance(node, WordOp) and node.name == "add":
            todo.extend(node.args)
        else:
            yield node


class _Element:
    def __init__(self, row: SoftmaxRow, word: Word, total: WordOp) -> None:
        self.row, self.layer, self.word, self.total = row, row.layer, word, total
        self.of_total: dict[int, Node] = {}
        self.product: tuple[Node, Word, Word] | None = None
        """Node of the product of power and reciprocal."""
        self.zeros: list[Word] = []
        """Sign words that must be 0 if the node is to be that product."""
        self._supports: dict[int, tuple[bool, bool]] = {}
        self._find(word)

    def _depends(self, e: Node) -> tuple[bool, bool]:
        # Dependence on the sum, and on the difference.
        if isinstance(e, int):
            return False, False
        if id(e) not in self._supports:
            if e is self.total:
                found = True, False
            elif id(e) in self.row.differences:
                found = False, True
            else:
                parts = [self._depends(p) for p in parts_of(e)]
                found = any(p[0] for p in parts), any(p[1] for p in parts)
            self._supports[id(e)] = found
        return self._supports[id(e)]

    def _find(self, e: Node) -> None:
        # The product, and the nodes that depend on the sum alone, from the top.
        on_sum, on_difference = self._depends(e)
        if not on_sum:
            return
        if not on_difference:
            self.of_total[id(e)] = e
            return
        factors = rounded_product(e)
        if factors is None:
            for p in parts_of(e):
                self._find(p)
            return
        a, b, self.zeros = factors
        power, scale = (a, b) if self._depends(a) == (False, True) else (b, a)
        if self._depends(power) != (False, True) or self._depends(scale) != (True, False):
            raise Refusal("a product that is not of a power and the reciprocal of softmax")
        if self.product is not None and self.product[0] is not e:
            raise Refusal("an element of softmax with several products")
        self.product = e, power, scale

    def check(self) -> None:
        # Raises ``Refusal`` where it is not what the network says.
        if self.product is None:
            raise Refusal("no product with the reciprocal of softmax's sum is found")
        d, layer = _DIFFERENCES, self.layer
        powers = np.broadcast_to(evaluate(self.product[1], _no_leaf, self.row.values(d)), d.shape)
        counts = d >= layer.least
        if not (powers == layer.power(d))[counts].all() or (powers < 0).any():
            raise Refusal("a power of softmax is another one")
        for zero in self.zeros:
            if self._depends(zero) != (True, False) and evaluate(zero, _no_leaf, self.row.values(d)).any():
                raise Refusal("the sign of a power of softmax is another one")
        for shift, (least, most, given) in self._shifts().items():
            fixed = dict(zip(self.of_total, given, strict=True))
            for i, difference in enumerate(d):
                power = int(powers[i])
                ends = (power * least + (1 << 30)) >> 31, (power * most + (1 << 30)) >> 31
                self._along(int(difference), shift, ends, fixed)

    def _shifts(self) -> _Shifts:
        # For all sums. Functions of a sum that were tried before are not tried again.
        assert self.product is not None  # looked at before
        one = int(self.layer.share(np.array([0]))[0])
        sums = range(one, one * self.layer.depth + 1)
        if sums[-1] - one > _MOST_SUMS:
            raise Refusal("the sum of softmax has too many values to try")
        zeros = [zero for zero in self.zeros if self._depends(zero)[0]]
        memo: dict[int, Any] = {id(self.total): "total"}
        shapes = (shape_of(e, _no_leaf, memo) for e in (self.product[2], *zeros, *self.of_total.values()))
        name = sums, len(zeros), *shapes
        if name not in _TRIED:
            if len(_TRIED) == _MOST_TRIED:
                _TRIED.clear()
            _TRIED[name] = self._tried(sums, self.product[2], zeros)
        return _TRIED[name]

    def _tried(self, sums: range, scale: Word, zeros: list[Word]) -> _Shifts:
        found: _Shifts = {}
        for start in range(sums.start, sums.stop, _CHUNK):
            total = np.arange(start, min(sums.stop, start + _CHUNK), dtype=np.int64)
            memo: dict[int, Any] = {id(self.total): total}
            reciprocals, shifts = self.layer.scale_of(total)
            if not (evaluate(scale, _no_leaf, memo) == reciprocals).all() or (reciprocals < 0).any():
                raise Refusal("the reciprocal of softmax's sum is another one")
            if any(np.any(evaluate(zero, _no_leaf, memo)) for zero in zeros):
                raise Refusal("the sign of the reciprocal of softmax's sum is another one")
            given = [evaluate(e, _no_leaf, memo) for e in self.of_total.values()]
            for shift in np.flatnonzero(np.bincount(shifts)):
                which = shifts == shift
                others = [np.broadcast_to(v, total.shape)[which] for v in given]
                self._note(found, int(shift), reciprocals[which], others)
        return found

    def _note(self, found: _Shifts, shift: int, scales: Any, others: list[Any]) -> None:
        fixed = tuple(int(v[0]) for v in others)
        least, most, before = found.get(shift, (int(scales.min()), int(scales.max()), fixed))
        if before != fixed or any((v != v[0]).any() for v in others):
            raise Refusal("what softmax makes of its sum is not a shift")
        found[shift] = min(least, int(scales.min())), max(most, int(scales.max())), fixed

    def _along(self, d: int, shift: int, ends: tuple[int, int], fixed: dict[int, int]) -> None:
        # Along all products, from the first to the last.
        assert self.product is not None  # looked at before
        low, high = ends
        seeds: dict[int, Course | None] = {k: Course(v, v, 0) for k, v in fixed.items()}
        seeds |= {k: Course(v, v, 0) for k, v in self.row.values(d).items()}
        seeds[id(self.product[0])] = Course(low, high, 1)
        course = course_of(self.word, _no_leaf, seeds)
        if course is None or course.way < 0 or course.low < -128 or course.high > 127:
            raise Refusal("an element of softmax that may turn or wrap")
        steps = (2 * np.arange(0, 257, dtype=np.int64) + 1) << (shift - 1)
        points = np.unique(np.clip(np.concatenate([steps - 1, steps, ends]), low, high))
        memo: dict[int, Any] = {**fixed, **self.row.values(d), id(self.product[0]): points}
        got = np.broadcast_to(evaluate(self.word, _no_leaf, memo), points.shape)
        wanted = self.layer.output(np.full(points.shape, d), points, shift)
        self.layer.evaluations += points.size
        if not (got == wanted).all():
            raise Refusal(f"softmax differs at the difference {d}, with the shift {shift}")


def rounded_product(e: Node) -> tuple[Word, Word, list[Word]] | None:
    """Return a and b if a node is (a * b + 2^30) >> 31 for factors that are not negative.

    Compilers may add b * z to the upper word, where z is the sign of a; the words that must therefore be 0
    are returned, too.
    """
    if not isinstance(e, WordOp):
        return None
    if e.name == "vqrdmulh":
        return e.args[0], e.args[1], []
    if e.name != "high" or e.args[2] != 31:
        return None
    high, low = e.args[0], e.args[1]
    if not isinstance(high, WordOp) or not isinstance(low, WordOp) or high.name != "add" or low.name != "add":
        return None
    upper, carry = high.args
    if not isinstance(carry, WordOp) or carry.name != "carry" or {*carry.args} != {*low.args, 0}:
        return None
    product = low.args[0] if low.args[1] == 1 << 30 else low.args[1] if low.args[0] == 1 << 30 else None
    return _upper_word(upper, product) if isinstance(product, WordOp) and product.name == "mul" else None


def _upper_word(upper: Word, product: WordOp) -> tuple[Word, Word, list[Word]] | None:
    # The factors of a product, where another word is its upper one if what is given besides is 0.
    a, b = product.args
    uppers, zeros = 0, []
    for term in _terms(upper):
        if not isinstance(term, WordOp) or term.name not in ("smulhi", "umulhi", "mul"):
            return None
        x, y = term.args
        if term.name == "mul" and (x is a or x is b or y is a or y is b):
            zeros.append(y if x is a or x is b else x)
        elif term.name != "mul" and ((x is a and y is b) or (x is b and y is a)):
            uppers += 1
        else:
            return None
    return (a, b, zeros) if uppers == 1 else None
