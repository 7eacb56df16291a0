"""Layers whose outputs are functions of one sum: convolutions, fully connected layers, average pools."""

import math
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite

from crtgen.prove.network.arithmetic import Ints, quantized_multiplier, requantize
from crtgen.prove.network.layer import Layer, Value
from crtgen.prove.network.window import Window, windows
from crtgen.prove.refusal import Refusal
from crtgen.prove.value import Symbol

__all__ = ["AveragePool", "Convolution", "Depthwise", "Form", "FullyConnected", "SumLayer", "fingerprint"]

_SECRETS: dict[Symbol, int] = {}
_BITS = 192


def fingerprint(terms: Mapping[Symbol, int]) -> int:
    """A random linear function of the coefficients, modulo 2^192.

    The numbers are drawn anew in each run. Two different sums with coefficients below 2^40 have the same
    fingerprint with a probability of at most 2^-152.
    """
    total = 0
    for symbol, k in terms.items():
        number = _SECRETS.get(symbol)
        if number is None:
            number = _SECRETS[symbol] = secrets.randbits(_BITS)
        total += k * number
    return total & ((1 << _BITS) - 1)


@dataclass(frozen=True, slots=True)
class Form:
    """An output whose sum is ``base`` + ``factor`` * the sum of normal terms (their divisor is 1)."""

    output: int
    channel: int
    base: int
    factor: int


class SumLayer(Layer):
    """``forms`` are outputs by the fingerprint of their normal terms; ``ranges`` all sums of a channel."""

    forms: dict[int, list[Form]]
    ranges: dict[int, tuple[int, int]]
    limits: tuple[int, int]

    def prepare(self) -> list[Value]:
        self.forms, self._steps, self._ends = {}, {}, {}
        self.needed: dict[int, tuple[Symbol, ...]] = {}
        result: list[Value] = [0] * self.size
        for output, channel, base, terms in self.sums():
            result[output] = self._enter(result, output, channel, base, terms)
        return result

    def sums(self) -> Iterator[tuple[int, int, int, dict[Symbol, int]]]:
        """Of each output: index, channel, constant and coefficients of its sum. Sets ``ranges`` before."""
        raise NotImplementedError

    def function(self, channel: int, acc: Ints) -> Any:
        """What the network makes of sums."""
        raise NotImplementedError

    def alike(self, one: int, other: int) -> bool:
        """Whether the functions of two channels are the same."""
        return one == other

    def _enter(self, result: list[Value], i: int, c: int, base: int, terms: dict[Symbol, int]) -> Value:
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
        known.append(Form(i, c, base, factor))
        self.needed[i] = tuple(terms)
        low, high = self.ends(c)
        if low == high:
            self.proven.add(i)
            return low
        return Symbol(self.operator.output, i, low, high)

    def ends(self, channel: int) -> tuple[int, int]:
        """The least and the greatest output of a channel; its function is monotone."""
        if channel not in self._ends:
            a, b = self.function(channel, np.array(self.ranges[channel], np.int64))
            self._ends[channel] = int(a), int(b)
        return self._ends[channel]

    def steps(self, channel: int) -> Ints:
        """Both ends of the range, and the sums on both sides of each step of the function."""
        if channel not in self._steps:
            low, high = self.ranges[channel]
            first, last = self.ends(channel)
            v = np.arange(first + 1, last + 1, dtype=np.int64)
            a, b = np.full(v.shape, low, np.int64), np.full(v.shape, high, np.int64)
            while (b - a > 1).any():  # f(a) < v <= f(b)
                middle = (a + b) >> 1
                above = self.function(channel, middle) >= v
                a, b = np.where(above, a, middle), np.where(above, middle, b)
            self._steps[channel] = np.unique(np.concatenate([a, b, [low, high]]))
        return self._steps[channel]

    def needs(self, outputs: set[int]) -> set[Symbol]:
        found: set[Symbol] = set()
        for i in outputs:
            found.update(self.needed.get(self.same.get(i, i), ()))
        return found

    _steps: dict[int, Ints]
    _ends: dict[int, tuple[int, int]]


