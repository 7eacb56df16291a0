"""Layers with weights: convolutions, transposed convolutions, fully connected layers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tflite

from crtgen.proof.checker.network.arithmetic import Ints, quantized_multiplier, requantize, requantize_long
from crtgen.proof.checker.network.sums import Channel, SumLayer, Summed, bounds_of, terms_of
from crtgen.proof.checker.network.window import Window, spread_windows, windows
from crtgen.proof.checker.refusal import Refusal

__all__ = ["ConvolutionLayer", "DepthwiseLayer", "FullyConnectedLayer", "TransposedConvolution"]


class _Weighted(SumLayer):
    weight_axis = 0
    """The axis of output channels in the weights."""

    def read(self, activation: int) -> Ints:
        # The weights; biases, factors and limits are set.
        f, y = self.file, self.operator.output
        x, w, bias = self.tensors()
        weights = f.constant(w)
        if weights is None or f.kind(x) != self.type:
            raise Refusal("weights must be constant, and input and output must have the same type")
        channels = weights.shape[self.weight_axis]
        self.biases = np.zeros(channels, np.int64) if bias < 0 else f.constant(bias)
        if self.biases is None:
            raise Refusal("the bias must be constant")
        # Sums of int16 without a bias, or with one of 64 bits, are 64 bits wide, and rounded once.
        self.is_long = self.type.bits == 16 and (bias < 0 or f.type(bias) != tflite.TensorType.INT32)
        self.limits, self.zero = f.limits(y, activation), f.zero_point(y)
        self.input_zero = f.zero_point(x)
        self.factors = [quantized_multiplier(v) for v in self.scales(x, w, channels)]
        return np.asarray(weights)

    def tensors(self) -> tuple[int, int, int]:
        # Input, weights and bias; -1 for no bias.
        x, w, *bias = self.operator.inputs
        return x, w, bias[0] if bias else -1

    def scales(self, x: int, w: int, channels: int) -> list[float]:
        f, scales, y = self.file, self.file.scales(w), self.operator.output
        return [f.scale(x) * float(scales[c % len(scales)]) / f.scale(y) for c in range(channels)]

    def function(self, channel: Channel, acc: Ints) -> Any:
        assert isinstance(channel, int)  # the number of an output channel
        scaled = (requantize_long if self.is_long else requantize)(acc, *self.factors[channel])
        return np.clip(scaled + self.zero, *self.limits)

    def alike(self, one: Channel, other: Channel) -> bool:
        assert isinstance(one, int)
        assert isinstance(other, int)
        return self.factors[one] == self.factors[other]

    def sums_of(self, where: list[Window], weights: Ints, padded: bool) -> Iterator[Summed]:
        # The window of each position: cells of the input with their taps. ``weights`` are output channels x
        # taps x input channels. If they have fewer input channels than the input, output channels are in
        # groups.
        values = self.network.values(self.data_inputs()[0])
        channels, _, depth = weights.shape
        all_of = self.file.shape(self.data_inputs()[0])[-1]
        each, zero = channels * depth // all_of, self.input_zero
        if all_of % depth or channels % (all_of // depth):
            raise Refusal("channels that are in no groups")
        low, high = bounds_of(values)
        ends = low.reshape(-1, all_of).min(0), high.reshape(-1, all_of).max(0)
        first = [c // each * depth for c in range(channels)]
        self.ranges = {c: self._range(c, weights[c], first[c], ends, padded) for c in range(channels)}
        lists = weights.reshape(channels, -1).tolist()
        sums = weights.sum(2)
        for place, window in enumerate(where):
            taps = [t for _, t in window]
            bases = (self.biases - zero * sums[:, taps].sum(1)).tolist()
            for c, row in enumerate(lists):
                if c == 0 or first[c] != first[c - 1]:
                    cells = [
                        (values[p * all_of + first[c] + d], t * depth + d)
                        for p, t in window
                        for d in range(depth)
                    ]
                base, terms = terms_of(bases[c], ((v, row[t]) for v, t in cells))
                yield place * channels + c, c, base, terms

    def _range(
        self, c: int, weights: Ints, first: int, ends: tuple[Ints, Ints], padded: bool
    ) -> tuple[int, int]:
        # All sums of a channel; where a tap may be in the padding it may add 0.
        part = slice(first, first + weights.shape[1])
        a, b = ((e[part] - self.input_zero) * weights for e in ends)
        low, high = np.minimum(a, b), np.maximum(a, b)
        if padded:
            low, high = np.minimum(low, 0), np.maximum(high, 0)
        return int(self.biases[c] + low.sum()), int(self.biases[c] + high.sum())


class ConvolutionLayer(_Weighted):
    def sums(self) -> Iterator[Summed]:
        o = self.operator.options(tflite.Conv2DOptions)
        weights = self.read(o.FusedActivationFunction())
        channels, kh, kw, depth = weights.shape
        where, padded = windows(self, (kh, kw), o, (o.DilationHFactor(), o.DilationWFactor()))
        yield from self.sums_of(where, weights.reshape(channels, kh * kw, depth), padded)


class DepthwiseLayer(_Weighted):
    weight_axis = 3

    def sums(self) -> Iterator[Summed]:
        o = self.operator.options(tflite.DepthwiseConv2DOptions)
        weights = self.read(o.FusedActivationFunction())
        _, kh, kw, channels = weights.shape
        where, padded = windows(self, (kh, kw), o, (o.DilationHFactor(), o.DilationWFactor()))
        yield from self.sums_of(where, weights.reshape(kh * kw, channels).T[:, :, None], padded)


class TransposedConvolution(_Weighted):
    def tensors(self) -> tuple[int, int, int]:
        _, w, x, *bias = self.operator.inputs
        return x, w, bias[0] if bias else -1

    def data_inputs(self) -> tuple[int, ...]:
        return (self.operator.inputs[2],)

    def sums(self) -> Iterator[Summed]:
        o = self.operator.options(tflite.TransposeConvOptions)
        weights = self.read(o.FusedActivationFunction())
        channels, kh, kw, depth = weights.shape
        where = spread_windows(self, (kh, kw), o)
        yield from self.sums_of(where, weights.reshape(channels, kh * kw, depth), padded=True)


class FullyConnectedLayer(_Weighted):
    def scales(self, x: int, w: int, channels: int) -> list[float]:
        """Return the scales of the products. TFLite multiplies the two scales in float32 if the weights have
        one scale, in double if each channel has its own.
        """
        f, scales, y = self.file, self.file.scales(w), self.operator.output
        if len(scales) > 1:
            return super().scales(x, w, channels)
        return [float(f.scales(x)[0] * scales[0]) / f.scale(y)] * channels

    def sums(self) -> Iterator[Summed]:
        activation = 0  # what a file without options means
        if self.operator.has_options:
            activation = self.operator.options(tflite.FullyConnectedOptions).FusedActivationFunction()
        weights = self.read(activation)
        depth = weights.shape[1]
        taps = self.file.size(self.data_inputs()[0]) // depth
        last = self.file.shape(self.data_inputs()[0])[-1]
        if last == depth:
            yield from self.sums_of([[(row, 0)] for row in range(taps)], weights[:, None, :], padded=False)
            return
        cells = depth // last  # a batch of which the inner dimensions are one row
        where = [[(row * cells + k, k) for k in range(cells)] for row in range(taps)]
        yield from self.sums_of(where, weights.reshape(len(weights), cells, last), padded=False)
