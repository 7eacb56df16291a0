"""Computes the outputs of a network for given inputs, by the checker's own meaning of each layer."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.choices import ChoiceLayer, ExtremePlace
from crtgen.proof.checker.network.elementwise import ElementLayer
from crtgen.proof.checker.network.layer import Layer, Value
from crtgen.proof.checker.network.lstm import LstmLayer
from crtgen.proof.checker.network.matrices import MatrixProducts
from crtgen.proof.checker.network.network import Network
from crtgen.proof.checker.network.others import MaxPool, SoftmaxLayer
from crtgen.proof.checker.network.real_ends import RealInput
from crtgen.proof.checker.network.sums import Channel, SumLayer
from crtgen.proof.checker.network.svdf import SvdfLayer
from crtgen.proof.checker.refusal import Refusal

__all__ = ["Numbers", "OnNumbers", "Samples"]

Numbers: TypeAlias = NDArray[np.int64]


class _Compiled(Protocol):
    # A layer on numbers: ``run`` sets its outputs, ``back`` tells slopes of its inputs from theirs.
    def run(self, numbers: Numbers) -> None: ...
    def back(self, numbers: Numbers, slopes: NDArray[np.float64]) -> None: ...


class _Placed:
    """A network with a position for each of its symbols in one array.

    ``inputs`` are the symbols of its inputs, then those of ``states`` before a later run. Raises ``Refusal``
    for a layer that cannot be evaluated.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        if any(isinstance(layer, RealInput) for layer in network.layers):
            raise Refusal("inputs of real numbers are not looked for")
        kept = [t.read[0] for t in network.states]
        given = [v for t in network.file.inputs for v in network.values(t)]
        states = [v for t in kept for v in network.values(t)]
        self.inputs = [v for v in (*given, *states) if isinstance(v, Symbol)]
        self.states = slice(len(given), len(self.inputs))
        self.first = np.concatenate([np.zeros(0, np.int64), *(s.first.ravel() for s in network.states)])
        self.places: dict[Symbol, int] = {}
        for symbol in self.inputs:
            self._place(symbol)

    def _place(self, symbol: Symbol) -> int:
        return self.places.setdefault(symbol, len(self.places))

    def _cells(self, values: Sequence[Value]) -> "_Cells":
        return _Cells(
            np.array([self.places[v] if isinstance(v, Symbol) else -1 for v in values], np.int64),
            np.array([0 if isinstance(v, Symbol) else v for v in values], np.int64),
        )

    def _compiled(self, layer: Layer) -> "Iterator[_Compiled]":
        values = self.network.prepared(layer)
        if layer.is_move:
            return
        yield from self._before(layer)
        own = [i for i, v in enumerate(values) if isinstance(v, Symbol) and v not in self.places]
        own = [i for i in own if layer.same.get(i, i) == i]
        if isinstance(layer, ElementLayer):
            pairs = [i for i in own if len({v for v in layer.operands[i] if isinstance(v, Symbol)}) > 1]
            if pairs:
                operands = zip(*(layer.operands[i] for i in pairs), strict=True)
                yield self._placed(_Pairs([self._cells(o) for o in operands], layer), values, pairs)
            own = [i for i in own if i not in {*pairs}]
        if isinstance(layer, SumLayer):
            yield self._placed(_NumberSums(self, layer, own), values, own)
        elif isinstance(layer, ChoiceLayer | ExtremePlace):
            yield self._placed(self._choices(layer, own), values, own)
        elif isinstance(layer, MaxPool):
            sets = [[self.places[s] for s in layer.sets[i]] for i in own]
            yield self._placed(_Extremes(sets, layer.takes_least), values, own)
        elif isinstance(layer, LstmLayer):
            yield self._placed(_Steps([self._cells(v) for v in layer.operands()], layer, own), values, own)
        elif isinstance(layer, SoftmaxLayer):
            yield self._placed(_Rows(self._cells(layer.inputs), layer, own), values, own)
        else:
            raise Refusal(f"layer {layer.number}, {layer.name}, cannot be run on numbers yet")

    def _before(self, layer: Layer) -> "Iterator[_Compiled]":
        # Values within a layer that its outputs are made of.
        if isinstance(layer, SvdfLayer):
            yield from self._compiled(layer.newest)
        if isinstance(layer, MatrixProducts):
            yield self._products(layer)

    def _choices(self, layer: ChoiceLayer | ExtremePlace, own: Sequence[int]) -> "_Pairs | _ExtremePlaces":
        if isinstance(layer, ExtremePlace):
            return _ExtremePlaces([self._cells(layer.rows[i]) for i in own], layer)
        operands = zip(*(layer.operands[i] for i in own), strict=True)
        return _Pairs([self._cells(o) for o in operands], layer)

    def _products(self, layer: MatrixProducts) -> "_ProductNumbers":
        # The products of symbols that have a place.
        factors = layer.products.factors.items()
        new = {p: f for p, f in factors if p not in self.places and all(s in self.places for s in f)}
        at = [(self._place(p), *(self.places[s] for s in f)) for p, f in new.items()]
        return _ProductNumbers(np.array(at, np.int64).reshape(-1, 3))

    def _placed(self, found: Any, values: Sequence[Value], own: Sequence[int]) -> Any:
        symbols = [v for i in own if isinstance(v := values[i], Symbol)]
        found.at = np.array([self._place(s) for s in symbols], np.int64)
        found.low = np.array([s.low for s in symbols], np.int64)
        found.high = np.array([s.high for s in symbols], np.int64)
        return found


