"""Element-wise layers of one or two tensors."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tflite

from crtgen.proof.checker.algebra.greatest import greatest_of, least_of
from crtgen.proof.checker.algebra.value import Symbol, Word
from crtgen.proof.checker.network.arithmetic import (
    Ints,
    input_radius,
    inverse_square_root,
    logistic_q4,
    quantized_multiplier,
    requantize,
    requantize_each,
    rounded_shift,
    sigmoid_table,
    tanh_q4,
)
from crtgen.proof.checker.network.layer import Value
from crtgen.proof.checker.network.sums import Channel, SumLayer, Summed, bounds_of
from crtgen.proof.checker.refusal import Refusal

__all__ = [
    "COMPARISONS",
    "AbsoluteLayer",
    "Addition",
    "ComparisonLayer",
    "Composed",
    "DifferenceLayer",
    "ElementLayer",
    "ExtremeLayer",
    "HardSwishLayer",
    "PreluLayer",
    "ProductLayer",
    "RescalingLayer",
    "RsqrtLayer",
    "Sigmoid",
    "sigmoid16",
]

_B = tflite.BuiltinOperator
_ACTIVATIONS = {_B.RELU: 1, _B.RELU_N1_TO_1: 2, _B.RELU6: 3, _B.RELU_0_TO_1: 4}
# Values of an element that are tried one by one, to see whether a function falls.
_MOST = 1 << 16


class ElementLayer(SumLayer):
    """A layer in which each output depends only on the same element of each operand.

    Most outputs depend on one symbol; the constant operand, if any, serves as their channel. ``pairs`` maps
    two symbols to the outputs that depend on both; ``operands`` are the operands of each output.
    """

    limits: tuple[int, int]

    joint = ""
    """Operation that joins the results of ``part`` for two operands into ``last``'s argument; "" if there is
    none.
    """

    def prepare(self) -> list[Value]:
        self.read()
        f, shape = self.file, self.file.shape(self.operator.output)
        self.zeros = [f.zero_point(t) if f.has_scale(t) else 0 for t in self.data_inputs()]
        self.zero = f.zero_point(self.operator.output) if f.has_scale(self.operator.output) else 0
        arrays = [np.broadcast_to(self.network.array(t), shape).ravel() for t in self.data_inputs()]
        self.operands: list[tuple[Value, ...]] = list(zip(*arrays, strict=True))
        self.pairs: dict[frozenset[Symbol], list[int]] = {}
        ends = [bounds_of(a) for a in arrays]
        self.all_of = [(int(low.min()), int(high.max())) for low, high in ends]
        self.rises = self._rises()
        values = super().prepare()
        kept: dict[tuple[Channel, int, int], bool] = {}
        self._pair_ends: dict[tuple[tuple[int, int], ...], tuple[int, int]] = {}
        alike: dict[tuple[Value, ...], int] = {}
        for i, operands in enumerate(self.operands):
            symbols = frozenset(v for v in operands if isinstance(v, Symbol))
            if len(symbols) > 1 and alike.setdefault(operands, i) < i:
                values[i] = values[alike[operands]]  # a normalisation's factors may be one for many channels
            elif len(symbols) > 1:
                self.pairs.setdefault(symbols, []).append(i)
                values[i] = self.symbol(i, *self._ends_of(operands), operands)
            for symbol in symbols if len(symbols) == 1 else ():
                key = _channel(operands), symbol.low, symbol.high
                if key not in kept:
                    kept[key] = self._keeps(*key)
                if kept[key]:  # code that is simplified leaves nothing to recognise
                    values[i] = symbol
                    self.proven.add(i)
                    self.network.keeps(self.operator.output, symbol.tensor)
        return values

    def _ends_of(self, operands: tuple[Value, ...]) -> tuple[int, int]:
        # The smallest and the largest output of two symbols; ``last`` never falls.
        if not self.joint:
            return self.limits
        key = tuple((v.low, v.high) for v in operands if isinstance(v, Symbol))
        if key not in self._pair_ends:
            a, b = (self.part(which, np.array(ends)) for which, ends in enumerate(key))
            joined = np.add.outer(a, b) if self.joint == "add" else np.multiply.outer(a, b)
            outputs = self.last(np.array([joined.min(), joined.max()]))
            self._pair_ends[key] = int(outputs[0]), int(outputs[1])
        return self._pair_ends[key]

    def _keeps(self, channel: Channel, low: int, high: int) -> bool:
        # True if the output equals its symbol for all of the symbol's values, where they can be tried.
        if high - low >= _MOST:
            return False
        values = np.arange(low, high + 1)
        return bool((self.function(channel, values) == values).all())

    def data_inputs(self) -> Sequence[int]:
        return self.operator.inputs

    def read(self) -> None:
        raise NotImplementedError

    def of(self, *operands: Any) -> Any:
        """Return the output for operands without their zero points, before the output's own zero point and
        limits are applied.
        """
        raise NotImplementedError

    def value(self, *operands: Any) -> Any:
        made = self.of(*(v - z for v, z in zip(operands, self.zeros, strict=True)))
        return np.clip(made + self.zero, *self.limits)

    def function(self, channel: Channel, acc: Ints) -> Any:
        assert isinstance(channel, tuple)  # a number, or None for the symbol, for each operand
        return np.broadcast_to(self.value(*(acc if k is None else np.int64(k) for k in channel)), acc.shape)

    def part(self, which: int, v: Any) -> Any:
        raise NotImplementedError

    def last(self, joined: Any) -> Any:
        """Return the output for two operands that are already combined into one value; a function that never
        falls.
        """
        raise NotImplementedError

    def _rises(self) -> bool:
        # Decided by all values of one operand; assumed if there are too many to try.
        if len(self.all_of) > 1:
            return False
        ((low, high),) = self.all_of
        if high - low >= _MOST:
            return True
        return bool((np.diff(self.function((None,), np.arange(low, high + 1))) >= 0).all())

    def sums(self) -> Iterator[Summed]:
        self.ranges = {}
        for i, operands in enumerate(self.operands):
            symbols = {v for v in operands if isinstance(v, Symbol)}
            if len(symbols) > 1:
                continue
            channel = _channel(operands)
            whose = channel.index(None) if symbols else 0
            self.ranges[channel] = self.all_of[whose]
            yield i, channel, 0, dict.fromkeys(symbols, 1)

    def needs(self, outputs: set[int]) -> set[Symbol]:
        return {v for i in outputs for v in self.operands[i] if isinstance(v, Symbol)}


def _channel(operands: tuple[Value, ...]) -> tuple[int | None, ...]:
    return tuple(None if isinstance(v, Symbol) else v for v in operands)


class Composed(SumLayer):
    """A layer of sums and the following element-wise layer as one function, for kernels that compute both at
    once.
    """

    def __init__(self, first: SumLayer, then: ElementLayer) -> None:
        super().__init__(then.network, then.operator)
        self.first, self.then = first, then

    def prepare(self) -> list[Value]:
        values = self.network.values(self.then.operator.output)
        self.network.values(self.first.operator.output)
        self._steps, self._ends = {}, {}
        self.forms, self.ranges = self.first.forms, self.first.ranges
        self.rises = self.first.rises and self.then.rises
        self.proven = self.then.proven
        return values

    def alike(self, one: Channel, other: Channel) -> bool:
        return self.first.alike(one, other)

    def function(self, channel: Channel, acc: Ints) -> Any:
        return self.then.function((None,), self.first.function(channel, acc))

    def found(self, output: int) -> Value:
        self.first.proven.add(output)
        return self.then.found(output)


class RescalingLayer(ElementLayer):
    """QUANTIZE to another scale, RELU and its variants, and LEAKY_RELU, which has two factors."""

    def read(self) -> None:
        f, (x,), y = self.file, self.operator.inputs, self.operator.output
        self.limits = f.limits(y, _ACTIVATIONS.get(self.operator.code, 0))
        self.above = self.below = quantized_multiplier(f.scale(x) / f.scale(y))
        self.sign = 1
        if self.operator.code == _B.LEAKY_RELU:
            alpha = float(np.float32(self.operator.options(tflite.LeakyReluOptions).Alpha()))
            self.sign = -1 if alpha < 0 else 1
            self.below = quantized_multiplier(abs(f.scale(x) * alpha) / f.scale(y))

    def of(self, *operands: Any) -> Any:
        (x,) = operands
        return np.where(x >= 0, requantize(x, *self.above), requantize(x * self.sign, *self.below))


class PreluLayer(ElementLayer):
    def read(self) -> None:
        f, (x, alpha), y = self.file, self.operator.inputs, self.operator.output
        self.limits = f.limits(y, 0)
        self.above = quantized_multiplier(f.scale(x) / f.scale(y))
        self.below = quantized_multiplier(f.scale(x) * f.scale(alpha) / f.scale(y))

    def of(self, *operands: Any) -> Any:
        x, alpha = operands
        return np.where(x >= 0, requantize(x, *self.above), requantize(x * alpha, *self.below))


class Sigmoid(ElementLayer):
    """LOGISTIC and TANH: int8 in gemmlowp's fixed point, int16 with an interpolated table."""

    def read(self) -> None:
        f, (x,), y = self.file, self.operator.inputs, self.operator.output
        self.limits, self.is_tanh = f.limits(y, 0), self.operator.code == _B.TANH
        if self.type.bits == 16:
            self.factor, self.shift = _table_factor(f.scale(x))
            return
        self.multiplier, self.exponent = quantized_multiplier(f.scale(x) * (1 << 27))
        self.radius = input_radius(4, self.exponent)

    def of(self, *operands: Any) -> Any:
        (x,) = operands
        if self.type.bits == 16:
            return sigmoid16((x * self.factor + (1 << self.shift >> 1)) >> self.shift, self.is_tanh)
        inside = np.clip(x, -self.radius, self.radius)
        scaled = requantize(inside, self.multiplier, self.exponent)
        if self.is_tanh:
            made, ends = rounded_shift(tanh_q4(scaled), 24), (-128, 127)
        else:
            made, ends = rounded_shift(logistic_q4(scaled), 23), (0, 255)
        return np.where(x <= -self.radius, ends[0], np.where(x >= self.radius, ends[1], made))


