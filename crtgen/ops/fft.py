"""The real Fourier transform in fixed point, as TFLite Micro's signal library computes it (KISS FFT).

A transform of n real numbers is one of n / 2 complex ones, whose result is taken apart. Each stage divides
its inputs by its radix first, rounded, so that nothing overflows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.ir import Array, DType, Op, Signature, Value
from crtgen.ops.attrs import require, require_inputs
from crtgen.ops.case import Case, make

__all__ = ["Rfft", "cases", "digit_order", "half_turns", "radices", "turns"]

Whole = npt.NDArray[np.int64]
Pair = tuple[Whole, Whole]
_BITS = 15
_MOST = (1 << _BITS) - 1


@dataclass(frozen=True, slots=True)
class Rfft(Op):
    """``x[..., N] -> y[..., length + 2]`` of int16: length / 2 + 1 numbers, real and imaginary parts in turn.

    The input is continued with zeros to ``length``, a power of two.
    """

    name: ClassVar[str] = "rfft"

    length: int

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 1)
        (x,) = inputs
        require(x.dtype is DType.INT16, f"a transform of {x.dtype.value}")
        good = 4 <= self.length <= 8192 and self.length & (self.length - 1) == 0
        require(good, f"a length of {self.length}, not a power of two from 4 to 8192")
        require(len(x.shape) > 0 and x.shape[-1] <= self.length, f"more than {self.length} numbers")
        return (((*x.shape[:-1], self.length + 2), x.dtype),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        rows = arrays[0].astype(np.int64).reshape(-1, sig.x.shape[-1])
        padded = np.pad(rows, ((0, 0), (0, self.length - rows.shape[1])))
        real, imaginary = _taken_apart(*_transform(padded[:, ::2], padded[:, 1::2]))
        both = np.stack([real, imaginary], axis=-1)
        return (both.reshape(sig.y.shape).astype(np.int16),)


def radices(count: int) -> list[int]:
    """Those of the stages of a transform of ``count`` numbers, the last stage first: fours, then a two."""
    found = []
    while count > 1:
        found.append(4 if count % 4 == 0 else 2)
        count //= found[-1]
    return found


def turns(count: int) -> Pair:
    """``exp(-2 pi i k / count)`` with 15 fractional bits, for k from 0 on."""
    return _rounded(-2 * np.pi * np.arange(count) / count)


def half_turns(count: int) -> Pair:
    """The factors by which a transform of ``count`` numbers is taken apart, for number 1 to count / 2."""
    return _rounded(-np.pi * (np.arange(1, count // 2 + 1) / count + 0.5))


def digit_order(count: int) -> Whole:
    """Where each number of the first stage comes from."""
    order = np.arange(count, dtype=np.int64)
    groups = [order]
    for radix in radices(count):
        groups = [group[k::radix] for group in groups for k in range(radix)]
    return np.concatenate(groups)


def _rounded(phase: npt.NDArray[np.float64]) -> Pair:
    parts = (np.floor(0.5 + _MOST * f(phase)).astype(np.int64) for f in (np.cos, np.sin))
    real, imaginary = parts
    return real, imaginary


def _short(x: Whole) -> Whole:
    """What 16 bits keep of it."""
    return x.astype(np.int16).astype(np.int64)


def _round(x: Whole) -> Whole:
    return _short((x + (1 << (_BITS - 1))) >> _BITS)


def _divided(x: Pair, by: int) -> Pair:
    return _round(x[0] * (_MOST // by)), _round(x[1] * (_MOST // by))


def _product(a: Pair, b: Pair) -> Pair:
    return _round(a[0] * b[0] - a[1] * b[1]), _round(a[0] * b[1] + a[1] * b[0])


def _sum(a: Pair, b: Pair, sign: int = 1) -> Pair:
    return _short(a[0] + sign * b[0]), _short(a[1] + sign * b[1])


def _transform(real: Whole, imaginary: Whole) -> Pair:
    """Of each row."""
    count = real.shape[1]
    order, twiddles = digit_order(count), turns(count)
    x = real[:, order], imaginary[:, order]
    size = 1
    for radix in reversed(radices(count)):
        x = _stage(x, radix, size, twiddles)
        size *= radix
    return x


def _stage(x: Pair, radix: int, size: int, twiddles: Pair) -> Pair:
    """Groups of ``radix`` transforms of ``size`` numbers become one each."""
    rows, count = x[0].shape
    step = count // (size * radix)
    parts = [tuple(a.reshape(rows, -1, radix, size)[:, :, k] for a in x) for k in range(radix)]
    given = []
    for k, part in enumerate(parts):
        small = _divided((part[0], part[1]), radix)
        turn = tuple(t[k * step * np.arange(size)] for t in twiddles)
        given.append(_product(small, (turn[0], turn[1])) if k else small)
    made = _two(given) if radix == 2 else _four(given)
    results = [np.stack([m[i] for m in made], axis=2).reshape(rows, count) for i in range(2)]
    return results[0], results[1]


def _two(x: Sequence[Pair]) -> list[Pair]:
    return [_sum(x[0], x[1]), _sum(x[0], x[1], -1)]


def _four(x: Sequence[Pair]) -> list[Pair]:
    even, odd = _sum(x[0], x[2]), _sum(x[0], x[2], -1)
    total, rest = _sum(x[1], x[3]), _sum(x[1], x[3], -1)
    turned = rest[1], -rest[0]
    return [_sum(even, total), _sum(odd, turned), _sum(even, total, -1), _sum(odd, turned, -1)]


def _taken_apart(real: Whole, imaginary: Whole) -> Pair:
    """The transform of the real numbers, from that of pairs of them."""
    count = real.shape[1]
    made = np.zeros((2, len(real), count + 1), np.int64)
    first = _divided((real[:, 0], imaginary[:, 0]), 2)
    made[0, :, 0], made[0, :, count] = _short(first[0] + first[1]), _short(first[0] - first[1])
    k = np.arange(1, count // 2 + 1)
    near = _divided((real[:, k], imaginary[:, k]), 2)
    far = _divided((real[:, count - k], _short(-imaginary[:, count - k])), 2)
    total, rest = _sum(near, far), _sum(near, far, -1)
    turned = _product(rest, half_turns(count))
    made[0][:, k], made[1][:, k] = (total[0] + turned[0]) >> 1, (total[1] + turned[1]) >> 1
    made[0][:, count - k], made[1][:, count - k] = (total[0] - turned[0]) >> 1, (turned[1] - total[1]) >> 1
    return _short(made[0]), _short(made[1])


def cases() -> Iterator[Case]:
    """Powers of four and of two, rows, what is continued with zeros."""
    yield make("512", Rfft(512), [Value("x", (480,), DType.INT16)])
    yield make("64", Rfft(64), [Value("x", (2, 64), DType.INT16)])
    yield make("16", Rfft(16), [Value("x", (16,), DType.INT16)])
    yield make("4", Rfft(4), [Value("x", (3,), DType.INT16)])
