"""Layers of quantised ONNX networks, in the arithmetic of ONNX Runtime on a CPU.

Sums are exact integers; a sum becomes an output value by one float32 product, rounded to nearest with ties to
even. Images have their channels before rows and columns.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from crtgen.proof.checker.algebra.real import fused
from crtgen.proof.checker.algebra.value import Symbol
from crtgen.proof.checker.network.arithmetic import Ints
from crtgen.proof.checker.network.elementwise import ElementLayer
from crtgen.proof.checker.network.layer import Layer, Value
from crtgen.proof.checker.network.onnx_file import OnnxFile, OnnxOperator, Scaled
from crtgen.proof.checker.network.others import MaxPool
from crtgen.proof.checker.network.real_ends import RealInput, RealOutput
from crtgen.proof.checker.network.sums import Channel, SumLayer, Summed, bounds_of, terms_of
from crtgen.proof.checker.refusal import Refusal

__all__ = ["ONNX_LAYERS"]


class _Onnx(Layer):
    # Common parts of layers of an ONNX file.
    operator: OnnxOperator  # type: ignore[assignment]

    @property
    def source(self) -> OnnxFile:
        found = self.network.file
        assert isinstance(found, OnnxFile)
        return found

    def attribute(self, name: str, default: Any) -> Any:
        return self.operator.attributes.get(name, default)

    def cut(self) -> tuple[int, int]:
        # Limits of the type after a Relu or Clip.
        y, (low, high) = self.operator.output, self.operator.limits
        ends = [self.type.low, self.type.high]
        for k, end in enumerate((low, high)):
            if np.isfinite(end):
                step = np.rint(np.float32(end) / self.source.scale(y)) + self.source.zero_point(y)
                ends[k] = int(np.clip(step, self.type.low, self.type.high))
        return ends[0], ends[1]

    def only(self, *names: str) -> None:
        other = set(self.operator.attributes) - set(names)
        if other:
            raise Refusal(f"attributes that are not followed: {', '.join(sorted(other))}")


class OnnxInput(RealInput, _Onnx):
    """QuantizeLinear of an input, which rounds halves to even."""

    rounded = staticmethod(np.rint)


class _Scaled(SumLayer, _Onnx):
    """A sum times a float32 factor per channel, rounded to nearest with ties to even."""

    factors: dict[Channel, np.float32]

    def function(self, channel: Channel, acc: Ints) -> Any:
        made = np.rint(acc.astype(np.float32) * self.factors[channel]).astype(np.float64) + self.zero
        return np.clip(made, *self.limits).astype(np.int64)

    def begin(self) -> None:
        self.limits, self.zero = self.cut(), self.source.zero_point(self.operator.output)


class _OnnxWeighted(_Scaled):
    def read(self, place: int, axis: int) -> tuple[Ints, Ints]:
        # Weights with the output channels in front, less their zero point, and biases.
        self.begin()
        if len(self.operator.inputs) != 1 or place not in self.operator.constants:
            raise Refusal("weights must be constant")
        found, x = self.operator.constants[place], self.operator.inputs[0]
        weights = np.moveaxis(self._whole(found) - found.zero, axis, 0)
        channels = len(weights)
        scales = np.asarray(found.scales, np.float32)
        if scales.size not in (1, channels) or (scales.size > 1 and found.axis % weights.ndim != axis):
            raise Refusal("scales along another axis than its outputs")
        joined = self.source.scale(x) * scales / self.source.scale(self.operator.output)
        self.factors = {c: np.float32(joined[c % scales.size]) for c in range(channels)}
        return weights, self._biases(place + 1, channels, self.source.scale(x) * scales)

    @staticmethod
    def _whole(found: Scaled) -> Ints:
        if found.scales is None or not np.issubdtype(found.data.dtype, np.integer):
            raise Refusal("weights or a bias of real numbers")
        return np.asarray(found.data)

    def _biases(self, place: int, channels: int, scales: Any) -> Ints:
        # Integers in steps of the sums.
        if place not in self.operator.constants:
            return np.zeros(channels, np.int64)
        found = self.operator.constants[place]
        data = self._whole(found).ravel()
        same = np.broadcast_to(found.scales, channels) == np.broadcast_to(scales, channels)
        if found.zero or data.size != channels or not same.all():
            raise Refusal("a bias in other steps than those of the sums")
        return data

    def alike(self, one: Channel, other: Channel) -> bool:
        return bool(self.factors[one] == self.factors[other])

    def range_of(self, taps: Sequence[Value], weights: Ints, bias: int) -> tuple[int, int]:
        # All sums of a channel, where each tap may be any of the values or in the padding.
        zero = self.source.zero_point(self.operator.inputs[0])
        low, high = bounds_of(taps)
        a, b = (int(low.min()) - zero) * weights, (int(high.max()) - zero) * weights
        least, most = np.minimum(np.minimum(a, b), 0).sum(), np.maximum(np.maximum(a, b), 0).sum()
        return bias + int(least), bias + int(most)


class OnnxConvolution(_OnnxWeighted):
    def sums(self) -> Iterator[Summed]:
        self.only("dilations", "group", "kernel_shape", "pads", "strides", "auto_pad")
        weights, biases = self.read(1, 0)
        x, values = self.operator.inputs[0], self.network.array(self.operator.inputs[0])
        if values.ndim != 4 or weights.ndim != 4 or values.shape[0] != 1:
            raise Refusal("the input must be a single image")
        channels, depth = weights.shape[:2]
        each = channels // self.attribute("group", 1)
        if channels % each or values.shape[1] != depth * (channels // each):
            raise Refusal("channels that are in no groups")
        zero, (rows, columns) = self.source.zero_point(x), self._axes(values.shape, weights.shape)
        everything = list(values.ravel())
        self.ranges = {c: self.range_of(everything, weights[c], int(biases[c])) for c in range(channels)}
        for c in range(channels):
            first = c // each * depth
            image, taps = values[0, first : first + depth], weights[c]
            for p, row in enumerate(rows):
                for q, column in enumerate(columns):
                    cells = [(image[d, a, b], int(taps[d, i, j])) for d in range(depth)
                             for a, i in row for b, j in column]  # fmt: skip
                    base = int(biases[c]) - zero * sum(k for _, k in cells)
                    at = (c * len(rows) + p) * len(columns) + q
                    yield at, c, *terms_of(base, cells)

    def _axes(self, shape: tuple[int, ...], weights: tuple[int, ...]) -> list[list[list[tuple[int, int]]]]:
        # Along rows and columns: for each output the cells within the input, with their places.
        return axes_of(self, shape, weights[2:], self.attribute("dilations", [1, 1]))


class OnnxDense(_OnnxWeighted):
    def sums(self) -> Iterator[Summed]:
        self.only("alpha", "beta", "transA", "transB")
        plain = (self.attribute("alpha", 1.0), self.attribute("beta", 1.0), self.attribute("transA", 0))
        if plain != (1.0, 1.0, 0):
            raise Refusal("alpha, beta or transA")
        weights, biases = self.read(1, 0 if self.attribute("transB", 0) else 1)
        values, zero = (
            self.network.array(self.operator.inputs[0]),
            self.source.zero_point(self.operator.inputs[0]),
        )
        rows = values.reshape(-1, values.shape[-1])
        channels, depth = weights.shape
        if rows.shape[1] != depth:
            raise Refusal("rows of another length than the weights")
        everything = list(values.ravel())
        self.ranges = {c: self.range_of(everything, weights[c], int(biases[c])) for c in range(channels)}
        for r, row in enumerate(rows):
            for c in range(channels):
                taps = weights[c].tolist()
                base = int(biases[c]) - zero * sum(taps)
                yield r * channels + c, c, *terms_of(base, zip(row, taps, strict=True))


class GlobalAverage(_Scaled):
    """GlobalAveragePool: the sum without its zero points, times scale / (output scale * count)."""

    def sums(self) -> Iterator[Summed]:
        self.begin()
        values, x = self.network.array(self.operator.inputs[0]), self.operator.inputs[0]
        if values.ndim < 3 or values.shape[0] != 1:
            raise Refusal("the input must be a single image")
        rows = values.reshape(values.shape[1], -1)
        count, zero = rows.shape[1], self.source.zero_point(x)
        whole = np.float32(self.source.scale(self.operator.output) * np.float32(count))
        self.factors = {0: np.float32(self.source.scale(x) / whole)}
        low, high = bounds_of(list(values.ravel()))
        self.ranges = {0: ((int(low.min()) - zero) * count, (int(high.max()) - zero) * count)}
        for c, row in enumerate(rows):
            yield c, 0, *terms_of(-zero * count, ((v, 1) for v in row))


class Average(_Scaled):
    """AveragePool whose windows are all inside the image: the sum times (scale / output scale) / count.

    Ties are rounded to even if a step of the output is an integer multiple of a step of the sum. A window
    that covers the whole image is a global average.
    """

    def sums(self) -> Iterator[Summed]:
        self.only("kernel_shape", "pads", "strides", "auto_pad", "ceil_mode", "count_include_pad")
        self.begin()
        values, x = self.network.array(self.operator.inputs[0]), self.operator.inputs[0]
        if values.ndim != 4 or values.shape[0] != 1 or any(self.attribute("pads", ())):
            raise Refusal("the input must be a single image, without padding")
        kernel, zero = self.attribute("kernel_shape", []), self.source.zero_point(x)
        rows, columns = axes_of(self, values.shape, kernel, (1, 1))
        count = int(np.prod(kernel))
        if any(len(row) * len(column) != count for row in rows for column in columns):
            raise Refusal("a window that reaches beyond its input")
        scale = np.float32(self.source.scale(x) / self.source.scale(self.operator.output))
        self.factors = {0: np.float32(scale / np.float32(count))}
        step = count * float(self.source.scale(self.operator.output)) / float(self.source.scale(x))
        self.is_even = step.is_integer() and len(rows) * len(columns) > 1
        low, high = bounds_of(list(values.ravel()))
        self.ranges = {0: ((int(low.min()) - zero) * count, (int(high.max()) - zero) * count)}
        windows = [(row, column) for row in rows for column in columns]
        for c in range(values.shape[1]):
            for n, (row, column) in enumerate(windows):
                cells = [(values[0, c, a, b], 1) for a, _ in row for b, _ in column]
                yield c * len(windows) + n, 0, *terms_of(-zero * count, cells)

    def function(self, channel: Channel, acc: Ints) -> Any:
        scaled = (acc.astype(np.float32) * self.factors[channel]).astype(np.float64)
        made = np.rint(scaled + self.zero) if self.is_even else np.rint(scaled) + self.zero
        return np.clip(made, *self.limits).astype(np.int64)


class OnnxMaxPool(MaxPool, _Onnx):
    def prepare(self) -> list[Value]:
        self.only("kernel_shape", "pads", "strides", "auto_pad", "ceil_mode", "dilations", "storage_order")
        if self.attribute("ceil_mode", 0) or self.attribute("storage_order", 0):
            raise Refusal("a pool whose windows reach further")
        same_scale(self)
        self.limits = self.cut()
        values = self.network.array(self.operator.inputs[0])
        if values.ndim != 4 or values.shape[0] != 1:
            raise Refusal("the input must be a single image")
        self.by_set, self.sets = {}, []
        dilations = self.attribute("dilations", [1, 1])
        rows, columns = axes_of(self, values.shape, self.attribute("kernel_shape", []), dilations)
        windows = [(row, column) for row in rows for column in columns]
        return [
            self._enter(c * len(windows) + n, [values[0, c, a, b] for a, _ in row for b, _ in column])
            for c in range(values.shape[1])
            for n, (row, column) in enumerate(windows)
        ]


class Moved(_Onnx):
    is_move = True

    def prepare(self) -> list[Value]:
        same_scale(self)
        if self.operator.limits != (-np.inf, np.inf):
            raise Refusal("a function behind what only moves")
        array = self.network.array(self.operator.inputs[0])
        if self.operator.code == "Transpose":
            array = array.transpose(self.attribute("perm", list(range(array.ndim))[::-1]))
        found: list[Value] = list(array.ravel())
        self.proven.update(range(self.size))
        return found

    def needs(self, outputs: set[int]) -> set[Symbol]:
        assert self.values is not None  # outputs that are asked for have symbols
        return {v for i in outputs if isinstance(v := self.values[i], Symbol)}


class OnnxUnary(_Scaled):
    def sums(self) -> Iterator[Summed]:
        self.begin()
        x, y = self.operator.inputs[0], self.operator.output
        if self.operator.code == "Relu":
            self.limits = max(self.limits[0], self.zero), self.limits[1]
        elif self.operator.code != "Requantize":
            raise Refusal("a function that is not followed")
        self.scales, self.first = (self.source.scale(x), self.source.scale(y)), self.source.zero_point(x)
        values = self.network.values(x)
        low, high = bounds_of(values)
        self.ranges = {0: (int(low.min()), int(high.max()))}
        for i, value in enumerate(values):
            yield i, 0, *terms_of(0, [(value, 1)])

    def function(self, channel: Channel, acc: Ints) -> Any:
        """Apply both quantisations: a product and a quotient in float32."""
        real = (acc - self.first).astype(np.float32) * self.scales[0]
        return np.clip(np.rint(real / self.scales[1]) + self.zero, *self.limits).astype(np.int64)


class OnnxAddition(ElementLayer, _Onnx):
    """Add of two tensors, as ONNX Runtime computes it on a PC, where int8 becomes uint8 first.

    Each factor is rounded once, and so is the addend, which includes one of the zero points.
    """

    def read(self) -> None:
        self.only()
        if len(self.operator.inputs) != 2:
            raise Refusal("an addition of a constant")
        f, (a, b), y = self.source, self.operator.inputs, self.operator.output
        self.limits = self.cut()
        self.factors = f.scale(a) / f.scale(y), f.scale(b) / f.scale(y)
        first, second, last = (np.float32(f.zero_point(t) + 128) for t in (a, b, y))
        self.start = last - fused(self.factors[0], first, self.factors[1] * second)

    def value(self, *operands: Any) -> Any:
        a, b = (np.asarray(v + 128).astype(np.float32) for v in operands)
        found = np.rint(fused(a, self.factors[0], fused(b, self.factors[1], self.start)))
        return np.clip(found.astype(np.float64) - 128, *self.limits).astype(np.int64)


def same_scale(layer: _Onnx) -> None:
    f, x, y = layer.source, layer.operator.inputs[0], layer.operator.output
    if (f.scale(x), f.zero_point(x)) != (f.scale(y), f.zero_point(y)):
        raise Refusal("a change of the scale is not followed yet")


def axes_of(
    layer: _Onnx, shape: tuple[int, ...], kernel: Sequence[int], dilations: Sequence[int]
) -> list[list[list[tuple[int, int]]]]:
    """Return, for each output row and column, the input cells in its window and their positions in the
    kernel.
    """
    if layer.attribute("auto_pad", b"NOTSET") != b"NOTSET":
        raise Refusal("padding that is not written out")
    pads, strides = layer.attribute("pads", [0] * 4), layer.attribute("strides", [1, 1])
    out = layer.source.shape(layer.operator.output)[2:]
    return [
        [
            [
                (p, k)
                for k in range(kernel[a])
                if 0 <= (p := o * strides[a] - pads[a] + k * dilations[a]) < shape[2 + a]
            ]
            for o in range(out[a])
        ]
        for a in range(2)
    ]


ONNX_LAYERS: dict[str, type[Layer]] = {
    "QuantizeLinear": OnnxInput,
    "DequantizeLinear": RealOutput,
    "Conv": OnnxConvolution,
    "Gemm": OnnxDense,
    "MatMul": OnnxDense,
    "GlobalAveragePool": GlobalAverage,
    "AveragePool": Average,
    "MaxPool": OnnxMaxPool,
    "Add": OnnxAddition,
    "Relu": OnnxUnary,
    "Requantize": OnnxUnary,
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose"), Moved),
}
