"""Average and max pooling."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Quant, Signature, Value
from crtgen.network.ops.attrs import (
    NO_PADDING,
    Activation,
    Padding,
    clamp_float,
    padded_elements,
    require,
    require_inputs,
    tensor_quant,
)
from crtgen.network.ops.case import Case, by_float32, floats, int8s, int16s, make
from crtgen.network.ops.conv import pad_image, window_tap
from crtgen.network.ops.fixedpoint import Int64, single
from crtgen.network.ops.rescaling import by_float
from crtgen.network.ops.scheme import scheme_of
from crtgen.network.ops.traits import Channelwise, Clamping, Real, Windowed

__all__ = ["AveragePool2d", "MaxPool2d", "PoolParams", "cases"]

_PER_TAP = 20_000
_MOST_SUMS = 1 << 18
_MOST_STEPS = 1 << 30


@dataclass(frozen=True, slots=True)
class PoolParams:
    """Integers of a quantised pooling: its limits and, for an average that is rescaled, a factor.

    ``y = clamp(output_offset + rint(f32(f32(sum + start) * factor)))``, where ``start`` accounts for the zero
    point in a window's sum; ties go to even numbers, or to ``odd`` ones.
    """

    act_min: int
    act_max: int
    start: int = 0
    output_offset: int = 0
    factor: float | None = None
    odd: bool = False


class _Pool(Windowed, Clamping, Channelwise):
    # Common parts of both poolings: ``x[N,H,W,C] -> [N,oh,ow,C]``; input and output are quantised alike.
    __slots__ = ()

    monotonic: ClassVar[bool] = True
    unscaled: ClassVar[bool] = True

    window: tuple[int, int]

    def taps(self, sig: Signature) -> tuple[int, int]:
        return self.window

    def work(self, sig: Signature) -> int:
        # The reference goes through the taps of a window one by one.
        return prod(self.window) * (sig.y.elements + _PER_TAP)

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        scheme_of(x)
        require(len(x.shape) == 4, "the input must have four dimensions")
        pad = self.padding
        vertical, horizontal = max(pad.top, pad.bottom), max(pad.left, pad.right)
        inside = vertical < self.window[0] and horizontal < self.window[1]
        require(inside, f"padding {pad} leaves windows outside of the image")
        size = pad.output_size((x.shape[1], x.shape[2]), self.window, self.stride)
        padded_elements(x.shape, pad)
        return (((x.shape[0], *size, x.shape[3]), x.dtype),)

    def parameters(self, sig: Signature) -> PoolParams:
        # The clamp; ``ValueError`` where input and output are quantised differently.
        require(sig.x.quant == sig.y.quant, "input and output are quantised differently")
        return PoolParams(*self.activation.quantized_range(sig.y))

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        pooled = self._pool(arrays[0].astype(np.float64), sig)
        if scheme_of(sig.x).is_real:
            return (clamp_float(pooled, self.activation),)
        params = self.parameters(sig)
        return (scheme_of(sig.y).saturated(pooled, params.act_min, params.act_max),)

    @abstractmethod
    def _pool(self, x: Real, sig: Signature) -> Real: ...  # integers if the input is quantised

    def _taps(self, x: Real, sig: Signature, fill: float) -> Iterator[Real]:
        padded = pad_image(x, self.padding, fill)
        for i in range(self.window[0]):
            for j in range(self.window[1]):
                yield window_tap(padded, (i, j), self.stride, (1, 1), sig)


@dataclass(frozen=True, slots=True)
class AveragePool2d(_Pool):
    """The mean of a window; padding does not count. For int8, ties are rounded away from zero.

    If the output is rescaled in float32, windows have no padding, and its scale may differ from the input's.
    """

    name: ClassVar[str] = "average_pool2d"

    window: tuple[int, int]
    stride: tuple[int, int]
    padding: Padding = NO_PADDING
    activation: Activation = Activation.NONE

    def padding_value(self, x: Value) -> int | None:
        return None

    def parameters(self, sig: Signature) -> PoolParams:
        """Compute the parameters. The factor is ``in / out / count``, as in ONNX Runtime, which adds the zero
        point before it rounds: ties go to even results.
        """
        if not by_float(sig.y):
            return _Pool.parameters(self, sig)
        require(self.padding == NO_PADDING, "averages that padding is in are not rescaled")
        x, y, count = tensor_quant(sig.x), tensor_quant(sig.y), prod(self.window)
        ratio, scheme = single(x.scale / y.scale), scheme_of(sig.x)
        most = ratio * (scheme.high - scheme.low)
        require(most < _MOST_STEPS, f"means are {most:,.0f} of its output's steps: too many")
        factor = single(ratio / count)
        limits = self.activation.quantized_range(sig.y)
        plain = PoolParams(*limits, -x.zero_point * count, y.zero_point, factor)
        if y.zero_point % 2 == 0:
            return plain
        exact, step = replace(plain, odd=True), count * y.scale / x.scale
        forms = [plain]
        # The sum moves by one step of the result, and the result back by one.
        if step.is_integer() and step < _MOST_SUMS:
            forms.append(replace(plain, start=plain.start + int(step), output_offset=y.zero_point - 1))
        sums = scheme.low * count, scheme.high * count
        return next((p for p in forms if _are_equal(p, exact, sums)), exact)

    def _pool(self, x: Real, sig: Signature) -> Real:
        total = sum(self._taps(x, sig, 0.0), np.zeros(sig.y.shape))
        count = sum(self._taps(np.ones(x.shape), sig, 0.0), np.zeros(sig.y.shape))
        if scheme_of(sig.x).is_real:
            return total / count
        p = self.parameters(sig)
        if p.factor is not None:
            return _rescaled(total.astype(np.int64), p).astype(np.float64)
        magnitude = (np.abs(total) + count // 2) // count
        return np.copysign(magnitude, total)


def _rescaled(total: Int64, p: PoolParams) -> Int64:
    # The results, not limited, of windows with these sums.
    assert p.factor is not None
    product = (total + p.start).astype(np.float32) * np.float32(p.factor)
    whole = np.rint(product.astype(np.float64) + p.odd).astype(np.int64)
    moved: Int64 = whole + (p.output_offset - p.odd)
    return moved


@cache
def _are_equal(a: PoolParams, b: PoolParams, ends: tuple[int, int]) -> bool:
    # Compares the results of all sums, up to a number of them.
    if ends[1] - ends[0] > _MOST_SUMS:
        return False
    sums = np.arange(ends[0], ends[1] + 1)
    limits = a.act_min, a.act_max
    return np.array_equal(np.clip(_rescaled(sums, a), *limits), np.clip(_rescaled(sums, b), *limits))


@dataclass(frozen=True, slots=True)
class MaxPool2d(_Pool):
    name: ClassVar[str] = "max_pool2d"

    window: tuple[int, int]
    stride: tuple[int, int]
    padding: Padding = NO_PADDING
    activation: Activation = Activation.NONE

    def padding_value(self, x: Value) -> int | None:
        return None if scheme_of(x).is_real else scheme_of(x).low

    def _pool(self, x: Real, sig: Signature) -> Real:
        greatest = np.full(sig.y.shape, -np.inf)
        for tap in self._taps(x, sig, -np.inf):
            greatest = np.maximum(greatest, tap)
        return greatest


def cases() -> Iterator[Case]:
    for kind in (AveragePool2d, MaxPool2d):
        x = int8s("x", (1, 9, 7, 5), 0.04, 6)
        same = Padding.same((9, 7), (3, 3), (2, 2))
        yield make("2x2", kind((2, 2), (2, 2)), [x])
        yield make("same", kind((3, 3), (2, 2), same), [x])
        yield make("whole", kind((9, 7), (1, 1)), [x])
        skew = kind((2, 4), (1, 3), Padding.same((9, 7), (2, 4), (1, 3)), Activation.RELU)
        yield make("skew_relu", skew, [int8s("x", (2, 9, 7, 5), 0.04, 6)])
        narrow = kind((3, 2), (1, 1), activation=Activation.RELU_N1_1)
        yield make("clamp", narrow, [int8s("x", (1, 5, 5, 16), 0.02, -128)])
        yield make("whole_wide", kind((8, 8), (8, 8)), [int8s("x", (1, 8, 8, 64), 0.1, -128)])
        yield make("line", kind((1, 300), (1, 1)), [int8s("x", (1, 2, 300, 4), 0.1, -3)])
        yield make("int16", kind((3, 3), (2, 2), same, Activation.RELU), [int16s("x", (1, 9, 7, 5))])
        if kind is AveragePool2d:
            yield by_float32(make("2x2", kind((2, 2), (2, 2)), [x], Quant.tensor(0.037, -3)))
            wide, even = int8s("x", (1, 6, 7, 18), 0.04, 6), int8s("x", (1, 6, 6, 8), 0.04, 6)
            yield by_float32(make("2x2_narrow", kind((2, 2), (2, 2)), [even], Quant.tensor(0.02, 40)))
            yield by_float32(make("2x2_odd", kind((2, 2), (2, 2)), [int8s("x", (1, 9, 7, 5), 0.04, 7)]))
            ties = Quant.tensor(0.04, -9)  # which are of an odd number of steps
            yield by_float32(
                make("2x2_ties", kind((2, 2), (2, 2)), [int8s("x", (1, 4, 6, 6), 0.05, -4)], ties)
            )
            yield by_float32(make("3x2", kind((3, 2), (1, 1)), [wide], Quant.tensor(0.04, 6)))
        yield make("f32_same", kind((3, 3), (2, 2), same, Activation.RELU6), [floats("x", (1, 9, 7, 5))])
        yield make("f32_whole", kind((4, 4), (4, 4)), [floats("x", (2, 4, 4, 3))])
