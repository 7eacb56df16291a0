"""Sums of products of a layer before requantisation: ``accumulate``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Op, Quant, Signature, Value
from crtgen.network.ops.attrs import Padding, require
from crtgen.network.ops.case import Case, int8s, make, plain
from crtgen.network.ops.conv import Conv2d, ConvParams, DepthwiseConv2d
from crtgen.network.ops.dense import FullyConnected
from crtgen.network.ops.fixedpoint import Int64
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.scheme import INT8

__all__ = ["Accumulate", "Layer", "cases"]

Layer = Conv2d | DepthwiseConv2d | FullyConnected | BatchMatMul

# Largest distance of a value from its zero point; 16-bit inputs are differences of 8-bit ones.
_FURTHEST = 255


@dataclass(frozen=True, slots=True)
class Accumulate(Op):
    """Sums of ``layer`` over 8-bit integers minus their zero points, as int32.

    Inputs and weights without quantisation have the zero point 0. Matrices may have 16 bits; their values are
    then differences of two 8-bit values, from -255 to 255.
    """

    name: ClassVar[str] = "accumulate"

    layer: Layer

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        short = isinstance(self.layer, BatchMatMul) and inputs[0].dtype is DType.INT16
        require(inputs[0].dtype is DType.INT8 or short, f"sums of {inputs[0].dtype.value}")
        ((shape, _),) = self.layer.infer(inputs)
        most = self._greatest(inputs)
        require(most < 2**31, f"sums of up to {most:,}: 32 bits do not hold them")
        return ((shape, DType.INT32),)

    def _greatest(self, inputs: Sequence[Value]) -> int:
        # The largest magnitude that a sum can have.
        if isinstance(self.layer, BatchMatMul):
            return self.layer.lengths(*inputs)[1] * _FURTHEST**2
        if not all(v.is_constant for v in inputs[1:]):
            return 0
        weights, bias = (np.abs(v.array().astype(np.int64)) for v in inputs[1:])
        axes = tuple(a for a in range(weights.ndim) if a != self.layer.channel_axis)
        return int((weights.sum(axis=axes) * _FURTHEST + bias).max())

    def macs(self, sig: Signature) -> int:
        return self.layer.macs(sig)

    def zero_points(self, sig: Signature) -> tuple[int, ...]:
        """Return the zero points of the multiplied operands; for a layer with weights, only that of the
        input.
        """
        factors = sig.inputs if isinstance(self.layer, BatchMatMul) else sig.inputs[:1]
        return tuple(v.quant.zero_point if v.quant is not None else 0 for v in factors)

    def of_weights(self, sig: Signature) -> ConvParams:
        return ConvParams.sums(-self.zero_points(sig)[0], sig.y.shape[-1])

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        factors = [a.astype(np.float64) for a in arrays]
        for place, zero in enumerate(self.zero_points(sig)):
            factors[place] = factors[place] - zero
        if isinstance(self.layer, BatchMatMul):
            turned = (self.layer.adj_x, self.layer.adj_y)
            a, b = (np.swapaxes(f, -1, -2) if t else f for f, t in zip(factors, turned, strict=True))
            return (np.matmul(a, b).astype(np.int64).astype(np.int32),)
        x, weights, bias = factors
        sums = self.layer.sums(x, weights, sig) + bias
        return (sums.astype(np.int64).astype(np.int32).reshape(sig.y.shape),)


def _weights(shape: tuple[int, ...], axis: int) -> list[Value]:
    random = np.random.default_rng(sum(shape))
    numbers: Int64 = random.integers(-100, 100, shape)
    bias = random.integers(-2000, 2000, shape[axis])
    if axis == 0 and shape[0] > 1:  # side by side, and the least that there are: two channels share a word
        numbers[:2].reshape(2, -1)[:, 0] = INT8.low, -1
    return [
        Value.constant("w", numbers.astype(np.int8), Quant.tensor(1.0)),
        Value.constant("b", bias.astype(np.int32)),
    ]


def cases() -> Iterator[Case]:
    around = Padding(1, 1, 1, 1)
    layers: tuple[tuple[str, Layer, tuple[int, ...], tuple[int, ...], int], ...] = (
        ("conv", Conv2d((1, 1), around), (1, 7, 9, 3), (5, 3, 3, 3), 0),
        ("conv_s2", Conv2d((2, 2)), (2, 6, 5, 8), (4, 2, 3, 8), 0),
        ("pointwise", Conv2d(), (1, 5, 5, 16), (8, 1, 1, 16), 0),
        ("depthwise", DepthwiseConv2d((1, 1), around), (1, 6, 7, 4), (1, 3, 3, 4), 3),
        ("depthwise2", DepthwiseConv2d((2, 1), multiplier=2), (1, 6, 7, 3), (1, 3, 2, 6), 3),
        ("dense", FullyConnected(), (1, 37), (11, 37), 0),
        ("dense_aligned", FullyConnected(), (1, 64), (32, 64), 0),
        ("dense_rows", FullyConnected(keep_dims=True), (3, 5, 20), (6, 20), 0),
        ("dense_one", FullyConnected(), (1, 9), (1, 9), 0),
        ("dense_deep", FullyConnected(), (1, 900), (5, 900), 0),
    )
    limits = {"a": (-255.0, 255.0), "b": (-255.0, 255.0)}
    for name, layer, shape, weights, axis in layers:
        for kind, x in (("int8", int8s("x", shape, 1.0, -11)), ("plain", plain("x", shape, DType.INT8))):
            yield make(f"{name}_{kind}_onnx", Accumulate(layer), [x, *_weights(weights, axis)])
    eight = [int8s("a", (3, 5, 7), 1.0, -7), int8s("b", (3, 7, 4), 1.0, 31)]
    yield make("matmul_int8_onnx", Accumulate(BatchMatMul()), eight)
    short_pair = [plain("a", (2, 1, 7, 5), DType.INT16), plain("b", (3, 4, 7), DType.INT16)]
    yield make("matmul_int16_onnx", Accumulate(BatchMatMul(True, True)), short_pair, limits=limits)
