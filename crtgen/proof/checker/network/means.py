"""Average pools, means, and bilinear resizing."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tflite

from crtgen.proof.checker.network.arithmetic import Ints, quantized_multiplier, requantize
from crtgen.proof.checker.network.layer import Layer
from crtgen.proof.checker.network.sums import Channel, SumLayer, Summed, bounds_of, terms_of
from crtgen.proof.checker.network.window import windows
from crtgen.proof.checker.refusal import Refusal

__all__ = ["AveragePool", "Bilinear", "MeanLayer", "reduced"]


class AveragePool(SumLayer):
    """AVERAGE_POOL_2D; a sum's channel is the number of cells in its window."""

    def sums(self) -> Iterator[Summed]:
        o = self.operator.options(tflite.Pool2DOptions)
        x, kind = self.operator.inputs[0], self.type
        if self.file.kind(x) != kind:
            raise Refusal("input and output must have the same type")
        self.limits = self.file.limits(self.operator.output, o.FusedActivationFunction())
        where, _ = windows(self, (o.FilterHeight(), o.FilterWidth()), o, (1, 1))
        values, depth = self.network.values(x), self.file.shape(x)[-1]
        self.ranges = {n: (kind.low * n, kind.high * n) for n in {len(w) for w in where}}
        for place, window in enumerate(where):
            for c in range(depth):
                base, terms = terms_of(0, ((values[p * depth + c], 1) for p, _ in window))
                yield place * depth + c, len(window), base, terms

    def function(self, channel: Channel, acc: Ints) -> Any:
        assert isinstance(channel, int)  # how many cells
        half = channel // 2
        mean = np.where(acc > 0, (acc + half) // channel, -((-acc + half) // channel))
        return np.clip(mean, *self.limits)


class MeanLayer(SumLayer):
    def sums(self) -> Iterator[Summed]:
        f, x, y = self.file, self.operator.inputs[0], self.operator.output
        rows = reduced(self)
        count = rows.shape[1]
        self.limits, self.zero = f.limits(y, 0), f.zero_point(y)
        multiplier, exponent = quantized_multiplier(f.scale(x) / f.scale(y))
        if self.operator.code == tflite.BuiltinOperator.MEAN:
            more = min(count.bit_length() - 1, 32, 31 + exponent)
            multiplier, exponent = (multiplier << more) // count, exponent - more
        self.factor = multiplier, exponent
        low, high = bounds_of(self.network.values(x))
        offset = count * f.zero_point(x)
        self.ranges = {0: (int(low.min()) * count - offset, int(high.max()) * count - offset)}
        for i, row in enumerate(rows):
            base, terms = terms_of(-offset, ((v, 1) for v in row))
            yield i, 0, base, terms

    def function(self, channel: Channel, acc: Ints) -> Any:
        return np.clip(requantize(acc, *self.factor) + self.zero, *self.limits)


def reduced(layer: Layer) -> Any:
    """Return ``[output, element]``: the inputs that a reduction combines into each of its outputs.

    Raises ``Refusal`` unless the axes are constant.
    """
    x, axes = layer.operator.inputs
    along, array = layer.file.constant(axes), layer.network.array(x)
    if along is None:
        raise Refusal("axes must be constant")
    axis = tuple(sorted({int(a) % array.ndim for a in along.ravel()}))
    return np.moveaxis(array, axis, range(-len(axis), 0)).reshape(layer.size, -1)


class Bilinear(SumLayer):
    def sums(self) -> Iterator[Summed]:
        o, x = self.operator.options(tflite.ResizeBilinearOptions), self.operator.inputs[0]
        shape, out = self.file.shape(x), self.file.shape(self.operator.output)
        values, depth = self.network.values(x), shape[3]
        ends = o.AlignCorners(), o.HalfPixelCenters()
        rows, columns = (_between(shape[a], out[a], *ends) for a in (1, 2))
        low, high = bounds_of(values)
        self.ranges = {0: (int(low.min()) << 20, int(high.max()) << 20)}
        places = [(n, row, column) for n in range(shape[0]) for row in rows for column in columns]
        for i, (n, row, column) in enumerate(places):
            cells = [((n * shape[1] + y) * shape[2] + x, a * b) for y, a in row for x, b in column]
            for c in range(depth):
                base, terms = terms_of(0, ((values[p * depth + c], k) for p, k in cells))
                yield i * depth + c, 0, base, terms

    def function(self, channel: Channel, acc: Ints) -> Any:
        return np.sign(acc) * (abs(acc) + (1 << 19) >> 20)


def _between(size: int, out: int, corners: bool, centers: bool) -> list[tuple[tuple[int, int], ...]]:
    # For each position, its two neighbours and their weights in 1/1024.
    scale = ((size << 10) + out // 2) // out
    if corners and out > 1:
        scale = (1024 * (size - 1) + (out - 1) // 2) // (out - 1)
    found: list[tuple[tuple[int, int], ...]] = []
    for i in range(out):
        at = i * scale + (scale // 2 - 512 if centers else 0)
        first = max(math.floor(at / 1024), 0)
        second = min(math.ceil(at / 1024) if at % 1024 else at // 1024 + 1, size - 1)
        share = at - 1024 * first
        found.append(((min(first, size - 1), 1024 - share), (second, share)))
    return found
