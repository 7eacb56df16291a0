"""Show that an expression is monotone in one argument and never wraps, so that few values check it.

Problem
    A channel of a convolution can have millions of different sums, and for each of them the machine code has
    to give the network's output. Trying every sum is slow, and with sums of 64 bits it can be impossible.

Idea
    The network's function f of the sum never falls, and with an output of 8 bits it has at most 255 steps.
    If the expression g that the code computes never falls either, it is enough to compare f and g at both
    ends of the range and on both sides of each step of f: at most 512 sums.

Why that is exact
    Take two neighbouring sums a < b of that list. Either they are the two sides of a step, with no sum
    between them, or f is the same from a to b: f(a) = f(b) = c. If g(a) = g(b) = c as well, every s between
    them has c = g(a) <= g(s) <= g(b) = c, so g(s) = f(s). This fails if g *turns*, rising in one place
    and falling in another, because g could leave c and come back. A word that wraps turns, too.

Invariant
    The *course* of an expression says three things for every value of the argument: the exact value, computed
    in the integers, is within ``low`` to ``high``; the word is that value modulo 2^32; and as the argument
    grows, the value never falls (``way`` 1), never rises (-1), or stays the same (0). Each rule below derives
    the course of an operation from those of its operands:

    - A function that never falls, such as a shift to the right or a saturation, is applied to both ends.
    - Operands of a sum, a minimum or a maximum must not move in opposite directions.
    - Of a product one factor must be constant; its sign decides the direction.
    - A choice must be made by a comparison with a constant. This splits the range in two; each value is
      followed on its own part, and the lower part must end no higher than the upper one begins.
    - A value of 64 bits in two words is followed as one integer.
    - Rounded float32 operations keep the order of their exact results, so their two ends decide.

    Everything else gives None, "not known". None is always a safe answer: callers then try every value, or do
    not prove the output. So the rules may be incomplete, but each of them has to be right. For example,
    s - s is constant, but the rule for sums sees two operands that move in opposite directions: None.

Example
    The sum s is from -50,000 to 50,000, the code computes ``ssat(8, (3 * s + 512) >> 10)``::

        s                        -50,000 ..  50,000   never falls
        3 * s                   -150,000 .. 150,000   never falls
        3 * s + 512             -149,488 .. 150,512   never falls, fits into 32 bits
        (3 * s + 512) >> 10         -146 ..     146   never falls
        ssat(8, ...)                -128 ..     127   never falls, fits into int8

    So 512 sums are compared instead of 100,001. Without the saturation, the byte that is stored would wrap
    above 127; the caller sees that 146 does not fit into int8 and does not rely on the course.

Who calls this
    ``recognise.py`` follows what becomes of the sum of a channel. ``joint.py``, ``lstm.py`` and
    ``softmax.py`` seed ``memo`` with the course of an inner node, which makes that node the argument.
    ``division.py`` uses only the bounds, and its leaves vary independently of each other: since operands
    must move the same way, no value is beyond those with all leaves at their ends.
    Tests: ``tests/proof/checker/test_monotone.py`` and ``tests/proof/checker/test_reals.py``.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from crtgen.proof.checker.algebra.expression import Node
from crtgen.proof.checker.algebra.long_sums import as_long
from crtgen.proof.checker.algebra.meaning import NEGATED, OPS
from crtgen.proof.checker.algebra.real import (
    OF_REALS,
    ORDERED,
    REAL_NEGATED,
    TO_INTEGERS,
    number_of,
    word_of_real,
)
from crtgen.proof.checker.algebra.value import M32, LinearSum, Symbol, Word, WordByte, WordOp, signed, signed8

__all__ = ["Course", "course_of", "real_course"]


class Course(NamedTuple):
    """The range of a value and its direction as the argument grows; see the invariant above.

    ``way`` is 1 if the value never falls, -1 if it never rises, 0 if it is constant. For float32 values,
    ``low`` and ``high`` are bit patterns, as signed integers, of the smallest and the largest float.
    """

    low: int
    high: int
    way: int


Leaf = Callable[[LinearSum], Course]
"""Gives the course of a sum that is a leaf, in the integers; it may raise ``Refusal``."""
# Courses by ``id(node)`` for words read as integers, by ``~id(node)`` for words read as float32.
_Memo = dict[int, Course | None]
_Of = Callable[[Node, Leaf, _Memo], Course | None]


def course_of(e: Node, leaf: Leaf, memo: _Memo) -> Course | None:
    """Return the course of a word; None if it may turn or wrap, or if no rule applies.

    ``leaf`` gives the course of each sum in the expression. ``memo`` caches results by ``id``, so it must not
    outlive the expression; callers may seed it with the course of a node.

    Values may range from -2^31 to 2^32 - 1. If ``high`` is below 2^31, the value is the word read as signed.
    Otherwise it is known only modulo 2^32, and only the operations in ``_UNSIGNED`` accept it.
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
    # Return the course before the check that it fits into 32 bits.
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
    return _by_rules(e, leaf, memo)


