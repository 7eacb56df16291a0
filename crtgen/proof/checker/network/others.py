"""Max pools, maxima and minima along axes, and softmax."""

from typing import Any

import numpy as np
import tflite

from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.arithmetic import (
    Ints,
    exp_negative,
    high_mul,
    input_radius,
    quantized_multiplier,
    reciprocal,
    requantize,
    rounded_shift,
)
from crtgen.proof.checker.network.layer import Layer, Value
from crtgen.proof.checker.network.means import reduced
from crtgen.proof.checker.network.window import windows
from crtgen.proof.checker.refusal import Refusal

__all__ = ["ExtremeAlongAxes", "MaxPool", "SoftmaxLayer"]


class MaxPool(Layer):
    """MAX_POOL_2D. ``by_set`` maps a set of symbols, and the greatest constant among the inputs, to the
    outputs that are their maximum after the activation; if ``takes_least``, their minimum.
    """

    takes_least = False

    def prepare(self) -> list[Value]:
        o = self.operator.options(tflite.Pool2DOptions)
        x, y = self.operator.inputs[0], self.operator.output
        if self.file.kind(x) != self.type:
            raise Refusal("input and output must have the same type")
        self.limits = self.file.limits(y, o.FusedActivationFunction())
        where, _ = windows(self, (o.FilterHeight(), o.FilterWidth()), o, (1, 1))
        values, depth = self.network.values(x), self.file.shape(x)[-1]
        self.by_set: dict[tuple[frozenset[Symbol], int], int] = {}
        self.sets: list[frozenset[Symbol]] = []
        result = []
        for place, window in enumerate(where):
            for c in range(depth):
                result.append(self._enter(place * depth + c, [values[p * depth + c] for p, _ in window]))
        return result

    def _enter(self, i: int, cells: list[Value]) -> Value:
        symbols = frozenset(v for v in cells if isinstance(v, Symbol))
        low, high = self.limits
        pick, end = (min, self.type.high) if self.takes_least else (max, self.type.low)
        end = pick([end, *(v for v in cells if not isinstance(v, Symbol))])
        self.sets.append(symbols)
        if not symbols:
            self.proven.add(i)
            return min(high, max(low, end))
        known = self.by_set.setdefault((symbols, end), i)
        if known != i:
            self.same[i] = known
        ends = (pick(end, *(s.low for s in symbols)), pick(end, *(s.high for s in symbols)))
        first, last = (min(high, max(low, v)) for v in ends)
        return self.symbol(i, first, last, (symbols, end))

    def needs(self, outputs: set[int]) -> set[Symbol]:
        return {s for i in outputs for s in self.sets[i]}


class ExtremeAlongAxes(MaxPool):
    def prepare(self) -> list[Value]:
        f, x, y = self.file, self.operator.inputs[0], self.operator.output
        self.takes_least = self.operator.code == tflite.BuiltinOperator.REDUCE_MIN
        alike = f.has_scale(x) == f.has_scale(y) and f.kind(x) == self.type
        if not alike or (f.has_scale(x) and (f.scale(x), f.zero_point(x)) != (f.scale(y), f.zero_point(y))):
            raise Refusal("input and output must have the same type and scale")
        self.limits = self.type.low, self.type.high
        self.by_set, self.sets = {}, []
        return [self._enter(i, list(row)) for i, row in enumerate(reduced(self))]


class SoftmaxLayer(Layer):
    """Softmax of the rows along the last axis, with TFLite Micro's functions in gemmlowp's fixed point."""

    seen: Any = None
    """Facts that the recogniser found."""

    def prepare(self) -> list[Value]:
        f, x, y = self.file, self.operator.inputs[0], self.operator.output
        beta = self.operator.options(tflite.SoftmaxOptions).Beta()
        if f.kind(x) != self.type or self.type.low != -128 or f.zero_point(y) != -128:
            raise Refusal("input and output must be int8, with the output's zero point at -128")
        scaled = min(float(np.float32(beta)) * f.scale(x) * (1 << 26), float((1 << 31) - 1))
        self.multiplier, self.shift = quantized_multiplier(scaled)
        if self.shift < 0:
            raise Refusal("a scale of its input that small is not followed")
        self.least = -input_radius(5, self.shift)
        self.depth, self.inputs = f.shape(x)[-1], self.network.values(x)
        self.place_of: dict[tuple[int, Symbol], int] = {}
        rows = [tuple(self.inputs[i - i % self.depth :][: self.depth]) for i in range(self.size)]
        result = [self.symbol(i, -128, 127, (row, i % self.depth)) for i, row in enumerate(rows)]
        for i, s in enumerate(self.inputs):
            if not isinstance(s, Symbol):
                raise Refusal("an input of it that is a constant is not followed")
            first = self.place_of.setdefault((i // self.depth, s), i)
            if first != i:
                self.same[i], result[i] = first, result[first]
        return result

    def row_of(self, symbols: frozenset[Symbol]) -> int | None:
        for row in range(self.size // self.depth):
            if frozenset(self.inputs[row * self.depth : (row + 1) * self.depth]) == symbols:
                return row
        return None

    def power(self, difference: Ints) -> Any:
        """Return exp of a difference to the row's maximum, in Q0.31; 0 below ``least``."""
        scaled = requantize(np.asarray(difference, np.int64), self.multiplier, self.shift)
        return np.where(difference >= self.least, exp_negative(scaled, 5), 0)

    def share(self, difference: Ints) -> Any:
        # Return an element's term of the sum, which has 12 integer bits.
        return np.where(difference >= self.least, rounded_shift(self.power(difference), 12), 0)

    def scale_of(self, total: Ints) -> tuple[Any, Any]:
        """Return the reciprocal of a sum in Q0.31, and the shift of the products with it."""
        headroom = 32 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
        shifted = ((total << headroom) & 0xFFFFFFFF) - (1 << 31)
        return reciprocal(shifted), 12 - headroom + 31 - 8

    def output(self, difference: Ints, product: Ints, shift: Any) -> Any:
        share = rounded_shift(product, shift) - 128
        return np.where(difference >= self.least, np.clip(share, -128, 127), -128)

    def reference(self, x: Ints) -> Any:
        difference = x - x.max()
        scale, shift = self.scale_of(np.array([self.share(difference).sum()], np.int64))
        return self.output(difference, high_mul(self.power(difference), scale), shift)

    def needs(self, outputs: set[int]) -> set[Symbol]:
        rows = {i // self.depth for i in outputs}
        return {s for row, s in self.place_of if row in rows}
