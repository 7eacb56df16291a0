"""The operators of TFLite Micro's signal library between samples and features."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, DType, Op, Signature, Value, shape_text
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case
from crtgen.network.ops.scheme import INT16

__all__ = [
    "FftAutoScale",
    "FilterBank",
    "FilterBankLog",
    "FilterBankSquareRoot",
    "Pcan",
    "SpectralSubtraction",
    "SpectrumEnergy",
    "Window",
    "cases",
    "log_table",
]

Whole = npt.NDArray[np.int64]
_I16, _I32, _U32, _U64 = DType.INT16, DType.INT32, DType.UINT32, DType.UINT64
_LOG_BITS, _SEGMENT_BITS = 16, 7
_LN2 = 45426  # of 65536
_SNR_BITS, _OUTPUT_BITS = 12, 6


def _require_types(inputs: Sequence[Value], *types: DType) -> None:
    require_inputs(inputs, len(types))
    given = tuple(v.dtype for v in inputs)
    require(given == types, f"types {', '.join(t.value for t in given)}")


@dataclass(frozen=True, slots=True)
class Window(Op):
    """``x[..., N], weights[N] -> y``: products of int16, shifted right and saturated."""

    name: ClassVar[str] = "window"

    shift: int

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        _require_types(inputs, _I16, _I16)
        x, weights = inputs
        fits = len(weights.shape) == 1 and x.elements % weights.shape[0] == 0 and 0 <= self.shift < 32
        require(
            fits, f"{shape_text(weights.shape)} weights on {shape_text(x.shape)}, shifted by {self.shift}"
        )
        return ((x.shape, _I16),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, weights = (a.astype(np.int64) for a in arrays)
        products = (x.reshape(-1, len(weights)) * weights) >> self.shift
        return (INT16.saturated(products).reshape(sig.y.shape),)


@dataclass(frozen=True, slots=True)
class FftAutoScale(Op):
    """``x -> y, bits``: int16 shifted left by the number of redundant sign bits that all values have."""

    name: ClassVar[str] = "fft_auto_scale"

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        _require_types(inputs, _I16)
        return (inputs[0].shape, _I16), ((), _I32)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x = arrays[0].astype(np.int64)
        most = int(np.abs(x).max())
        bits = max(15 - most.bit_length(), 0) if most else 0
        return (x << bits).astype(np.int16), np.array(bits, np.int32)


@dataclass(frozen=True, slots=True)
class SpectrumEnergy(Op):
    """``x[2N] of int16 -> y[N] of uint32``: squared magnitudes from ``start`` up to ``end`` (exclusive), 0
    elsewhere.
    """

    name: ClassVar[str] = "spectrum_energy"

    start: int
    end: int

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        _require_types(inputs, _I16)
        (x,) = inputs
        require(len(x.shape) == 1 and x.elements % 2 == 0, f"a spectrum of {shape_text(x.shape)}")
        count = x.elements // 2
        require(0 <= self.start <= self.end <= count, f"numbers {self.start} to {self.end} of {count}")
        return (((count,), _U32),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        pairs = arrays[0].astype(np.int64).reshape(-1, 2)
        energy = (pairs**2).sum(axis=1)
        place = np.arange(len(energy))
        return (np.where((place >= self.start) & (place < self.end), energy, 0).astype(np.uint32),)


@dataclass(frozen=True, slots=True)
class FilterBank(Op):
    """``x[N], weights, unweights, frequency_starts, weight_starts, widths -> y[channels] of uint64``.

    Each group of energies contributes to one channel with its weights, and to the next channel with its
    unweights.
    """

    name: ClassVar[str] = "filter_bank"

    channels: int

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        _require_types(inputs, _U32, *[_I16] * 5)
        require(all(v.is_constant for v in inputs[1:]), "its weights are computed at run time")
        groups = {v.shape for v in inputs[3:]}
        require(groups == {(self.channels + 1,)} and self.channels > 0, f"{self.channels} channels")
        sizes = (inputs[0].elements, min(v.elements for v in inputs[1:3]))
        widths = inputs[5].array().astype(np.int64)
        require(int(widths.min()) >= 0, "a width is negative")
        for starts, size in zip(inputs[3:5], sizes, strict=True):
            first = starts.array().astype(np.int64)
            used = widths > 0
            inside = (first >= 0) & (first + widths <= size) | ~used
            require(bool(inside.all()), f"a group of {starts.name} leaves its {size} numbers")
        return (((self.channels,), _U64),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x = arrays[0].astype(np.uint64)
        weights, unweights, frequencies, starts, widths = (a.astype(np.int64) for a in arrays[1:])
        within = np.arange(int(widths.sum())) - np.repeat(np.cumsum(widths) - widths, widths)
        energies = x[np.repeat(frequencies, widths) + within]
        places = np.repeat(starts, widths) + within
        used = widths > 0
        sums = np.zeros((2, len(widths)), np.uint64)
        with np.errstate(over="ignore"):
            for row, factors in zip(sums, (weights, unweights), strict=True):
                products = energies * factors[places].astype(np.uint64)
                row[used] = np.add.reduceat(products, (np.cumsum(widths) - widths)[used])
            return (sums[0, 1:] + sums[1, :-1],)


@dataclass(frozen=True, slots=True)
class FilterBankSquareRoot(Op):
    """``x[N] of uint64, bits -> y[N] of uint32``: rounded square roots, shifted right by ``bits``."""

    name: ClassVar[str] = "filter_bank_square_root"

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        _require_types(inputs, _U64, _I32)
        require(inputs[1].elements == 1, "more than one number of bits")
        return ((inputs[0].shape, _U32),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        bits = int(arrays[1].reshape(-1)[0]) & 31
        roots = [_root(int(n)) >> bits for n in arrays[0].ravel()]
        return (np.array(roots, np.uint32).reshape(sig.y.shape),)


def _root(number: int) -> int:
    # Rounded, but not beyond the largest root of 16 bits, or of 32 for large numbers.
    floor = int(np.sqrt(np.longdouble(number)))
    while floor * floor > number:
        floor -= 1
    while (floor + 1) * (floor + 1) <= number:
        floor += 1
    most = 0xFFFF if number < 1 << 32 else 0xFFFFFFFF
    return floor + (number - floor * floor > floor and floor != most)


@dataclass(frozen=True, slots=True)
class SpectralSubtraction(Op):
    """``x[N], noise[N] of uint32 -> y, estimate, noise``: subtracts an estimate of the noise from a signal.

    The estimate follows the signal slowly, with different factors at odd indices.
    """

    name: ClassVar[str] = "spectral_subtraction"
    states: ClassVar[tuple[tuple[int, int], ...]] = ((1, 2),)

    smoothing: int
    one_minus_smoothing: int
    alternate_smoothing: int
    alternate_one_minus_smoothing: int
    smoothing_bits: int
    min_signal_remaining: int
    bits: int
    clamping: bool

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        _require_types(inputs, _U32, _U32)
        x, noise = inputs
        require(len(x.shape) == 1 and x.shape == noise.shape, f"{shape_text(noise.shape)} estimates")
        require(0 <= self.bits < 64 and 0 <= self.smoothing_bits < 32, "numbers of bits")
        return ((x.shape, _U32),) * 3

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        x, noise = (a.astype(np.uint64) for a in arrays)
        odd, word = np.arange(len(x)) % 2 == 1, np.uint64(0xFFFFFFFF)
        fresh = np.where(odd, self.alternate_smoothing, self.smoothing).astype(np.uint64)
        old = np.where(odd, self.alternate_one_minus_smoothing, self.one_minus_smoothing).astype(np.uint64)
        signal = (x << np.uint64(self.smoothing_bits)) & word
        noise = ((signal * fresh + noise * old) >> np.uint64(self.bits)) & word
        estimate = np.minimum(noise, signal)
        noise = estimate if self.clamping else noise
        floor = ((x * np.uint64(self.min_signal_remaining)) >> np.uint64(self.bits)) & word
        left = np.maximum((signal - estimate) >> np.uint64(self.smoothing_bits), floor).astype(np.uint32)
        return left, noise.astype(np.uint32), noise.astype(np.uint32)


@dataclass(frozen=True, slots=True)
class Pcan(Op):
    """``x[N], noise[N] of uint32, gains -> y``: automatic gain control by a table of gains, interpolated."""

    name: ClassVar[str] = "pcan"

    shift: int

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        _require_types(inputs, _U32, _U32, _I16)
        x, noise, gains = inputs
        require(x.shape == noise.shape and 0 <= self.shift < 64, f"{shape_text(noise.shape)} estimates")
        require(gains.elements >= 4 * 32 - 6 + 3, f"{gains.elements} gains; supported: at least 125")
        return ((x.shape, _U32),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        gains = arrays[2].astype(np.int64)
        factors = [_gain(int(n), gains) & 0xFFFFFFFF for n in arrays[1].ravel()]
        ratios = [
            (int(x) * g >> self.shift) & 0xFFFFFFFF for x, g in zip(arrays[0].ravel(), factors, strict=True)
        ]
        return (np.array([_shrunk(r) for r in ratios], np.uint32).reshape(sig.y.shape),)


def _gain(noise: int, gains: Whole) -> int:
    if noise <= 2:
        return int(gains[noise])
    interval = noise.bit_length()
    at = 4 * interval - 6
    shifted = noise << (11 - interval) if interval < 11 else noise >> (interval - 11)
    fraction = shifted & 0x3FF
    slope = ((int(gains[at + 2]) * fraction) >> 5) + (int(gains[at + 1]) << 5)
    return int(np.int64(((slope * fraction + (1 << 14)) >> 15) + int(gains[at])).astype(np.int16))


def _shrunk(ratio: int) -> int:
    # The square of what is small, and one less of the rest, with 6 fractional bits.
    if ratio < 2 << _SNR_BITS:
        return ((ratio * ratio) & 0xFFFFFFFF) >> (2 + 2 * _SNR_BITS - _OUTPUT_BITS)
    return (ratio >> (_SNR_BITS - _OUTPUT_BITS)) - (1 << _OUTPUT_BITS)


@dataclass(frozen=True, slots=True)
class FilterBankLog(Op):
    """``x of uint32 -> y of int16``: natural logarithms of left-shifted values, times a scale."""

    name: ClassVar[str] = "filter_bank_log"

    scale: int
    correction_bits: int

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        _require_types(inputs, _U32)
        require(0 <= self.correction_bits < 32, f"{self.correction_bits} bits of correction")
        return ((inputs[0].shape, _I16),)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        numbers = [(int(n) << self.correction_bits) & 0xFFFFFFFF for n in arrays[0].ravel()]
        logs = [min(_log(n, self.scale), INT16.high) if n > 1 else 0 for n in numbers]
        return (np.array(logs, np.int16).reshape(sig.y.shape),)


@cache
def log_table() -> npt.NDArray[np.uint16]:
    """Return ``log2(1 + i / 128) - i / 128`` with 16 fractional bits, for i from 0 to 128."""
    x = np.arange((1 << _SEGMENT_BITS) + 1) / (1 << _SEGMENT_BITS)
    return np.rint((np.log2(1 + x) - x) * 65536).astype(np.uint16)


def _log(number: int, scale: int) -> int:
    table = log_table().astype(np.int64)
    whole = number.bit_length() - 1
    rest = number - (1 << whole)
    fraction = rest << (_LOG_BITS - whole) if whole < _LOG_BITS else rest >> (whole - _LOG_BITS)
    segment = fraction >> (_LOG_BITS - _SEGMENT_BITS)
    low, high = int(table[segment]), int(table[segment + 1])
    between = ((high - low) * (fraction - (segment << (_LOG_BITS - _SEGMENT_BITS)))) >> _LOG_BITS
    log2 = (whole << _LOG_BITS) + fraction + low + between
    natural = (_LN2 * log2 + (1 << 15)) >> 16
    return ((scale * natural + (1 << 15)) & 0xFFFFFFFF) >> 16


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(6)

    def case(name: str, op: Op, *inputs: Value, limits: dict[str, tuple[float, float]] | None = None) -> Case:
        names = ["y", "y1", "y2"]
        made = [Value(n, s, d) for n, (s, d) in zip(names, op.infer(inputs), strict=False)]
        return Case(f"{op.name}_{name}", op, Signature(inputs, tuple(made)), limits or {})

    def constant(name: str, numbers: Array | list[int]) -> Value:
        return Value.constant(name, np.asarray(numbers, np.int16))

    x = Value("x", (2, 40), _I16)
    yield case("int16", Window(12), x, constant("w", rng.integers(-4096, 4097, 40)))
    yield case("int16", FftAutoScale(), Value("x", (33,), _I16))
    yield case("small", FftAutoScale(), Value("x", (33,), _I16), limits={"x": (-90, 70)})
    yield case("int16", SpectrumEnergy(0, 11), Value("x", (22,), _I16))
    banks: list[Array | list[int]] = [
        rng.integers(0, 4097, 12),
        rng.integers(0, 4097, 12),
        [0, 3, 5, 9],
        [0, 3, 5, 9],
        [3, 2, 4, 3],
    ]
    names = ("w", "u", "f", "s", "n")
    bank = [constant(n, b) for n, b in zip(names, banks, strict=True)]
    yield case("uint32", FilterBank(3), Value("x", (12,), _U32), *bank)
    roots = (Value("x", (19,), _U64), Value("bits", (), _I32))
    yield case("uint64", FilterBankSquareRoot(), *roots, limits={"bits": (0, 15)})
    noise = SpectralSubtraction(409, 15975, 983, 15401, 10, 819, 14, False)
    vectors = (Value("x", (9,), _U32), Value("noise", (9,), _U32))
    yield case("uint32", noise, *vectors, limits={"x": (0, 1 << 21)})
    yield case("clamped", SpectralSubtraction(409, 15975, 983, 15401, 10, 819, 14, True), *vectors)
    gains = constant("gains", rng.integers(0, 9000, 125))
    yield case("uint32", Pcan(6), Value("x", (9,), _U32), Value("noise", (9,), _U32), gains)
    yield case("uint32", FilterBankLog(64, 3), Value("x", (40,), _U32))
    yield case("small", FilterBankLog(1600, 0), Value("x", (40,), _U32), limits={"x": (0, 40)})
