"""Fully connected layers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, AxisMap, DType, Quant, Signature, Value
from crtgen.network.ops.attrs import Activation, clamp_float, require, require_inputs
from crtgen.network.ops.case import (
    Case,
    by_float32,
    floats,
    in_eight_bits,
    in_four_bits,
    int8s,
    int16s,
    make,
    of_few_values,
    weights_and_bias,
)
from crtgen.network.ops.conv import ConvParams, check_weights, parameters_of, real_weights
from crtgen.network.ops.scheme import scheme_of
from crtgen.network.ops.traits import Clamping, Real, Weighted

__all__ = ["FullyConnected", "cases"]


@dataclass(frozen=True, slots=True)
class FullyConnected(Weighted, Clamping):
    """``x[..., K], w[O,K], bias[O] -> [batch, O]``, or ``[..., O]`` with ``keep_dims``.

    Without ``keep_dims`` the input is read as rows of K elements, whatever its shape.
    """

    name: ClassVar[str] = "fully_connected"
    channel_axis: ClassVar[int] = 0
    mixes: ClassVar[bool] = True
    slides: ClassVar[bool] = False

    activation: Activation = Activation.NONE
    keep_dims: bool = False

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 3)
        x, w, _ = inputs
        require(len(w.shape) == 2, "weights must have two dimensions")
        outputs, depth = w.shape
        check_weights(inputs, outputs)
        require(x.elements % depth == 0, f"weights for {depth} inputs on {x.elements} elements")
        if not self.keep_dims:
            return (((x.elements // depth, outputs), x.dtype),)
        require(x.shape[-1:] == (depth,), f"weights for {depth} inputs on {x.shape[-1:]}")
        return (((*x.shape[:-1], outputs), x.dtype),)

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        axis, last = axes[0], len(sig.x.shape) - 1
        if (
            axis is None
            or axis == last
            or axes[1:] != [None] * 2
            or sig.x.shape[-1] != sig.inputs[1].shape[1]
        ):
            return None
        if self.keep_dims:
            return AxisMap(axis)
        return AxisMap(0) if axis == last - 1 and prod(sig.x.shape[:axis]) == 1 else None

    def fewest_channels(self, sig: Signature) -> int:
        """Return 2 if each channel has its own scale, since a layer with a single scale is computed
        differently; otherwise 1.
        """
        quant = sig.inputs[1].quant
        return 2 if quant is not None and len(quant.scales) > 1 else 1

    def sums(self, x: Real, w: Real, sig: Signature) -> Real:
        rows: Real = x.reshape(-1, w.shape[1]) @ w.T
        return rows

    def macs(self, sig: Signature) -> int:
        return sig.y.elements * sig.inputs[1].shape[1]

    def parameters(self, sig: Signature) -> ConvParams:
        """Return a convolution's parameters; with a single scale, ``in * filter`` is a float32 product."""
        return parameters_of(sig, self.activation, self.channel_axis, one=True)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, w, bias = (a.astype(np.float64) for a in arrays)
        if scheme_of(sig.x).is_real:
            w = w if sig.inputs[1].quant is None else real_weights(sig.inputs[1])
            return (clamp_float(self.sums(x, w, sig) + bias, self.activation).reshape(sig.y.shape),)
        params = self.parameters(sig)
        return (params.finish(self.sums(x + params.input_offset, w, sig) + bias).reshape(sig.y.shape),)


def _case(
    name: str,
    op: FullyConnected,
    x: Value,
    outputs: int,
    out: Quant,
    per_axis: bool = False,
    bias: DType | None = None,
) -> Case:
    return make(name, op, [x, *weights_and_bias(name, x, (outputs, x.shape[-1]), 0, per_axis, bias)], out)


def cases() -> Iterator[Case]:
    out = Quant.tensor(0.4, 3)
    x = int8s("x", (1, 37), 0.05, -20)
    yield _case("odd", FullyConnected(), x, 11, out)
    yield _case("relu", FullyConnected(Activation.RELU), x, 8, Quant.tensor(0.4, -128))
    yield _case("per_axis", FullyConnected(Activation.RELU6), x, 5, Quant.tensor(0.03, -100), per_axis=True)
    yield _case("aligned", FullyConnected(), int8s("x", (1, 64), 0.02, -128), 32, out)
    yield _case("batch3", FullyConnected(), int8s("x", (3, 20), 0.1, 127), 4, Quant.tensor(0.5, 127))
    yield _case("keep_dims", FullyConnected(keep_dims=True), int8s("x", (2, 3, 10)), 6, out)
    yield _case("single", FullyConnected(), int8s("x", (1, 1), 0.02, -128), 16, Quant.tensor(0.01, -128))
    yield _case("fine_output", FullyConnected(Activation.RELU_N1_1), x, 6, Quant.tensor(0.0001, -5))
    yield _case("one_output", FullyConnected(), int8s("x", (1, 214), 0.05, -20), 1, out)
    yield _case("three_outputs", FullyConnected(Activation.RELU), x, 3, Quant.tensor(0.2, -7), per_axis=True)
    yield in_four_bits(_case("odd", FullyConnected(), x, 11, out))
    deep = int8s("x", (1, 96), 0.02, -128)
    yield of_few_values(_case("groups", FullyConnected(), deep, 24, out))
    deep = int8s("x", (1, 61), 0.02, -128)
    yield of_few_values(_case("no_groups", FullyConnected(Activation.RELU), deep, 19, out, True), 2)
    yield in_four_bits(_case("batch3", FullyConnected(), int8s("x", (3, 20), 0.1, 127), 6, out))
    yield by_float32(_case("odd", FullyConnected(), x, 11, out))
    yield by_float32(_case("per_axis", FullyConnected(Activation.RELU), x, 9, Quant.tensor(0.2, -7), True))
    yield by_float32(_case("batch3", FullyConnected(), int8s("x", (3, 20), 0.1, 127), 6, out, True))
    wide, fine = int16s("x", (1, 37), 0.0004), Quant.tensor(0.0008)
    yield _case("int16", FullyConnected(), wide, 11, fine)
    yield _case("int16_per_axis", FullyConnected(Activation.RELU), wide, 5, fine, True)
    yield _case("int16_deep", FullyConnected(), int16s("x", (2, 900)), 4, Quant.tensor(0.002))
    yield _case("int16_bias32", FullyConnected(), wide, 6, fine, bias=DType.INT32)
    yield of_few_values(_case("int16_groups", FullyConnected(), int16s("x", (1, 90), 0.0004), 16, fine))
    yield _case("f32", FullyConnected(Activation.RELU), floats("x", (1, 37)), 11, out)
    yield _case("f32_batch3", FullyConnected(), floats("x", (3, 16)), 4, out)
    yield in_eight_bits(_case("f32", FullyConnected(Activation.RELU), floats("x", (1, 37)), 11, out), 1)
    yield in_eight_bits(_case("f32_batch5", FullyConnected(), floats("x", (5, 18)), 6, out))
