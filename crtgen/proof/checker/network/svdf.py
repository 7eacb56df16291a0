"""SVDF of int8: filters' products with the input, a memory of each filter, sums over the memories.

The state has a row of ``length`` products for each filter. A run moves each row on by one, and appends the
newest product. An output is a function of the sum over the memories of ``rank`` filters:

    newest(f) = requantise(sum over i of (x(i) - zero) * feature(f, i))
    y(u)      = requantise(bias(u) + sum over its filters f and times t of state(f, t) * time(f, t))
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tflite

from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.arithmetic import Ints, quantized_multiplier, requantize
from crtgen.proof.checker.network.file import ElementType, NetworkOperator
from crtgen.proof.checker.network.layer import Layer, Tensors, Value
from crtgen.proof.checker.network.sums import Channel, SumLayer, Summed, bounds_of, terms_of
from crtgen.proof.checker.refusal import Refusal

__all__ = ["NewestProducts", "SvdfLayer"]


class NewestProducts(SumLayer):
    # The newest element of each filter's memory, for each row of the batch.
    def __init__(self, svdf: "SvdfLayer") -> None:
        super().__init__(svdf.network, replace(svdf.operator, outputs=svdf.operator.outputs[:1]))
        self.svdf, self.size = svdf, svdf.rows * svdf.filters
        self.limits = svdf.memory.low, svdf.memory.high

    @property
    def type(self) -> ElementType:
        return self.svdf.memory

    def sums(self) -> Iterator[Summed]:
        s, values = self.svdf, self.network.values(self.operator.inputs[0])
        low, high = (int(v) - s.input_zero for v in (s.file.kind(self.operator.inputs[0])[1:]))
        ends = s.feature * low, s.feature * high
        least, most = np.minimum(*ends).sum(1).min(), np.maximum(*ends).sum(1).max()
        self.ranges = {0: (int(least), int(most))}
        depth = s.feature.shape[1]
        for i in range(self.size):
            row, f = divmod(i, s.filters)
            taps = s.feature[f].tolist()
            given = values[row * depth : (row + 1) * depth]
            base, terms = terms_of(-s.input_zero * sum(taps), zip(given, taps, strict=True))
            yield i, 0, base, terms

    def function(self, channel: Channel, acc: Ints) -> Any:
        return np.clip(requantize(acc, *self.svdf.to_state) + self.svdf.state_zero, *self.limits)


class SvdfLayer(SumLayer):
    """The outputs, then the next state. ``parts`` are the layers within."""

    def __init__(self, network: Tensors, operator: NetworkOperator) -> None:
        super().__init__(network, operator)
        f, inputs = self.file, operator.inputs
        o = operator.options(tflite.SVDFOptions)
        if o.FusedActivationFunction() not in (0, 1):  # the output is clamped to its type, nothing more
            raise Refusal("an SVDF with an activation")
        self.feature, self.time = (self._constant(t) for t in inputs[1:3])
        self.filters, self.length = self.time.shape
        self.rank, self.rows = o.Rank(), f.shape(inputs[0])[0]
        self.units = self.filters // self.rank
        if f.kind(inputs[0]).bits != 8 or self.type.bits != 8:
            raise Refusal("an SVDF of other types than int8")
        self.bias = self._constant(inputs[3]) if inputs[3] >= 0 else np.zeros(self.units, np.int64)
        self.memory = f.kind(inputs[4])
        self.input_zero, self.state_zero = f.zero_point(inputs[0]), f.zero_point(inputs[4])
        scales = [np.float32(f.scale(t)) for t in (*inputs[:3], inputs[4], operator.output)]
        self.to_state = quantized_multiplier(float(scales[0] * scales[1] / scales[3]))
        self.to_output = quantized_multiplier(float(scales[3] * scales[2] / scales[4]))
        self.limits, self.zero = (self.type.low, self.type.high), f.zero_point(operator.output)
        self.newest = NewestProducts(self)
        self.parts: tuple[Layer, ...] = (self.newest, self)

    def _constant(self, tensor: int) -> Ints:
        found = self.file.constant(tensor)
        if found is None:
            raise Refusal("weights and biases must be constant")
        return np.asarray(found)

    @property
    def stored_sizes(self) -> frozenset[int]:
        return frozenset((self.type.bits, self.memory.bits))

    def data_inputs(self) -> Sequence[int]:
        return (self.operator.inputs[0], self.operator.inputs[4], self.operator.output)

    def memories(self) -> list[list[Value]]:
        """Return each filter's memory after the run, for each row of the batch."""
        before = self.network.values(self.operator.inputs[4])
        newest = self.network.prepared(self.newest)
        rows = (before[i : i + self.length] for i in range(0, len(before), self.length))
        return [[*row[1:], new] for row, new in zip(rows, newest, strict=True)]

    def prepare(self) -> list[Value]:
        outputs = super().prepare()[: self.rows * self.units]
        return outputs + [v for row in self.memories() for v in row]

    def sums(self) -> Iterator[Summed]:
        memories = self.memories()
        low, high = bounds_of(v for row in memories for v in row)
        ends = int(low.min()) - self.state_zero, int(high.max()) - self.state_zero
        taps = [k for row in self.time.tolist() for k in row]
        most = sum(max(k * e for e in ends) for k in taps)
        least = sum(min(k * e for e in ends) for k in taps)
        self.ranges = {0: (least + int(self.bias.min()), most + int(self.bias.max()))}
        for i in range(self.rows * self.units):
            row, unit = divmod(i, self.units)
            pairs = [
                (value, int(k))
                for f in range(unit * self.rank, (unit + 1) * self.rank)
                for value, k in zip(memories[row * self.filters + f], self.time[f], strict=True)
            ]
            base = int(self.bias[unit]) - self.state_zero * sum(k for _, k in pairs)
            yield i, 0, *terms_of(base, pairs)

    def function(self, channel: Channel, acc: Ints) -> Any:
        return np.clip(requantize(acc, *self.to_output) + self.zero, *self.limits)

    def proven_outputs(self) -> set[int]:
        """Return the proven outputs; elements of the state are copies, but for the newest ones."""
        first = self.rows * self.units
        moved = {first + i for i in range(self.size - first) if (i + 1) % self.length}
        newest = {first + i * self.length + self.length - 1 for i in self.newest.proven_outputs()}
        return super().proven_outputs() | moved | newest

    def needs(self, outputs: set[int]) -> set[Symbol]:
        given = self.network.values(self.operator.inputs[0]), self.network.values(self.operator.inputs[4])
        return {v for values in given for v in values if isinstance(v, Symbol)}
