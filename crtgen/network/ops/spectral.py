"""Float32 operators between samples and features: windows, powers, bands, logarithms.

Each product and each sum is rounded separately, in the order that the docstrings give, so that the C code
equals the numpy reference bit for bit on every core.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, DType, Op, Quant, Signature, Value, shape_text
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, make
from crtgen.network.ops.scheme import INT8, INT16

__all__ = [
    "LOG_TERMS",
    "Banded",
    "Bands",
    "Before",
    "Frame",
    "LogFloor",
    "Power",
    "RemoveMean",
    "RoundedRatio",
    "ScaledLog",
    "banded",
    "cases",
]

Floats = npt.NDArray[np.float32]
_F32, _I16 = DType.FLOAT32, DType.INT16
_Outputs = tuple[tuple[tuple[int, ...], DType], ...]


class Before(Enum):
    """The value of the sample before the first one of a frame."""

    EARLIER = "earlier"
    """The previous sample of the stream; 0 if there is none."""
    ITSELF = "itself"
    """The first sample, repeated."""
    LAST = "last"
    """The last sample of ``x``, for a frame that begins with the first one."""

    def place(self, start: int, samples: int) -> int | None:
        """Return its index relative to the first sample of the input, for a frame that begins at ``start``;
        None if it is 0.
        """
        if self is Before.EARLIER:
            return -1 if start else None
        return 0 if self is Before.ITSELF else samples - 1 - start


@dataclass(frozen=True, slots=True)
class Frame(Op):
    """``x[N], weights[size] -> y[size]``: ``weights[i] * (x[start + i] - preemphasis * x[start + i - 1])``.

    int16 is converted to float32 first. ``before`` selects the sample before the first one of the frame.
    """

    name: ClassVar[str] = "frame"

    start: int
    preemphasis: float
    before: Before = Before.EARLIER

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        require_inputs(inputs, 2)
        x, weights = inputs
        require(x.dtype in (_I16, _F32) and weights.dtype is _F32, f"a frame of {x.dtype.value}")
        require(len(x.shape) == 1 and len(weights.shape) == 1, f"samples of {shape_text(x.shape)}")
        inside = self.start >= 0 and self.start + weights.elements <= x.elements
        require(inside, f"samples {self.start} to {self.start + weights.elements} of {x.elements}")
        require(self.before is not Before.LAST or self.start == 0, "the last sample before another")
        return ((weights.shape, _F32),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, weights = (a.astype(np.float32) for a in arrays)
        places = self.start + np.arange(len(weights))
        if not self.preemphasis:
            return (weights * x[places],)
        before = x[places - 1]
        place = self.before.place(self.start, len(x))
        before[0] = 0 if place is None else x[self.start + place]
        return (weights * (x[places] - np.float32(self.preemphasis) * before),)


@dataclass(frozen=True, slots=True)
class RemoveMean(Op):
    """``x[N] of int16 -> y[size] of float32``: samples from ``start`` on, minus their mean.

    The sum is exact; it is converted to float32 and divided by ``size``.
    """

    name: ClassVar[str] = "remove_mean"

    start: int
    size: int

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        require_inputs(inputs, 1)
        (x,) = inputs
        require(x.dtype is _I16 and len(x.shape) == 1, f"samples of {shape_text(x.shape)} {x.dtype.value}")
        require(0 < self.size <= 65536, f"a mean of {self.size} samples; supported: 1 to 65536")
        inside = self.start >= 0 and self.start + self.size <= x.elements
        require(inside, f"samples {self.start} to {self.start + self.size} of {x.elements}")
        return (((self.size,), _F32),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x = arrays[0][self.start : self.start + self.size]
        mean = np.float32(x.astype(np.int64).sum()) / np.float32(self.size)
        return (x.astype(np.float32) - mean,)


@dataclass(frozen=True, slots=True)
class Power(Op):
    """``x[..., 2 N] -> y[..., N]``: ``real * real + imaginary * imaginary``; with ``root``, its square
    root.
    """

    name: ClassVar[str] = "power"

    root: bool = False

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        require_inputs(inputs, 1)
        (x,) = inputs
        require(x.dtype is _F32, f"powers of {x.dtype.value}")
        require(len(x.shape) > 0 and x.shape[-1] % 2 == 0, f"pairs in {shape_text(x.shape)}")
        return (((*x.shape[:-1], x.shape[-1] // 2), _F32),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x = arrays[0].astype(np.float32)
        real, imaginary = x[..., ::2], x[..., 1::2]
        power = real * real + imaginary * imaginary
        return (np.sqrt(power) if self.root else power,)


@dataclass(frozen=True, slots=True)
class Bands(Op):
    """``x[..., N], weights, first[C], widths[C] -> y[..., C]``: weighted sums of adjacent elements.

    The weights of all sums are stored one after another. A sum starts at 0 and adds products in order.
    """

    name: ClassVar[str] = "bands"

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        require_inputs(inputs, 4)
        x, weights, first, widths = inputs
        types = tuple(v.dtype for v in inputs)
        require(types == (_F32, _F32, _I16, _I16), f"types {', '.join(t.value for t in types)}")
        require(all(v.is_constant for v in inputs[1:]), "its weights are computed at run time")
        require(len(x.shape) > 0 and len(first.shape) == 1, f"bands of {shape_text(x.shape)}")
        require(first.shape == widths.shape, f"{widths.elements} widths of {first.elements} bands")
        starts, counts = (v.array().astype(np.int64) for v in (first, widths))
        inside = (starts >= 0) & (counts >= 0) & (starts + counts <= x.shape[-1])
        require(bool(inside.all()), f"a band leaves its {x.shape[-1]} numbers")
        require(
            int(counts.sum()) == weights.elements, f"{weights.elements} weights, {int(counts.sum())} used"
        )
        return (((*x.shape[:-1], first.elements), _F32),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x = arrays[0].astype(np.float32)
        weights = arrays[1].astype(np.float32)
        first, widths = (a.astype(np.int64) for a in arrays[2:])
        at = np.cumsum(widths) - widths
        sums = np.zeros((*x.shape[:-1], len(widths)), np.float32)
        for term in range(int(widths.max(initial=0))):  # add this term to the sum of each band that has it
            bands = np.flatnonzero(widths > term)
            sums[..., bands] += weights[at[bands] + term] * x[..., first[bands] + term]
        return (sums,)

    def macs(self, sig: Signature) -> int:
        return sig.inputs[1].elements * (sig.x.elements // sig.x.shape[-1])


@dataclass(frozen=True, slots=True)
class RoundedRatio(Op):
    """``x -> y`` of int8: ``(x * numerator + denominator / 2) / denominator + zero_point``, saturated.

    Integer quotients are truncated.
    """

    name: ClassVar[str] = "rounded_ratio"

    numerator: int
    denominator: int
    zero_point: int

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        require_inputs(inputs, 1)
        (x,) = inputs
        require(x.dtype is _I16, f"a ratio of {x.dtype.value}")
        fits = 0 < self.numerator <= 16384 and 1 < self.denominator <= 16384
        require(fits, f"{self.numerator} / {self.denominator}; supported: up to 16384")
        return ((x.shape, DType.INT8),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        products = arrays[0].astype(np.int64) * self.numerator + self.denominator // 2
        quotients = np.trunc(products / self.denominator).astype(np.int64)
        return (INT8.saturated(quotients + self.zero_point),)


@dataclass(frozen=True, slots=True)
class Banded:
    """A matrix by columns, without leading and trailing zeros: the operands of ``Bands``."""

    weights: npt.NDArray[np.float32]
    first: npt.NDArray[np.int16]
    widths: npt.NDArray[np.int16]

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.weights, self.first, self.widths


def banded(matrix: npt.NDArray[np.floating[Any]]) -> Banded:
    """Return the columns of ``[bins, bands]`` in float32, each from its first to its last nonzero element."""
    columns = matrix.astype(np.float32).T
    spans = []
    for column in columns:
        used = np.flatnonzero(column)
        spans.append((int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0))
    require(len(matrix) <= INT16.high, f"bands of {len(matrix)} numbers; supported: up to {INT16.high}")
    weights = [column[a:b] for column, (a, b) in zip(columns, spans, strict=True)]
    return Banded(
        np.concatenate(weights),
        np.array([a for a, _ in spans], np.int16),
        np.array([b - a for a, b in spans], np.int16),
    )


class LogFloor(Enum):
    MAX = "max"
    """The greater of the number and the floor."""
    ADD = "add"
    """The number plus the floor."""
    ZERO = "zero"
    """The floor instead of 0."""


LOG_TERMS: Floats = np.array(
    [
        0.33333322405815125,
        -0.25000709295272827,
        0.2000182420015335,
        -0.16627410054206848,
        0.14192301034927368,
        -0.13113975524902344,
        0.12803992629051208,
        -0.07802560180425644,
    ],
    np.float32,
)
"""``ln(1 + f)`` is ``f - f*f / 2 + f*f*f * P(f)``: P from the constant on, by least squares over Chebyshev
nodes from ``1/sqrt(2) - 1`` to ``sqrt(2) - 1``. In float32 it is within 3.6e-8."""

_LN2 = np.float32(0.6931471805599453)
_BIAS = 0x7F
_SQRT2 = np.float32(1.4142135623730951)
_LEAST = np.finfo(np.float32).tiny


@dataclass(frozen=True, slots=True)
class ScaledLog(Op):
    """``x -> y``: ``scale * ln(x) + offset``, where ``floor`` keeps x away from 0.

    Values below 2^-126 count as 2^-126. The mantissa's logarithm is a polynomial, ``LOG_TERMS``.
    """

    name: ClassVar[str] = "scaled_log"

    floor: float
    kind: LogFloor
    scale: float
    offset: float

    def infer(self, inputs: Sequence[Value]) -> _Outputs:
        require_inputs(inputs, 1)
        (x,) = inputs
        require(x.dtype is _F32, f"logarithms of {x.dtype.value}")
        require(float(_LEAST) <= self.floor < 3e38, f"a floor of {self.floor}")
        return ((x.shape, _F32),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, floor = arrays[0].astype(np.float32), np.float32(self.floor)
        if self.kind is LogFloor.ADD:
            x = x + floor
        elif self.kind is LogFloor.MAX:
            x = np.where(x > floor, x, floor)
        else:
            x = np.where(x == 0, floor, x)
        x = np.where(x > _LEAST, x, _LEAST)
        return (np.float32(self.scale) * _natural(x) + np.float32(self.offset),)


def _natural(x: Floats) -> Floats:
    bits = x.view(np.int32)
    exponent = (bits >> 23) - _BIAS
    mantissa = ((bits & 0x7FFFFF) | 0x3F800000).view(np.float32)
    high = mantissa > _SQRT2
    exponent = exponent + high
    f = np.where(high, mantissa * np.float32(0.5), mantissa) - np.float32(1)
    total = np.full_like(f, LOG_TERMS[-1])
    for term in LOG_TERMS[-2::-1]:
        total = total * f + term
    square = f * f
    small: Floats = (f - np.float32(0.5) * square) + (square * f) * total
    return exponent.astype(np.float32) * _LN2 + small


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(34)
    weights = Value.constant("w", rng.uniform(0, 1e-4, 24).astype(np.float32))
    x = Value("x", (30,), _I16)
    yield make("int16_features", Frame(5, 0.96875), [x, weights])
    yield make("int16_first_features", Frame(0, 0.97), [x, weights])
    yield make("int16_last_features", Frame(0, 0.98, Before.LAST), [x, weights])
    yield make("int16_itself_features", Frame(4, 0.98, Before.ITSELF), [x, weights])
    yield make("int16_plain_features", Frame(3, 0.0), [x, weights])
    yield make("float32_features", Frame(0, 0.97, Before.ITSELF), [Value("x", (24,), _F32), weights])
    yield make("int16_features", RemoveMean(4, 25), [x])
    yield make("float32_features", Power(), [Value("x", (3, 34), _F32)])
    yield make("float32_root_features", Power(root=True), [Value("x", (66,), _F32)])
    bands = [
        Value.constant("w", rng.uniform(-1, 1, 17).astype(np.float32)),
        Value.constant("f", np.array([0, 2, 5, 11, 3], np.int16)),
        Value.constant("n", np.array([3, 6, 0, 4, 4], np.int16)),
    ]
    yield make("float32_features", Bands(), [Value("x", (2, 15), _F32), *bands])
    yield make(
        "int16_features", RoundedRatio(256, 666, INT8.low), [Value("x", (40,), _I16)], Quant.tensor(0.1, 0)
    )
    numbers = Value("x", (40,), _F32)
    limits = {"x": (0.0, 3000.0)}
    yield make(
        "decibels_features", ScaledLog(1e-30, LogFloor.MAX, 4.342944819, 52.0), [numbers], limits=limits
    )
    yield make("added_features", ScaledLog(1e-6, LogFloor.ADD, 1.0, 0.0), [numbers], limits={"x": (0.0, 2.0)})
    yield make(
        "zeros_features", ScaledLog(1e-10, LogFloor.ZERO, 1.0, 0.0), [numbers], limits={"x": (0.9, 1.1)}
    )