class OnNumbers(_Placed):
    """Runs a network on concrete inputs, and tells in which direction its inputs push inner values."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self._layers = [found for layer in network.layers for found in self._compiled(layer)]
        self._outputs = self._cells([v for t in network.file.outputs for v in network.values(t)])
        self._next = self._cells([v for s in network.states for v in network.values(s.assigned)])

    def run(self, x: Numbers) -> Numbers:
        """Return the values of all symbols for these inputs, in the order of ``places``."""
        numbers = np.zeros(len(self.places) + 1, np.int64)
        numbers[: x.size] = x
        for layer in self._layers:
            layer.run(numbers)
        return numbers

    def results(self, x: Numbers) -> tuple[Numbers, Numbers]:
        """Return the network's outputs and its next states, each as one concatenated array."""
        numbers = self.run(x)
        return self._outputs.read(numbers), self._next.read(numbers)

    def slopes(self, numbers: Numbers, wanted: dict[Symbol, int]) -> NDArray[np.float64]:
        """Return approximate derivatives of the sum of ``wanted`` with respect to each input, near these
        inputs.
        """
        slopes = np.zeros(numbers.size)
        for symbol, k in wanted.items():
            slopes[self.places[symbol]] += k
        for layer in reversed(self._layers):
            layer.back(numbers, slopes)
        return slopes[: len(self.inputs)]


class Samples(_Placed):
    """A network on ``count`` random inputs; one layer at a time is evaluated, so little memory is needed."""

    def __init__(self, network: Network, count: int, seed: int = 0) -> None:
        super().__init__(network)
        random = np.random.default_rng(seed)
        for layer in network.layers:
            network.prepared(layer)
        inner = len(network.products.factors)
        size = len(self.inputs) + sum(layer.size for layer in network.layers) + inner + 1
        self.numbers = np.zeros((count, size), np.int64)
        for i, symbol in enumerate(self.inputs):
            self.numbers[:, i] = random.integers(symbol.low, symbol.high, count, endpoint=True)
        for layer in network.layers:
            for found in self._compiled(layer):
                for numbers in self.numbers:
                    found.run(numbers)

    def of(self, values: Sequence[Value]) -> list[Numbers]:
        cells = self._cells(values)
        return [cells.read(numbers) for numbers in self.numbers]


class _Cells:
    def __init__(self, at: NDArray[np.int64], constants: Numbers) -> None:
        self.at, self.constants = at, constants

    def read(self, numbers: Numbers) -> Numbers:
        return np.where(self.at >= 0, numbers[self.at], self.constants)


class _NumberSums:
    at: Numbers
    low: Numbers

    def __init__(self, on: _Placed, layer: SumLayer, own: Sequence[int]) -> None:
        wanted, terms, self.layer = set(own), dict[int, dict[Symbol, int]](), layer
        base, channels = list[int](), dict[Channel, list[int]]()
        for output, channel, constant, of in layer.sums():
            if output in wanted:
                terms[output] = of
                channels.setdefault(channel, []).append(len(base))
                base.append(constant)
        sizes = np.array([len(of) for of in terms.values()], np.int64)
        self.first = np.cumsum(sizes) - sizes
        self.sizes = sizes
        self.taps = np.array([on.places[s] for of in terms.values() for s in of], np.int64)
        self.factors = np.array([k for of in terms.values() for k in of.values()], np.int64)
        self.base = np.array(base, np.int64)
        self.channels = {c: np.array(of, np.int64) for c, of in channels.items()}
        assert list(terms) == list(own)  # sums come in the order of the outputs

    def run(self, numbers: Numbers) -> None:
        if not self.at.size:
            return
        total = self.base + np.add.reduceat(numbers[self.taps] * self.factors, self.first)
        for c, of in self.channels.items():
            numbers[self.at[of]] = self.layer.function(c, total[of])

    def back(self, _: Numbers, slopes: NDArray[np.float64]) -> None:
        # Each output is taken for a line between the ends of its channel, clamped or not.
        if not self.at.size:
            return
        own = slopes[self.at]
        for c, of in self.channels.items():
            own[of] *= self._slope(c)
        np.add.at(slopes, self.taps, np.repeat(own, self.sizes) * self.factors)

    def _slope(self, c: Channel) -> float:
        (low, high), (first, last) = self.layer.ranges[c], self.layer.ends(c)
        return (last - first) / max(high - low, 1)


