"""Inputs worth trying: those at which the proof saw a difference, then corner cases, then random ones."""

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.layer import Layer
from crtgen.proof.checker.network.numbers import Numbers, OnNumbers
from crtgen.proof.checker.network.sums import SumLayer

__all__ = ["closing_steps", "inputs_to_try"]

# A sum of symbols, and what it should be.
_Goal: TypeAlias = tuple[dict[Symbol, int], int]

_CLIMBS = 8
_MOST_GOALS = 12
_MOST_STEPS = 3


def inputs_to_try(on: OnNumbers, seed: int = 0) -> Iterator[Numbers]:
    """Yield inputs endlessly; each is one array with the elements of all inputs of the network."""
    layers = [layer for layer in on.network.layers if layer.values is not None]
    for layer in layers:
        for goals in layer.wrong:
            yield from _towards(on, goals)
    for low in (True, False):
        yield np.array([s.low if low else s.high for s in on.inputs], np.int64)
    for layer in layers:
        for terms in _missing(on, layer):
            for sign in (1, -1):
                yield from _towards(on, [({s: sign * k for s, k in terms.items()}, 1 << 40)])
    numbers = np.random.default_rng(seed)
    low, high = np.array([(s.low, s.high) for s in on.inputs]).T
    while True:
        yield numbers.integers(low, high + 1)
        yield np.where(numbers.random(low.size) < 0.5, low, high)


def _missing(on: OnNumbers, layer: Layer) -> Iterator[dict[Symbol, int]]:
    # The sums of some outputs that are needed and not proven.
    if not isinstance(layer, SumLayer):
        return
    need = on.network.needed().get(layer.number, set()) - layer.proven_outputs()
    some = set(sorted(need)[:: max(1, len(need) // _MOST_GOALS)][:_MOST_GOALS])
    # All at once: ``sums`` sets the ranges of channels on its way.
    yield from [terms for output, _, _, terms in layer.sums() if output in some]


def _towards(on: OnNumbers, goals: list[_Goal]) -> Iterator[Numbers]:
    # Inputs that bring the sums nearer to what they should be; the last one is the best that was found.
    low, high = np.array([(s.low, s.high) for s in on.inputs]).T
    x = (low + high) >> 1
    best, last = x, None
    for _ in range(_CLIMBS):
        numbers = on.run(x)
        off = _off(on, goals, numbers)
        if last is None or sum(map(abs, off)) < last:
            best, last = x, sum(map(abs, off))
        if not any(off):
            break
        slopes = np.zeros(x.size)
        for (terms, _), o in zip(goals, off, strict=True):
            slopes = slopes + np.sign(o) * on.slopes(numbers, terms)
        moved = np.where(slopes > 0, high, np.where(slopes < 0, low, x))
        if (moved == x).all():
            break
        yield moved
        x = moved
    yield _exact(on, goals, best)


def _off(on: OnNumbers, goals: list[_Goal], numbers: Numbers) -> list[int]:
    # Difference of each sum from its goal.
    sums = (sum(k * int(numbers[on.places[s]]) for s, k in terms.items()) for terms, _ in goals)
    return [wanted - found for (_, wanted), found in zip(goals, sums, strict=True)]


def _exact(on: OnNumbers, goals: list[_Goal], x: Numbers) -> Numbers:
    # Sums of inputs: the largest factors first, then what is left as a sum of few small steps.
    x = x.copy()
    for terms, wanted in goals:
        own = {on.places[s]: (k, s) for s, k in terms.items() if k and on.places[s] < len(on.inputs)}
        off = wanted - sum(k * int(x[i]) for i, (k, _) in own.items())
        ordered = sorted(own.items(), key=lambda item: -abs(item[1][0]))
        for i, (k, s) in ordered:
            step = int(off / k)  # towards 0
            moved = max(s.low, min(s.high, int(x[i]) + step))
            off -= k * (moved - int(x[i]))
            x[i] = moved
        rooms = [(k, s.low - int(x[i]), s.high - int(x[i])) for i, (k, s) in ordered]
        for (i, _), step in zip(ordered, closing_steps(off, rooms), strict=True):
            x[i] += step
    return x


def closing_steps(off: int, rooms: list[tuple[int, int, int]]) -> list[int]:
    """Return a step for each factor such that the products add up to ``off``: a bounded subset sum.

    ``rooms`` are factors, each with its smallest and largest step. All steps are 0 if no solution is found.

    Dynamic programming over the remainder: for each factor in turn, it records the step by which each
    remainder was first reached. Remainders beyond twice the largest factor, and steps beyond three, are not
    considered, because a greedy search has already reduced ``off`` below one factor.
    """
    reach = 2 * max((abs(k) for k, _, _ in rooms), default=0)
    if off == 0 or abs(off) > reach:
        return [0] * len(rooms)
    reached = np.zeros(2 * reach + 1, bool)
    reached[off + reach] = True
    taken: list[NDArray[np.int8]] = []
    for k, low, high in rooms:
        before, steps = reached.copy(), np.zeros(reached.size, np.int8)
        for step in range(max(low, -_MOST_STEPS), min(high, _MOST_STEPS) + 1):
            new = _moved(before, -k * step) & ~reached
            steps[new] = step
            reached |= new
        taken.append(steps)
        if reached[reach]:
            break
    if not reached[reach]:
        return [0] * len(rooms)
    rest, found = 0, [0] * len(rooms)
    for n in range(len(taken) - 1, -1, -1):
        found[n] = int(taken[n][rest + reach])
        rest += rooms[n][0] * found[n]
    return found


def _moved(flags: NDArray[np.bool_], by: int) -> NDArray[np.bool_]:
    # The array moved by a number of places; what leaves it is lost.
    moved = np.zeros_like(flags)
    if abs(by) < flags.size:
        moved[max(by, 0) : flags.size + min(by, 0)] = flags[max(-by, 0) : flags.size - max(by, 0)]
    return moved
