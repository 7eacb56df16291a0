"""Bounds of an expression of one float32 variable over an interval.

Each operation is computed at the ends of its operands, since rounding preserves order. An operand that is
used twice counts as two independent ones, so bounds may be too wide but never too narrow.
"""

from collections.abc import Callable
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from crtgen.proof.checker.algebra.expression import Node
from crtgen.proof.checker.algebra.meaning import OPS
from crtgen.proof.checker.algebra.real import OF_REALS, ORDERED, REAL_NEGATED, TO_INTEGERS, number_of
from crtgen.proof.checker.algebra.value import LinearSum, Symbol, Word, WordByte, WordOp, signed
from crtgen.proof.checker.refusal import Refusal

__all__ = ["Span", "value_of_nan", "where_wrong"]

Span: TypeAlias = tuple[Any, Any]
"""Arrays of least and greatest values: of integers, or of the bits of float32 numbers."""

_Memo = dict[int, Span]
# Spans that are looked at, at most.
_MOST = 1 << 24
_TOP = 1 << 31


def _ordered(corners: list[Any], order: Callable[[Any], Any]) -> Span:
    low = high = corners[0]
    for corner in corners[1:]:
        low = np.where(order(corner) < order(low), corner, low)
        high = np.where(order(corner) > order(high), corner, high)
    return low, high


def _real(e: Node, leaf: Span, memo: _Memo) -> Span:
    # A word that holds a float.
    if isinstance(e, int):
        return signed(e), signed(e)
    if isinstance(e, Symbol):
        e = e.word
    if isinstance(e, LinearSum):
        return leaf
    if ~id(e) not in memo:
        memo[~id(e)] = _real_operation(e, leaf, memo)
    return memo[~id(e)]


def _real_operation(e: Node, leaf: Span, memo: _Memo) -> Span:
    if isinstance(e, WordOp) and e.name == "sel":
        return _selected(e, leaf, memo, _real, number_of)
    if not isinstance(e, WordOp) or e.name not in OF_REALS or e.name in (*REAL_NEGATED, *TO_INTEGERS):
        raise Refusal("bits that are no number of float32")
    if e.name.startswith(("f_abs", "f_div")) and not isinstance(e.args[-1], int):
        raise Refusal("an operation that may turn")
    if e.name.startswith("f_div") and not number_of(e.args[1]):
        raise Refusal("a division by 0")
    args = [(_whole if e.name == "f_of" else _real)(a, leaf, memo) for a in e.args]
    return _ordered([OPS[e.name](*ends) for ends in product(*args)], number_of)


def _whole(e: Node, leaf: Span, memo: _Memo) -> Span:
    # A word that holds an integer.
    if isinstance(e, int):
        return signed(e), signed(e)
    if isinstance(e, Symbol):
        e = e.word
    if id(e) not in memo:
        memo[id(e)] = _operation(e, leaf, memo)
    return memo[id(e)]


def _operation(e: Node, leaf: Span, memo: _Memo) -> Span:
    if isinstance(e, WordByte) and e.index == 0:
        return _inside(_whole(e.word, leaf, memo), 0, 255)
    if not isinstance(e, WordOp):
        raise Refusal("a number of float32 that is used as an integer")
    if e.name == "sel":
        return _selected(e, leaf, memo, _whole, np.asarray)
    if e.name in TO_INTEGERS:
        low, high = _real(e.args[0], leaf, memo)
        return OPS[e.name](low), OPS[e.name](high)
    args = [_whole(a, leaf, memo) for a in e.args]
    if e.name in _LIMITS:
        return _inside(args[0], *_LIMITS[e.name])
    if e.name in ("ssat", "usat", "min", "max"):
        return _ordered([OPS[e.name](*ends) for ends in product(*args)], np.asarray)
    if e.name == "asr" and isinstance(e.args[1], int):
        return tuple(OPS["asr"](end, e.args[1]) for end in args[0])
    if e.name in ("add", "sub"):
        (a, b), (c, d) = args
        found = (a + c, b + d) if e.name == "add" else (a - d, b - c)
        return _inside(found, -_TOP, _TOP - 1)
    raise Refusal(f"{e.name}, of which no span is known")


_LIMITS = {"sxtb": (-0x80, 0x7F), "uxtb": (0, 0xFF), "sxth": (-0x8000, 0x7FFF), "uxth": (0, 0xFFFF)}


def _inside(span: Span, low: int, high: int) -> Span:
    # The span, or all that there is where it may wrap.
    wraps = (np.asarray(span[0]) < low) | (np.asarray(span[1]) > high)
    return np.where(wraps, low, span[0]), np.where(wraps, high, span[1])


