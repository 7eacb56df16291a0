"""Expressions as functions of their leaves, which are sums and symbols."""

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from crtgen.proof.checker.algebra.meaning import OPS, wrap
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
from crtgen.proof.checker.refusal import Refusal

__all__ = ["Node", "evaluate", "has_leaf", "has_unknown", "is_short", "leaves", "parts_of", "shape_of"]

Node = Word | Symbol | WordByte

_SHORT = 32


def parts_of(e: Node) -> tuple[Node, ...]:
    """Return the operands of an expression; a sum and a symbol are leaves."""
    if isinstance(e, WordOp):
        return () if e.name == "unknown" else e.args
    if isinstance(e, Halves):
        return (e.low, e.high)
    if isinstance(e, Bytes):
        return e.parts
    return (e.word,) if isinstance(e, WordByte) else ()


def leaves(e: Node) -> list[LinearSum]:
    return list(_leaves(e))


def has_leaf(e: Node) -> bool:
    return next(_leaves(e), None) is not None


def has_unknown(e: Node) -> bool:
    """Return True if the expression depends on memory or on a register that was never written."""
    seen: set[int] = set()
    todo: list[Node] = [e]
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, WordOp) and node.name == "unknown":
                return True
            todo.extend(parts_of(node))
    return False


def is_short(e: Node) -> bool:
    """Return True for a function of one byte by a few operations, which costs little to keep."""
    symbols, seen, todo = set[Symbol](), dict[int, Node](), [e]
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen[id(node)] = node
        if len(seen) > _SHORT or (isinstance(node, WordOp) and node.name == "unknown"):
            return False
        if isinstance(node, LinearSum):
            symbols |= node.terms().keys()
        elif isinstance(node, Symbol):
            symbols.add(node)
        todo.extend(parts_of(node))
    return len(symbols) == 1 and next(iter(symbols)).bits == 8


def _leaves(e: Node) -> Iterator[LinearSum]:
    seen: set[int] = set()
    todo: list[Node] = [e]
    while todo:
        node = todo.pop()
        if isinstance(node, Symbol):
            node = node.word
        if isinstance(node, int) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, LinearSum):
            if node.terms():
                yield node
        else:
            todo.extend(parts_of(node))


_SHAPES: dict[Hashable, int] = {}
_COMMUTE = frozenset(("add", "mul", "and", "orr", "eor", "umulhi", "smulhi"))


def shape_of(e: Node, leaf: Callable[[LinearSum], Hashable], memo: dict[int, Hashable]) -> Hashable:
    """Return an integer that identifies the expression with its leaves replaced by ``leaf``.

    Equal integers mean equal functions. ``memo`` may assign integers to nodes, by their ``id``.
    """
    if isinstance(e, Symbol):
        e = e.word
    if isinstance(e, int):
        return _numbered(("int", e))
    known = memo.get(id(e))
    if known is None:
        if isinstance(e, LinearSum):
            known = _numbered(("sum", leaf(e)) if e.terms() else ("int", e.constant & M32))
        elif isinstance(e, WordOp) and e.name == "unknown":
            known = _numbered(("unknown", e.args))
        else:
            tag = e.name if isinstance(e, WordOp) else (type(e).__name__, getattr(e, "index", 0))
            shapes = [shape_of(p, leaf, memo) for p in parts_of(e)]
            known = _numbered((tag, *(sorted(shapes, key=str) if tag in _COMMUTE else shapes)))
        memo[id(e)] = known
    return known


def _numbered(shape: Hashable) -> int:
    return _SHAPES.setdefault(shape, len(_SHAPES))


def evaluate(e: Node, leaf: Callable[[LinearSum], Any], memo: dict[int, Any]) -> Any:
    """Return the signed 32-bit values of an expression, given the values of its leaves; ``memo`` may preset
    the values of nodes, by their ``id``.
    """
    if isinstance(e, int):
        return signed(e)
    if isinstance(e, Symbol):
        e = e.word
    value = memo.get(id(e))
    if value is None:
        value = memo[id(e)] = _value(e, leaf, memo)
    return value


def _value(e: Node, leaf: Callable[[LinearSum], Any], memo: dict[int, Any]) -> Any:
    if isinstance(e, LinearSum):
        return wrap(leaf(e)) if e.terms() else signed(e.constant)
    if isinstance(e, WordOp):
        if e.name == "unknown":
            raise Refusal("the value depends on memory or a register that nothing wrote")
        if e.name == "upper" and isinstance(e.args[0], LinearSum):
            return wrap(leaf(e.args[0]) >> 32)
        return OPS[e.name](*(evaluate(a, leaf, memo) for a in e.args))
    if isinstance(e, Halves):
        low, high = evaluate(e.low, leaf, memo), evaluate(e.high, leaf, memo)
        return wrap((low & 0xFFFF) | (high & 0xFFFF) << 16)
    if isinstance(e, Bytes):
        total: Any = 0
        for i, b in enumerate(e.parts):
            total = total + ((evaluate(b, leaf, memo) & 255) << 8 * i)
        return wrap(total)
    assert isinstance(e, WordByte)
    return (evaluate(e.word, leaf, memo) & M32) >> 8 * e.index & 255