def _table_factor(scale: float) -> tuple[int, int]:
    # Multiplier and shift that convert an input to steps of 1 / (3 * 4096).
    power = round(np.log2(scale))
    if abs(np.log2(scale) - power) < 1e-3 and power + 12 in (0, 1):
        return 3 << power + 12, 0
    real, shift = scale * 4096 * 3, 0
    while real <= 32767 / 2 and shift <= 30:
        real, shift = real * 2, shift + 1
    return int(real), shift


def sigmoid16(x: Any, is_tanh: bool) -> Any:
    """Compute the logistic function from a table with 256 entries, 1/24 apart; tanh reads it at twice the
    argument.
    """
    table, bits = sigmoid_table(), 8 if is_tanh else 9
    place = abs(x) >> bits
    at = np.minimum(place, 254)
    left = table[at]
    inside = (left << bits) + (abs(x) & ((1 << bits) - 1)) * (table[at + 1] - left)
    top = 0xFFFF << bits if is_tanh else 0x7FFF << 10
    inside = np.where(place >= 255, top, inside)
    if is_tanh:
        one = 1 << 23
        return np.where(x >= 0, inside - one + 128 >> 8, -inside + one + 128 - 1 >> 8)
    return np.where(x >= 0, inside + 512 >> 10, (1 << 25) - inside + 511 >> 10)