def _by_rules(e: WordOp, leaf: Leaf, memo: _Memo) -> Course | None:
    # Return the course of an operation by those of its operands.
    args = [course_of(a, leaf, memo) for a in e.args]
    known = [a for a in args if a is not None]
    # A signed operation would read a word from 2^31 on as negative: its value would jump.
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
    """Return the course of a word read as float32: ordered as floats, with ends that are bit patterns.

    Raises ``Refusal`` if an end is NaN, or may have been rounded up from what Helium flushes to 0.
    """
    if isinstance(e, int):
        return Course(signed(e), signed(e), 0)
    if isinstance(e, Symbol):
        e = e.word
    if ~id(e) not in memo:
        memo[~id(e)] = _real_course(e, leaf, memo) if isinstance(e, WordOp) else None
    return memo[~id(e)]


def _to_integer(e: WordOp, leaf: Leaf, memo: _Memo) -> Course | None:
    # Return the course of a conversion from float32 to an integer.
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
    """Return the course of a float32 operation with at most one operand that varies.

    With the other operands fixed, add, sub, mul, fma, min, max, neg, sqrt, division by a constant and the
    conversions are monotone in the operand that varies, and rounding never reverses an order. So the results
    at its two ends are the range, and their order is the direction. Excluded are the absolute value; division
    *by* what varies, since 1 / x jumps at 0; infinite constants, since 0 times infinity is NaN; and division
    by a constant 0, where the quotient jumps from one infinity to the other.
    """
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
    # Return the course of ``sel(taken, a, b)``; ``of`` says if a and b are read as integers or floats. Either
    # the condition is constant, or it can be written as "node >= limit" for a node that never falls. Then b
    # is taken on the lower part of the range and a on the upper one.
    taken, a, b = e.args
    if isinstance(taken, WordOp) and taken.name in REAL_NEGATED:
        return _selected_by_real(taken, (a, b), leaf, memo, of)
    holds = course_of(taken, leaf, memo)
    if holds is not None and holds.low == holds.high:
        return of(a if holds.low else b, leaf, memo)
    # Compilers turn "x > 254" into "x == 255" if x is at most 255: turn it back.
    if isinstance(taken, WordOp) and taken.name == "eq":
        taken = _as_limit(taken, course_of(taken.args[0], leaf, memo))
    if taken == 0:
        return of(b, leaf, memo)
    # "x < limit ? a : b" is "x >= limit ? b : a".
    if isinstance(taken, WordOp) and taken.name in ("lt", "le", "ls", "cc", "sum_lt"):
        taken, a, b = WordOp(NEGATED[taken.name], *taken.args), b, a
    at = _limit(taken)
    x = course_of(taken.args[0], leaf, memo) if at is not None and isinstance(taken, WordOp) else None
    if at is None or x is None or x.way < 0 or x.high >= 1 << 31 or not isinstance(taken, WordOp):
        return None
    # An unsigned comparison agrees with the signed one only if neither side is negative.
    if taken.name in ("hi", "cs") and (x.low < 0 or at < 0):
        return None
    # Follow each value only where it is taken: there the node is at least ``at``, or at most ``at - 1``. If
    # the limit is outside the node's range, one part is empty and gets the course at a value that does not
    # occur. That can only widen the result, or make ``_above`` refuse it.
    node = id(taken.args[0])
    above = of(a, leaf, _within(memo, node, Course(max(x.low, at), max(x.high, at), x.way)))
    below = of(b, leaf, _within(memo, node, Course(min(x.low, at - 1), min(x.high, at - 1), x.way)))
    return _above(above, below, of)


