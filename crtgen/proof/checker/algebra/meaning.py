"""Meaning of operations on words, defined once for integers and for arrays of integers.

Arguments and results are signed 32-bit values, as ``int`` or as int64 arrays. Concrete runs and proofs over
all values of a sum use the same functions, so a test of one is a test of the other. An operation that is also
an instruction has the name that the Armv8-M Architecture Reference Manual gives it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crtgen.proof.checker.algebra.real import OF_REALS, REAL_NEGATED
from crtgen.proof.checker.algebra.value import M32, Word, WordOp, signed, signed8
from crtgen.proof.checker.refusal import Refusal

__all__ = ["BRANCHES", "NEGATED", "OPS", "apply", "table", "wrap"]

V = Any
"""A signed 32-bit value: an int, or an int64 array."""

_TOP = 1 << 31


def wrap(v: V) -> V:
    return ((v + _TOP) & M32) - _TOP if isinstance(v, int) else v.astype(np.int32).astype(np.int64)


def clip(v: V, low: int, high: int) -> V:
    return max(low, min(high, v)) if isinstance(v, int) else np.clip(v, low, high)


def where(c: V, a: V, b: V) -> V:
    return (a if c else b) if isinstance(c, int) else np.where(c != 0, a, b)


def _flag(v: V) -> V:
    return int(v) if isinstance(v, bool | np.bool_) else v if isinstance(v, int) else v.astype(np.int64)


def _umulhi(a: V, b: V) -> V:
    # The upper half of the product of unsigned words.
    a, b = a & M32, b & M32
    if isinstance(a, int) and isinstance(b, int):
        return wrap(a * b >> 32)
    product = np.asarray(a, np.uint64) * np.asarray(b, np.uint64)
    return wrap((product >> 32).astype(np.int64))


def _vrshl(v: V, shift: V) -> V:
    # VRSHL.S32 by a constant: to the left where it is not negative.
    n = signed8(int(shift))
    return wrap(v << n) if n >= 0 else (v + (1 << (-n - 1))) >> -n if n > -32 else v * 0


def _vrshl_any(v: V, shift: V) -> V:
    # VRSHL.S32 to the right by an amount that may differ from value to value.
    n = -(((shift + 128) & 255) - 128)
    if isinstance(n, int):
        return _vrshl(v, -n)
    if (n <= 0).any():
        raise Refusal("a shift to the left")
    n = np.minimum(n, 33)  # nothing is left of a word from 32 on
    return (v + (1 << (n - 1))) >> n


def _shift(left: bool) -> Callable[[V, V], V]:
    # LSL or LSR by the lowest byte of a register.
    def shifted(v: V, n: V) -> V:
        n = n & 255
        small = min(n, 31) if isinstance(n, int) else np.minimum(n, 31)
        moved = (v & M32) << small if left else (v & M32) >> small
        return wrap(moved) * (n < 32)

    return shifted


def _asr(v: V, n: V) -> V:
    return v >> clip(n & 255, 0, 31)


def _clz(v: V) -> V:
    v = v & M32
    if isinstance(v, int):
        return 32 - v.bit_length()
    return np.int64(32) - np.frexp(v.astype(np.float64))[1]


def _reverse(v: V) -> V:
    v = v & M32
    return wrap(v >> 24 | v >> 8 & 0xFF00 | v << 8 & 0xFF0000 | v << 24 & 0xFF000000)


_TABLES: list[NDArray[np.int64]] = []
_KNOWN: dict[bytes, int] = {}


def table(values: Sequence[int]) -> int:
    """Return the identifier of a table for the operation ``table``; equal tables have equal identifiers."""
    array = np.array(values, np.int64)
    number = _KNOWN.setdefault(array.tobytes(), len(_TABLES))
    if number == len(_TABLES):
        _TABLES.append(array)
    return number


def _entry(number: V, i: V) -> V:
    # An index beyond the table is of a value that cannot be.
    entries = _TABLES[int(number)]
    return entries[clip(i, 0, len(entries) - 1)]


def _not_evaluated(*_: V) -> V:
    raise Refusal("the FPU's flag of invalid operations, as a number")


OPS: Mapping[str, Callable[..., V]] = {
    "add": lambda a, b: wrap(a + b),
    "sub": lambda a, b: wrap(a - b),
    "mul": lambda a, b: wrap(wrap(a) * wrap(b)),
    "and": lambda a, b: a & b,
    "orr": lambda a, b: a | b,
    "eor": lambda a, b: a ^ b,
    "mvn": lambda a: ~a,
    "lsl": _shift(left=True),
    "lsr": _shift(left=False),
    "asr": _asr,
    "ror": lambda a, n: wrap((a & M32) >> (n & 31) | (a & M32) << (32 - (n & 31)) & M32),
    "rev": _reverse,
    "clz": _clz,
    "sxtb": lambda a: ((a + 128) & 255) - 128,
    "uxtb": lambda a: a & 255,
    "sxth": lambda a: ((a + 0x8000) & 0xFFFF) - 0x8000,
    "uxth": lambda a: a & 0xFFFF,
    "ssat": lambda n, a: clip(a, -(1 << (n - 1)), (1 << (n - 1)) - 1),
    "usat": lambda n, a: clip(a, 0, (1 << n) - 1),
    "smmla": lambda a, b, c: wrap(c + (a * b >> 32)),
    "smmlar": lambda a, b, c: wrap(c + (a * b + _TOP >> 32)),
    "smmls": lambda a, b, c: wrap(c + (-(a * b) >> 32)),
    "mulw": lambda a, b: wrap(a * b >> 16),
    "smulhi": lambda a, b: a * b >> 32,
    "umulhi": _umulhi,
    "udiv": lambda a, b: wrap((a & M32) // (b & M32)),
    "sdiv": lambda a, b: wrap(where(_flag((a < 0) == (b < 0)), abs(a) // abs(b), -(abs(a) // abs(b)))),
    "carry": lambda a, b, c: (a & M32) + (b & M32) + c >> 32,
    "high": lambda high, low, n: wrap((high << 32 | low & M32) >> n),
    "sel": where,
    "min": lambda a, b: min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b),
    "max": lambda a, b: max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b),
    "umin": lambda a, b: wrap(where(_flag((a & M32) < (b & M32)), a, b)),
    "umax": lambda a, b: wrap(where(_flag((a & M32) > (b & M32)), a, b)),
    "vqrdmulh": lambda a, b: clip(a * b + (1 << 30) >> 31, -_TOP, _TOP - 1),
    "vqdmulh": lambda a, b: clip(a * b >> 31, -_TOP, _TOP - 1),
    "vmulh": lambda a, b: a * b >> 32,
    "vrmulh": lambda a, b: a * b + _TOP >> 32,
    "vrshl": _vrshl,
    "vrshl_any": _vrshl_any,
    "table": _entry,
    # conditions of a comparison
    "eq": lambda a, b: _flag(a == b),
    "ne": lambda a, b: _flag(a != b),
    "lt": lambda a, b: _flag(a < b),
    "ge": lambda a, b: _flag(a >= b),
    "gt": lambda a, b: _flag(a > b),
    "le": lambda a, b: _flag(a <= b),
    "hi": lambda a, b: _flag((a & M32) > (b & M32)),
    "ls": lambda a, b: _flag((a & M32) <= (b & M32)),
    "cs": lambda a, b: _flag((a & M32) >= (b & M32)),
    "cc": lambda a, b: _flag((a & M32) < (b & M32)),
    "mi": lambda a, b: _flag(wrap(a - b) < 0),
    "pl": lambda a, b: _flag(wrap(a - b) >= 0),
    # conditions of an addition with carry, where N differs from V if the sum in the integers is negative
    "sum_lt": lambda a, b, c: _flag(a + b + c < 0),
    "sum_ge": lambda a, b, c: _flag(a + b + c >= 0),
    **OF_REALS,
    "f_beyond": _not_evaluated,
}

BRANCHES = ("eq", "ne", "lt", "ge", "gt", "le", "hi", "ls", "cs", "cc", "mi", "pl")
"""Conditions that are followed; VS and VC are not."""

NEGATED = {
    "eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "hi": "ls", "ls": "hi",
    "cs": "cc", "cc": "cs", "mi": "pl", "pl": "mi", "vs": "vc", "vc": "vs",
    "sum_lt": "sum_ge", "sum_ge": "sum_lt", **REAL_NEGATED,
}  # fmt: skip


# Results of unsigned comparisons whose operand is 0.
_OF_ZERO = {"ls": (0, 1), "hi": (0, 0), "cs": (1, 1), "cc": (1, 0)}


def apply(name: str, *args: Word) -> Word:
    if name in _OF_ZERO and args[_OF_ZERO[name][0]] == 0:
        return _OF_ZERO[name][1]
    values = []
    for arg in args:
        if not isinstance(arg, int):
            return WordOp(name, *args)
        values.append(signed(arg))
    return int(OPS[name](*values)) & M32
