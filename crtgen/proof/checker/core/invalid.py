"""The FPU's flag of invalid operations (IOC of FPSCR), for code that asks for it.

Use
    A kernel clears the flag, converts a few numbers to integers, and reads the flag. If it is set, a number
    was beyond the integers' range, or NaN: the kernel clamps the numbers, and converts them again. This takes
    one test for all of them.

Model
    From the moment the flag is cleared, the machine keeps the float32 operations that it runs. The flag is
    set if one of them was invalid. An arithmetic operation is invalid only if its result is NaN (Armv7-M ARM,
    A2.5.7; inputs of a network are never NaN), and NaN remains NaN through further arithmetic up to a
    conversion, which then is invalid, too. So if every result was converted, the flag says if one of the
    conversions was invalid: ``f_beyond`` of these, an operation that only the recogniser takes apart. If the
    limits of all numbers that are converted fit, the flag is 0. In all other cases it is unknown.
"""

from itertools import product
from typing import Any

import numpy as np

from crtgen.proof.checker.algebra.expression import leaves, parts_of
from crtgen.proof.checker.algebra.meaning import OPS
from crtgen.proof.checker.algebra.monotone import Course, real_course
from crtgen.proof.checker.algebra.real import KEEPS_NAN, TO_INTEGERS, number_of
from crtgen.proof.checker.algebra.value import LinearSum, Symbol, Word, WordByte, WordOp, signed, unknown
from crtgen.proof.checker.refusal import Refusal

__all__ = ["Made", "asked_flag", "conversions_of", "flag_word", "flagged", "is_invalid", "noted", "with_flag"]

Made = tuple[WordOp, ...] | None
"""Float32 operations since the flag was cleared; None if the flag's value then is unknown."""

_MOST = 64
_INFINITY = 0x7F800000
_ALL = Course(signed(0xFF800000), _INFINITY, 1)
_LIMITS = {"f_int": 31, "f_int_even": 31, "f_int_away": 31, "f_int_16": 15}


def noted(made: Made, word: Word) -> Made:
    """Return the operations with the one that has this result."""
    if isinstance(word, WordOp) and word.name == "f_of":  # never invalid
        return made
    # A constant may have been converted from a number beyond the integers' range.
    return (*made, word) if made is not None and isinstance(word, WordOp) and len(made) < _MOST else None


def with_flag(flag: Word) -> WordOp:
    """Return FPSCR with this flag, and with other bits that are unknown."""
    return WordOp("fpscr", flag, unknown())


def flag_word(made: Made) -> Word:
    """Return the flag after these operations: 0, ``f_beyond`` of conversions, or an unknown word."""
    if made is None:
        return unknown()
    conversions = [op for op in made if op.name in TO_INTEGERS]
    covered = {id(op) for op in conversions}
    todo = [op.args[0] for op in conversions]
    while todo:
        node = todo.pop()
        if isinstance(node, WordOp) and node.name in KEEPS_NAN and id(node) not in covered:
            covered.add(id(node))
            todo += node.args
    if any(id(op) not in covered for op in made):
        return unknown()
    beyond = [op for op in conversions if not _fits(op)]
    return WordOp("f_beyond", *beyond) if beyond else 0


def flagged(condition: Word) -> WordOp | None:
    """Return the ``f_beyond`` that a condition asks for, if it compares just the flag with 0.

    "ne" is true where the flag is set, "eq" where it is not.
    """
    if not isinstance(condition, WordOp) or condition.name not in ("eq", "ne") or condition.args[1] != 0:
        return None
    bit = condition.args[0]
    if not isinstance(bit, WordOp) or (bit.name, *bit.args[1:]) != ("lsl", 31):
        return None
    flag = bit.args[0]
    return flag if isinstance(flag, WordOp) and flag.name == "f_beyond" else None


def asked_flag(word: Word) -> WordOp | None:
    """Return the condition in a word that depends just on the flag, if there is only one."""
    found, seen, todo = dict[int, WordOp](), set[int](), list[Word | Symbol | WordByte]([word])
    while todo:
        node = todo.pop()
        if isinstance(node, int) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, WordOp) and flagged(node) is not None:
            found[id(node)] = node
        else:
            todo += parts_of(node)
    return next(iter(found.values())) if len(found) == 1 else None


def conversions_of(condition: WordOp) -> list[WordOp]:
    """Return the conversions of which a condition tells if one was invalid."""
    flag = flagged(condition)
    return [] if flag is None else [op for op in flag.args if isinstance(op, WordOp)]


def is_invalid(conversion: WordOp, symbol: Symbol, bits: int) -> bool:
    """True if a conversion is invalid where its only symbol is the float32 number with these bits."""

    def number(e: Word | Symbol | WordByte) -> Any:
        if isinstance(e, int):
            return number_of(signed(e))
        if isinstance(e, LinearSum) and e is symbol.word:
            return number_of(bits)
        if not isinstance(e, WordOp) or e.name not in KEEPS_NAN:
            raise Refusal("a conversion of what is no sum or product of numbers")
        return KEEPS_NAN[e.name](*(number(a) for a in e.args))

    with np.errstate(all="ignore"):
        x = np.trunc(np.float64(number(conversion.args[0])))
    top = 2.0 ** _LIMITS[conversion.name]
    return not -top <= x < top


def _fits(conversion: WordOp) -> bool:
    # True if the number that is converted is always within the integers' range.
    try:
        ends = _ends(conversion.args[0], {~id(leaf): _ALL for leaf in leaves(conversion)})
    except Refusal:
        return False
    top = 2.0 ** _LIMITS[conversion.name]
    return ends is not None and -top <= number_of(ends[0]) and number_of(ends[1]) < top


def _ends(e: Word | Symbol | WordByte, memo: dict[int, Course | None]) -> tuple[int, int] | None:
    # The least and the greatest number, as bits: by its course, or else by all ends of its operands. Rounded
    # operations keep the order of exact results, and these are extreme where their operands are.
    if isinstance(e, int):
        return signed(e), signed(e)
    if not isinstance(e, WordOp):
        return None
    course = real_course(e, _whole, memo)
    if course is not None:
        return course.low, course.high
    if e.name not in ("f_add", "f_sub", "f_mul", "f_fma"):
        return None
    operands = [_ends(a, memo) for a in e.args]
    known = [ends for ends in operands if ends is not None]
    if len(known) < len(operands) or not np.isfinite(number_of(np.array(known))).all():
        return None
    found = [OPS[e.name](*corner) for corner in product(*known)]
    return min(found, key=number_of), max(found, key=number_of)


def _whole(leaf: LinearSum) -> Course:
    # An integer among numbers of float32.
    low, high = leaf.bounds()
    if low < -(1 << 31) or high >= 1 << 31:
        raise Refusal("an integer that may wrap")
    return Course(low, high, 1)