def _as_limit(equal: WordOp, x: Course | None) -> Word:
    # Rewrite "x == constant" as a comparison that splits the range of x, if x never falls. Return 0 if the
    # constant is outside the range, "x >= constant" if it is the upper end, "x <= constant" if it is the
    # lower end, and ``equal`` itself if the constant is within the range or nothing is known.
    number = equal.args[1]
    if x is None or x.way < 0 or x.high >= 1 << 31 or not isinstance(number, int):
        return equal
    if not x.low <= signed(number) <= x.high:
        return 0
    return (
        WordOp("ge" if signed(number) == x.high else "le", *equal.args) if signed(number) in x[:2] else equal
    )


def _above(above: Course | None, below: Course | None, of: _Of) -> Course | None:
    # Join the courses of the upper and the lower part; None if the value may fall.
    if above is None or below is None or min(above.way, below.way) < 0:
        return None
    order = int if of is course_of else number_of
    return Course(below.low, above.high, 1) if order(below.high) <= order(above.low) else None


def _selected_by_real(
    taken: WordOp, ways: tuple[Word, Word], leaf: Leaf, memo: _Memo, of: _Of
) -> Course | None:
    # Return the course of a choice by "node >= limit" or the like, both float32, the limit constant.
    node, limit = taken.args
    x = real_course(node, leaf, memo)
    if not isinstance(limit, int) or x is None or x.way < 0:
        return None
    name = ORDERED.get(taken.name, taken.name)
    if name in ("f_lt", "f_le"):
        name, ways = ORDERED[NEGATED[name]], ways[::-1]
    if name not in ("f_ge", "f_gt"):
        return None
    at = number_of(signed(limit))
    # ``first`` is the least float for which the condition holds, ``last`` the greatest for which it does not.
    first, last = at, np.nextafter(at, np.float32(-np.inf))
    if name == "f_gt":
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
    # Return n if the condition is "first operand >= n", for a comparison with constants; otherwise None.
    # ``sum_ge`` is "a + b + c >= 0" in the integers, as an addition with carry sets the flags.
    if not isinstance(taken, WordOp) or not all(isinstance(v, int) for v in taken.args[1:]):
        return None
    numbers = [signed(v) for v in taken.args[1:] if isinstance(v, int)]
    if taken.name == "sum_ge":
        return -sum(numbers)
    more = {"gt": 1, "hi": 1, "ge": 0, "cs": 0}.get(taken.name)
    return None if more is None else numbers[0] + more


def _within(memo: _Memo, node: int, course: Course) -> _Memo:
    # Return a memo for the part of the range where the node with this key keeps to ``course``. Known courses
    # stay valid on a part. Entries that are None are dropped, because what may wrap on the whole range may be
    # fine here: ``sxtb(s - 128)`` has a course for s from 0 to 255, and not beyond.
    known: _Memo = {k: v for k, v in memo.items() if v is not None}
    known[node] = course
    return known


def _mapped(x: Course, f: Callable[[int], int]) -> Course:
    # Return the course of f(x) for a function f that never falls.
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
    # Return the course of VRSHL by a constant: left if the signed byte is positive, otherwise right.
    x, n = args
    shift = -signed8(n.low)
    if n.low != n.high or shift < -31:
        return None
    return _mapped(x, lambda v: (v + (1 << shift - 1)) >> shift if shift > 0 else v << -shift)


def _clipped(args: list[Course], low: int, high: int) -> Course:
    return _mapped(args[1], lambda v: max(low, min(high, v)))


def _inside(args: list[Course], low: int, high: int) -> Course | None:
    # Return the course of an extension from 8 or 16 bits, which changes nothing if the value fits.
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

# Operations that accept values from 2^31 on: they compute modulo 2^32, or their rule looks at the range.
_UNSIGNED = frozenset(("add", "sub", "lsl", "lsr", "uxtb", "uxth"))

# From the exact product to the result. The saturation of vqrdmulh and vqdmulh is left out: it acts only on
# -2^31 * -2^31, where the course ends at 2^31 instead of 2^31 - 1, which is one too wide and still a bound.
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
    # Return the course of a product with a constant; ``smmla`` and ``smmlar`` add a third operand.
    product = _times(args[0], args[1])
    if product is None:
        return None
    made = _mapped(product, _PRODUCTS[name])
    return _sum(made, args[2]) if len(args) > 2 else made


def _times(x: Course, y: Course) -> Course | None:
    # Return the course of the product in the integers; None unless a factor is constant.
    if x.low == x.high:
        x, y = y, x
    if y.low != y.high:
        return None
    a, b = x.low * y.low, x.high * y.low
    return Course(min(a, b), max(a, b), x.way * ((y.low > 0) - (y.low < 0)))


