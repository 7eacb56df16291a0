"""Running sums and norms: ``cumsum``, ``l2_normalization``, ``l2_pool_2d``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Op, Quant, Signature, Value
from crtgen.network.ops.arithmetic import AddNParams
from crtgen.network.ops.attrs import (
    NO_PADDING,
    Activation,
    Padding,
    clamp_float,
    require,
    require_inputs,
    tensor_quant,
)
from crtgen.network.ops.case import Case, floats, int8s, make, plain
from crtgen.network.ops.elementwise import Numbers, wrapped
from crtgen.network.ops.fixedpoint import multiply_by_quantized_multiplier, quantize_multiplier
from crtgen.network.ops.gemmlowp import inverse_square_root
from crtgen.network.ops.scheme import is_plain, scheme_of
from crtgen.network.ops.traits import Clamping

__all__ = ["CumSum", "L2Normalization", "L2Pool2d", "cases"]


@dataclass(frozen=True, slots=True)
class CumSum(Op):
    """Sums of the elements up to each position along ``axis``, without that element if ``exclusive``.

    ``reverse``: sums start at the last element. ``product``: products of plain values instead of sums. Plain
    integers wrap.
    """

    name: ClassVar[str] = "cumsum"

    axis: int
    exclusive: bool = False
    reverse: bool = False
    product: bool = False

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        whole = is_plain(inputs[0]) and inputs[0].dtype.is_integer
        require(whole or not self.product or scheme_of(inputs[0]).is_real, "a product of quantised numbers")
        if not whole:
            scheme_of(inputs[0])
        require(0 <= self.axis < len(inputs[0].shape), f"there is no axis {self.axis}")
        return ((inputs[0].shape, inputs[0].dtype),)

    def sizes(self, sig: Signature) -> tuple[int, int, int]:
        shape = sig.x.shape
        return prod(shape[: self.axis]), shape[self.axis], prod(shape[self.axis + 1 :])

    def parameters(self, sig: Signature) -> AddNParams:
        """Return the parameters of ``add_n``, since the sum begins with the input's offset there, too."""
        x, y = tensor_quant(sig.x), tensor_quant(sig.y)
        finest = 2 * x.scale / (1 << 20)
        require(finest < y.scale, "the output's scale is too fine for its input's scale")
        return AddNParams(-x.zero_point, y.zero_point, *quantize_multiplier(finest / y.scale))

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        if self.product or is_plain(sig.x):
            return (self._plain(arrays[0]),)
        real = scheme_of(sig.x).is_real
        numbers = arrays[0].astype(np.float64 if real else np.int64)
        p = None if real else self.parameters(sig)
        numbers = numbers + (p.input_offset if p is not None else 0)
        turned = np.flip(numbers, self.axis) if self.reverse else numbers
        total: Numbers = np.cumsum(turned, axis=self.axis)
        total = total - turned if self.exclusive else total
        total = np.flip(total, self.axis) if self.reverse else total
        if p is None:
            return (total.astype(np.float32),)
        shifted = wrapped((total.astype(np.int64) + p.input_offset) << 19)
        scaled = multiply_by_quantized_multiplier(shifted, p.multiplier, p.shift) + p.output_offset
        return (scheme_of(sig.y).saturated(scaled),)

    def _plain(self, x: Array) -> Array:
        # Unquantised integers.
        numbers: Numbers = x.astype(np.float64) if x.dtype.kind == "f" else x
        turned = np.flip(numbers, self.axis) if self.reverse else numbers
        if self.exclusive:
            first = np.full_like(np.take(turned, [0], self.axis), 1 if self.product else 0)
            length = turned.shape[self.axis]
            turned = np.take(np.concatenate([first, turned], self.axis), range(length), self.axis)
        total = (np.cumprod if self.product else np.cumsum)(turned, axis=self.axis, dtype=numbers.dtype)
        return (np.flip(total, self.axis) if self.reverse else total).astype(x.dtype)


