"""Requantisation in a few instructions: exact re-encodings of the map from accumulators to outputs.

TFLite maps an accumulator to int8 by a rounded high product, a rounded shift, a zero point and a clamp. The
result is a monotone step function with at most 255 thresholds. A cheaper formula that agrees at every
threshold and at the value below it, over the range that the accumulator can reach, agrees everywhere.

``FloorRequantisation`` is the cheapest: one high multiplication, one saturating shift. ``HalfAway`` (in
``half_away``) spells out TFLite's arithmetic for scales below 1/2 and always exists there, and nearly always
below 1; it serves outputs that are not cut at zero.

ONNX Runtime rescales by a float32 product with ties to even, and accumulators that float32 cannot distinguish
from a tie are rounded like it. So there is often no linear function between all thresholds. ``Single``
computes the float product itself, with the floating-point unit.

int16 has 65,535 thresholds, but its wide sums are rounded only once, with 15 bits of the multiplier: that is
a ``FloorRequantisation`` unchanged, if the sums fit into 32 bits.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from crtgen.compiler.kernels.engine.known import Known
from crtgen.compiler.kernels.engine.words import some_at_a_time
from crtgen.network.ops.conv import ConvParams, signed_sums
from crtgen.network.ops.fixedpoint import (
    Int8,
    Int64,
    multiply_by_quantized_multiplier,
    multiply_wide,
    reduced_multiplier,
    saturating_rounding_doubling_high_mul,
)
from crtgen.network.ops.rescaling import Factors, rounded_product
from crtgen.network.ops.scheme import INT8, Scheme

__all__ = [
    "FloorRequantisation",
    "Rescale",
    "RoundedRequantisation",
    "Single",
    "accumulator_range",
    "clamp_limits",
    "rescale_of",
    "solve_floor",
    "solve_rounded",
    "solve_single",
]

Mask = npt.NDArray[np.bool_]

_HALF_WORD = 1 << 31
_CANDIDATES = np.arange(-4, 5, dtype=np.int64)  # multipliers tried around the ideal one
_OFFSETS = 1 << 17  # offsets are below
_WORD = 1 << 32
_FAR = 1 << 62
_WIDE_SHIFT = 8  # of wide sums, where it may be chosen
_TRIES = 4  # shifts tried from the largest possible one down
_MAX_SHIFT = 23  # 2**(32 + shift) * INT8.high must fit into int64


def accumulator_range(weights: Int8 | Int64, low: int, high: int) -> tuple[Int64, Int64]:
    """Return the smallest and largest value of ``weights[O,K] @ x[K]``, int64[O], for ``low <= x <=
    high``.
    """
    positive, negative = signed_sums(weights, 1)
    return positive * low + negative * high, positive * high + negative * low


@dataclass(frozen=True, slots=True, eq=False)
class Rescale:
    """The requantisation to re-encode: multiplier and shift per channel, and the range of accumulators,
    including the bias.

    All arrays are int64[O]. ``value = clamp(zero_point + acc * multipliers * 2**(shifts - 31))``; ``wide``
    sums use 15 bits of the multiplier. With ``factors``, the scaling is a float32 product with these.
    ``is_sum``: the accumulators are the outputs. ``known`` caches solutions, which several designs of a
    layer, and of its rows, request.
    """

    multipliers: Int64
    shifts: Int64
    zero_point: int
    act_min: int
    act_max: int
    low: Int64
    high: Int64
    scheme: Scheme = INT8
    wide: bool = False
    factors: Factors | None = None
    is_sum: bool = False
    known: Known = field(init=False, repr=False, default_factory=Known)

    @classmethod
    def of(cls, params: ConvParams, low: Int64, high: Int64) -> "Rescale":
        multipliers, shifts = params.multipliers.astype(np.int64), params.shifts.astype(np.int64)
        limits = params.output_offset, params.act_min, params.act_max
        made = cls(multipliers, shifts, *limits, low, high, params.scheme, params.wide, params.factors)
        return replace(made, is_sum=params.is_sum)

    @classmethod
    def one(
        cls,
        scale: tuple[int, int],
        factor: float | None,
        limits: tuple[int, int, int],
        reach: tuple[int, int],
    ) -> "Rescale":
        """Return a requantisation for all channels: ``scale`` is multiplier and shift, ``limits`` are zero
        point, smallest and largest output, ``reach`` is the smallest and the largest accumulator.
        """
        multiplier, shift, low, high = (np.array([n], np.int64) for n in (*scale, *reach))
        factors = None if factor is None else np.array([factor], np.float32)
        return cls(multiplier, shift, *limits, low, high, factors=factors)

    def take(self, channels: Int64 | slice) -> "Rescale":
        m, s, low, high = (a[channels] for a in (self.multipliers, self.shifts, self.low, self.high))
        factors = None if self.factors is None else self.factors[channels]
        return replace(self, multipliers=m, shifts=s, low=low, high=high, factors=factors)

    @property
    def uniform(self) -> bool:
        if self.is_sum:
            return False
        if self.factors is not None:
            return len(np.unique(self.factors)) == 1
        return len(np.unique(self.multipliers)) == 1 and len(np.unique(self.shifts)) == 1

    def united(self) -> "Rescale":
        """Return a copy in which every channel has the combined range of all channels, so that channels with
        equal scales have one solution.
        """
        low, high = np.full_like(self.low, self.low.min()), np.full_like(self.high, self.high.max())
        return replace(self, low=low, high=high)

    @property
    def channels(self) -> int:
        return len(self.multipliers)

    @property
    def narrow(self) -> bool:
        return int(self.low.min()) >= -_HALF_WORD and int(self.high.max()) < _HALF_WORD

    @property
    def scales(self) -> npt.NDArray[np.float64]:
        factors: npt.NDArray[np.float64] = self.multipliers * np.exp2(self.shifts - 31.0)
        return factors

    def apply(self, acc: Int64) -> Int64:
        if self.factors is not None:
            whole = rounded_product(acc, self.factors)
            return np.clip(whole + self.zero_point, self.act_min, self.act_max)
        multiply = multiply_wide if self.wide else multiply_by_quantized_multiplier
        scaled = multiply(acc, self.multipliers, self.shifts)
        return np.clip(scaled + self.zero_point, self.act_min, self.act_max)

    def levels(self) -> Int64:
        """Return the output values that have a threshold: all except the smallest, ``int64[L]``."""
        return np.arange(self.act_min + 1, self.act_max + 1, dtype=np.int64)

    def thresholds(self) -> Int64:
        """Return ``[L, O]``: the smallest accumulator in range whose result reaches the level, or else ``high
        + 1``.

        Bisection starts from a bracket around the real threshold, or from the whole range if that fails.
        """
        some = some_at_a_time(self.channels, len(self.levels()))
        return np.concatenate([self.take(channels)._thresholds() for channels in some], axis=1)

    def _thresholds(self) -> Int64:
        levels = self.levels()[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            guess = (levels - self.zero_point - 0.5) / self.scales
        guess = np.nan_to_num(np.clip(guess, self.low - 9.0, self.high + 9.0))
        below = np.clip(guess.astype(np.int64) - 4, self.low - 1, self.high)
        reached = np.clip(guess.astype(np.int64) + 4, self.low, self.high + 1)
        below = np.where(self.apply(np.maximum(below, self.low)) < levels, below, self.low - 1)
        reached = np.where(self.apply(np.minimum(reached, self.high)) >= levels, reached, self.high + 1)
        while (reached - below > 1).any():
            middle = (below + reached) >> 1
            inside = middle > below
            hit = self.apply(middle) >= levels
            reached = np.where(inside & hit, middle, reached)
            below = np.where(inside & ~hit, middle, below)
        return reached


_RESCALES: WeakKeyDictionary[ConvParams, Rescale] = WeakKeyDictionary()


def rescale_of(params: ConvParams, weights: Int8 | Int64, bias: Int64) -> Rescale:
    """Return the requantisation of ``weights[O, K]`` and ``bias[O]``, valid for any input.

    It is cached as long as the parameters, which belong to one layer.
    """
    if params not in _RESCALES:
        _RESCALES[params] = _rescale_of(params, weights, bias)
    return _RESCALES[params]


def _rescale_of(params: ConvParams, weights: Int8 | Int64, bias: Int64) -> Rescale:
    low, high = (end + params.input_offset for end in params.scheme.limits)
    least, greatest = accumulator_range(weights, low, high)
    return Rescale.of(params, least + bias, greatest + bias)


def clamp_limits(low: int, high: int, scheme: Scheme = INT8) -> tuple[int | None, int | None]:
    """Return the limits of a clamp to ``low..high`` that saturation to the type does not already enforce,
    None for each other limit.
    """
    return low if low > scheme.low else None, high if high < scheme.high else None


@dataclass(frozen=True, slots=True, eq=False)
class FloorRequantisation:
    """``clamp(sat((((acc + offset) * gain * multiplier >> 32) + constant) >> shift))``.

    ``sat`` saturates to the output's type. ``gain`` is a factor that the kernel's accumulator already
    contains; ``offset`` is added to its initial value. ``multiplier`` and ``constant`` fit into int32.
    """

    gain: int
    shift: int
    multiplier: Int64
    constant: Int64
    offset: Int64
    scheme: Scheme = INT8

    def apply(self, acc: Int64) -> Int64:
        """Return the saturated result for ``acc[..., O]``, before any narrower clamp."""
        high: Int64 = ((acc + self.offset) * self.gain * self.multiplier) >> 32
        result: Int64 = np.clip((high + self.constant) >> self.shift, *self.scheme.limits)
        return result


@dataclass(frozen=True, slots=True, eq=False)
class RoundedRequantisation:
    """``sat(round((acc << left) * multiplier / 2**31))``: scales that need no right shift."""

    left: Int64
    multiplier: Int64
    scheme: Scheme

    def apply(self, acc: Int64) -> Int64:
        """Return the saturated result for ``acc[..., O]``, before any narrower clamp."""
        high = saturating_rounding_doubling_high_mul(acc << self.left, self.multiplier)
        return np.clip(high, *self.scheme.limits)


def solve_rounded(rescale: Rescale) -> RoundedRequantisation | None:
    """Return TFLite's arithmetic unchanged, if it rounds only once.

    None for wide sums, a zero point, a right shift, or sums that need more than 30 bits after the left shift.
    """
    left = rescale.shifts
    if rescale.wide or rescale.factors is not None or rescale.zero_point or left.min() < 0 or left.max() > 30:
        return None
    most = np.maximum(np.abs(rescale.low), np.abs(rescale.high))
    if ((most << left) >= _HALF_WORD // 2).any():
        return None
    return RoundedRequantisation(left, rescale.multipliers, rescale.scheme)


@dataclass(frozen=True, slots=True, eq=False)
class Single:
    """``sat(rint(f32(f32(acc) * factor)) + zero_point)``, in 32 bits."""

    factor: Factors
    zero_point: int
    scheme: Scheme

    def apply(self, acc: Int64) -> Int64:
        """Return the saturated result for ``acc[..., O]``, before any narrower clamp."""
        return np.clip(rounded_product(acc, self.factor) + self.zero_point, *self.scheme.limits)


def solve_single(rescale: Rescale, gain: int = 1) -> Single | None:
    """Return the float32 product unchanged; None if the rescaling is not one.

    Also None if the accumulators times ``gain`` or times 2 do not fit into 32 bits.
    """
    extent = max(-int(rescale.low.min()), int(rescale.high.max()))
    if rescale.factors is None or max(2, gain) * extent >= _HALF_WORD:
        return None
    return Single(rescale.factors, rescale.zero_point, rescale.scheme)


def solve_floor(rescale: Rescale, gain: int = 1) -> FloorRequantisation | None:
    """Return the cheapest form with one shift for all channels; None if the search finds none.

    Shifts of 3 modulo 4 are tried first, then odd ones: then more layers of equal shape have equal code, and
    the precision of M that this costs hardly ever matters.

    The step function reaches level k at T_k. With M = gain * multiplier, N = offset * M + constant * 2**32
    and D = 2**(32 + shift), the form is exact if ``k * D - T_k * M <= N < k * D - (T_k - 1) * M`` for all k.

    Solutions are cached, since designs of one layer ask repeatedly. int16 outputs have too many levels for
    this search: wide sums have this form anyway, others have none.
    """
    if rescale.scheme is not INT8:
        return _solve_wide(rescale) if rescale.wide and gain == 1 else None
    arrays = (rescale.multipliers, rescale.shifts, rescale.low, rescale.high)
    limits = (rescale.zero_point, rescale.act_min, rescale.act_max)
    factors = None if rescale.factors is None else rescale.factors.tobytes()
    return _solved(tuple(a.astype(np.int64).tobytes() for a in arrays), factors, limits, gain)


def _solve_wide(rescale: Rescale) -> FloorRequantisation | None:
    """Return ``(acc * m + 2**(t - 1)) >> t``, with m of 15 bits, computed from the high word of a product.

    The product is ``acc * m * 2**(shift + 32 - t)``. This is exact if ``shift`` is at least 1, and the
    multiplier is an integer below 2**31. None if no such shift exists for all channels, or if a sum needs
    more than 32 bits.
    """
    least = rescale.apply(rescale.low)
    varies = least < rescale.apply(rescale.high)
    if not rescale.narrow:
        return None
    places = 15 - rescale.shifts
    used = places[varies] if varies.any() else np.array([_WIDE_SHIFT + 16])
    lowest, highest = max(1, int(used.max()) - 32), min(int(used.min()) - 16, 15)
    if lowest > highest:
        return None
    shift = min(max(_WIDE_SHIFT, lowest), highest)
    reduced = np.array([reduced_multiplier(int(m)) for m in rescale.multipliers], np.int64)
    multiplier = np.where(varies, reduced << np.clip(shift + 32 - places, 0, 16), 0)
    base = np.where(varies, rescale.zero_point, least)
    constant = (np.int64(1) << (shift - 1)) + (base << shift)
    return FloorRequantisation(1, shift, multiplier, constant, np.zeros_like(constant), rescale.scheme)


@lru_cache(maxsize=4096)
def _solved(
    arrays: tuple[bytes, ...], factors: bytes | None, limits: tuple[int, int, int], gain: int
) -> FloorRequantisation | None:
    multipliers, shifts, low, high = (np.frombuffer(a, np.int64) for a in arrays)
    exact = None if factors is None else np.frombuffer(factors, np.float32)
    rescale = Rescale(multipliers, shifts, *limits, low, high, factors=exact)
    thresholds = rescale.thresholds()
    live: Mask = np.any((thresholds > rescale.low) & (thresholds <= rescale.high), axis=0)
    largest = _largest_shift(rescale, live, gain)
    tried = range(largest, max(largest - _TRIES, -1), -1)
    for shift in sorted(tried, key=lambda s: (s % 4 != 3, s % 2 == 0)):
        found = _solve_with(rescale, thresholds, live, gain, shift)
        if found is not None:
            return found
    return None


def _largest_shift(rescale: Rescale, live: Mask, gain: int) -> int:
    # The largest shift at which multipliers stay below 2**31 and sums below 2**31 before saturation.
    if not live.any():
        return 0
    scales = rescale.scales[live]
    extent = np.maximum(np.abs(rescale.low), np.abs(rescale.high))[live]
    widest = float((extent * scales).max()) + 512.0
    by_multiplier = np.log2((_HALF_WORD - 8.0) * gain / scales.max()) - 32
    by_sum = 31 - np.log2(widest)
    return min(int(np.floor(by_multiplier)), int(np.floor(by_sum)), _MAX_SHIFT)


def _solve_with(
    rescale: Rescale, thresholds: Int64, live: Mask, gain: int, shift: int
) -> FloorRequantisation | None:
    multiplier = np.zeros(rescale.channels, np.int64)
    offset = np.zeros(rescale.channels, np.int64)
    constant = rescale.apply(rescale.low) << shift
    if live.any():
        channels = np.flatnonzero(live)
        some = [channels[part] for part in some_at_a_time(len(channels), len(thresholds))]
        parts = [_best_multiplier(rescale, thresholds, part, gain, shift) for part in some]
        m, least, width = (np.concatenate(part) for part in zip(*parts, strict=True))
        room = (_HALF_WORD - 1) // gain - np.maximum(np.abs(rescale.low), np.abs(rescale.high))[live]
        found = _search_offset(m * gain, least, width, room)
        if found is None:
            return None
        multiplier[live] = m
        offset[live], constant[live] = found
    return FloorRequantisation(gain, shift, multiplier, constant, offset)


def _best_multiplier(
    rescale: Rescale, thresholds: Int64, channels: Int64, gain: int, shift: int
) -> tuple[Int64, Int64, Int64]:
    # Per channel the multiplier whose N has the widest choice, the least N, and how many there are.
    one = 1 << (32 + shift)
    t, low, high = thresholds[:, channels], rescale.low[channels], rescale.high[channels]
    ideal = np.rint(rescale.scales[channels] * (one / gain)).astype(np.int64)
    base = rescale.levels()[:, None] * one - t * (ideal * gain)  # [level, channel]
    least_base = np.where(t <= high, base, -_FAR)
    beyond_base = np.where(t > low, base + ideal * gain, _FAR)
    m = ideal + _CANDIDATES[:, None]  # [candidate, channel]
    least = np.stack([(least_base - t * (c * gain)).max(axis=0) for c in _CANDIDATES])
    beyond = np.stack([(beyond_base - (t - 1) * (c * gain)).min(axis=0) for c in _CANDIDATES])
    width = np.where((m > 0) & (m < _HALF_WORD), beyond - least, 0)
    best = width.argmax(axis=0)
    pick = np.arange(m.shape[1])
    return m[best, pick], least[best, pick], width[best, pick]


def _search_offset(slope: Int64, least: Int64, width: Int64, room: Int64) -> tuple[Int64, Int64] | None:
    # Per channel the offset nearest to 0 and the constant with least <= offset * slope + constant * 2**32.
    # The sum must be below ``least + width``; None if some channel has no such offset within ``room``.
    if (width <= 0).any():
        return None
    steps, rest = slope % _WORD, least % _WORD
    both = _first_within(np.stack([steps, -steps % _WORD]), rest, width)
    offset = np.where(both[1] <= both[0], -both[1], both[0])
    excess = (offset * steps - rest) % _WORD
    constant = (least + excess - offset * slope) >> 32
    fine = (np.abs(offset) < np.minimum(room, _OFFSETS)).all() and (np.abs(constant) < _HALF_WORD).all()
    return (offset, constant) if fine else None


def _first_within(slope: Int64, least: Int64, width: Int64) -> Int64:
    # The least ``n >= 0`` with ``(n * slope - least) mod 2**32 < width``; ``_OFFSETS`` if none is below.
    # Euclid's algorithm: the multiples of ``a`` modulo ``m`` meet an interval before they wrap, or else where
    # the wraps' multiples of ``m mod a`` modulo ``a`` meet what the interval is modulo ``a``.
    a, low, high = np.broadcast_arrays(slope, least, least + width - 1)
    m = np.full_like(a, _WORD)
    found = (low == 0) | (high >= _WORD)
    n = np.where(found, 0, _OFFSETS)
    path = []
    while not found.all():
        steps = -(-low // np.maximum(a, 1))
        hit = ~found & (a > 0) & (steps * a <= high)
        n = np.where(hit, np.minimum(steps, _OFFSETS), n)
        path.append((found | hit, low, m, a))
        found = found | hit | (a == 0)
        divisor = np.maximum(a, 1)
        a, m, low, high = m % divisor, divisor, -high % divisor, -low % divisor
    for done, low, m, a in reversed(path):
        wrapped = np.where(n < _OFFSETS, -(-(low + m * n) // np.maximum(a, 1)), _OFFSETS)
        n = np.where(done, n, np.minimum(wrapped, _OFFSETS))
    return n
