"""Power spectra of frames in 32-bit integers, for cores without an FPU.

All values of a frame share an exponent, that of the largest value after windowing. Products with factors of
30 fractional bits are composed of 16-bit products, without the lowest one, so that none needs more than 32
bits. Each stage of the transform divides by its radix, so nothing can overflow, whatever the samples are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, DType, Op, Signature, Value, shape_text
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, make
from crtgen.network.ops.fft import digit_order, radices
from crtgen.network.ops.spectral import Before

__all__ = [
    "EIGHTH30",
    "FRACTION",
    "ROOM",
    "STEEPEST",
    "BlockPower",
    "cases",
    "fractions",
    "half_turns30",
    "has_block",
    "powers_of",
    "turns30",
    "window30",
]

Whole = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Pair = tuple[Whole, Whole]

FRACTION = 30
"""Fractional bits of windows and turns."""
ROOM = 29
"""Bits of the greatest sample: differences of two have one more."""
_SHORTEST, _LONGEST = 16, 8192
EIGHTH30: int = round(float(np.sqrt(0.5)) * (1 << FRACTION))
"""The cosine of an eighth of a turn, with 30 fractional bits."""
STEEPEST = 0.999
"""The greatest pre-emphasis."""
_HEAVIEST = 1e9
_BIAS = 0x7F
_WHOLE = (0, 33)


@dataclass(frozen=True, slots=True)
class BlockPower(Op):
    """``x[N] of int16, weights[size] -> y of float32``: power spectrum of a frame.

    The frame is that of ``Frame``. The mean of ``centred`` frames is subtracted first, and their first sample
    counts as its own predecessor. A frame is padded with zeros to ``length``, a power of two. Of the ``length
    / 2 + 1`` powers, those from the first to the second index of ``bins`` (exclusive) are kept.
    """

    name: ClassVar[str] = "block_power"

    start: int
    preemphasis: float
    before: Before
    length: int
    bins: tuple[int, int]
    centred: bool = False

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 2)
        x, weights = inputs
        require(x.dtype is DType.INT16 and len(x.shape) == 1, f"samples of {shape_text(x.shape)}")
        require(weights.is_constant and len(weights.shape) == 1, "its weights are computed at run time")
        inside = self.start >= 0 and self.start + weights.elements <= x.elements
        require(inside, f"samples {self.start} to {self.start + weights.elements} of {x.elements}")
        require(weights.elements <= self.length, f"more than {self.length} samples")
        require(
            has_block(self.length),
            f"a length of {self.length}, not a power of two from {_SHORTEST} to {_LONGEST}",
        )
        most = float(np.abs(weights.array()).max())
        require(most < _HEAVIEST, f"a weight of {most}; supported: below {_HEAVIEST:.0e}")
        require(abs(self.preemphasis) <= STEEPEST, f"a preemphasis of {self.preemphasis}")
        require(self.before is not Before.LAST or self.start == 0, "the last sample before another")
        require(
            not self.centred or self.before is Before.ITSELF, "samples without mean have none before them"
        )
        first, end = self.bins
        inside = 0 <= first < end - 1 <= self.length // 2
        require(inside, f"powers {first} to {end} of {self.length // 2 + 1}; supported: two or more")
        return (((end - first,), DType.FLOAT32),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, weights = arrays[0].astype(np.int64), arrays[1].astype(np.float32)
        places = self.start + np.arange(len(weights))
        before = x[places - 1]
        place = self.before.place(self.start, len(x))
        before[0] = 0 if place is None else x[self.start + place]
        made = powers_of(x[places][None], before[None], weights, self)
        return (made.reshape(sig.y.shape),)

    @property
    def factor(self) -> int:
        """Return the pre-emphasis factor, rounded to float32, with 30 fractional bits."""
        return int(fractions(np.array(np.float32(self.preemphasis), np.float64)))


def has_block(length: int) -> bool:
    """Return True if there is a 32-bit transform of ``length`` real values."""
    return _SHORTEST <= length <= _LONGEST and length & (length - 1) == 0


def fractions(values: npt.NDArray[np.float64]) -> Whole:
    return np.rint(values * (1 << FRACTION)).astype(np.int64)


def turns30(count: int) -> Whole:
    """Return ``exp(-2 pi i k / count)`` for k from 0 on: ``[count, 2]``."""
    phase = -2 * np.pi * np.arange(count) / count
    return fractions(np.stack([np.cos(phase), np.sin(phase)], axis=1))


def half_turns30(count: int) -> Whole:
    """Return the factors that split a complex transform of ``count`` values into a real one, for indices 1 to
    count / 2.
    """
    phase = -np.pi * (np.arange(1, count // 2 + 1) / count + 0.5)
    return fractions(np.stack([np.cos(phase), np.sin(phase)], axis=1))


def window30(weights: Floats) -> tuple[Whole, int]:
    """Return the weights scaled by a power of two, so that the greatest is at most 1, and the exponent of the
    scaling.
    """
    exponent = int(np.frexp(float(np.abs(weights).max()))[1])
    return fractions(weights.astype(np.float64) * 2.0**-exponent), exponent


def powers_of(now: Whole, before: Whole, weights: Floats, op: BlockPower) -> Floats:
    """Return the powers ``[rows, powers]`` of samples ``[rows, size]``, given the samples before each row."""
    window, exponent = window30(weights)
    most = np.maximum(np.abs(now).max(axis=1), np.abs(before).max(axis=1))
    bits = ROOM - op.centred - _lengths(most)[:, None]
    shifted, earlier = now << bits, before << bits
    if op.centred:
        sums = shifted.sum(axis=1)
        mean = (np.sign(sums) * (np.abs(sums) // now.shape[1]))[:, None]
        shifted, earlier = shifted - mean, earlier - mean
    factor = np.array(op.factor)
    sharp = shifted - _product(earlier, factor) if factor else shifted
    frame = _product(sharp, window[None])
    frame = np.pad(frame, ((0, 0), (0, op.length - frame.shape[1])))
    transformed, spare = _transform((frame[:, ::2], frame[:, 1::2]))
    real, imaginary = (part[:, slice(*op.bins)] for part in _apart(*transformed))
    scale = 2 * (op.length.bit_length() - 1 + exponent - bits - spare)
    return _floats(real * real + imaginary * imaginary, scale)


def _lengths(numbers: Whole) -> Whole:
    # Bits of numbers that are not negative.
    _, exponents = np.frexp(numbers.astype(np.longdouble))
    return exponents.astype(np.int64)


def _halves(x: Whole) -> Pair:
    # ``65536 a + b`` with b from -32768 to 32767.
    low = ((x + 0x8000) & 0xFFFF) - 0x8000
    return (x - low) >> 16, low


def _product(x: Whole, by: Whole) -> Whole:
    # Times a number of 30 fractional bits.
    (a, b), (c, d) = _halves(x), _halves(by)
    return ((a * c) << 2) + ((a * d + b * c + (1 << 13)) >> 14)


def _turned(x: Pair, by: Pair, shift: int) -> Pair:
    # Complex products with numbers of 30 fractional bits, divided by ``2^(shift - 14)``.
    (ar, br), (ai, bi) = _halves(x[0]), _halves(x[1])
    (cr, dr), (ci, di) = _halves(by[0]), _halves(by[1])
    half, up = 1 << (shift - 1), 16 - shift
    return (
        ((ar * cr - ai * ci) << up) + ((ar * dr + br * cr - ai * di - bi * ci + half) >> shift),
        ((ar * ci + ai * cr) << up) + ((ar * di + br * ci + ai * dr + bi * cr + half) >> shift),
    )


def _divided(x: Pair, bits: int) -> Pair:
    half = 1 << (bits - 1)
    return (x[0] + half) >> bits, (x[1] + half) >> bits


def _sum(a: Pair, b: Pair, sign: int = 1) -> Pair:
    return a[0] + sign * b[0], a[1] + sign * b[1]


def _four(x: Sequence[Pair]) -> list[Pair]:
    even, odd = _sum(x[0], x[2]), _sum(x[0], x[2], -1)
    total, rest = _sum(x[1], x[3]), _sum(x[1], x[3], -1)
    turned = rest[1], -rest[0]
    return [_sum(even, total), _sum(odd, turned), _sum(even, total, -1), _sum(odd, turned, -1)]


def _eight(x: Sequence[Pair]) -> list[Pair]:
    even, odd = _four(x[::2]), _four(x[1::2])
    eighth = np.array(EIGHTH30)
    (a, b), (c, d) = ((_product(p[0], eighth), _product(p[1], eighth)) for p in odd[1::2])
    turned = [odd[0], (a + b, b - a), (odd[2][1], -odd[2][0]), (d - c, -c - d)]
    ends = list(zip(even, turned, strict=True))
    return [_sum(*pair) for pair in ends] + [_sum(*pair, -1) for pair in ends]


def _transform(x: Pair) -> tuple[Pair, Whole]:
    # Each row divided by its length; and the left shift applied on the way.
    rows, count = x[0].shape
    first, *others = reversed(radices(count, eight=True))
    order, turns = digit_order(count, eight=True), turns30(count)
    x, shift = _full(x)
    parts = [(x[0][:, order[k::first]], x[1][:, order[k::first]]) for k in range(first)]
    made = [_divided(part, first.bit_length() - 1) for part in parts]
    x, size = _joined(_eight(made) if first == 8 else _four(made), (rows, count)), first
    for _ in others:
        x, spare = _full(x)
        x, size, shift = _stage(x, size, turns), 4 * size, shift + spare
    x, spare = _full(x)
    return x, shift + spare


def _full(x: Pair) -> tuple[Pair, Whole]:
    # Each row shifted to the left, to all bits that there are; by how many.
    most = np.maximum(np.abs(x[0]).max(axis=1), np.abs(x[1]).max(axis=1))
    spare = np.maximum(FRACTION - _lengths(most), 0)[:, None]
    return (x[0] << spare, x[1] << spare), spare


def _stage(x: Pair, size: int, turns: Whole) -> Pair:
    rows, count = x[0].shape
    step = count // (4 * size)
    split = [a.reshape(rows, -1, 4, size) for a in x]
    given = [_divided((split[0][:, :, 0], split[1][:, :, 0]), 2)]
    for k in (1, 2, 3):
        part = split[0][:, :, k], split[1][:, :, k]
        by = turns[k * step * np.arange(size)]
        turned, plain = _turned(part, (by[:, 0], by[:, 1]), 16), _divided(part, 2)
        first = np.arange(size) == 0
        given.append((np.where(first, plain[0], turned[0]), np.where(first, plain[1], turned[1])))
    return _joined(_four(given), (rows, count))


def _joined(parts: Sequence[Pair], shape: tuple[int, int]) -> Pair:
    # Numbers of each group of transforms, one transform after the other.
    real, imaginary = (np.stack([part[i] for part in parts], axis=2).reshape(shape) for i in range(2))
    return real, imaginary


def _apart(real: Whole, imaginary: Whole) -> Pair:
    # The spectrum of the real numbers over their number, from that of pairs of them.
    rows, count = real.shape
    made = np.zeros((2, rows, count + 1), np.int64)
    first = _divided((real[:, 0], imaginary[:, 0]), 1)
    made[0, :, 0], made[0, :, count] = first[0] + first[1], first[0] - first[1]
    k = np.arange(1, count // 2 + 1)
    near = _divided((real[:, k], imaginary[:, k]), 1)
    far = _divided((real[:, count - k], imaginary[:, count - k]), 1)
    total, rest = (near[0] + far[0], near[1] - far[1]), (near[0] - far[0], near[1] + far[1])
    halves = half_turns30(count)
    turned = _turned(rest, (halves[:, 0], halves[:, 1]), 15)
    total = _divided(total, 1)
    made[0][:, k], made[1][:, k] = total[0] + turned[0], total[1] + turned[1]
    made[0][:, count - k], made[1][:, count - k] = total[0] - turned[0], total[1] - turned[1]
    return made[0], made[1]


def _floats(numbers: Whole, scale: Whole) -> Floats:
    # ``numbers 2^scale`` in float32, rounded from their 32 highest bits; what is too small is 0.
    lengths = _lengths(numbers)
    high = np.where(
        lengths > 32, numbers >> np.maximum(lengths - 32, 0), numbers << np.maximum(32 - lengths, 0)
    )
    mantissa = (high >> 8) + ((high >> 7) & 1)
    exponent = _BIAS + lengths + scale - 2
    bits = np.where((numbers > 0) & (exponent >= 0), (exponent << 23) + mantissa, 0)
    return bits.astype(np.uint32).view(np.float32)


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(35)
    weights = Value.constant("w", rng.uniform(0, 3e-5, 60).astype(np.float32))
    x = Value("x", (70,), DType.INT16)
    yield make("64_features", BlockPower(5, 0.96875, Before.EARLIER, 64, _WHOLE), [x, weights])
    yield make("first_features", BlockPower(0, 0.97, Before.EARLIER, 64, _WHOLE), [x, weights])
    yield make("last_features", BlockPower(0, 0.98, Before.LAST, 128, (0, 65)), [x, weights])
    yield make("itself_features", BlockPower(3, -0.5, Before.ITSELF, 64, _WHOLE), [x, weights])
    yield make("plain_features", BlockPower(3, 0.0, Before.EARLIER, 64, _WHOLE), [x, weights])
    yield make("centred_features", BlockPower(3, 0.97, Before.ITSELF, 64, _WHOLE, centred=True), [x, weights])
    for bins in ((0, 2), (2, 9), (1, 17), (16, 18), (20, 33), (5, 29), (9, 32), (31, 33)):
        op = BlockPower(5, 0.96875, Before.EARLIER, 64, bins)
        yield make(f"{bins[0]}_to_{bins[1]}_features", op, [x, weights])
    long = Value.constant("w", np.hanning(500).astype(np.float32))
    whole = BlockPower(0, 0.0, Before.EARLIER, 1024, (0, 513))
    yield make("1024_features", whole, [Value("x", (500,), DType.INT16), long])
    short = Value.constant("w", np.array([0.5, -1.0, 0.25], np.float32))
    whole = BlockPower(0, 0.0, Before.EARLIER, 16, (0, 9))
    yield make("16_features", whole, [Value("x", (3,), DType.INT16), short])