def _long_shift(e: WordOp, leaf: Leaf, memo: _Memo) -> Course | None:
    # Return the course of the operation ``high``: the lower word of a 64-bit value shifted right by n.
    high, low, n = e.args
    whole = _long(high, low, leaf, memo)
    return _mapped(whole, lambda v: v >> n) if whole is not None and isinstance(n, int) else None


def _long_rounded(e: WordOp, leaf: Leaf, memo: _Memo) -> Course | None:
    # Return the course of a sum. That of an upper word and the highest bit of the lower one is the upper word
    # of the 64-bit value plus 2^31, since just that bit carries.
    for upper, bit in (e.args, e.args[::-1]):
        if (
            isinstance(bit, WordOp)
            and bit.name == "and"
            and bit.args[1] == 1
            and _is_half(upper, bit.args[0])
        ):
            x = course_of(bit.args[0], leaf, memo)
            inside = x is not None and x.low >= -(1 << 30) and x.high < 1 << 30
            return _mapped(x, lambda v: v + 1 >> 1) if x is not None and inside else None
        if isinstance(bit, WordOp) and bit.name == "lsr" and _same(bit.args[1:], (31,)):
            whole = _long(upper, bit.args[0], leaf, memo)
            if whole is not None:
                return _mapped(whole, lambda v: v + (1 << 31) >> 32)
    return _by_rules(e, leaf, memo)


def _is_half(e: Word, x: Word) -> bool:
    # True if a word is x >> 1, for x that may be shifted left by one bit: also as (x << 1) >> 2 in 64 bits,
    # which is what compilers make of a product with 2^30.
    if not isinstance(e, WordOp):
        return False
    if e.name == "asr":
        return _same(e.args, (x, 1))
    if e.name != "high" or e.args[2] != 2:
        return False
    sign, low = e.args[0], e.args[1]
    if not isinstance(sign, WordOp) or (sign.name, *sign.args[1:]) != ("asr", 31):
        return False
    twice = (low, sign.args[0])
    return all(isinstance(y, WordOp) and y.name == "lsl" and _same(y.args, (x, 1)) for y in twice)


def _long(high: Word, low: Word, leaf: Leaf, memo: _Memo) -> Course | None:
    """Return the course of the signed 64-bit value whose words are ``high`` and ``low``.

    Five forms are recognised: a linear sum; a word shifted left (``_long_left``); a 64-bit value times a
    constant (``_long_product``); the full product of two words; a 64-bit value plus a constant
    (``_long_sum``). Both words must be parts of one value, so each form checks that they have the same
    operands.
    """
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
    # Return the course of x << n in 64 bits: x << n below, and the bits that leave it, with the sign, above.
    # The upper word is x >> 32 - n, or the lower word of the pair (x >> 31, x) shifted right by 32 - n.
    x, n = low.args
    if not isinstance(n, int) or not 0 < n < 32:
        return None
    if high.name == "high" and _same(high.args[1:], (x, 32 - n)):
        sign = high.args[0]
        if not isinstance(sign, WordOp) or sign.name != "asr" or not _same(sign.args, (x, 31)):
            return None
    elif high.name != "asr" or not _same(high.args, (x, 32 - n)):
        return None
    inner = course_of(x, leaf, memo)
    return None if inner is None or inner.high >= 1 << 31 else _mapped(inner, lambda v: v << n)


def _long_sum(high: WordOp, low: WordOp, leaf: Leaf, memo: _Memo) -> Course | None:
    # Return the course of a 64-bit value plus a constant. The lower words are added; the upper word adds the
    # carry of just that addition, and may add a constant.
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
    # Return the course of a 64-bit value times a constant k from 0 to 2^31 - 1. The words of the product are
    # low * k and umulhi(low, k) + high * k. Additions and multiplications may have their operands in either
    # order, so all four combinations are tried.
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
    # Compare operands: equal constants, or the same object; equal expressions apart count as different.
    return len(a) == len(b) and all(
        x is y or (isinstance(x, int) and isinstance(y, int) and x == y) for x, y in zip(a, b, strict=True)
    )


_SPECIAL: dict[str, Callable[[WordOp, Leaf, _Memo], Course | None]] = {
    "add": _long_rounded,
    "high": _long_shift,
    "sel": lambda e, leaf, memo: _selected(e, leaf, memo, course_of),
    **dict.fromkeys(TO_INTEGERS, _to_integer),
}