class _ProductNumbers:
    def __init__(self, places: Numbers) -> None:
        self.at, self.first, self.second = places.T

    def run(self, numbers: Numbers) -> None:
        numbers[self.at] = numbers[self.first] * numbers[self.second]

    def back(self, numbers: Numbers, slopes: NDArray[np.float64]) -> None:
        np.add.at(slopes, self.first, slopes[self.at] * numbers[self.second])
        np.add.at(slopes, self.second, slopes[self.at] * numbers[self.first])


class _Pairs:
    at: Numbers
    low: Numbers

    def __init__(self, operands: Sequence[_Cells], layer: ElementLayer | ChoiceLayer) -> None:
        self.operands, self.layer = operands, layer

    def run(self, numbers: Numbers) -> None:
        if self.at.size:
            numbers[self.at] = self.layer.value(*(cells.read(numbers) for cells in self.operands))

    def back(self, numbers: Numbers, slopes: NDArray[np.float64]) -> None:
        # Effect of a step of 16 in each operand.
        if not self.at.size:
            return
        read = [cells.read(numbers) for cells in self.operands]
        for i, cells in enumerate(self.operands):
            step = np.where(read[i] > 0, -16, 16)
            moved = [v + step if k == i else v for k, v in enumerate(read)]
            steep = (self.layer.value(*moved) - self.layer.value(*read)) / step
            symbols = cells.at >= 0
            np.add.at(slopes, cells.at[symbols], (slopes[self.at] * steep)[symbols])


class _ExtremePlaces:
    at: Numbers
    low: Numbers

    def __init__(self, rows: Sequence[_Cells], layer: ExtremePlace) -> None:
        self.rows, self.layer = rows, layer

    def run(self, numbers: Numbers) -> None:
        for at, row in zip(self.at, self.rows, strict=True):
            numbers[at] = self.layer.reference(row.read(numbers))

    def back(self, _: Numbers, slopes: NDArray[np.float64]) -> None: ...


class _Extremes:
    at: Numbers
    low: Numbers
    high: Numbers

    def __init__(self, sets: Sequence[Sequence[int]], takes_least: bool) -> None:
        self.pick = np.minimum if takes_least else np.maximum
        sizes = np.array([len(s) for s in sets], np.int64)
        self.first, self.sizes = np.cumsum(sizes) - sizes, sizes
        self.taps = np.array([i for s in sets for i in s], np.int64)

    def run(self, numbers: Numbers) -> None:
        if self.at.size:
            found = self.pick.reduceat(numbers[self.taps], self.first)
            numbers[self.at] = np.clip(found, self.low, self.high)

    def back(self, numbers: Numbers, slopes: NDArray[np.float64]) -> None:
        if self.at.size:
            first = np.repeat(numbers[self.at], self.sizes) == numbers[self.taps]
            np.add.at(slopes, self.taps, np.repeat(slopes[self.at], self.sizes) * first)


class _Steps:
    at: Numbers
    low: Numbers

    def __init__(self, operands: Sequence[_Cells], layer: LstmLayer, own: Sequence[int]) -> None:
        self.operands, self.layer, self.own = operands, layer, own

    def run(self, numbers: Numbers) -> None:
        numbers[self.at] = self.layer.reference(*(cells.read(numbers) for cells in self.operands))[self.own]

    def back(self, numbers: Numbers, slopes: NDArray[np.float64]) -> None: ...


class _Rows:
    at: Numbers
    low: Numbers

    def __init__(self, inputs: _Cells, layer: SoftmaxLayer, own: Sequence[int]) -> None:
        self.inputs, self.layer, self.own = inputs, layer, own

    def run(self, numbers: Numbers) -> None:
        rows = self.inputs.read(numbers).reshape(-1, self.layer.depth)
        made = np.concatenate([self.layer.reference(row) for row in rows])
        numbers[self.at] = made[list(self.own)]

    def back(self, _: Numbers, slopes: NDArray[np.float64]) -> None:
        # A greater input gives a greater share.
        np.add.at(slopes, self.inputs.at[list(self.own)], slopes[self.at])