class HardSwishLayer(ElementLayer):
    """HARD_SWISH: x * relu6(x + 3) / 6, with 16-bit intermediate values."""

    def read(self) -> None:
        f, (x,), y = self.file, self.operator.inputs, self.operator.output
        self.limits, scale = f.limits(y, 0), np.float32(f.scale(x)) / np.float32(128)
        self.output = quantized_multiplier(float(scale / np.float32(f.scale(y))))
        self.relu = quantized_multiplier(float(scale / np.float32(3 / 32768)))

    def of(self, *operands: Any) -> Any:
        x = operands[0] << 7
        (factor, exponent), (relu_factor, relu_exponent) = self.output, self.relu
        if exponent > 0:
            raise Refusal("the output's scale is too fine for the input's")
        made = _high_mul16(x, factor)
        share = _shifted16(x, relu_exponent - 1) if relu_exponent > 0 else x
        share = _high_mul16(share, relu_factor)
        share = _shifted16(share, 1) if relu_exponent > 0 else share
        share = rounded_shift(share, -relu_exponent) if relu_exponent < 0 else share
        return rounded_shift(_towards_zero((share + (1 << 15) >> 1) * made), -exponent)


def _high_mul16(a: Any, multiplier: int) -> Any:
    # A multiplier of 31 bits is rounded to 15 before.
    product = a * min((multiplier + (1 << 15)) >> 16, 0x7FFF)
    return _towards_zero(product + np.where(product >= 0, 1 << 14, 1 - (1 << 14)))


def _towards_zero(v: Any) -> Any:
    return np.where(v >= 0, v >> 15, -(-v >> 15))


def _shifted16(v: Any, n: int) -> Any:
    return np.clip(v << n, -0x8000, 0x7FFF)


class AbsoluteLayer(ElementLayer):
    def read(self) -> None:
        f, (x,), y = self.file, self.operator.inputs, self.operator.output
        self.limits = f.limits(y, 0)
        self.factor = quantized_multiplier(f.scale(x) / f.scale(y))

    def of(self, *operands: Any) -> Any:
        return requantize(abs(operands[0]), *self.factor)


class RsqrtLayer(ElementLayer):
    """RSQRT of int8: 1 / sqrt by five steps of Newton's method; the largest value for inputs that are not
    positive.
    """

    def read(self) -> None:
        f, (x,), y = self.file, self.operator.inputs, self.operator.output
        if self.type.bits != 8:
            raise Refusal("of another type than int8")
        self.limits = f.limits(y, 0)
        product = np.sqrt(np.float32(f.scale(x))) * np.float32(f.scale(y))
        self.multiplier, self.exponent = quantized_multiplier(1 / float(product))

    def of(self, *operands: Any) -> Any:
        x = np.asarray(operands[0])
        factors = np.array([inverse_square_root(n) for n in range(1, 256)])
        inverse, exponent = np.moveaxis(factors[np.clip(x, 1, 255) - 1], -1, 0)
        one = requantize_each(np.ones_like(x), inverse, exponent + 20)
        made = requantize(one, self.multiplier, self.exponent - 20)
        return np.where(x <= 0, 255, made)