class _Weighted(SumLayer):
    """A layer with weights, a bias, and a factor per output channel."""

    def read(self, activation: int, axis: int) -> tuple[Ints, Ints]:
        """Weights and biases; factors and limits are set. ``axis`` has the output channels."""
        x, w, *bias = self.operator.inputs
        f, y = self.file, self.operator.output
        weights = f.constant(w)
        if weights is None or not (f.is_int8(x) and f.is_int8(w) and f.is_int8(y)):
            raise Refusal("its weights, input and output have to be int8, the weights constant")
        channels = weights.shape[axis]
        biases = f.constant(bias[0]) if bias and bias[0] >= 0 else np.zeros(channels, np.int64)
        if biases is None:
            raise Refusal("its bias has to be a constant of int32")
        self.limits, self.zero = f.limits(y, activation), f.zero_point(y)
        self.input_zero = f.zero_point(x)
        self.factors = [quantized_multiplier(v) for v in self._scales(channels)]
        return weights, biases

    def _scales(self, channels: int) -> list[float]:
        f, (x, w, *_) = self.file, self.operator.inputs
        scales = f.scales(w)
        return [
            f.scale(x) * float(scales[c % len(scales)]) / f.scale(self.operator.output)
            for c in range(channels)
        ]

    def function(self, channel: int, acc: Ints) -> Any:
        return np.clip(requantize(acc, *self.factors[channel]) + self.zero, *self.limits)

    def alike(self, one: int, other: int) -> bool:
        return self.factors[one] == self.factors[other]

    def bounds(self, channels: int) -> tuple[Ints, Ints]:
        """The least and greatest value of each input channel."""
        values = self.network.values(self.operator.inputs[0])
        low = np.array([v.low if isinstance(v, Symbol) else v for v in values], np.int64)
        high = np.array([v.high if isinstance(v, Symbol) else v for v in values], np.int64)
        return low.reshape(-1, channels).min(0), high.reshape(-1, channels).max(0)

    def set_range(
        self, channel: int, bias: int, weights: Ints, ends: tuple[Ints, Ints], padded: bool
    ) -> None:
        """All sums of a channel; where a tap may be in the padding it may add 0."""
        a, b = (ends[0] - self.input_zero) * weights, (ends[1] - self.input_zero) * weights
        low, high = np.minimum(a, b), np.maximum(a, b)
        if padded:
            low, high = np.minimum(low, 0), np.maximum(high, 0)
        self.ranges[channel] = int(bias + low.sum()), int(bias + high.sum())

    def terms(self, bias: int, taps: Iterator[tuple[Value, int]]) -> tuple[int, dict[Symbol, int]]:
        """Constant and coefficients of a sum of values less the zero point, times weights."""
        base, terms, zero = bias, dict[Symbol, int](), self.input_zero
        for value, k in taps:
            base -= k * zero
            if isinstance(value, Symbol):
                terms[value] = terms.get(value, 0) + k
            else:
                base += k * value
        return base, terms


class Convolution(_Weighted):
    def sums(self) -> Iterator[tuple[int, int, int, dict[Symbol, int]]]:
        o = self.operator.options(tflite.Conv2DOptions)
        weights, biases = self.read(o.FusedActivationFunction(), 0)
        channels, kh, kw, depth = weights.shape
        if self.file.shape(self.operator.inputs[0])[-1] != depth:
            raise Refusal("convolutions in groups are not followed")
        where, padded = windows(self, (kh, kw), o, (o.DilationHFactor(), o.DilationWFactor()))
        low, high = self.bounds(depth)
        ends = np.tile(low, kh * kw), np.tile(high, kh * kw)
        rows = weights.reshape(channels, -1)
        self.ranges = {}
        for c in range(channels):
            self.set_range(c, int(biases[c]), rows[c], ends, padded)
        values, lists = self.network.values(self.operator.inputs[0]), rows.tolist()
        for place, window in enumerate(where):
            cells = [(values[p * depth + d], t * depth + d) for p, t in window for d in range(depth)]
            for c, row in enumerate(lists):
                base, terms = self.terms(int(biases[c]), ((v, row[t]) for v, t in cells))
                yield place * channels + c, c, base, terms


