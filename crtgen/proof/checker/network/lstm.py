"""Integer UNIDIRECTIONAL_SEQUENCE_LSTM: sums for each gate, int16 gates, a cell state, a hidden state.

At each time step the four gates (input, forget, cell, output) are functions of two separately rounded values:
a sum over the input and a sum over the hidden state. Then

    cell = forget * cell + input * tanh(cell gate)          hidden = output * tanh(cell)

where each product is rounded to 16 bits, and sums are clamped to 16 bits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import tflite

from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.arithmetic import Ints, quantized_multiplier, requantize, requantize_long
from crtgen.proof.checker.network.elementwise import sigmoid16
from crtgen.proof.checker.network.file import ElementType, NetworkOperator
from crtgen.proof.checker.network.layer import Layer, Tensors, Value
from crtgen.proof.checker.network.sums import Channel, SumLayer, Summed, terms_of
from crtgen.proof.checker.refusal import Refusal

__all__ = ["CELL", "FORGET", "INPUT", "OUTPUT", "LstmLayer", "UnitTime"]

INPUT, FORGET, CELL, OUTPUT = range(4)
# Inputs of peepholes, a projection, norms.
_LEFT_OUT = (9, 10, 11, 16, 17, 20, 21, 22, 23)
_HIDDEN, _CELLS = 18, 19


class UnitTime(NamedTuple):
    """A unit at a time step: ``row`` is the batch index, ``time`` counts from 0, and -1 is before the first
    step.
    """

    row: int
    time: int
    unit: int


def short(v: Any) -> Any:
    return np.clip(v, -0x8000, 0x7FFF)


class _GateProducts(SumLayer):
    # Products of the input, or of the hidden state, for each gate: int16 of each row, time, gate and unit.
    def __init__(self, lstm: "LstmLayer", first: int, biased: bool) -> None:
        super().__init__(lstm.network, replace(lstm.operator, outputs=lstm.operator.outputs[:1]))
        self.lstm, self.biased, f = lstm, biased, lstm.file
        given = self.operator.inputs[_HIDDEN if first > 4 else 0]
        tensors = self.operator.inputs[first : first + 4]
        self.weights = [f.constant(t) for t in tensors]
        self.zero = f.zero_point(given)
        scales = (float(f.scales(given)[0] * f.scales(t)[0]) for t in tensors)
        self.factors = [quantized_multiplier(s * 4096) for s in scales]
        self.biases = [f.constant(t) for t in self.operator.inputs[12:16]]
        if any(a is None for a in (*self.weights, *self.biases)):
            raise Refusal("weights and biases must be constant")
        self.size = lstm.steps * 4
        self.limits = -0x8000, 0x7FFF
        kind = f.kind(given)
        self.ends_of_input = kind.low - self.zero, kind.high - self.zero

    @property
    def type(self) -> ElementType:
        return self.lstm.cells

    def data_inputs(self) -> Sequence[int]:
        inputs = self.operator.inputs
        return inputs[:1] if self.biased else (inputs[_HIDDEN], self.operator.output)

    def sums(self) -> Iterator[Summed]:
        self.ranges = {gate: self._range(gate) for gate in range(4)}
        for i, place in enumerate(self.lstm.places()):
            values = self.lstm.given(place) if self.biased else self.lstm.hidden_before(place)
            for gate in range(4):
                row = self.weights[gate][place.unit].tolist()
                base = int(self.biases[gate][place.unit]) if self.biased else 0
                base, terms = terms_of(base - self.zero * sum(row), zip(values, row, strict=True))
                yield 4 * i + gate, gate, base, terms

    def _range(self, gate: int) -> tuple[int, int]:
        a, b = (self.weights[gate] * end for end in self.ends_of_input)
        low, high = np.minimum(a, b).sum(1), np.maximum(a, b).sum(1)
        bias = self.biases[gate] if self.biased else 0 * self.biases[gate]
        return int((low + bias).min()), int((high + bias).max())

    def numbers(self, x: Ints) -> list[Any]:
        # For each gate, the products of all units with rows of elements.
        bases = (b if self.biased else 0 for b in self.biases)
        pairs = zip(self.weights, bases, strict=True)
        return [self.function(gate, (x - self.zero) @ w.T + b) for gate, (w, b) in enumerate(pairs)]

    def function(self, channel: Channel, acc: Ints) -> Any:
        assert isinstance(channel, int)  # the number of a gate
        scale = requantize_long if self.lstm.kinds.bits == 16 else requantize
        return short(scale(acc, *self.factors[channel]))


class _Gates(SumLayer):
    """Int16 gates, each a function of a sum of two products. A channel is ``True`` for tanh."""

    def __init__(self, lstm: "LstmLayer") -> None:
        super().__init__(lstm.network, replace(lstm.operator, outputs=lstm.operator.outputs[:1]))
        self.lstm, self.size, self.limits = lstm, lstm.steps * 4, (-0x8000, 0x7FFF)

    @property
    def type(self) -> ElementType:
        return self.lstm.cells

    def data_inputs(self) -> Sequence[int]:
        return self.operator.outputs

    def sums(self) -> Iterator[Summed]:
        self.ranges = dict.fromkeys((False, True), (-0x10000, 0xFFFE))
        ways = zip(*(self.network.prepared(part) for part in self.lstm.products), strict=True)
        for i, products in enumerate(ways):
            base, terms = terms_of(0, ((value, 1) for value in products))
            yield i, i % 4 == CELL, base, terms

    def function(self, channel: Channel, acc: Ints) -> Any:
        return sigmoid16(3 * short(acc), is_tanh=bool(channel))


class LstmLayer(Layer):
    """The whole LSTM; ``parts`` are its inner layers. Its outputs are the hidden states of all time steps,
    then the next states.

    ``hidden`` and ``cell`` map a place to its symbol or integer.
    """

    def __init__(self, network: Tensors, operator: NetworkOperator) -> None:
        super().__init__(network, operator)
        f, inputs = self.file, operator.inputs
        o = operator.options(tflite.UnidirectionalSequenceLSTMOptions)
        if len(inputs) < 20 or any(t >= 0 for i, t in enumerate(inputs) if i in _LEFT_OUT):
            raise Refusal("an LSTM with peepholes, a projection or norms")
        if o.FusedActivationFunction() != 4:
            raise Refusal("an LSTM with another activation than tanh")
        self.time_first, shape = bool(o.TimeMajor()), f.shape(inputs[0])
        self.times, self.rows = shape[:2] if self.time_first else shape[1::-1]
        self.units, self.depth = f.shape(inputs[1])[0], shape[2]
        self.steps = self.times * self.rows * self.units
        self.kinds, self.cells = f.kind(operator.output), f.kind(inputs[_CELLS])
        if self.cells.bits != 16 or f.kind(inputs[0]) != self.kinds:
            raise Refusal("an LSTM of other types than int8 or int16 with cells of int16")
        self._read_scales(float(np.float32(o.CellClip())))
        self.products = _GateProducts(self, 1, biased=True), _GateProducts(self, 5, biased=False)
        self.gates = _Gates(self)
        self.parts: tuple[Layer, ...] = (*self.products, self.gates, self)

    def _read_scales(self, clip: float) -> None:
        f, hidden, cell = self.file, *self.operator.inputs[_HIDDEN : _CELLS + 1]
        power = round(np.log2(f.scale(cell)))
        if abs(np.log2(f.scale(cell)) - power) > 1e-3 or f.zero_point(cell):
            raise Refusal("a cell state whose scale is no power of two")
        shift = 12 + power
        self.of_tanh = (3 << shift, 0) if shift >= 0 else (3, -shift)
        self.clip = int(min(clip / f.scale(cell), 0x7FFF)) if clip > 0 else 0x8000
        self.zero, self.limits = f.zero_point(hidden), (self.kinds.low, self.kinds.high)
        scales = 2.0**-30 / f.scale(cell), 2.0**-15, 2.0**-30 / f.scale(hidden)
        self.to_cell, self.to_keep, self.to_hidden = (quantized_multiplier(s) for s in scales)

    @property
    def sizes(self) -> frozenset[int]:
        return frozenset((self.kinds.bits, 16))

    def data_inputs(self) -> Sequence[int]:
        return (self.operator.inputs[_CELLS], self.operator.output)

    def operands(self) -> list[list[Value]]:
        inputs = self.operator.inputs
        return [self.network.values(inputs[i]) for i in (0, _HIDDEN, _CELLS)]

    def places(self) -> Iterator[UnitTime]:
        for time in range(self.times):
            for row in range(self.rows):
                yield from (UnitTime(row, time, unit) for unit in range(self.units))

    def given(self, place: UnitTime) -> list[Value]:
        row, time, _ = place
        first = time * self.rows + row if self.time_first else row * self.times + time
        return self.network.values(self.operator.inputs[0])[first * self.depth :][: self.depth]

    def hidden_before(self, place: UnitTime) -> list[Value]:
        self.network.prepared(self)
        return [self.hidden[UnitTime(place.row, place.time - 1, unit)] for unit in range(self.units)]

    def prepare(self) -> list[Value]:
        y, states = self.operator.output, self.operator.inputs[_HIDDEN : _CELLS + 1]
        self.hidden, self.cell = ({p: v for p, v in self._first(tensor)} for tensor in states)
        self.in_time = list(self.places())
        for i, place in enumerate(self.places()):
            self.hidden[place] = Symbol(y, self.index_of(place), *self.limits, self.kinds.bits)
            self.cell[place] = Symbol(y, i, max(-self.clip, -0x8000), min(self.clip, 0x7FFF), 16)
        ordered = sorted(self.places(), key=self.index_of)
        last = [p for p in ordered if p.time == self.times - 1]
        last.sort(key=lambda p: (p.row, p.unit))
        self.next = {p: len(ordered) + len(last) + i for i, p in enumerate(last)}
        return [self.hidden[p] for p in (*ordered, *last)] + [self.cell[p] for p in last]

    @cached_property
    def roles(self) -> dict[Value, tuple[str, Any]]:
        # Role of each symbol: ("cell", place) or ("gate", its index).
        gates = [*enumerate(self.network.prepared(self.gates))]
        cells: dict[Value, tuple[str, Any]] = {v: ("cell", place) for place, v in self.cell.items()}
        return cells | {v: ("gate", i) for i, v in reversed(gates)}

    def _first(self, tensor: int) -> Iterator[tuple[UnitTime, Value]]:
        for i, value in enumerate(self.network.values(tensor)):
            yield UnitTime(i // self.units, -1, i % self.units), value

    def found_cell(self, place: UnitTime) -> Value:
        if place in self.next:
            self.proven.add(self.next[place])
        return self.cell[place]

    def index_of(self, place: UnitTime) -> int:
        row, time, unit = place
        first = time * self.rows + row if self.time_first else row * self.times + time
        return first * self.units + unit

    def needs(self, outputs: set[int]) -> set[Symbol]:
        return {v for values in self.operands() for v in values if isinstance(v, Symbol)}

    def reference(self, x: Ints, hidden: Ints, cell: Ints) -> Ints:
        """Return all outputs for given inputs and states, each in the order of its tensor."""
        shape = (self.times, self.rows) if self.time_first else (self.rows, self.times)
        steps = x.reshape(*shape, self.depth)
        steps = steps if self.time_first else steps.swapaxes(0, 1)
        hidden, cell = (v.reshape(self.rows, self.units) for v in (hidden, cell))
        shown = []
        for given in steps:
            sums = [part.numbers(v) for part, v in zip(self.products, (given, hidden), strict=True)]
            gates = [
                self.gates.function(g == CELL, a + b) for g, (a, b) in enumerate(zip(*sums, strict=True))
            ]
            kept, entered = self.remembered(gates[FORGET] * cell), self.entering(gates[INPUT] * gates[CELL])
            cell = self.next_cell(kept + entered)
            hidden = self.next_hidden(gates[OUTPUT] * self.tanh(cell))
            shown.append(hidden)
        y = np.stack(shown, 0 if self.time_first else 1)
        return np.concatenate([y.ravel(), hidden.ravel(), cell.ravel()])

    # ---- what is made of products

    def remembered(self, product: Any) -> Any:
        return short(requantize(product, *self.to_keep))

    def entering(self, product: Any) -> Any:
        return short(requantize(product, *self.to_cell))

    def first_cell(self, product: Any) -> Any:
        return self.next_cell(self.entering(product))

    def next_cell(self, total: Any) -> Any:
        return np.clip(short(total), -self.clip, self.clip)

    def tanh(self, cell: Any) -> Any:
        # Apply tanh to a cell state; the result has 15 bits and a sign.
        factor, shift = self.of_tanh
        return sigmoid16((cell * factor + (1 << shift >> 1)) >> shift, is_tanh=True)

    def next_hidden(self, product: Any) -> Any:
        return np.clip(requantize(product, *self.to_hidden) + self.zero, *self.limits)
