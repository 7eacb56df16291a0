"""Functions of two int16 operands, which have too many pairs of values to try.

Both operands meet at some node of the expression, in a sum or a product. The functions of a single operand
below that node are tried for all of its values. The function of the joined value above it is compared along
its steps.
"""

from typing import Any

import numpy as np

from crtgen.proof.checker.algebra.expression import Node, evaluate, leaves, parts_of
from crtgen.proof.checker.algebra.monotone import Course, course_of
from crtgen.proof.checker.algebra.value import LinearSum, Symbol, Word, WordOp
from crtgen.proof.checker.network.elementwise import ElementLayer
from crtgen.proof.checker.network.sums import steps_of
from crtgen.proof.checker.refusal import Refusal

__all__ = ["is_joined"]


def is_joined(layer: ElementLayer, symbols: tuple[Symbol, Symbol], word: Word) -> bool:
    """Return True if a word is the layer's function of two symbols. Raises ``Refusal`` with the reason if
    not.
    """
    if not layer.joint:
        raise Refusal(f"a {layer.name} of two tensors with more than 8 bits")
    node = _meeting(word, frozenset(symbols))
    if node is None:
        raise Refusal("two operands that do not meet in one place")
    operation = node.name if isinstance(node, WordOp) else "add"
    if operation not in ({"mul"} if layer.joint == "mul" else {"add", "sub"}):
        raise Refusal("two operands that meet otherwise than in a sum or a product")
    offset, ends = 0, []
    for which, symbol in enumerate(symbols):
        values = np.arange(symbol.low, symbol.high + 1, dtype=np.int64)
        wanted = layer.part(which, values)
        rest = _part(node, operation, symbol, values) - wanted
        if (rest != rest[0]).any() or (layer.joint == "mul" and rest[0]):
            raise Refusal(f"operand {which} is scaled otherwise than the network says")
        offset += int(rest[0])
        ends.append((int(wanted.min()), int(wanted.max())))
    offset += node.constant if isinstance(node, LinearSum) else 0
    return _follows(layer, word, node, _range(layer.joint, *ends), offset)


def _part(node: WordOp | LinearSum, operation: str, symbol: Symbol, values: Any) -> Any:
    # Contribution of one of the two symbols to a node.
    if isinstance(node, LinearSum):
        return node.terms()[symbol] * values
    (place,) = (i for i, p in enumerate(node.args) if _support(p) == {symbol})
    got = evaluate(node.args[place], lambda s: s.terms()[symbol] * values + s.constant, {})
    return -got if place == 1 and operation == "sub" else got


def _range(joint: str, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    # The least and the greatest joined number.
    if joint == "add":
        return a[0] + b[0], a[1] + b[1]
    products = [x * y for x in a for y in b]
    return min(products), max(products)


def _follows(
    layer: ElementLayer, word: Word, node: WordOp | LinearSum, ends: tuple[int, int], offset: int
) -> bool:
    # True if the word, as a function of the joined number, is the network's.
    low, high = ends
    if low + offset < -(1 << 31) or high + offset >= 1 << 31:
        raise Refusal("what the operands are joined to may wrap")
    course = course_of(word, _no_leaf, {id(node): Course(low + offset, high + offset, 1)})
    kind = layer.type
    if course is None or course.way < 0 or course.low < kind.low or course.high > kind.high:
        raise Refusal("what is made of the joined operands may turn or wrap")
    joined = steps_of(layer.last, low, high)
    layer.evaluations += joined.size
    got = kind.of(evaluate(word, _no_leaf, {id(node): joined + offset}))
    wrong = np.nonzero(got != layer.last(joined))[0]
    if wrong.size:
        raise Refusal(f"{joined[wrong[0]]}, joined of both, gives {got[wrong[0]]}")
    return True


def _no_leaf(leaf: LinearSum) -> Any:
    raise Refusal("an operand that is used otherwise than joined with the other one")


def _meeting(word: Word, symbols: frozenset[Symbol]) -> WordOp | LinearSum | None:
    # The one node that depends on both, and of which no part does.
    found: dict[int, WordOp | LinearSum] = {}
    todo: list[Node] = [word]
    while todo:
        e = todo.pop()
        deeper = [p for p in parts_of(e) if _support(p) == symbols]
        if not deeper and isinstance(e, WordOp | LinearSum):
            found[id(e)] = e
        todo += deeper
    return next(iter(found.values())) if len(found) == 1 else None


def _support(e: Node) -> frozenset[Symbol]:
    return frozenset(s for leaf in leaves(e) for s in leaf.terms())