class Depthwise(_Weighted):
    def sums(self) -> Iterator[tuple[int, int, int, dict[Symbol, int]]]:
        o = self.operator.options(tflite.DepthwiseConv2DOptions)
        weights, biases = self.read(o.FusedActivationFunction(), 3)
        _, kh, kw, channels = weights.shape
        depth = self.file.shape(self.operator.inputs[0])[-1]
        times = channels // depth
        where, padded = windows(self, (kh, kw), o, (o.DilationHFactor(), o.DilationWFactor()))
        low, high = self.bounds(depth)
        rows = weights.reshape(-1, channels).T
        self.ranges = {}
        for c in range(channels):
            self.set_range(c, int(biases[c]), rows[c], (low[c // times], high[c // times]), padded)
        values, lists = self.network.values(self.operator.inputs[0]), rows.tolist()
        for place, window in enumerate(where):
            for c, row in enumerate(lists):
                taps = ((values[p * depth + c // times], row[t]) for p, t in window)
                base, terms = self.terms(int(biases[c]), taps)
                yield place * channels + c, c, base, terms


class FullyConnected(_Weighted):
    def _scales(self, channels: int) -> list[float]:
        """TFLite multiplies the two scales in float32 here."""
        f, (x, w, *_) = self.file, self.operator.inputs
        sx, scales, sy = f.scales(x)[0], f.scales(w), f.scale(self.operator.output)
        return [float(sx * scales[c % len(scales)]) / sy for c in range(channels)]

    def sums(self) -> Iterator[tuple[int, int, int, dict[Symbol, int]]]:
        activation = 0  # what a file without options means
        if self.operator.has_options:
            activation = self.operator.options(tflite.FullyConnectedOptions).FusedActivationFunction()
        weights, biases = self.read(activation, 0)
        channels, depth = weights.shape
        values, lists = self.network.values(self.operator.inputs[0]), weights.tolist()
        low, high = self.bounds(depth)
        self.ranges = {}
        for c in range(channels):
            self.set_range(c, int(biases[c]), weights[c], (low, high), padded=False)
        for row in range(self.size // channels):
            inputs = values[row * depth : (row + 1) * depth]
            for c, k in enumerate(lists):
                base, terms = self.terms(int(biases[c]), zip(inputs, k, strict=True))
                yield row * channels + c, c, base, terms


class AveragePool(SumLayer):
    """The channel of a sum is how many cells its window has."""

    def sums(self) -> Iterator[tuple[int, int, int, dict[Symbol, int]]]:
        o = self.operator.options(tflite.Pool2DOptions)
        x = self.operator.inputs[0]
        if not self.file.is_int8(x):
            raise Refusal("its input has to be int8")
        self.limits = self.file.limits(self.operator.output, o.FusedActivationFunction())
        where, _ = windows(self, (o.FilterHeight(), o.FilterWidth()), o, (1, 1))
        values, depth = self.network.values(x), self.file.shape(x)[-1]
        self.ranges = {n: (-128 * n, 127 * n) for n in {len(w) for w in where}}
        for place, window in enumerate(where):
            for c in range(depth):
                base, terms = _sum_of(values, depth, c, window)
                yield place * depth + c, len(window), base, terms

    def function(self, channel: int, acc: Ints) -> Any:
        half = channel // 2
        mean = np.where(acc > 0, (acc + half) // channel, -((-acc + half) // channel))
        return np.clip(mean, *self.limits)


def _sum_of(values: list[Value], depth: int, c: int, window: Window) -> tuple[int, dict[Symbol, int]]:
    base, terms = 0, dict[Symbol, int]()
    for p, _ in window:
        value = values[p * depth + c]
        if isinstance(value, Symbol):
            terms[value] = terms.get(value, 0) + 1
        else:
            base += value
    return base, terms
