"""Integer expressions: the computation of one element, defined once for numpy and C.

An operator builds an ``Expr`` from its parameters. ``Expr.of`` evaluates it in numpy, as the operator's
reference; ``crtgen.compiler.kernels.portable.expr`` writes it in C. Each expression has an interval, from
which cheaper forms are proven exact. Values have 32 bits, and wrap.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np

from crtgen.network.ir import Array, Op, Signature
from crtgen.network.ops.fixedpoint import Int64, multiply_by_quantized_multiplier
from crtgen.network.ops.rescaling import mantissa_of, rounded_product

__all__ = ["COMPARISONS", "Expr", "Formula", "number", "operand"]

_WORD = (-(1 << 31), (1 << 31) - 1)

COMPARISONS: Mapping[str, Callable[..., Any]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
"""Comparison functions by their operators in C."""

# Function of each kind of expression; it is monotonic in each source on either side of zero.
_MEANINGS: Mapping[str, Callable[..., Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "<<": np.left_shift,
    ">>": np.right_shift,
    "clamp": np.clip,
    "within": np.clip,  # known to be: nothing has to be done
    "choice": lambda test, a, b: np.where(test >= 0, a, b),
    "even": lambda x, mantissa, right: rounded_product(x, mantissa * 0.5**right),
    "high": lambda x, y: x * y >> 32,
    "scaled": multiply_by_quantized_multiplier,
}


@dataclass(frozen=True, slots=True)
class Expr:
    """An integer from ``low`` to ``high``, computed as ``kind`` from its ``sources``; for an operand,
    ``place`` is its index.

    ``wraps``: the value may have exceeded 32 bits before it wrapped.
    """

    kind: str
    sources: tuple["Expr", ...]
    low: int
    high: int
    wraps: bool = False
    place: int = 0

    @classmethod
    def make(cls, kind: str, *sources: "Expr | int") -> "Expr":
        """Return an expression. Its interval is computed from its values at the ends of its sources'
        intervals.
        """
        own = tuple(number(s) if isinstance(s, int) else s for s in sources)
        different = tuple(dict.fromkeys(own))
        corners = (dict(zip(different, c, strict=True)) for c in product(*(s._ends for s in different)))
        found = [int(_MEANINGS[kind](*(np.int64(c[s]) for s in own))) for c in corners]
        low, high = min(found), max(found)
        wraps = low < _WORD[0] or high > _WORD[1]
        return cls(kind, own, *(_WORD if wraps else (low, high)), wraps)

    @property
    def _ends(self) -> set[int]:
        return {self.low, self.high, min(max(0, self.low), self.high)}

    @property
    def extent(self) -> int:
        return max(-self.low, self.high)

    @property
    def is_number(self) -> bool:
        return self.kind == "number"

    def of(self, arrays: Sequence[Array], known: Mapping["Expr", Int64] = MappingProxyType({})) -> Int64:
        """Return the values for these operands; ``known`` may hold the values of some expressions."""
        if self in known:
            return known[self]
        if self.is_number:
            return np.asarray(self.low, np.int64)
        if self.kind == "operand":
            return arrays[self.place].astype(np.int64)
        meaning = COMPARISONS.get(self.kind) or _MEANINGS[self.kind]
        made = meaning(*(s.of(arrays, known) for s in self.sources))
        wrapped: Int64 = np.asarray(made).astype(np.int32).astype(np.int64)
        return wrapped

    def __add__(self, other: "Expr | int") -> "Expr":
        return self if other == 0 else Expr.make("+", self, other)

    def __sub__(self, other: "Expr | int") -> "Expr":
        return self + -other if isinstance(other, int) else Expr.make("-", self, other)

    def __mul__(self, other: "Expr | int") -> "Expr":
        return self if other == 1 else Expr.make("*", self, other)

    def __lshift__(self, bits: int) -> "Expr":
        return Expr.make("<<", self, bits) if bits else self

    def __rshift__(self, bits: int) -> "Expr":
        return Expr.make(">>", self, bits) if bits else self

    def __abs__(self) -> "Expr":
        return self.split(lambda x: x, lambda x: number(0) - x)

    def scaled(self, multiplier: int, shift: int) -> "Expr":
        return Expr.make("scaled", self << max(shift, 0), multiplier, min(shift, 0))

    def rounded(self, factor: float) -> "Expr":
        """Return the float32 product as an integer, halves to even."""
        return Expr.make("even", self, *mantissa_of(factor))

    def compared(self, sign: str, other: "Expr") -> "Expr":
        """Return 1 if the comparison with ``other`` holds, otherwise 0; ``sign`` is a C operator."""
        return Expr(sign, (self, other), 0, 1)

    def clamped(self, low: int, high: int) -> "Expr":
        return Expr.make("clamp", self, low, high)

    def split(self, above: Callable[["Expr"], "Expr"], below: Callable[["Expr"], "Expr"]) -> "Expr":
        """Apply ``above`` if the value is not negative, otherwise ``below``."""
        sides = Expr.make("within", self, 0, _WORD[1]), Expr.make("within", self, _WORD[0], -1)
        return Expr.make("choice", self, above(sides[0]), below(sides[1]))


def number(value: int) -> Expr:
    return Expr("number", (), value, value)


def operand(sig: Signature, place: int = 0) -> Expr:
    limits = np.iinfo(sig.inputs[place].dtype.value)
    return Expr("operand", (), int(limits.min), int(limits.max), place=place)


class Formula(Op):
    """An operator that computes quantised values element by element, as defined by an expression."""

    __slots__ = ()

    @abstractmethod
    def formula(self, sig: Signature) -> Expr | None:
        """Return the expression of an output element; None for floats and for plain integers."""

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        formula = self.formula(sig)
        if formula is None:
            return (self.plain(sig, arrays),)
        return (formula.of(arrays).astype(sig.y.dtype.numpy),)

    @abstractmethod
    def plain(self, sig: Signature, arrays: Sequence[Array]) -> Array: ...
