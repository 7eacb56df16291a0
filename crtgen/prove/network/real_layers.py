"""Networks of float32 whose layers are sums: what they are in the real numbers, with the file's weights."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tflite

from crtgen.prove.network.file import Operator
from crtgen.prove.network.layer import Value
from crtgen.prove.network.network import Network
from crtgen.prove.network.uncompared import REAL, Uncompared
from crtgen.prove.refusal import Refusal
from crtgen.prove.value import Symbol

__all__ = ["Line", "RealLayer", "RealNetwork", "in_units"]

_B = tflite.BuiltinOperator
_LIMITS = {0: (-np.inf, np.inf), 1: (0.0, np.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
"""By activation: NONE, RELU, RELU_N1_TO_1, RELU6."""
_MOVES = frozenset((_B.RESHAPE, _B.SQUEEZE, _B.EXPAND_DIMS))


class Line(NamedTuple):
    """A constant and factors of symbols in units of 2^-149, exact; equal lines are equal functions."""

    constant: int
    terms: frozenset[tuple[Symbol, int]]


def in_units(value: float) -> int:
    """A number of float32 in units of 2^-149, of which all are a multiple."""
    return int(math.ldexp(value, 149))


class RealLayer:
    """A fully connected layer. ``outputs`` are numbers by their line; equal lines have one symbol."""

    def __init__(self, network: Network, operator: Operator, given: list[Value]) -> None:
        self.number, self.name, file = operator.number, operator.name, network.file
        _, w, *bias = operator.inputs
        weights, biases = file.constant(w), file.constant(bias[0]) if bias and bias[0] >= 0 else None
        if weights is None or (bias and bias[0] >= 0 and biases is None):
            raise Refusal(f"layer {self.number}, {self.name}: its weights are not constant")
        activation = 0
        if operator.has_options:
            activation = operator.options(tflite.FullyConnectedOptions).FusedActivationFunction()
        if activation not in _LIMITS:
            raise Refusal(f"layer {self.number}, {self.name}: its activation is not followed")
        self.limits = _LIMITS[activation]
        self.values: list[Value] = [
            Symbol(operator.output, i, REAL.low, REAL.high, REAL.bits)
            for i in range(file.size(operator.output))
        ]
        zeros = np.zeros(len(weights), np.float32)
        self.outputs: dict[Line, int] = {}
        for i, line in enumerate(_lines(given, weights, zeros if biases is None else biases)):
            self.values[i] = self.values[self.outputs.setdefault(line, i)]


def _lines(given: list[Value], weights: Any, biases: Any) -> Iterator[Line]:
    depth = weights.shape[1]
    for first in range(0, len(given), depth):
        for row, bias in zip(weights.tolist(), biases.tolist(), strict=True):
            terms: dict[Symbol, int] = {}
            for symbol, k in zip(given[first : first + depth], row, strict=True):
                assert isinstance(symbol, Symbol)  # nothing of float32 is a number here
                terms[symbol] = terms.get(symbol, 0) + in_units(k)
            yield Line(in_units(bias), frozenset((s, k) for s, k in terms.items() if k))


class RealNetwork(Uncompared):
    """``sums`` are its layers, ``ends`` its outputs; ``unbounded`` says what is in the way, if anything."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(path, why)
        self.sums: list[RealLayer] = []
        self.unbounded = ""
        known = dict(self._given)
        for operator in self.file.operators:
            if operator.code in _MOVES and operator.inputs[0] in known:
                known[operator.output] = known[operator.inputs[0]]
            elif operator.code == _B.FULLY_CONNECTED and operator.inputs[0] in known:
                self.sums.append(RealLayer(self, operator, known[operator.inputs[0]]))
                known[operator.output] = self.sums[-1].values
            else:
                self.unbounded = self.unbounded or f"of {operator.name} none is known"
        self.ends = [v for t in self.file.outputs for v in known.get(t, ())]
