"""Reductions: ``mean``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from crtgen.ir import Array, DType, Index, Op, Quant, Signature, Value
from crtgen.ops.attrs import magnitude, require, require_inputs, tensor_quant
from crtgen.ops.case import Case, floats, int8s, make
from crtgen.ops.fixedpoint import multiply_by_quantized_multiplier, quantize_multiplier
from crtgen.ops.scheme import scheme_of
from crtgen.ops.traits import channelwise

__all__ = ["Mean", "MeanParams", "cases"]


@dataclass(frozen=True, slots=True)
class MeanParams:
    """Integers of a quantised mean over ``count`` elements.

    ``y = clamp(output_offset + (sum(x) + count * input_offset) * multiplier * 2**(shift - 31))``; the
    division by ``count`` is in the multiplier.
    """

    input_offset: int
    output_offset: int
    count: int
    multiplier: int
    shift: int


@dataclass(frozen=True, slots=True)
class Mean(Op):
    """The mean over ``axes``, which stay as length 1 where ``keep_dims``."""

    name: ClassVar[str] = "mean"
    rising: ClassVar[bool] = True

    axes: tuple[int, ...]
    keep_dims: bool = False

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        scheme_of(x)
        known = all(0 <= a < len(x.shape) for a in self.axes) and len(set(self.axes)) == len(self.axes)
        require(known, f"axes {self.axes} of {len(x.shape)} dimensions")
        if self.keep_dims:
            return ((tuple(1 if a in self.axes else d for a, d in enumerate(x.shape)), x.dtype),)
        return ((tuple(d for a, d in enumerate(x.shape) if a not in self.axes), x.dtype),)

    def bundles(self, sig: Signature) -> tuple[Index | None, ...] | None:
        return None if len(sig.x.shape) - 1 in self.axes else channelwise(sig)

    def parameters(self, sig: Signature) -> MeanParams:
        """The factor ``in / out`` as a multiplier, divided by the count as ``QuantizedMeanOrSum`` does."""
        x, y = tensor_quant(sig.x), tensor_quant(sig.y)
        count = prod(sig.x.shape[a] for a in self.axes)
        multiplier, shift = quantize_multiplier(x.scale / y.scale, count * magnitude(sig.x))
        extra = min(count.bit_length() - 1, 32, 31 + shift)
        divided = (multiplier << extra) // count
        return MeanParams(-x.zero_point, y.zero_point, count, divided, shift - extra)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        if scheme_of(sig.x).is_real:
            mean = arrays[0].astype(np.float64).mean(axis=self.axes)
            return (np.asarray(mean, np.float32).reshape(sig.y.shape),)
        p = self.parameters(sig)
        total = np.asarray(arrays[0].astype(np.int64).sum(axis=self.axes)) + p.count * p.input_offset
        scaled = multiply_by_quantized_multiplier(total, p.multiplier, p.shift) + p.output_offset
        return (scheme_of(sig.y).saturated(scaled).reshape(sig.y.shape),)


def cases() -> Iterator[Case]:
    """Over the image, over channels, over everything; requantising and not."""
    x = int8s("x", (2, 5, 3, 7), 0.05, -11)
    out = Quant.tensor(0.021, 6)
    yield make("image", Mean((1, 2)), [x], out)
    yield make("image_kept", Mean((1, 2), True), [x])
    yield make("channels", Mean((3,), True), [x], out)
    yield make("all", Mean((0, 1, 2, 3)), [x], Quant.tensor(0.003, -100))
    yield make("one_axis", Mean((1,)), [int8s("x", (3, 4), 0.1, 127)])
    yield make("wide", Mean((1, 2)), [int8s("x", (1, 8, 8, 32), 0.02, -128)], Quant.tensor(0.02, -128))
    yield make("f32_image", Mean((1, 2)), [floats("x", (2, 5, 3, 7))])
    yield make("f32_channels", Mean((3,), True), [floats("x", (2, 5, 3, 7))])