def _selected(
    e: WordOp, leaf: Span, memo: _Memo, of: Callable[[Node, Span, _Memo], Span], order: Callable[[Any], Any]
) -> Span:
    # A choice: both ways, if the condition may be either.
    taken, first, second = e.args
    if isinstance(taken, WordOp) and taken.name == "sum_ge":
        low, high = (sum(ends) for ends in zip(*(_whole(x, leaf, memo) for x in taken.args), strict=True))
        always, never = low >= 0, high < 0
    elif isinstance(taken, WordOp) and taken.name in REAL_NEGATED:
        a, b = (_real(x, leaf, memo) for x in taken.args)
        always, never = _always(taken.name, a, b), _always(REAL_NEGATED[taken.name], a, b)
    else:
        raise Refusal("a choice by no comparison")
    one, other = of(first, leaf, memo), of(second, leaf, memo)
    if taken.name in REAL_NEGATED and of is _real:
        one = _kept(taken.name, (taken.args[0], first), one, b)
        other = _kept(REAL_NEGATED[taken.name], (taken.args[0], second), other, b)
    both = _ordered([*one, *other], order)
    low, high = (np.where(always, x, np.where(never, y, z)) for x, y, z in zip(one, other, both, strict=True))
    return low, high


def _kept(name: str, nodes: tuple[Node, Node], span: Span, limit: Span) -> Span:
    # The span of a way where it is the number that was compared, which the comparison bounds there. If the
    # way is never taken, its span is a single limit, which does not count.
    if nodes[0] is not nodes[1]:
        return span
    name, (low, high) = ORDERED.get(name, name), span
    if name in ("f_lt", "f_le"):
        high = np.where(number_of(high) > number_of(limit[1]), limit[1], high)
        low = np.where(number_of(low) > number_of(high), high, low)
    if name in ("f_gt", "f_ge"):
        low = np.where(number_of(low) < number_of(limit[0]), limit[0], low)
        high = np.where(number_of(high) < number_of(low), low, high)
    return low, high


def _always(name: str, a: Span, b: Span) -> Any:
    # True if a comparison holds for all numbers of both spans.
    (low, high), (first, last) = map(number_of, a), map(number_of, b)
    always = {
        "f_lt": high < first,
        "f_le": high <= first,
        "f_gt": low > last,
        "f_ge": low >= last,
        "f_eq": (low == high) & (first == last) & (low == first),
        "f_ne": (high < first) | (low > last),
    }
    return always[ORDERED.get(name, name)]


def where_wrong(
    word: Word, ends: tuple[int, int], bits: Callable[[Any], Any], wanted: Callable[[Any], Any]
) -> tuple[int, int] | None:
    """Return the position of a float for which the word is wrong, with the word's value there; None if the
    word is right everywhere.

    ``bits`` gives the float at a position, in ascending order from ``ends[0]`` on; ``wanted`` must never
    fall. Intervals of positions are halved until the word has a single value in each, which must be the
    wanted one. Raises ``Refusal`` if that cannot be decided.
    """
    low, high = (np.array([end], np.int64) for end in ends)
    looked = 0
    while low.size:
        looked += low.size
        if looked > _MOST:
            raise Refusal("what is made of a number is not within small spans")
        leaf = bits(low), bits(high)
        least, most = (np.broadcast_to(end, low.shape) for end in _whole(word, leaf, {}))
        first, last = wanted(leaf[0]), wanted(leaf[1])
        beyond = np.nonzero((most < first) | (least > last))[0]
        if beyond.size:
            return int(low[beyond[0]]), int(least[beyond[0]])
        done = (least == most) & (first == last) & (least == first)
        if (~done & (low == high)).any():
            raise Refusal("what is made of a number is not known")
        low, high = low[~done], high[~done]
        middle = (low + high) >> 1
        low, high = np.concatenate([low, middle + 1]), np.concatenate([middle, high])
    return None


def value_of_nan(e: Node) -> int:
    """Return the integer that a word has if its float32 symbol is NaN.

    Any NaN does: arithmetic with one gives one, and comparisons only look that it is one. Raises ``Refusal``
    for operations on its bits.
    """
    found = _of_nan(e)
    if found is None:
        raise Refusal("the bits of NaN are used as an integer")
    return found


def _of_nan(e: Node) -> int | None:
    # The value of a node, None for NaN.
    if isinstance(e, int):
        return signed(e)
    if isinstance(e, WordByte) and e.index == 0:
        return value_of_nan(e.word) & 255
    if isinstance(e, Symbol | LinearSum):
        return None
    if not isinstance(e, WordOp) or e.name == "unknown":
        raise Refusal("what NaN becomes is not known")
    if e.name == "sel":
        return _of_nan(e.args[1] if value_of_nan(e.args[0]) else e.args[2])
    args = [_of_nan(arg) for arg in e.args]
    known = [arg for arg in args if arg is not None]
    if len(known) == len(args):
        return int(OPS[e.name](*known))
    if e.name in REAL_NEGATED:
        return int(e.name == "f_ne" or e.name in ORDERED)
    if e.name in TO_INTEGERS:
        return 0
    if e.name not in OF_REALS or e.name.startswith(("f_max", "f_min")):
        raise Refusal(f"{e.name} of NaN")
    return None
