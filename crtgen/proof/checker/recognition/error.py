"""Bounds the error of float32 outputs against the network over the real numbers.

A stored value is a tree of additions and products. As a linear form over the symbols it must be exactly the
layer's form; the order of additions is free. Each operation rounds by at most half a unit in the last place
of its result, a fused one once, and Helium may replace values below 2^-126 by 0. The error of a layer's
inputs is passed on, multiplied by the absolute values of its weights. All bounds hold for inputs up to a
given magnitude.
"""

import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from crtgen.proof.checker.algebra.expression import Node
from crtgen.proof.checker.algebra.real import ORDERED
from crtgen.proof.checker.algebra.value import M32, LinearSum, Symbol, Word, WordOp, unknown
from crtgen.proof.checker.network.layer import Value
from crtgen.proof.checker.network.real_layers import LinearForm, RealLayer, RealNetwork, in_units
from crtgen.proof.checker.refusal import Refusal

__all__ = ["Bounds", "Error"]

_HALF = 2.0**-24
_LEAST, _FLUSHED = 2.0**-150, 2.0**-126
# Margin for computing bounds in float64.
_MORE = 1 + 2.0**-30
_GREATEST = 2.0**127


@dataclass(frozen=True, slots=True)
class Error:
    """Error bound: ``outputs`` outputs differ by at most ``most``, for inputs between -``reach`` and
    ``reach``.

    ``layers`` has index, name, error and magnitude of each; ``reason`` says why there is no bound.
    """

    reach: float
    outputs: int
    most: float
    layers: tuple[tuple[int, str, float, float], ...]
    reason: str


@dataclass(slots=True)
class Bounds:
    """Checks stored words. ``span`` and ``error`` map symbols to bounds; ``reach`` is the largest input.

    A span bounds the exact value; the stored value may differ from it by the error.
    """

    network: RealNetwork
    reach: float
    span: dict[Symbol, tuple[float, float]] = field(default_factory=dict)
    error: dict[Symbol, float] = field(default_factory=dict)

    def output(self, word: Word, bits: int) -> Word:
        """Return the symbol of an output that the word equals up to a known error; otherwise an unknown
        word.
        """
        try:
            found = self._found(word) if bits == 32 else None
        except Refusal:
            found = None
        return unknown() if found is None else found.word

    def of(self, values: Iterable[Value]) -> float:
        return max((self.error.get(v, 0.0) for v in values if isinstance(v, Symbol)), default=0.0)

    def result(self, outputs: int) -> Error:
        found = ((layer, layer.values or ()) for layer in self.network.sums)
        layers = tuple((layer.number, layer.name, self.of(v), self.size(v)) for layer, v in found)
        reason = self.network.unbounded or ("" if outputs else "no output was recognised")
        return Error(self.reach, outputs, self.of(self.network.ends), layers, reason)

    def _found(self, word: Word) -> Symbol | None:
        node, limits = _clamped(word)
        line = _line(node)
        key = line.key()
        for layer in self.network.sums:
            symbol = layer.find(line, key, limits)
            if symbol is not None:
                self._enter(symbol, layer, line, node)
                return symbol
        return None

    def _enter(self, symbol: Symbol, layer: RealLayer, line: LinearForm, node: Node) -> None:
        low = high = _as_float(line.constant) / line.divisor
        sizes, errors = abs(low), 0.0
        whole = -self.reach, self.reach
        for s, factor in sorted(line.terms, key=_place):  # sums of floats depend on their order
            k = _as_float(factor) / line.divisor
            a, b = self.span.get(s, whole)
            a, b = (k * a, k * b) if k > 0 else (k * b, k * a)
            low, high, sizes = low + a, high + b, sizes + max(-a, b)
            errors += abs(k) * self.error.get(s, 0.0)
        _, rounded = self._rounded(node, {})
        rounded += 2 * _FLUSHED  # by limits
        wider = (_MORE - 1) * sizes
        low, high = (float(np.clip(v, *layer.limits)) for v in (low - wider, high + wider))
        self.span[symbol] = low, high
        self.error[symbol] = max(self.error.get(symbol, 0.0), (errors + rounded) * _MORE)

    def size(self, values: Iterable[Value]) -> float:
        return max((self._size(v) for v in values if isinstance(v, Symbol)), default=0.0)

    def _size(self, s: Symbol) -> float:
        low, high = self.span.get(s, (-self.reach, self.reach))
        return max(-low, high) + self.error.get(s, 0.0)

    def _rounded(self, e: Node, memo: dict[int, tuple[float, float]]) -> tuple[float, float]:
        # The size of what a node is without rounding, and by how much rounding changes it, at most.
        if isinstance(e, int):
            return abs(_number(e)), 0.0
        symbol = _symbol(e)
        if symbol is not None:
            return self._size(symbol), 0.0
        if id(e) not in memo:
            memo[id(e)] = self._operation(e, memo)
        return memo[id(e)]

    def _operation(self, e: Node, memo: dict[int, tuple[float, float]]) -> tuple[float, float]:
        assert isinstance(e, WordOp)  # it is a line
        flushes = e.name.endswith("_fz")
        parts = [self._rounded(a, memo) for a in e.args]
        if flushes:
            parts = [(size, error + _FLUSHED) for size, error in parts]
        name, size, error = e.name.removesuffix("_fz"), 0.0, 0.0
        if name == "f_neg":
            return parts[0]
        if name in ("f_add", "f_sub"):
            size, error = parts[0][0] + parts[1][0], parts[0][1] + parts[1][1]
        elif name == "f_div":  # by a number
            size, error = (part / parts[1][0] for part in parts[0])
        else:
            (a, of_a), (b, of_b) = parts[-2:]
            size, error = a * b, a * of_b + b * of_a + of_a * of_b
            if name == "f_fma":
                size, error = size + parts[0][0], error + parts[0][1]
        if size + error >= _GREATEST:
            raise Refusal("a number that is too large")
        return size, error + _HALF * (size + error) + (_FLUSHED if flushes else _LEAST)


