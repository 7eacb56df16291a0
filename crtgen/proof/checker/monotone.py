"""Whether an expression never turns and never wraps, as a function of one sum.

Then it has to be compared with the network only where the network's function, which is monotone too, changes:
between two such places both are the same at the ends, and neither leaves what they are there.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from crtgen.proof.checker.expression import Node
from crtgen.proof.checker.long_sums import as_long
from crtgen.proof.checker.meaning import NEGATED, OPS
from crtgen.proof.checker.real import OF_REALS, REAL_NEGATED, TO_INTEGERS, number_of, word_of_real
from crtgen.proof.checker.value import M32, LinearSum, Symbol, Word, WordByte, WordOp, signed, signed8

__all__ = ["Course", "course_of", "real_course"]


class Course(NamedTuple):
    """The least and the greatest value, and 1, 0 or -1: never falling, constant, never rising."""

    low: int
    high: int
    way: int


Leaf = Callable[[LinearSum], Course]
_Memo = dict[int, Course | None]
_Of = Callable[[Node, Leaf, _Memo], Course | None]


def course_of(e: Node, leaf: Leaf, memo: _Memo) -> Course | None:
    """The course of a word; None if it may turn or leave 32 bits.

    Up to 2^31 - 1 it is the word with a sign, beyond that without: only some operations take that.
    """
    if isinstance(e, int):
        return Course(signed(e), signed(e), 0)
    if isinstance(e, Symbol):
        e = e.word
    if id(e) not in memo:
        found = _course(e, leaf, memo)
        fits = found is not None and found.low >= -(1 << 31) and found.high < 1 << 32
        memo[id(e)] = found if fits else None
    return memo[id(e)]


def _course(e: Node, leaf: Leaf, memo: _Memo) -> Course | None:
    if isinstance(e, LinearSum):
        return leaf(e) if e.terms() else Course(signed(e.constant), signed(e.constant), 0)
    if isinstance(e, WordByte):
        x = course_of(e.word, leaf, memo)
        return x if e.index == 0 and x is not None and x.low >= 0 and x.high <= 255 else None
    if not isinstance(e, WordOp):
        return None
    if e.name in _SPECIAL:
        return _SPECIAL[e.name](e, leaf, memo)
    if e.name == "upper" and isinstance(e.args[0], LinearSum):
        return _mapped(leaf(e.args[0]), lambda v: v >> 32)
    args = [course_of(a, leaf, memo) for a in e.args]
    known = [a for a in args if a is not None]
    if len(known) < len(args) or (e.name not in _UNSIGNED and any(a.high >= 1 << 31 for a in known)):
        return None
    if all(a.low == a.high for a in known) and e.name in OPS:
        value = int(OPS[e.name](*(signed(a.low) for a in known)))
        return Course(value, value, 0)
    if e.name in _PRODUCTS:
        return _product(e.name, known)
    rule = _RULES.get(e.name)
    return rule(known) if rule else None


def real_course(e: Node, leaf: Leaf, memo: _Memo) -> Course | None:
    """The course of a word that holds a number of float32, in the order of numbers: ends are their bits.

    ``memo`` has it under another key than that of the same word as an integer.
    """
    if isinstance(e, int):
        return Course(signed(e), signed(e), 0)
    if isinstance(e, Symbol):
        e = e.word
    if ~id(e) not in memo:
        memo[~id(e)] = _real_course(e, leaf, memo) if isinstance(e, WordOp) else None
    return memo[~id(e)]


def _to_integer(e: WordOp, leaf: Leaf, memo: _Memo) -> Course | None:
    x = real_course(e.args[0], leaf, memo)
    return None if x is None else _of_ends(e.name, [x])


def _real_course(e: WordOp, leaf: Leaf, memo: _Memo) -> Course | None:
    if e.name == "sel":
        return _selected(e, leaf, memo, real_course)
    if e.name not in OF_REALS or e.name in REAL_NEGATED or e.name in TO_INTEGERS:
        return None  # an integer is no float, though both are 32 bits
    of = course_of if e.name == "f_of" else real_course
    args = [of(a, leaf, memo) for a in e.args]
    known = [a for a in args if a is not None]
    if len(known) < len(args) or (e.name == "f_of" and known[0].high >= 1 << 31):
        return None
    return _of_ends(e.name, known)


_NOT_MONOTONE = frozenset(("f_abs", "f_abs_fz"))


def _of_ends(name: str, args: list[Course]) -> Course | None:
    """Of an operation on one number that is not constant: it rises or falls with that throughout."""
    moving = [k for k, a in enumerate(args) if a.low != a.high]
    fixed = [a.low for a in args if a.low == a.high]
    if len(moving) > 1 or name in _NOT_MONOTONE or (name[:5] == "f_div" and moving == [1]):
        return None
    if name != "f_of" and fixed and not np.isfinite(number_of(np.array(fixed))).all():
        return None
    if name[:5] == "f_div" and moving and not number_of(np.array(fixed)).all():
        return None  # a division by 0 jumps from one infinity to the other, and 0 / 0 is no number
    first, last = (OPS[name](*(a[end] for a in args)) for end in (0, 1))
    way = args[moving[0]].way if moving else 0
    order = int if name in TO_INTEGERS else number_of
    return Course(first, last, way) if order(first) <= order(last) else Course(last, first, -way)


def _selected(e: WordOp, leaf: Leaf, memo: _Memo, of: _Of) -> Course | None:
    """Where the condition is constant, or one value holds from a limit on and the other one below."""
    taken, a, b = e.args
    if isinstance(taken, WordOp) and taken.name in REAL_NEGATED:
        return _selected_by_real(taken, (a, b), leaf, memo, of)
    holds = course_of(taken, leaf, memo)
    if holds is not None and holds.low == holds.high:
        return of(a if holds.low else b, leaf, memo)
    if isinstance(taken, WordOp) and taken.name == "eq":
        taken = _as_limit(taken, course_of(taken.args[0], leaf, memo))
    if taken == 0:
        return of(b, leaf, memo)
    if isinstance(taken, WordOp) and taken.name in ("lt", "le", "ls", "cc", "sum_lt"):
        taken, a, b = WordOp(NEGATED[taken.name], *taken.args), b, a
    at = _limit(taken)
    x = course_of(taken.args[0], leaf, memo) if at is not None and isinstance(taken, WordOp) else None
    if at is None or x is None or x.way < 0 or x.high >= 1 << 31 or not isinstance(taken, WordOp):
        return None
    if taken.name in ("hi", "cs") and (x.low < 0 or at < 0):
        return None
    node = id(taken.args[0])
    above = of(a, leaf, _within(memo, node, Course(max(x.low, at), max(x.high, at), x.way)))
    below = of(b, leaf, _within(memo, node, Course(min(x.low, at - 1), min(x.high, at - 1), x.way)))
    return _above(above, below, of)


def _as_limit(equal: WordOp, x: Course | None) -> Word:
    """Whether a number that never falls is a constant: never, or from there on, or up to there."""
    number = equal.args[1]
    if x is None or x.way < 0 or x.high >= 1 << 31 or not isinstance(number, int):
        return equal
    if not x.low <= signed(number) <= x.high:
        return 0
    return (
        WordOp("ge" if signed(number) == x.high else "le", *equal.args) if signed(number) in x[:2] else equal
    )


def _above(above: Course | None, below: Course | None, of: _Of) -> Course | None:
    """Of a choice, where one value holds from a limit on and the other one below."""
    if above is None or below is None or min(above.way, below.way) < 0:
        return None
    order = int if of is course_of else number_of
    return Course(below.low, above.high, 1) if order(below.high) <= order(above.low) else None


def _selected_by_real(
    taken: WordOp, ways: tuple[Word, Word], leaf: Leaf, memo: _Memo, of: _Of
) -> Course | None:
    """By a comparison of a number that never falls with a constant."""
    node, limit = taken.args
    x = real_course(node, leaf, memo)
    if not isinstance(limit, int) or x is None or x.way < 0:
        return None
    if taken.name in ("f_lt", "f_le"):
        taken, ways = WordOp(NEGATED[taken.name], *taken.args), ways[::-1]
    if taken.name not in ("f_ge", "f_gt"):
        return None
    at = number_of(signed(limit))
    first, last = at, np.nextafter(at, np.float32(-np.inf))
    if taken.name == "f_gt":
        first, last = np.nextafter(at, np.float32(np.inf)), at
    low, high = number_of(x.low), number_of(x.high)
    if low >= first or high <= last:  # the condition says the same throughout
        return of(ways[0] if low >= first else ways[1], leaf, memo)
    parts = [
        Course(word_of_real(max(low, first)), word_of_real(max(high, first)), x.way),
        Course(word_of_real(min(low, last)), word_of_real(min(high, last)), x.way),
    ]
    key = ~id(node.word if isinstance(node, Symbol) else node)
    above, below = (of(way, leaf, _within(memo, key, p)) for way, p in zip(ways, parts, strict=True))
    return _above(above, below, of)


def _limit(taken: Word) -> int | None:
    """The number from which on a condition holds, of a comparison with a number."""
    if not isinstance(taken, WordOp) or not all(isinstance(v, int) for v in taken.args[1:]):
        return None
    numbers = [signed(v) for v in taken.args[1:] if isinstance(v, int)]
    if taken.name == "sum_ge":
        return -sum(numbers)
    more = {"gt": 1, "hi": 1, "ge": 0, "cs": 0}.get(taken.name)
    return None if more is None else numbers[0] + more


def _within(memo: _Memo, node: int, course: Course) -> _Memo:
    """What is known, where a node keeps to less than it may be."""
    known: _Memo = {k: v for k, v in memo.items() if v is not None}
    known[node] = course
    return known


def _mapped(x: Course, f: Callable[[int], int]) -> Course:
    """Of a function that never falls."""
    return Course(f(x.low), f(x.high), x.way)


def _sum(x: Course, y: Course) -> Course | None:
    if x.way * y.way < 0:
        return None
    return Course(x.low + y.low, x.high + y.high, x.way or y.way)


def _negative(x: Course) -> Course:
    return Course(-x.high, -x.low, -x.way)


def _shifted(args: list[Course], f: Callable[[int, int], int]) -> Course | None:
    x, n = args
    return _mapped(x, lambda v: f(v, n.low)) if n.low == n.high and 0 <= n.low <= 31 else None


def _rounding_shift(args: list[Course]) -> Course | None:
    x, n = args
    shift = -signed8(n.low)
    if n.low != n.high or shift < -31:
        return None
    return _mapped(x, lambda v: (v + (1 << shift - 1)) >> shift if shift > 0 else v << -shift)


def _clipped(args: list[Course], low: int, high: int) -> Course:
    return _mapped(args[1], lambda v: max(low, min(high, v)))


def _inside(args: list[Course], low: int, high: int) -> Course | None:
    x = args[0]
    return x if low <= x.low and x.high <= high else None


def _extreme(args: list[Course], f: Callable[[int, int], int]) -> Course | None:
    x, y = args
    return Course(f(x.low, y.low), f(x.high, y.high), x.way or y.way) if x.way * y.way >= 0 else None


_RULES: dict[str, Callable[[list[Course]], Course | None]] = {
    "add": lambda a: _sum(a[0], a[1]),
    "sub": lambda a: _sum(a[0], _negative(a[1])),
    "asr": lambda a: _shifted(a, lambda v, n: v >> n),
    "lsr": lambda a: _shifted(a, lambda v, n: v >> n) if a[0].low >= 0 else None,
    "lsl": lambda a: _shifted(a, lambda v, n: v << n),
    "vrshl": _rounding_shift,
    "vrshl_any": _rounding_shift,
    "ssat": lambda a: _clipped(a, -(1 << a[0].low - 1), (1 << a[0].low - 1) - 1),
    "usat": lambda a: _clipped(a, 0, (1 << a[0].low) - 1),
    "sxtb": lambda a: _inside(a, -0x80, 0x7F),
    "uxtb": lambda a: _inside(a, 0, 0xFF),
    "sxth": lambda a: _inside(a, -0x8000, 0x7FFF),
    "uxth": lambda a: _inside(a, 0, 0xFFFF),
    "min": lambda a: _extreme(a, min),
    "max": lambda a: _extreme(a, max),
}

_UNSIGNED = frozenset(("add", "sub", "lsl", "lsr", "uxtb", "uxth"))
"""Operations that take words without a sign."""

_PRODUCTS: dict[str, Callable[[int], int]] = {
    "mul": lambda p: p,
    "mulw": lambda p: p >> 16,
    "smulhi": lambda p: p >> 32,
    "vmulh": lambda p: p >> 32,
    "smmla": lambda p: p >> 32,
    "vrmulh": lambda p: p + (1 << 31) >> 32,
    "smmlar": lambda p: p + (1 << 31) >> 32,
    "vqrdmulh": lambda p: p + (1 << 30) >> 31,
    "vqdmulh": lambda p: p >> 31,
}


def _product(name: str, args: list[Course]) -> Course | None:
    """Of a product with a constant, to which some add a word."""
    product = _times(args[0], args[1])
    if product is None:
        return None
    made = _mapped(product, _PRODUCTS[name])
    return _sum(made, args[2]) if len(args) > 2 else made


def _times(x: Course, y: Course) -> Course | None:
    """The product in the integers, if one of the two is constant."""
    if x.low == x.high:
        x, y = y, x
    if y.low != y.high:
        return None
    a, b = x.low * y.low, x.high * y.low
    return Course(min(a, b), max(a, b), x.way * ((y.low > 0) - (y.low < 0)))


def _long_shift(e: WordOp, leaf: Leaf, memo: _Memo) -> Course | None:
    """Of 64 bits shifted, of which the lower word is taken."""
    high, low, n = e.args
    whole = _long(high, low, leaf, memo)
    return _mapped(whole, lambda v: v >> n) if whole is not None and isinstance(n, int) else None


def _long(high: Word, low: Word, leaf: Leaf, memo: _Memo) -> Course | None:
    """The course of a signed number of 64 bits: a product, or one and a constant."""
    whole = as_long(low, high)
    if whole is not None:
        return leaf(whole) if whole.terms() else Course(whole.constant, whole.constant, 0)
    if not isinstance(high, WordOp) or not isinstance(low, WordOp):
        return None
    if low.name == "lsl":
        return _long_left(high, low, leaf, memo)
    if high.name == "add" and low.name == "mul":
        return _long_product(high, low, leaf, memo)
    if high.name == "smulhi" and low.name == "mul" and _same(high.args, low.args):
        x, y = (course_of(a, leaf, memo) for a in low.args)
        if x is None or y is None or x.high >= 1 << 31 or y.high >= 1 << 31:
            return None
        return _times(x, y)
    return _long_sum(high, low, leaf, memo) if high.name == low.name == "add" else None


def _long_left(high: WordOp, low: WordOp, leaf: Leaf, memo: _Memo) -> Course | None:
    """Of a word times a power of two: what leaves the lower word is in the upper one, with the sign."""
    x, n = low.args
    if not isinstance(n, int) or high.name != "high" or not _same(high.args[1:], (x, 32 - n)):
        return None
    sign = high.args[0]
    if not isinstance(sign, WordOp) or sign.name != "asr" or not _same(sign.args, (x, 31)):
        return None
    inner = course_of(x, leaf, memo)
    return None if inner is None or inner.high >= 1 << 31 else _mapped(inner, lambda v: v << n)


def _long_sum(high: WordOp, low: WordOp, leaf: Leaf, memo: _Memo) -> Course | None:
    """Of 64 bits and a constant."""
    rest, carry = high.args
    if not isinstance(carry, WordOp) or carry.name != "carry" or not _same(carry.args, (*low.args, 0)):
        return None
    constant, upper = [a for a in low.args if isinstance(a, int)], 0
    if isinstance(rest, WordOp) and rest.name == "add" and isinstance(rest.args[1], int):
        upper, rest = signed(rest.args[1]), rest.args[0]
    if len(constant) != 1:
        return None
    inner = _long(rest, low.args[0] if low.args[1] is constant[0] else low.args[1], leaf, memo)
    if inner is None:
        return None
    added = _mapped(inner, lambda v: v + (upper << 32) + (constant[0] & M32))
    return added if added.low >= -(1 << 63) and added.high < 1 << 63 else None


def _long_product(high: WordOp, low: WordOp, leaf: Leaf, memo: _Memo) -> Course | None:
    """Of 64 bits times a number that is not negative: low * k, and umulhi(low, k) + high * k."""
    for x, k in (low.args, low.args[::-1]):
        for first, second in (high.args, high.args[::-1]):
            if (
                not isinstance(k, int)
                or k >> 31
                or not isinstance(first, WordOp)
                or not isinstance(second, WordOp)
            ):
                continue
            upper = [a for a in second.args if a is not k and a != k]
            parts = first.name == "umulhi" and second.name == "mul" and len(upper) == 1
            if parts and (_same(first.args, (x, k)) or _same(first.args, (k, x))):
                inner = _long(upper[0], x, leaf, memo)
                return None if inner is None else _times(inner, Course(k, k, 0))
    return None


def _same(a: tuple[Word, ...], b: tuple[Word, ...]) -> bool:
    return len(a) == len(b) and all(
        x is y or (isinstance(x, int) and isinstance(y, int) and x == y) for x, y in zip(a, b, strict=True)
    )


_SPECIAL: dict[str, Callable[[WordOp, Leaf, _Memo], Course | None]] = {
    "high": _long_shift,
    "sel": lambda e, leaf, memo: _selected(e, leaf, memo, course_of),
    **dict.fromkeys(TO_INTEGERS, _to_integer),
}
