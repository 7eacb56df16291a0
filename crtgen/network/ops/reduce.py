"""Reductions: ``mean``, ``sum``, maximum, minimum, ``all``, and the index of the maximum."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from crtgen.network.ir import Array, AxisMap, DType, Index, Op, Quant, Signature, Value
from crtgen.network.ops.attrs import magnitude, require, require_inputs, tensor_quant
from crtgen.network.ops.case import Case, by_float32, floats, int8s, int16s, make, plain
from crtgen.network.ops.fixedpoint import multiply_by_quantized_multiplier, quantize_multiplier, single
from crtgen.network.ops.rescaling import by_float, rounded_product
from crtgen.network.ops.scheme import is_plain, scheme_of
from crtgen.network.ops.traits import channelwise

__all__ = [
    "All",
    "ArgMax",
    "ArgMin",
    "ArgReduction",
    "Mean",
    "MeanParams",
    "ReduceMax",
    "ReduceMin",
    "Reduction",
    "Sum",
    "Total",
    "cases",
]


@dataclass(frozen=True, slots=True)
class MeanParams:
    """Integers of a quantised mean or sum over ``count`` elements.

    ``y = clamp(output_offset + (sum(x) + count * input_offset) * multiplier * 2**(shift - 31))``; for a mean,
    the multiplier includes the division by ``count``. If there is a ``factor``, a float32 product with it is
    used instead.
    """

    input_offset: int
    output_offset: int
    count: int
    multiplier: int
    shift: int
    factor: float | None = None


class Reduction(Op):
    """An operator that reduces all elements along ``axes`` to one; ``keep_dims`` keeps these axes with length
    1.
    """

    __slots__ = ()

    axes: tuple[int, ...]
    keep_dims: bool

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        self.require_type(x)
        known = all(0 <= a < len(x.shape) for a in self.axes) and len(set(self.axes)) == len(self.axes)
        require(known, f"axes {self.axes} of {len(x.shape)} dimensions")
        if self.keep_dims:
            return ((tuple(1 if a in self.axes else d for a, d in enumerate(x.shape)), x.dtype),)
        return ((tuple(d for a, d in enumerate(x.shape) if a not in self.axes), x.dtype),)

    def require_type(self, x: Value) -> None:
        """Raise ``ValueError`` unless the operator supports this type; plain integers are supported, too."""
        if not (is_plain(x) and x.dtype.is_integer):
            scheme_of(x)

    def axis_map(self, sig: Signature, axes: Sequence[int | None]) -> AxisMap | None:
        (axis,) = axes
        if axis is None or axis in self.axes:
            return None
        return AxisMap(axis if self.keep_dims else axis - sum(a < axis for a in self.axes))

    def channel_groups(self, sig: Signature) -> tuple[Index | None, ...] | None:
        return None if len(sig.x.shape) - 1 in self.axes else channelwise(sig)


class Total(Reduction):
    """A sum, or a mean; a sum of plain integers wraps."""

    __slots__ = ()

    monotonic: ClassVar[bool] = True
    divides: ClassVar[bool]

    def parameters(self, sig: Signature) -> MeanParams:
        """Return the factor ``in / out`` as a multiplier, divided by the count as ``QuantizedMeanOrSum``
        does.
        """
        x, y = tensor_quant(sig.x), tensor_quant(sig.y)
        count = prod(sig.x.shape[a] for a in self.axes)
        if by_float(sig.y):
            return self._by_float(x, y, count, count * magnitude(sig.x))
        multiplier, shift = quantize_multiplier(x.scale / y.scale, count * magnitude(sig.x))
        if self.divides:
            extra = min(count.bit_length() - 1, 32, 31 + shift)
            multiplier, shift = (multiplier << extra) // count, shift - extra
        return MeanParams(-x.zero_point, y.zero_point, count, multiplier, shift)

    def _by_float(self, x: Quant, y: Quant, count: int, bound: int) -> MeanParams:
        # The factor is ``in / (out * count)`` in float32, as ONNX Runtime's global average.
        require(self.divides, "only means are rescaled in float32")
        factor = single(x.scale / single(y.scale * count))
        return MeanParams(-x.zero_point, y.zero_point, count, *quantize_multiplier(factor), factor)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        if is_plain(sig.x) and not self.divides:
            return (np.asarray(arrays[0].sum(axis=self.axes, dtype=arrays[0].dtype)).reshape(sig.y.shape),)
        if scheme_of(sig.x).is_real:
            x = arrays[0].astype(np.float64)
            real = x.mean(axis=self.axes) if self.divides else x.sum(axis=self.axes)
            return (np.asarray(real, np.float32).reshape(sig.y.shape),)
        p = self.parameters(sig)
        total = np.asarray(arrays[0].astype(np.int64).sum(axis=self.axes)) + p.count * p.input_offset
        if p.factor is not None:
            scaled = rounded_product(total, p.factor) + p.output_offset
        else:
            scaled = multiply_by_quantized_multiplier(total, p.multiplier, p.shift) + p.output_offset
        return (scheme_of(sig.y).saturated(scaled).reshape(sig.y.shape),)


@dataclass(frozen=True, slots=True)
class Mean(Total):
    name: ClassVar[str] = "mean"
    divides: ClassVar[bool] = True

    axes: tuple[int, ...]
    keep_dims: bool = False

    def require_type(self, x: Value) -> None:
        scheme_of(x)


@dataclass(frozen=True, slots=True)
class Sum(Total):
    name: ClassVar[str] = "sum"
    divides: ClassVar[bool] = False

    axes: tuple[int, ...]
    keep_dims: bool = False


class Greatest(Reduction):
    __slots__ = ()

    monotonic: ClassVar[bool] = True
    unscaled: ClassVar[bool] = True
    sign: ClassVar[str]
    """C operator that is true if a value replaces the current extreme."""


@dataclass(frozen=True, slots=True)
class ReduceMax(Greatest):
    name: ClassVar[str] = "reduce_max"
    sign: ClassVar[str] = ">"

    axes: tuple[int, ...]
    keep_dims: bool = False

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.asarray(arrays[0].max(axis=self.axes)).reshape(sig.y.shape),)


@dataclass(frozen=True, slots=True)
class ReduceMin(Greatest):
    name: ClassVar[str] = "reduce_min"
    sign: ClassVar[str] = "<"

    axes: tuple[int, ...]
    keep_dims: bool = False

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.asarray(arrays[0].min(axis=self.axes)).reshape(sig.y.shape),)


@dataclass(frozen=True, slots=True)
class All(Reduction):
    name: ClassVar[str] = "reduce_all"

    axes: tuple[int, ...]
    keep_dims: bool = False

    def require_type(self, x: Value) -> None:
        require(x.dtype is DType.BOOL, f"the input is {x.dtype.value} instead of bool")

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.asarray(arrays[0].all(axis=self.axes)).reshape(sig.y.shape),)


class ArgReduction(Op):
    """Index of the maximum or minimum along ``axis``; of several equal ones, the first."""

    __slots__ = ()

    sign: ClassVar[str]
    axis: int

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        require(0 <= self.axis < len(x.shape), f"there is no axis {self.axis} of {len(x.shape)}")
        return ((tuple(d for a, d in enumerate(x.shape) if a != self.axis), DType.INT32),)


@dataclass(frozen=True, slots=True)
class ArgMax(ArgReduction):
    name: ClassVar[str] = "arg_max"
    sign: ClassVar[str] = ">"

    axis: int

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.asarray(arrays[0].argmax(axis=self.axis), np.int32).reshape(sig.y.shape),)


@dataclass(frozen=True, slots=True)
class ArgMin(ArgReduction):
    name: ClassVar[str] = "arg_min"
    sign: ClassVar[str] = "<"

    axis: int

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return (np.asarray(arrays[0].argmin(axis=self.axis), np.int32).reshape(sig.y.shape),)


def cases() -> Iterator[Case]:
    x = int8s("x", (2, 5, 3, 7), 0.05, -11)
    out = Quant.tensor(0.021, 6)
    kinds: tuple[Any, ...] = (Mean, Sum)
    for kind in kinds:
        yield make("image", kind((1, 2)), [x], out if kind is Mean else Quant.tensor(0.11, 6))
        yield make("image_kept", kind((1, 2), True), [x])
        yield make("channels", kind((3,), True), [x], out)
        yield make("all", kind((0, 1, 2, 3)), [x], Quant.tensor(0.003 if kind is Mean else 0.4, -100))
        yield make("one_axis", kind((1,)), [int8s("x", (3, 4), 0.1, 127)])
        yield make("f32_image", kind((1, 2)), [floats("x", (2, 5, 3, 7))])
        yield make("f32_channels", kind((3,), True), [floats("x", (2, 5, 3, 7))])
        short = int16s("x", (2, 5, 3, 7))
        yield make("int16_image", kind((1, 2)), [short], Quant.tensor(0.0004 if kind is Mean else 0.004))
        yield make("int16_channels", kind((3,), True), [short])
    yield make("wide", Mean((1, 2)), [int8s("x", (1, 8, 8, 32), 0.02, -128)], Quant.tensor(0.02, -128))
    yield by_float32(make("image", Mean((1, 2)), [x], out))
    yield by_float32(
        make("wide", Mean((1, 2)), [int8s("x", (1, 8, 8, 32), 0.02, -128)], Quant.tensor(0.019, -3))
    )
    kinds = (ReduceMax, ReduceMin)
    for kind in kinds:
        for prefix, value in (("", x), ("f32_", floats("x", (2, 5, 3, 7)))):
            yield make(f"{prefix}image", kind((1, 2)), [value])
            yield make(f"{prefix}channels", kind((3,), True), [value])
            yield make(f"{prefix}all", kind((0, 1, 2, 3)), [value])
    for dtype in (d for d in DType if d.is_integer and d is not DType.INT4):
        whole = plain("x", (3, 5, 4), dtype)
        yield make(f"{dtype.value}_onnx", Sum((1,)), [whole])
        yield make(f"{dtype.value}_onnx", ReduceMax((0, 2), True), [whole])
        yield make(f"{dtype.value}_onnx", ReduceMin((2,)), [whole])
        yield make(f"{dtype.value}_onnx", ArgMax(1), [whole])
    truths = plain("x", (4, 2, 3), DType.BOOL)
    yield make("axis", All((1,)), [truths])
    yield make("all", All((0, 1, 2), True), [truths])
    kinds = (ArgMax, ArgMin)
    for kind in kinds:
        for prefix, value in (("", x), ("f32_", floats("x", (2, 5, 3, 7)))):
            yield make(f"{prefix}last", kind(3), [value])
            yield make(f"{prefix}middle", kind(1), [value])
        yield make("vector", kind(0), [int8s("x", (100,))])
