"""Real Fourier transform and its inverse, as in TFLite Micro's signal library (KISS FFT).

A transform of n real values is computed as one of n / 2 complex values and a final separation step. In fixed
point each stage first divides its inputs by its radix, with rounding, so that nothing overflows. In float32
every product and sum is rounded separately, in the order of the C code, so that the reference gives the same
bits.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, DType, Op, Signature, Value
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, make

__all__ = [
    "EIGHTH",
    "Irfft",
    "Rfft",
    "cases",
    "digit_order",
    "half_turns",
    "is_fast",
    "odd_factors",
    "radices",
    "turns",
]

Whole = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]
Pair = tuple[Numbers, Numbers]
_BITS = {DType.INT16: 15, DType.INT32: 31}
_TYPES = (*_BITS, DType.FLOAT32)
EIGHTH = np.float32(np.sqrt(0.5))
"""Cosine and sine of an eighth of a turn."""


def _require(length: int, inputs: Sequence[Value], *, odd: bool = False) -> None:
    # ``odd`` is whether lengths may have factors of 3 and 5.
    require_inputs(inputs, 1)
    (x,) = inputs
    require(x.dtype in _TYPES, f"a transform of {x.dtype.value}")
    if odd and x.dtype is DType.FLOAT32:
        require(is_fast(length), f"a length of {length}, not 4 times twos, threes and fives, up to 8192")
    else:
        good = 4 <= length <= 8192 and length & (length - 1) == 0
        require(good, f"a length of {length}, not a power of two from 4 to 8192")
    require(len(x.shape) > 0, "a transform of a single number")


@dataclass(frozen=True, slots=True)
class Rfft(Op):
    """``x[..., N] -> y[..., length + 2]``: length / 2 + 1 complex values, as alternating real and imaginary
    parts.

    The input is padded with zeros to ``length``, which is a power of two; for float32, any length for which
    ``is_fast``.
    """

    name: ClassVar[str] = "rfft"

    length: int

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        _require(self.length, inputs, odd=True)
        (x,) = inputs
        require(x.shape[-1] <= self.length, f"more than {self.length} numbers")
        return (((*x.shape[:-1], self.length + 2), x.dtype),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        rows = arrays[0].reshape(-1, sig.x.shape[-1])
        padded = np.pad(rows, ((0, 0), (0, self.length - rows.shape[1])))
        both = np.stack(_transformer(sig.x.dtype).forward(padded), axis=-1)
        return (both.reshape(sig.y.shape).astype(sig.y.dtype.numpy),)


@dataclass(frozen=True, slots=True)
class Irfft(Op):
    """``x[..., length + 2] -> y[..., length]``: the real values with this transform.

    Results are divided by ``length``. The imaginary parts of the first and the last value are ignored.
    """

    name: ClassVar[str] = "irfft"

    length: int

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        _require(self.length, inputs)
        (x,) = inputs
        require(x.shape[-1] == self.length + 2, f"{x.shape[-1]} parts, not {self.length + 2}")
        return (((*x.shape[:-1], self.length), x.dtype),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        pairs = arrays[0].reshape(-1, self.length // 2 + 1, 2)
        rows = _transformer(sig.x.dtype).inverse(pairs[:, :, 0], pairs[:, :, 1])
        return (rows.reshape(sig.y.shape).astype(sig.y.dtype.numpy),)


def is_fast(length: int) -> bool:
    """Return True if there is a transform of ``length`` real values: 4 times powers of 2, 3 and 5, up to
    8192.
    """
    rest = length
    for factor in (2, 3, 5):
        while rest % factor == 0 and rest:
            rest //= factor
    return rest == 1 and length % 4 == 0 and length <= 8192


def radices(count: int, eight: bool = False) -> list[int]:
    """Return the radices of a transform's stages, the last stage first.

    They are fours, then a two, threes and fives. With ``eight``, the first stage is an eight instead of a
    four and a two.
    """
    found: list[int] = []
    while count > 1:
        if eight and count == 8:
            return [*found, 8]
        found.append(next(radix for radix in (4, 2, 3, 5) if count % radix == 0))
        count //= found[-1]
    return found


def turns(count: int, dtype: DType, sign: int = -1) -> Array:
    """Return ``exp(sign 2 pi i k / count)`` for k from 0 on: real and imaginary parts, with the full
    precision of the type.
    """
    return _factors(sign * 2 * np.pi * np.arange(count) / count, dtype)


def half_turns(count: int, dtype: DType, sign: int = -1) -> Array:
    """Return the factors that split a complex transform of ``count`` values into a real one, for indices 1 to
    count / 2.
    """
    return _factors(sign * np.pi * (np.arange(1, count // 2 + 1) / count + 0.5), dtype)


def _factors(phase: npt.NDArray[np.float64], dtype: DType) -> Array:
    parts = np.stack([np.cos(phase), np.sin(phase)], axis=1)
    if dtype in _BITS:
        parts = np.floor(0.5 + ((1 << _BITS[dtype]) - 1) * parts)
    return parts.astype(dtype.numpy)


def odd_factors(radix: int, j: int) -> tuple[Array, Array]:
    """Return cosines and sines of ``2 pi j m / radix`` for m from 1 to half of an odd radix, in float32."""
    angles = 2 * np.pi * j * np.arange(1, radix // 2 + 1) / radix
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def digit_order(count: int, eight: bool = False) -> Whole:
    """Return the source index of each input of the first stage."""
    order = np.arange(count, dtype=np.int64)
    groups = [order]
    for radix in radices(count, eight):
        groups = [group[k::radix] for group in groups for k in range(radix)]
    return np.concatenate(groups)


def _transformer(dtype: DType) -> "_Transformer":
    return _Fixed(_BITS[dtype]) if dtype in _BITS else _Float()


class _Transformer(ABC):
    __slots__ = ()

    @property
    @abstractmethod
    def dtype(self) -> DType: ...

    @abstractmethod
    def _held(self, x: Array) -> Numbers: ...

    @abstractmethod
    def _kept(self, x: Numbers) -> Numbers: ...  # rounded as the type does

    @abstractmethod
    def _divided(self, x: Pair, by: int) -> Pair: ...  # so that sums cannot overflow

    @abstractmethod
    def _product(self, a: Pair, b: Pair) -> Pair: ...

    @abstractmethod
    def _half(self, x: Numbers) -> Numbers: ...

    def _scaled(self, x: Pair) -> Pair:
        # Input of an inverse transform's stages.
        return x

    def forward(self, rows: Array) -> Pair:
        held = self._held(rows)
        return self._taken_apart(*self._transform((held[:, ::2], held[:, 1::2]), -1))

    def inverse(self, real: Array, imaginary: Array) -> Numbers:
        # The real numbers that these are the transforms of.
        together = self._put_together(self._held(real), self._held(imaginary))
        both = self._transform(self._scaled(together), 1)
        return np.stack(both, axis=-1).reshape(len(real), -1)

    def _sum(self, a: Pair, b: Pair, sign: int = 1) -> Pair:
        return self._kept(a[0] + sign * b[0]), self._kept(a[1] + sign * b[1])

    def _turns(self, factors: Array) -> Pair:
        return self._held(factors[:, 0]), self._held(factors[:, 1])

    def _transform(self, x: Pair, sign: int) -> Pair:
        # Each row by itself.
        count = x[0].shape[1]
        eight = self.dtype is DType.FLOAT32 and sign < 0
        order, twiddles = digit_order(count, eight), self._turns(turns(count, self.dtype, sign))
        x = x[0][:, order], x[1][:, order]
        size = 1
        for radix in reversed(radices(count, eight)):
            x = self._stage(x, radix, size, twiddles, sign)
            size *= radix
        return x

    def _stage(self, x: Pair, radix: int, size: int, twiddles: Pair, sign: int) -> Pair:
        # Groups of ``radix`` transforms of ``size`` numbers become one each.
        rows, count = x[0].shape
        step = count // (size * radix)
        parts = [tuple(a.reshape(rows, -1, radix, size)[:, :, k] for a in x) for k in range(radix)]
        given = []
        for k, part in enumerate(parts):
            small = self._divided((part[0], part[1]), radix)
            turn = tuple(t[k * step * np.arange(size)] for t in twiddles)
            given.append(self._product(small, (turn[0], turn[1])) if k else small)
        made = self._combined(given, sign)
        results = [np.stack([m[i] for m in made], axis=2).reshape(rows, count) for i in range(2)]
        return results[0], results[1]

    def _combined(self, x: Sequence[Pair], sign: int) -> list[Pair]:
        if len(x) == 2:
            return self._two(x)
        if len(x) == 8:
            return self._eight(x)
        return self._four(x, sign) if len(x) == 4 else self._odd(x, sign)

    def _two(self, x: Sequence[Pair]) -> list[Pair]:
        return [self._sum(x[0], x[1]), self._sum(x[0], x[1], -1)]

    def _four(self, x: Sequence[Pair], sign: int) -> list[Pair]:
        even, odd = self._sum(x[0], x[2]), self._sum(x[0], x[2], -1)
        total, rest = self._sum(x[1], x[3]), self._sum(x[1], x[3], -1)
        turned = -sign * rest[1], sign * rest[0]
        ends = self._sum(even, total), self._sum(even, total, -1)
        return [ends[0], self._sum(odd, turned), ends[1], self._sum(odd, turned, -1)]

    def _eight(self, x: Sequence[Pair]) -> list[Pair]:
        # Two of four, of float32; the numbers of the second one are turned by eighths.
        even, odd = self._four(x[::2], -1), self._four(x[1::2], -1)
        (a, b), (c, d) = ((EIGHTH * part[0], EIGHTH * part[1]) for part in odd[1::2])
        turned = [odd[0], (a + b, b - a), (odd[2][1], -odd[2][0]), (c - d, d + c)]
        signs = (1, 1, 1, -1)
        near = [self._sum(*pair) for pair in zip(even, turned, signs, strict=True)]
        return near + [self._sum(e, t, -sign) for e, t, sign in zip(even, turned, signs, strict=True)]

    def _odd(self, x: Sequence[Pair], sign: int) -> list[Pair]:
        # Radix 3 or 5 in float32: sums and differences of pairs, each with its factor.
        radix, half = len(x), len(x) // 2
        sums = [self._sum(x[m], x[radix - m]) for m in range(1, half + 1)]
        rests = [self._sum(x[m], x[radix - m], -1) for m in range(1, half + 1)]
        made = [x[0]] * radix
        for total in sums:
            made[0] = self._sum(made[0], total)
        for j in range(1, half + 1):
            cosines, sines = odd_factors(radix, j)
            even = x[0]
            for factor, total in zip(cosines, sums, strict=True):
                even = even[0] + factor * total[0], even[1] + factor * total[1]
            turned = sines[0] * rests[0][0], sines[0] * rests[0][1]
            for factor, rest in zip(sines[1:], rests[1:], strict=True):
                turned = turned[0] + factor * rest[0], turned[1] + factor * rest[1]
            made[j] = even[0] - sign * turned[1], even[1] + sign * turned[0]
            made[radix - j] = even[0] + sign * turned[1], even[1] - sign * turned[0]
        return made

    def _taken_apart(self, real: Numbers, imaginary: Numbers) -> Pair:
        # The transform of the real numbers, from that of pairs of them.
        count = real.shape[1]
        made = np.zeros((2, len(real), count + 1), real.dtype)
        first = self._divided((real[:, 0], imaginary[:, 0]), 2)
        made[0, :, 0], made[0, :, count] = first[0] + first[1], first[0] - first[1]
        k = np.arange(1, count // 2 + 1)
        total, turned = self._halves(real, imaginary, -1)
        made[0][:, k], made[1][:, k] = self._half(total[0] + turned[0]), self._half(total[1] + turned[1])
        made[0][:, count - k] = self._half(total[0] - turned[0])
        made[1][:, count - k] = self._half(-(total[1] - turned[1]))
        return self._kept(made[0]), self._kept(made[1])

    def _halves(self, real: Numbers, imaginary: Numbers, sign: int) -> tuple[Pair, Pair]:
        # Sums of numbers from both ends, and their differences, turned.
        count = real.shape[1] - (sign > 0)
        k = np.arange(1, count // 2 + 1)
        near = self._divided((real[:, k], imaginary[:, k]), 2)
        far = self._divided((real[:, count - k], self._kept(-imaginary[:, count - k])), 2)
        halves = self._turns(half_turns(count, self.dtype, sign))
        return self._sum(near, far), self._product(self._sum(near, far, -1), halves)

    def _put_together(self, real: Numbers, imaginary: Numbers) -> Pair:
        # The transform of pairs of real numbers, from that of the numbers.
        count = real.shape[1] - 1
        made = np.zeros((2, len(real), count), real.dtype)
        ends = self._sum((real[:, 0], real[:, 0]), (real[:, count], -real[:, count]))
        made[0, :, 0], made[1, :, 0] = self._divided(ends, 2)
        k = np.arange(1, count // 2 + 1)
        total, turned = self._halves(real, imaginary, 1)
        made[0][:, k], made[1][:, k] = self._sum(total, turned)
        real_far, imaginary_far = self._sum(total, turned, -1)
        made[0][:, count - k], made[1][:, count - k] = real_far, self._kept(-imaginary_far)
        return made[0], made[1]


@dataclass(frozen=True, slots=True)
class _Fixed(_Transformer):
    bits: int

    @property
    def dtype(self) -> DType:
        return DType.INT16 if self.bits < 16 else DType.INT32

    def _held(self, x: Array) -> Numbers:
        return x.astype(np.int64)

    def _kept(self, x: Numbers) -> Numbers:
        return x.astype(self.dtype.numpy).astype(np.int64)

    def _round(self, x: Numbers) -> Numbers:
        return self._kept((x + (1 << (self.bits - 1))) >> self.bits)

    def _divided(self, x: Pair, by: int) -> Pair:
        factor = ((1 << self.bits) - 1) // by
        return self._round(x[0] * factor), self._round(x[1] * factor)

    def _product(self, a: Pair, b: Pair) -> Pair:
        return self._round(a[0] * b[0] - a[1] * b[1]), self._round(a[0] * b[1] + a[1] * b[0])

    def _half(self, x: Numbers) -> Numbers:
        # int16 is added up in 32 bits.
        return (x if self.bits < 16 else self._kept(x)) >> 1


class _Float(_Transformer):
    __slots__ = ()

    @property
    def dtype(self) -> DType:
        return DType.FLOAT32

    def _held(self, x: Array) -> Numbers:
        return x.astype(np.float32)

    def _kept(self, x: Numbers) -> Numbers:
        return x

    def _divided(self, x: Pair, by: int) -> Pair:
        return x

    def _product(self, a: Pair, b: Pair) -> Pair:
        return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]

    def _half(self, x: Numbers) -> Numbers:
        return x * np.float32(0.5)

    def _scaled(self, x: Pair) -> Pair:
        factor = np.float32(1 / (2 * x[0].shape[1]))
        return x[0] * factor, x[1] * factor


def cases() -> Iterator[Case]:
    yield make("512", Rfft(512), [Value("x", (480,), DType.INT16)])
    yield make("64", Rfft(64), [Value("x", (2, 64), DType.INT16)])
    yield make("16", Rfft(16), [Value("x", (16,), DType.INT16)])
    yield make("4", Rfft(4), [Value("x", (3,), DType.INT16)])
    for dtype in (DType.INT32, DType.FLOAT32):
        yield make(f"{dtype.value}_32", Rfft(32), [Value("x", (2, 30), dtype)])
        yield make(f"{dtype.value}_64", Rfft(64), [Value("x", (64,), dtype)])
    for length in (12, 20, 60, 400):
        yield make(f"float32_{length}_features", Rfft(length), [Value("x", (length,), DType.FLOAT32)])
    for dtype in _TYPES:
        yield make(f"{dtype.value}_64", Irfft(64), [Value("x", (66,), dtype)])
        yield make(f"{dtype.value}_16", Irfft(16), [Value("x", (2, 18), dtype)])
        yield make(f"{dtype.value}_4", Irfft(4), [Value("x", (6,), dtype)])
