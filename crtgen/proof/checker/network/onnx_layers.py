"""Layers of quantised ONNX networks, in the arithmetic of ONNX Runtime on a CPU.

Sums are exact integers; a sum becomes an output value by one float32 product, rounded to nearest with ties to
even. Images have their channels before rows and columns.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from crtgen.proof.checker.algebra.real import word_of_real
from crtgen.proof.checker.network.arithmetic import Ints
from crtgen.proof.checker.network.layer import Layer, Value
from crtgen.proof.checker.network.matrices import MatrixProducts
from crtgen.proof.checker.network.onnx_elements import ELEMENTS, OnnxFileLayer, same_scale
from crtgen.proof.checker.network.onnx_forms import Scaled
from crtgen.proof.checker.network.others import MaxPool
from crtgen.proof.checker.network.real_ends import RealOutput
from crtgen.proof.checker.network.sums import Channel, SumLayer, Summed, bounds_of, terms_of
from crtgen.proof.checker.refusal import Refusal

__all__ = ["ONNX_LAYERS"]

# Scales of biases that differ by less are those of the sums.
_SAME = 1e-5


class _Scaled(SumLayer, OnnxFileLayer):
    """A sum times a float32 factor per channel, rounded to nearest with ties to even.

    At the end of a network this is a product of float32, or a quantised number.
    """

    factors: dict[Channel, np.float32]

    def function(self, channel: Channel, acc: Ints) -> Any:
        if self.is_real:
            return word_of_real(acc.astype(np.float32) * self.factors[channel])
        made = np.rint(acc.astype(np.float32) * self.factors[channel]).astype(np.float64) + self.zero
        return np.clip(made, *self.limits).astype(np.int64)

    def begin(self) -> None:
        self.is_real = self.source.is_real(self.operator.output)
        self.rises = not self.is_real
        if not self.is_real:
            self.limits, self.zero = self.cut(), self.source.zero_point(self.operator.output)
        elif self.operator.limits == (-np.inf, np.inf):
            self.limits = self.type.low, self.type.high
            self.said = f"{self.name} at the end as the product of its exact sum, which is rounded to float32"
        else:
            raise Refusal("limits of a result that is not quantised")

    def per_step(self, scales: Any) -> Any:
        """Return the factors that turn sums in steps of ``scales`` into outputs."""
        return scales if self.is_real else scales / self.source.scale(self.operator.output)


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
        joined = self.per_step(self.source.scale(x) * scales)
        self.factors = {c: np.float32(joined[c % scales.size]) for c in range(channels)}
        return weights, self._biases(place + 1, channels, self.source.scale(x) * scales)

    @staticmethod
    def _whole(found: Scaled) -> Ints:
        if found.scales is None or not np.issubdtype(found.data.dtype, np.integer):
            raise Refusal("weights or a bias of real numbers")
        return np.asarray(found.data)

    def _biases(self, place: int, channels: int, scales: Any) -> Ints:
        # Biases in steps of the sums. A float32 bias, or one in other steps because two layers share it, is
        # rounded to the nearest step.
        if place not in self.operator.constants:
            return np.zeros(channels, np.int64)
        found, steps = self.operator.constants[place], np.broadcast_to(scales, channels)
        data = found.data.ravel()
        if data.size != channels or found.zero:
            raise Refusal("a bias of another size than the outputs")
        given = 1.0 if found.scales is None else np.broadcast_to(found.scales, channels).astype(np.float64)
        if found.scales is not None and (abs(given - steps) <= _SAME * steps).all():
            return self._whole(found).ravel()
        if self.is_real:
            raise Refusal("a bias in other steps than those of the sums")
        rounded = np.rint((data * given).astype(np.float32) / steps).astype(np.float64)
        return np.asarray(np.clip(rounded, -(1 << 31), (1 << 31) - 1), np.int64)

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
        x, values = self.operator.inputs[0], image_of(self)
        weights = weights[:, :, None] if weights.ndim == 3 else weights
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


class OnnxMatrices(_Scaled, MatrixProducts):
    # MatMul of two tensors that are both computed.

    def sums(self) -> Iterator[Summed]:
        self.only()
        self.begin()
        f, (x, w) = self.source, self.operator.inputs
        if self.is_real:
            raise Refusal("a product of two tensors that is not quantised")
        self.zeros = f.zero_point(x), f.zero_point(w)
        self.factors = {0: np.float32(self.per_step(f.scale(x) * f.scale(w)))}
        yield from self.of_rows(turns_first=False, turns_second=False)


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

    Ties go to even results, zero point included. A window that covers the whole image is a global average.
    """

    def sums(self) -> Iterator[Summed]:
        self.only("kernel_shape", "pads", "strides", "auto_pad", "ceil_mode", "count_include_pad")
        self.begin()
        values, x = image_of(self), self.operator.inputs[0]
        if any(self.attribute("pads", ())):
            raise Refusal("the input must be without padding")
        kernel, zero = self.attribute("kernel_shape", []), self.source.zero_point(x)
        rows, columns = axes_of(self, values.shape, kernel, (1, 1))
        count = int(np.prod(kernel))
        if any(len(row) * len(column) != count for row in rows for column in columns):
            raise Refusal("a window that reaches beyond its input")
        scale = np.float32(self.source.scale(x) / self.source.scale(self.operator.output))
        self.factors = {0: np.float32(scale / np.float32(count))}
        self.is_even = len(rows) * len(columns) > 1
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