@dataclass(frozen=True, slots=True)
class L2Normalization(Op):
    """Vectors along the last axis, each divided by its length; int8 results are in units of 1/128."""

    name: ClassVar[str] = "l2_normalization"

    epsilon: ClassVar[float] = 1e-6
    """Least length by which a float32 vector is divided."""

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        scheme_of(inputs[0])
        require(len(inputs[0].shape) > 0, "the input must have a dimension")
        return ((inputs[0].shape, inputs[0].dtype),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        if scheme_of(sig.x).is_real:
            x = arrays[0].astype(np.float64)
            length = np.sqrt(np.square(x).sum(axis=-1, keepdims=True))
            return ((x / np.maximum(length, self.epsilon)).astype(np.float32),)
        whole = arrays[0].astype(np.int64) - tensor_quant(sig.x).zero_point
        multiplier, shift = inverse_square_root(np.square(whole).sum(axis=-1, keepdims=True))
        return (scheme_of(sig.y).saturated(multiply_by_quantized_multiplier(whole, multiplier, shift + 7)),)


@dataclass(frozen=True, slots=True)
class L2Pool2d(Clamping):
    """``x[N,H,W,C]``: the root mean square of each window, in float32."""

    name: ClassVar[str] = "l2_pool_2d"

    window: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding = NO_PADDING
    activation: Activation = Activation.NONE

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        require(x.dtype is DType.FLOAT32, f"the input is {x.dtype.value}; supported: float32")
        require(len(x.shape) == 4, "the input must have four dimensions")
        size = self.padding.output_size((x.shape[1], x.shape[2]), self.window, self.stride)
        return (((x.shape[0], *size, x.shape[3]), x.dtype),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        p, (rows, columns), (down, right) = self.padding, sig.y.shape[1:3], self.stride
        border = ((0, 0), (p.top, p.bottom), (p.left, p.right), (0, 0))
        squares = np.pad(np.square(arrays[0].astype(np.float64)), border)
        inside = np.pad(np.ones(sig.x.shape), border)
        total, count = np.zeros(sig.y.shape), np.zeros(sig.y.shape)
        for i in range(self.window[0]):
            for j in range(self.window[1]):
                taps = np.s_[:, i : i + rows * down : down, j : j + columns * right : right]
                total += squares[taps][:, :rows, :columns]
                count += inside[taps][:, :rows, :columns]
        return (clamp_float(np.sqrt(total / count), self.activation),)


def cases() -> Iterator[Case]:
    for number, (exclusive, reverse) in enumerate(
        ((False, False), (True, False), (False, True), (True, True))
    ):
        x = int8s("x", (3, 5, 4), 0.05, -7)
        for axis in range(3):
            op = CumSum(axis, exclusive, reverse)
            yield make(f"axis{axis}_{number}", op, [x], Quant.tensor(0.13, 4))
            yield make(f"f32_axis{axis}_{number}", op, [floats("x", (3, 5, 4))])
    unit = Quant.tensor(1 / 128, 0)
    for dtype in (DType.INT8, DType.UINT16, DType.INT32, DType.INT64):
        for number, product in enumerate((False, True)):
            op = CumSum(1, product, not product, product)
            yield make(f"{dtype.value}_{number}_onnx", op, [plain("x", (3, 5, 4), dtype)])
    yield make("product_onnx", CumSum(0, product=True), [floats("x", (5, 3))])
    yield make("int8", L2Normalization(), [int8s("x", (3, 5, 14), 0.05, -7)], unit)
    yield make("long", L2Normalization(), [int8s("x", (2, 9000), 0.05, 127)], unit)
    yield make("small", L2Normalization(), [int8s("x", (9, 3), 0.05, 0)], unit, limits={"x": (-1, 1)})
    yield make("f32", L2Normalization(), [floats("x", (3, 5, 14))])
    yield make("valid", L2Pool2d((3, 2), (2, 1)), [floats("x", (2, 7, 6, 3))])
    same = Padding.same((7, 6), (3, 3), (2, 2))
    yield make("same", L2Pool2d((3, 3), (2, 2), same, Activation.RELU6), [floats("x", (1, 7, 6, 3))])
