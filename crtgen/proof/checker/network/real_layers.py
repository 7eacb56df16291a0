"""Float32 networks whose layers are sums, over the real numbers with the file's weights."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tflite

from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.file import REAL, NetworkOperator
from crtgen.proof.checker.network.layer import Layer, Value
from crtgen.proof.checker.network.means import reduced
from crtgen.proof.checker.network.moves import MOVES, Move
from crtgen.proof.checker.network.uncompared import Uncompared
from crtgen.proof.checker.network.window import Window, windows
from crtgen.proof.checker.refusal import Refusal

__all__ = ["LinearForm", "RealLayer", "RealNetwork", "in_units"]

_B = tflite.BuiltinOperator
# By activation: NONE, RELU, RELU_N1_TO_1, RELU6.
_LIMITS = {0: (-np.inf, np.inf), 1: (0.0, np.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
_ONE = 1 << 149

Limits = tuple[float, float]
Key = tuple[int, Symbol | None, int, int]


class LinearForm(NamedTuple):
    """A constant and factors of symbols in units of 2^-149, exact, over a common divisor.

    Equal forms are equal functions. The divisor is 1 if everything can be divided.
    """

    constant: int
    terms: frozenset[tuple[Symbol, int]]
    divisor: int = 1

    def over(self, divisor: int) -> "LinearForm":
        divisor *= self.divisor
        if self.constant % divisor or any(k % divisor for _, k in self.terms):
            return self._replace(divisor=divisor)
        return LinearForm(self.constant // divisor, frozenset((s, k // divisor) for s, k in self.terms))

    def key(self) -> Key:
        """Return a key that few forms of a layer share: the constant, the first symbol and its factor."""
        first, factor = min(self.terms, key=lambda term: _place(term[0]), default=(None, 0))
        return self.constant, first, factor, self.divisor


class RealSum(NamedTuple):
    """An output: a constant, and cells of the input, each with the index of its factor.

    Factors are in units of 2^-149; many outputs share them, and many share cells. The ``LinearForm`` of an
    output is made on demand.
    """

    constant: int
    cells: Sequence[tuple[Symbol, int]]
    factors: Sequence[int]
    divisor: int = 1

    def line(self) -> LinearForm:
        terms: dict[Symbol, int] = {}
        for symbol, number in self.cells:
            terms[symbol] = terms.get(symbol, 0) + self.factors[number]
        found = LinearForm(self.constant, frozenset((s, k) for s, k in terms.items() if k))
        return found.over(self.divisor)

    def key(self) -> Key:
        """Return the key of the output's linear form, without making the form unless a division requires
        it.
        """
        if self.divisor > 1:
            return self.line().key()
        first: Symbol | None = None
        factor = 0
        for symbol, number in self.cells:
            if symbol is not first:
                if factor:
                    break
                first = symbol
            factor += self.factors[number]
        return self.constant, first if factor else None, factor, 1


def in_units(value: float) -> int:
    """Return a float32 in units of 2^-149, of which every float32 is a multiple."""
    return int(math.ldexp(value, 149))


def _place(s: Symbol) -> tuple[int, int]:
    return s.tensor, s.index


def _cells(values: Iterable[tuple[Value, int]]) -> list[tuple[Symbol, int]]:
    # In the order of their places, without the zeros of padding.
    found = [(v, number) for v, number in values if isinstance(v, Symbol)]
    return sorted(found, key=lambda cell: _place(cell[0]))


class RealLayer(Layer):
    """A float layer whose outputs are sums, clamped to ``limits``.

    Equal sums share one symbol. ``outputs`` maps a key to the outputs that have it.
    """

    def prepare(self) -> list[Value]:
        self.limits: Limits = (-np.inf, np.inf)
        self.outputs: dict[Key, list[int]] = {}
        values: list[Value] = []
        self.made = list(self.sums())
        for i, made in enumerate(self.made):
            same = self.outputs.setdefault(made.key(), [])
            line = made.line() if same else None
            equal = next((j for j in same if self.made[j].line() == line), None)
            if equal is None:
                same.append(i)
            new = Symbol(self.operator.output, i, REAL.low, REAL.high, REAL.bits)
            values.append(new if equal is None else values[equal])
        if len(values) != self.size:
            raise Refusal("the size of the output does not fit its shape")
        return values

    def sums(self) -> Iterator[RealSum]:
        # Yields each output before clamping, and sets the limits.
        raise NotImplementedError

    def find(self, line: LinearForm, key: Key, limits: Limits) -> Symbol | None:
        if limits != self.limits or self.values is None:
            return None
        found = (self.values[i] for i in self.outputs.get(key, ()) if self.made[i].line() == line)
        symbol = next(found, None)
        return symbol if isinstance(symbol, Symbol) else None

    def activate(self, activation: int) -> None:
        if activation not in _LIMITS:
            raise Refusal("this activation is not followed")
        self.limits = _LIMITS[activation]

    def read(self, channel_axis: int) -> tuple[Any, list[int]]:
        """Read the weights as output channels x taps x input channels, and the biases in units of 2^-149."""
        _, w, *bias = self.operator.inputs
        weights = self.file.constant(w)
        biases = self.file.constant(bias[0]) if bias and bias[0] >= 0 else None
        if weights is None or weights.dtype != np.float32 or (bias and bias[0] >= 0 and biases is None):
            raise Refusal("weights are not float32 constants")
        channels = weights.shape[channel_axis]
        if channel_axis:
            weights = np.moveaxis(weights, channel_axis, 0)[..., None]
        weights = weights.reshape(channels, -1, weights.shape[-1])
        zeros = np.zeros(channels, np.float32)
        return weights, [in_units(b) for b in (zeros if biases is None else biases).tolist()]

    def weighted(self, where: list[Window], weights: Any, biases: list[int]) -> Iterator[RealSum]:
        # Yield the sums of each window; channels may be in groups.
        values = self.network.values(self.operator.inputs[0])
        channels, _, depth = weights.shape
        all_of = self.file.shape(self.operator.inputs[0])[-1]
        groups = all_of // depth
        if all_of % depth or channels % groups:
            raise Refusal("channels that are in no groups")
        rows = [[in_units(w) for w in row] for row in weights.reshape(channels, -1).tolist()]
        for window in where:
            for c, (bias, row) in enumerate(zip(biases, rows, strict=True)):
                if c % (channels // groups) == 0:
                    first = c * groups // channels * depth
                    cells = _cells(
                        (values[p * all_of + first + d], t * depth + d)
                        for p, t in window
                        for d in range(depth)
                    )
                yield RealSum(bias, cells, row)


class _RealConvolution(RealLayer):
    def sums(self) -> Iterator[RealSum]:
        is_depthwise = self.operator.code == _B.DEPTHWISE_CONV_2D
        o = self.operator.options(tflite.DepthwiseConv2DOptions if is_depthwise else tflite.Conv2DOptions)
        weights, biases = self.read(3 if is_depthwise else 0)
        self.activate(o.FusedActivationFunction())
        _, high, wide, _ = self.file.shape(self.operator.inputs[1])
        where, _ = windows(self, (high, wide), o, (o.DilationHFactor(), o.DilationWFactor()))
        yield from self.weighted(where, weights, biases)


class _FullyConnected(RealLayer):
    def sums(self) -> Iterator[RealSum]:
        if self.operator.has_options:
            self.activate(self.operator.options(tflite.FullyConnectedOptions).FusedActivationFunction())
        values = self.network.values(self.operator.inputs[0])
        weights, biases = self.read(0)
        rows = [[in_units(w) for w in row] for row in weights.reshape(len(weights), -1).tolist()]
        for first in range(0, len(values), len(rows[0])):
            cells = _cells((v, i) for i, v in enumerate(values[first : first + len(rows[0])]))
            yield from (RealSum(bias, cells, row) for bias, row in zip(biases, rows, strict=True))


class _Addition(RealLayer):
    def sums(self) -> Iterator[RealSum]:
        is_sum = self.operator.code == _B.ADD
        if self.operator.has_options:
            kind = tflite.AddOptions if is_sum else tflite.SubOptions
            self.activate(self.operator.options(kind).FusedActivationFunction())
        a, b = np.broadcast_arrays(*(self.network.array(t) for t in self.operator.inputs))
        factors = _ONE, _ONE if is_sum else -_ONE
        yield from (
            RealSum(0, _cells(((x, 0), (y, 1))), factors) for x, y in zip(a.flat, b.flat, strict=True)
        )


class _Average(RealLayer):
    def sums(self) -> Iterator[RealSum]:
        o, x = self.operator.options(tflite.Pool2DOptions), self.operator.inputs[0]
        self.activate(o.FusedActivationFunction())
        where, _ = windows(self, (o.FilterHeight(), o.FilterWidth()), o, (1, 1))
        values, depth = self.network.values(x), self.file.shape(x)[-1]
        for window in where:
            for c in range(depth):
                yield RealSum(0, _cells((values[p * depth + c], 0) for p, _ in window), (_ONE,), len(window))


class _Mean(RealLayer):
    def sums(self) -> Iterator[RealSum]:
        rows = reduced(self)
        divisor = rows.shape[1] if self.operator.code == _B.MEAN else 1
        yield from (RealSum(0, _cells((v, 0) for v in row), (_ONE,), divisor) for row in rows)


_SUMS: dict[int, type[RealLayer]] = {
    _B.CONV_2D: _RealConvolution,
    _B.DEPTHWISE_CONV_2D: _RealConvolution,
    _B.FULLY_CONNECTED: _FullyConnected,
    _B.ADD: _Addition,
    _B.SUB: _Addition,
    _B.AVERAGE_POOL_2D: _Average,
    _B.MEAN: _Mean,
    _B.SUM: _Mean,
}
_MOVES = frozenset(MOVES) - {_B.PADV2}  # whose number is none of 0


class RealNetwork(Uncompared):
    """A float network: ``sums`` are its layers, ``ends`` its outputs; ``unbounded`` names the layer that
    prevents a bound, if any.

    The layers before that one have bounds.
    """

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(path, why)
        self.sums: list[RealLayer] = []
        self.unbounded = ""
        self._given = dict(self.fed)
        for operator in self.file.operators:
            if operator.code in _MOVES or operator.code in _SUMS:
                self._follow(operator)
            else:
                self._stop(operator, "")
        if not self.unbounded and any(t not in self._given for t in self.file.outputs):
            self.unbounded = "of an output that is a constant none is known"
        ends = (self._given.get(t, ()) for t in self.file.outputs)
        self.ends: list[Value] = list(chain.from_iterable(ends))

    def _follow(self, operator: NetworkOperator) -> None:
        layer = Move(self, operator) if operator.code in _MOVES else _SUMS[operator.code](self, operator)
        try:
            layer.values = layer.prepare()
        except Refusal as refusal:
            self._stop(operator, f": {refusal}")
            return
        first = 0
        for tensor in operator.outputs:
            self._given[tensor] = layer.values[first : first + self.file.size(tensor)]
            first += self.file.size(tensor)
        if isinstance(layer, RealLayer):
            self.sums.append(layer)

    def _stop(self, operator: NetworkOperator, why: str) -> None:
        self.unbounded = self.unbounded or f"of {operator.name} none is known{why}"

    def values(self, tensor: int) -> list[Value]:
        if tensor not in self._given and self.file.type(tensor) == tflite.TensorType.FLOAT32:
            known = self.file.constant(tensor) is not None
            raise Refusal("a constant of float32" if known else "what is before it is not followed")
        return super().values(tensor)
