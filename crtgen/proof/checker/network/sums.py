"""Layers in which each output is a function of one sum of symbols."""

import math
import secrets
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.arithmetic import Ints
from crtgen.proof.checker.network.layer import Layer, Value

__all__ = ["Channel", "OutputForm", "SumLayer", "Summed", "bounds_of", "fingerprint", "steps_of", "terms_of"]

_SECRETS: dict[Symbol, int] = {}
_BITS = 192


def fingerprint(terms: Mapping[Symbol, int]) -> int:
    """Return a random linear function of the coefficients, modulo 2^192.

    The random factors are drawn anew in each run. Two different sums with coefficients below 2^40 have the
    same fingerprint with a probability of at most 2^-152.
    """
    total = 0
    for symbol, k in terms.items():
        number = _SECRETS.get(symbol)
        if number is None:
            number = _SECRETS[symbol] = secrets.randbits(_BITS)
        total += k * number
    return total & ((1 << _BITS) - 1)


Channel: TypeAlias = Hashable
"""Common data of outputs with the same function."""

Summed: TypeAlias = tuple[int, Channel, int, dict[Symbol, int]]


@dataclass(frozen=True, slots=True)
class OutputForm:
    """An output whose sum is ``base`` + ``factor`` * (a normalised sum, whose coefficients have no common
    divisor).
    """

    output: int
    channel: Channel
    base: int
    factor: int


class SumLayer(Layer):
    """A layer in which each output is a function of one sum.

    ``forms`` maps the fingerprint of a normalised sum to the outputs with that sum; ``ranges`` has the
    smallest and the largest sum of each channel.
    """

    forms: dict[int, list[OutputForm]]
    ranges: dict[Channel, tuple[int, int]]
    limits: tuple[int, int]

    rises = True
    """True if the function is non-decreasing. Otherwise each sum is looked at."""

    def prepare(self) -> list[Value]:
        self.forms, self._steps, self._ends = {}, {}, {}
        self.needed: dict[int, tuple[Symbol, ...]] = {}
        result: list[Value] = [0] * self.size
        for output, channel, base, terms in self.sums():
            result[output] = self._enter(result, output, channel, base, terms)
        return result

    def sums(self) -> Iterator[Summed]:
        """Set ``ranges``; then yield index, channel, constant and coefficients of each output's sum."""
        raise NotImplementedError

    def function(self, channel: Channel, acc: Ints) -> Any:
        raise NotImplementedError

    def differs(self, got: Any, wanted: Any) -> Any:
        """Return, for each output, True if the code's value is not the network's."""
        return got != wanted

    def alike(self, one: Channel, other: Channel) -> bool:
        return one == other

    def _enter(self, result: list[Value], i: int, c: Channel, base: int, terms: dict[Symbol, int]) -> Value:
        terms = {s: k for s, k in terms.items() if k}
        if not terms:
            self.proven.add(i)
            return int(self.function(c, np.array([base], np.int64))[0])
        factor = math.gcd(*terms.values())
        key = fingerprint({s: k // factor for s, k in terms.items()} if factor > 1 else terms)
        known = self.forms.setdefault(key, [])
        for form in known:
            if (form.base, form.factor) == (base, factor) and self.alike(form.channel, c):
                self.same[i] = form.output
                return result[form.output]
        known.append(OutputForm(i, c, base, factor))
        self.needed[i] = tuple(terms)
        return self.symbol(i, *self.ends(c), (c, base, factor, key))

    def ends(self, channel: Channel) -> tuple[int, int]:
        if channel not in self._ends:
            low, high = self.ranges[channel]
            tried = np.array((low, high)) if self.rises else np.arange(low, high + 1, dtype=np.int64)
            outputs = self.function(channel, tried)
            self._ends[channel] = int(outputs.min()), int(outputs.max())
        return self._ends[channel]

    def steps(self, channel: Channel) -> Ints:
        """Return both ends of the range, and the sums on both sides of each step of the function."""
        if channel not in self._steps:
            self._steps[channel] = steps_of(partial(self.function, channel), *self.ranges[channel])
        return self._steps[channel]

    def needs(self, outputs: set[int]) -> set[Symbol]:
        found: set[Symbol] = set()
        for i in outputs:
            found.update(self.needed.get(self.same.get(i, i), ()))
        return found

    _steps: dict[Channel, Ints]
    _ends: dict[Channel, tuple[int, int]]


def steps_of(function: Callable[[Ints], Any], low: int, high: int) -> Ints:
    """Return both ends, and the integers on both sides of each step, of a function that never falls."""
    places = np.append(np.arange(low, high, max(1, (high - low) >> 10)), high)
    found = function(places)
    v = np.arange(found[0] + 1, found[-1] + 1, dtype=np.int64)
    at = np.searchsorted(found, v)
    a, b = places[at - 1], places[at]
    while (b - a > 1).any():  # f(a) < v <= f(b)
        middle = (a + b) >> 1
        above = function(middle) >= v
        a, b = np.where(above, a, middle), np.where(above, middle, b)
    steps = np.sort(np.concatenate([a, b, [low, high]]))
    return steps[np.diff(steps, prepend=low - 1) > 0]


def bounds_of(values: Iterable[Value]) -> tuple[Ints, Ints]:
    ends = [(v.low, v.high) if isinstance(v, Symbol) else (v, v) for v in values]
    low, high = np.array(ends, np.int64).reshape(-1, 2).T
    return low, high


def terms_of(base: int, taps: Iterable[tuple[Value, int]]) -> tuple[int, dict[Symbol, int]]:
    """Add ``base`` and the products of values and weights; return the constant, and the coefficient of each
    symbol.
    """
    terms = dict[Symbol, int]()
    for value, k in taps:
        if isinstance(value, Symbol):
            terms[value] = terms.get(value, 0) + k
        else:
            base += k * value
    return base, terms