@lru_cache(1 << 16)
def _number(bits: int) -> float:
    # The number of float32 with these bits.
    value: float = struct.unpack("<f", (bits & M32).to_bytes(4, "little"))[0]
    if not math.isfinite(value):
        raise Refusal("no finite number")
    return value


def _as_float(units: int) -> float:
    return math.ldexp(float(units), -149)


def _symbol(e: Node) -> Symbol | None:
    # The symbol that a word is.
    if not isinstance(e, LinearSum) or e.constant:
        return None
    terms = e.terms()
    if len(terms) != 1:
        return None
    ((symbol, factor),) = terms.items()
    return symbol if factor == 1 and symbol.bits == 32 else None


def _clamped(e: Node) -> tuple[Node, tuple[float, float]]:
    # The word without its limits, and these: from maxima, minima, and equivalent choices.
    applied: list[tuple[Callable[[float, float], float], float]] = []
    while isinstance(e, WordOp) and (found := _extreme(e)) is not None:
        is_max, e, end = found
        applied.append((max if is_max else min, _number(end)))
    low, high = float("-inf"), float("inf")
    for which, value in reversed(applied):
        low, high = which(low, value), which(high, value)
    return e, (low, high)


def _extreme(e: WordOp) -> tuple[bool, Node, int] | None:
    # True for a maximum of a node and a number, False for a minimum; the node; the number.
    name = e.name.removesuffix("_fz")
    if name in ("f_max", "f_min"):
        numbers = [a for a in e.args if isinstance(a, int)]
        rest = [a for a in e.args if not isinstance(a, int)]
        return (name == "f_max", rest[0], numbers[0]) if len(numbers) == 1 else None
    return _of_bits(e) if name in ("max", "min") else _chosen(e)


def _of_bits(e: WordOp) -> tuple[bool, Node, int] | None:
    # Compared by bits as integers: floats that are not negative have the same order, others are below.
    inner, end = e.args
    if not isinstance(end, int):
        return None
    if e.name == "max":
        return (True, inner, end) if end == 0 else None
    above = isinstance(inner, WordOp) and inner.name == "max" and inner.args[1] == 0
    return (False, inner, end) if above and 0 < end < 1 << 31 else None


def _chosen(e: WordOp) -> tuple[bool, Node, int] | None:
    # A choice between a node and the number that it is compared with.
    if e.name != "sel" or not isinstance(taken := e.args[0], WordOp) or _plain(taken) not in _GREATER:
        return None
    x, end = taken.args
    for node, number, first in ((e.args[1], e.args[2], True), (e.args[2], e.args[1], False)):
        if node is x and isinstance(end, int) and number == end:
            return _GREATER[_plain(taken)] == first, node, end
    return None


def _plain(taken: WordOp) -> str:
    # The comparison, which is of no NaN.
    return ORDERED.get(taken.name, taken.name)


_GREATER = {"f_gt": True, "f_ge": True, "f_lt": False, "f_le": False}


def _place(term: tuple[Symbol, int]) -> tuple[int, int]:
    return term[0].tensor, term[0].index


def _line(e: Node) -> LinearForm:
    # A tree as a line, or a quotient of one. Raises ``Refusal`` for one that is none.
    if isinstance(e, WordOp) and e.name.removesuffix("_fz") == "f_div":
        divisor = _number(e.args[1]) if isinstance(e.args[1], int) else 0.0
        if divisor < 1 or not divisor.is_integer():
            raise Refusal("no quotient by a positive integer")
        return _line(e.args[0]).over(int(divisor))
    terms: dict[Symbol, int] = {}
    constant = 0
    todo: list[tuple[Node, int, bool]] = [(e, 1, False)]
    while todo:
        node, k, scaled = todo.pop()
        symbol = None if isinstance(node, int) else _symbol(node)
        if isinstance(node, int):
            constant += _times(k, node, scaled)
        elif symbol is not None:
            terms[symbol] = terms.get(symbol, 0) + (k if scaled else k << 149)
        else:
            todo += _parts(node, k, scaled)
    return LinearForm(constant, frozenset((s, k) for s, k in terms.items() if k))


def _parts(e: Node, k: int, scaled: bool) -> list[tuple[Node, int, bool]]:
    # Terms of a node with their factors, and for each whether it is in units of 2^-149.
    name = e.name.removesuffix("_fz") if isinstance(e, WordOp) else ""
    if not isinstance(e, WordOp) or name not in ("f_add", "f_sub", "f_mul", "f_fma", "f_neg"):
        raise Refusal("no sum of products with numbers")
    if name in ("f_add", "f_sub"):
        return [(e.args[0], k, scaled), (e.args[1], k if name == "f_add" else -k, scaled)]
    if name == "f_neg":
        return [(e.args[0], -k, scaled)]
    a, b = e.args[-2:]
    if not isinstance(b, int):
        a, b = b, a
    if not isinstance(b, int):
        raise Refusal("a product of two elements")
    product: list[tuple[Node, int, bool]] = [(a, _times(k, b, scaled), True)]
    return [(e.args[0], k, scaled), *product] if name == "f_fma" else product


def _times(k: int, bits: int, scaled: bool) -> int:
    # A factor times a number of float32.
    if scaled and 0 in (k, _number(bits)):  # an element of padding
        return 0
    if scaled:
        raise Refusal("a product of products")
    return k * in_units(_number(bits))