class ComparisonLayer(ElementLayer):
    """EQUAL, LESS and the other comparisons: both operands are shifted left by 8 bits, multiplied by their
    scales, and compared.
    """

    def read(self) -> None:
        f, inputs = self.file, self.operator.inputs
        self.limits = 0, 1
        self.factors = [quantized_multiplier(f.scale(t)) for t in inputs]

    def of(self, *operands: Any) -> Any:
        a, b = (requantize(v << 8, *k) for v, k in zip(operands, self.factors, strict=True))
        return COMPARISONS[self.operator.code](a, b).astype(np.int64)


COMPARISONS: dict[int, Any] = {
    _B.EQUAL: np.equal,
    _B.NOT_EQUAL: np.not_equal,
    _B.GREATER: np.greater,
    _B.GREATER_EQUAL: np.greater_equal,
    _B.LESS: np.less,
    _B.LESS_EQUAL: np.less_equal,
}


class Addition(ElementLayer):
    """ADD and SUB: both operands are brought to a common scale with 20 additional bits (15 for int16)."""

    joint = "add"

    def read(self) -> None:
        f, (x, y), z = self.file, self.operator.inputs, self.operator.output
        is_sum = self.operator.code == _B.ADD
        o = self.operator.options(tflite.AddOptions if is_sum else tflite.SubOptions)
        self.limits = f.limits(z, o.FusedActivationFunction())
        self.more, top = 15 if self.type.bits == 16 else 20, 2 * max(f.scale(x), f.scale(y))
        self.sign = 1 if is_sum else -1
        scales = f.scale(x) / top, f.scale(y) / top, top / ((1 << self.more) * f.scale(z))
        self.factors = [quantized_multiplier(s) for s in scales]

    def part(self, which: int, v: Any) -> Any:
        scaled = requantize(v - self.zeros[which] << self.more, *self.factors[which])
        return scaled * self.sign if which else scaled

    def last(self, joined: Any) -> Any:
        return np.clip(requantize(joined, *self.factors[2]) + self.zero, *self.limits)

    def value(self, *operands: Any) -> Any:
        return self.last(self.part(0, operands[0]) + self.part(1, operands[1]))


class ProductLayer(ElementLayer):
    joint = "mul"

    def read(self) -> None:
        f, (x, y), z = self.file, self.operator.inputs, self.operator.output
        o = self.operator.options(tflite.MulOptions)
        self.limits = f.limits(z, o.FusedActivationFunction())
        self.factor = quantized_multiplier(f.scale(x) * f.scale(y) / f.scale(z))

    def part(self, which: int, v: Any) -> Any:
        return v - self.zeros[which]

    def last(self, joined: Any) -> Any:
        return np.clip(requantize(joined, *self.factor) + self.zero, *self.limits)

    def value(self, *operands: Any) -> Any:
        return self.last(self.part(0, operands[0]) * self.part(1, operands[1]))


class DifferenceLayer(ElementLayer):
    """SQUARED_DIFFERENCE: both operands get 7 additional bits (none for int16)."""

    def read(self) -> None:
        f, (x, y), z = self.file, self.operator.inputs, self.operator.output
        self.limits, top = f.limits(z, 0), 2 * max(f.scale(x), f.scale(y))
        self.more = 0 if self.type.bits == 16 else 7
        last = float(np.float32((1 << 2 * self.more) * f.scale(z)))
        scales = f.scale(x) / top, f.scale(y) / top, top * top / last
        self.factors = [quantized_multiplier(s) for s in scales]

    def of(self, *operands: Any) -> Any:
        a, b = (requantize(v << self.more, *k) for v, k in zip(operands, self.factors[:2], strict=True))
        return requantize((a - b) * (a - b), *self.factors[2])


class ExtremeLayer(ElementLayer):
    """MAXIMUM and MINIMUM, which compare the quantised values without regard to their scales."""

    def read(self) -> None:
        self.limits = self.type.low, self.type.high

    def found_in(self, word: Word) -> frozenset[Symbol] | None:
        is_max, (low, high) = self.operator.code == _B.MAXIMUM, self.limits
        found, end = (greatest_of(word, low), low) if is_max else (least_of(word, high), high)
        return found[0] if found and found[1] == end else None

    def value(self, *operands: Any) -> Any:
        is_max = self.operator.code == _B.MAXIMUM
        return (np.maximum if is_max else np.minimum)(*operands)