class OnnxMaxPool(MaxPool, OnnxFileLayer):
    def prepare(self) -> list[Value]:
        self.only("kernel_shape", "pads", "strides", "auto_pad", "ceil_mode", "dilations", "storage_order")
        if self.attribute("ceil_mode", 0) or self.attribute("storage_order", 0):
            raise Refusal("a pool whose windows reach further")
        same_scale(self)
        self.limits = self.cut()
        values = image_of(self)
        self.by_set, self.sets = {}, []
        dilations = self.attribute("dilations", [1, 1])
        rows, columns = axes_of(self, values.shape, self.attribute("kernel_shape", []), dilations)
        windows = [(row, column) for row in rows for column in columns]
        return [
            self._enter(c * len(windows) + n, [values[0, c, a, b] for a, _ in row for b, _ in column])
            for c in range(values.shape[1])
            for n, (row, column) in enumerate(windows)
        ]


def image_of(layer: OnnxFileLayer) -> Any:
    """Return the input as ``[1, channels, rows, columns]``; a line has one row."""
    values = layer.network.array(layer.operator.inputs[0])
    if values.ndim not in (3, 4) or values.shape[0] != 1:
        raise Refusal("the input must be a single image or line")
    return values[:, :, None] if values.ndim == 3 else values


def axes_of(
    layer: OnnxFileLayer, shape: tuple[int, ...], kernel: Sequence[int], dilations: Sequence[int]
) -> list[list[list[tuple[int, int]]]]:
    """Return, for each output row and column, the input cells in its window and their positions in the
    kernel.
    """
    if layer.attribute("auto_pad", b"NOTSET") != b"NOTSET":
        raise Refusal("padding that is not written out")
    out = list(layer.source.shape(layer.operator.output)[2:])
    strides, pads = layer.attribute("strides", [1] * len(out)), layer.attribute("pads", [0] * 2 * len(out))
    if len(out) == 1:  # a line
        out, pads = [1, *out], [0, pads[0], 0, pads[1]]
        strides, kernel, dilations = ([1, v[-1]] for v in (strides, kernel, dilations))
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
    **ELEMENTS,
    "DequantizeLinear": RealOutput,
    "Conv": OnnxConvolution,
    "Gemm": OnnxDense,
    "MatMul": OnnxDense,
    "MatMul of tensors": OnnxMatrices,
    "GlobalAveragePool": GlobalAverage,
    "AveragePool": Average,
    "MaxPool": OnnxMaxPool,
}
