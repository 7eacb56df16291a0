"""Integer expressions in C, in the cheapest forms that are exact.

``cheaper`` converts an expression to another one that is equal for every value within its interval: a
rounding over few values becomes a linear function in 32 bits, over many values the high word of a product. A
core without long products (``narrow``) gets a sum of two products of 32 bits instead.
``spelled`` writes C.
"""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from crtgen.compiler.kernels.arithmetic.epilogue import two_roundings
from crtgen.compiler.kernels.arithmetic.requant import Rescale, solve_floor
from crtgen.compiler.kernels.engine.elements import clamped, elements, stored
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.literal import plus
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import Signature, Value
from crtgen.network.ops.expr import COMPARISONS, Expr, Formula, number
from crtgen.network.ops.fixedpoint import (
    Int64,
    quantize_multiplier,
    saturating_rounding_doubling_high_mul,
)
from crtgen.network.ops.scheme import INT8

__all__ = ["cheaper", "spelled"]

Limits = tuple[int, int]

# Values of an expression that are tried one by one.
_FEW = 1 << 12

_MANY = 1 << 18
_MOST_BITS = 24  # of a line's shift
_LEAST_HALF = 9  # bits of each part of a multiplier
_TRIED_SHIFTS, _TRIED_MULTIPLIERS = 5, 4
_LEAVES = ("number", "operand")


@design(Formula, weights=None)
def formula(op: Formula, sig: Signature, target: Target) -> Kernel | None:
    """Compute an element-wise operator on quantised values by its expression; None for operators without
    one.
    """
    found = op.formula(sig)
    return (
        None
        if found is None
        else elements(
            sig, op.name.replace("_", " "), spelled(cheaper(found, narrow=target.core.narrow), sig.y)
        )
    )


@lru_cache(maxsize=1024)
def cheaper(e: Expr, limits: Limits | None = None, narrow: bool = False) -> Expr:
    """Return an equal expression with fewer instructions.

    Results beyond ``limits`` may differ, as long as they stay beyond the same limit.
    """
    if e.kind in (*_LEAVES, "within"):
        return e
    if e.kind in COMPARISONS:
        a, b = (cheaper(source, narrow=narrow) for source in e.sources)
        return a.compared(e.kind, b)
    if e.kind == "clamp":
        low, high = (limit.low for limit in e.sources[1:])
        x = cheaper(e.sources[0], (low, high), narrow)
        return x if low <= x.low <= x.high <= high else x.clamped(low, high)
    if e.kind == "+" and e.sources[0].kind == "choice":  # a sum of each side is one rounding there
        test, *sides = e.sources[0].sources
        e = Expr.make("choice", test, *(side + e.sources[1] for side in sides))
    if e.kind == "choice":
        test, *sides = e.sources
        return Expr.make(
            "choice", cheaper(test, narrow=narrow), *(cheaper(side, limits, narrow) for side in sides)
        )
    found = _half(e, narrow) or _line(e, limits, narrow) or _rounded(e, limits, narrow)
    if found is None and narrow and e.kind == "scaled":
        found = _twice(*e.sources)
    return found or Expr.make(e.kind, *(cheaper(source, narrow=narrow) for source in e.sources))


def _half(e: Expr, narrow: bool) -> Expr | None:
    # Half of a number; of one that is shifted to the left, it is shifted less.
    if e.kind != "scaled" or [n.low for n in e.sources[1:]] != [1 << 30, 0] or e.sources[0].wraps:
        return None
    x = cheaper(e.sources[0], narrow=narrow)
    if x.kind == "<<":
        return x.sources[0] << x.sources[1].low - 1
    return None if (x + 1).wraps else x + 1 >> 1


def _line(e: Expr, limits: Limits | None, narrow: bool) -> Expr | None:
    # ``(x * slope + constant) >> bits``, in 32 bits, of a rounding of what takes few values.
    chain = [e, *_chain(e)]
    rounded = [s.kind == "scaled" for s in chain]
    for x in reversed(chain[rounded.index(True) + 1 :] if any(rounded) else []):
        if 0 < x.high - x.low < _FEW:
            values = np.arange(x.low, x.high + 1)
            for slope, constant, bits in _straight(values, e.of((), {x: values}), limits):
                product = cheaper(x, narrow=narrow) * slope
                total = product + constant
                if not (product.wraps or total.wraps):
                    return total >> bits
    return None


def _chain(e: Expr) -> Iterator[Expr]:
    # The only source that is no number, that one's, and so on.
    while e.kind != "within" and len(inner := [s for s in e.sources if not s.is_number]) == 1:
        (e,) = inner
        yield e


def _straight(x: Int64, y: Int64, limits: Limits | None) -> Iterator[tuple[int, int, int]]:
    """Find slope, constant and shift for which ``(x * slope + constant) >> bits`` equals ``y``.

    Beyond the limits, it only has to be beyond the same limit as ``y``. The number of possible constants
    rises with the slope, then falls: the best slope with many bits, rounded, is the best one with fewer. No
    shift is tried first, then many bits: compilers turn small slopes into additions, which take longer than a
    product.
    """
    low, high = limits or (int(y.min()) - 1, int(y.max()) + 1)
    y = np.clip(y, low, high)
    above, below = y > low, y < high
    if not (above.any() and below.any()):
        return
    (left, least), (right, beyond) = (x[above], y[above]), (x[below], y[below] + 1)
    last = (1 << 61) // (int(np.abs(x).max()) + 1)  # 64 bits hold the products
    first = -last
    while first < last:
        slope = (first + last) // 2
        lowest = ((least << _MOST_BITS) - slope * left).argmax()
        highest = ((beyond << _MOST_BITS) - slope * right).argmin()
        first, last = (slope + 1, last) if left[lowest] > right[highest] else (first, slope)
    for bits in (0, *range(_MOST_BITS, 0, -1)):
        for slope in (first >> _MOST_BITS - bits, (first >> _MOST_BITS - bits) + 1):
            start = int(((least << bits) - slope * left).max())
            stop = int(((beyond << bits) - slope * right).min())
            if start < stop:
                yield slope, (start + stop) // 2, bits


def _rounded(e: Expr, limits: Limits | None, narrow: bool) -> Expr | None:
    # An int8 output's requantisation: ``(high word of (x + offset) * multiplier + constant) >> bits``.
    is_moved = e.kind == "+" and e.sources[1].is_number
    rounded, zero = e.sources if is_moved else (e, number(0))
    if rounded.kind not in ("scaled", "even") or limits is None or not _is_int8(limits):
        return None
    x, (multiplier, shift), factor = rounded.sources[0], (n.low for n in rounded.sources[1:]), None
    if rounded.kind == "even":
        factor = multiplier * 0.5**shift
        multiplier, shift = quantize_multiplier(factor)
    elif x.kind == "<<" and not (x.wraps or shift):
        x, shift = x.sources[0], x.sources[1].low
    if multiplier <= 0:
        return None
    rescale = Rescale.one((multiplier, shift), factor, (zero.low, *limits), (x.low, x.high))
    if narrow and (halves := _halves(cheaper(x, narrow=True), rescale)) is not None:
        return halves
    floor = solve_floor(rescale)
    if floor is None:
        return None
    offset, gain, constant = (int(n[0]) for n in (floor.offset, floor.multiplier, floor.constant))
    return Expr.make("high", cheaper(x, narrow=narrow) + offset, gain) + constant >> floor.shift


def _halves(x: Expr, rescale: Rescale) -> Expr | None:
    # ``(x * high + (x * low >> n) + constant) >> bits`` in 32 bits, or None if x is too large. With
    # ``m = high * 2**n + low`` this equals ``(x * m + constant * 2**n) >> n + bits``, since a floor
    # of a floor is the floor of the whole. As in ``solve_floor``, it is exact if ``k * D - T_k * m
    # <= constant * 2**n < k * D - (T_k - 1) * m`` for all levels k, which are reached at T_k, where
    # D is ``2**(n + bits)``. Products of two int8 values leave 15 bits for each half: 30 bits of a
    # multiplier, nearly as many as TFLite's has.
    n = 31 - max(abs(x.low), abs(x.high)).bit_length()
    levels, reached = rescale.levels().astype(np.int64), rescale.thresholds()[:, 0]
    live = (reached > x.low) & (reached <= x.high)
    scale = float(rescale.scales.reshape(-1)[0])
    if n < _LEAST_HALF or not live.any() or scale <= 0:
        return None
    k, first = levels[live], reached[live]
    for total in range((most := int(np.floor(2 * n - 1 - np.log2(scale)))), most - _TRIED_SHIFTS, -1):
        for near in range(-_TRIED_MULTIPLIERS, _TRIED_MULTIPLIERS + 1):
            m, bits = round(scale * 2**total) + near, total - n
            least = int(((k << total) - first * m).max())
            beyond = int(((k << total) - (first - 1) * m).min())
            constant = -(-least >> n)
            if bits < 1 or m >> n < 1 or constant << n >= beyond:
                continue
            parts = [x * (m >> n), x * (m & (1 << n) - 1)]
            both = parts[0] + (parts[1] >> n)
            if not any(part.wraps for part in (*parts, both, both + constant)):
                made: Expr = both + constant >> bits
                return made
    return None


def _twice(x: Expr, multiplier: Expr, shift: Expr) -> Expr | None:
    # TFLite's two roundings, the first by a product as in ``_halves``; None if no multiplier of two halves
    # rounds all values of x equally.
    n, right = 31 - max(abs(x.low), abs(x.high)).bit_length(), -shift.low
    if n < _LEAST_HALF or right < 0 or multiplier.low <= 0 or x.high - x.low >= _MANY:
        return None
    values = np.arange(x.low, x.high + 1, dtype=np.int64)
    wanted = saturating_rounding_doubling_high_mul(values, multiplier.low)
    total, given = 2 * n - 1, cheaper(x, narrow=True)
    for near in range(-_TRIED_MULTIPLIERS, _TRIED_MULTIPLIERS + 1):
        m = (multiplier.low >> 31 - total if total < 31 else multiplier.low << total - 31) + near
        parts = [given * (m >> n), given * (m & (1 << n) - 1)]
        both = parts[0] + (parts[1] >> n) + (1 << total - 1 - n)
        exact = ((values * m + (1 << total - 1)) >> total == wanted).all()
        if exact and not any(part.wraps for part in (*parts, both)):
            first = both >> total - n
            return first if not right else first + (first >> 31) + (1 << right - 1) >> right
    return None


def _is_int8(limits: Limits) -> bool:
    return INT8.low <= limits[0] and limits[1] <= INT8.high


# C of each kind: ``{a}`` is its first source, ``{A}`` the same, as a part of a longer expression.
_FORMS = {
    **{sign: f"{{A}} {sign} {{B}}" for sign in ("+", "-", "*", ">>", *COMPARISONS)},
    "choice": "({a} >= 0) ? {B} : {C}",
    "clamp": "crt_min(crt_max({a}, {b}), {c})",
    "even": "crt_scale_even({a}, {b}, {c})",
    "high": "(int32_t)((int64_t)({a}) * {b} >> 32)",
    "<<": "crt_shift_left({a}, {b})",
    "within": "{A}",
}

_WRAPPING = {"+": "crt_add32({a}, {b})", "-": "crt_sub32({a}, {b})", "*": "crt_mul32({a}, {b})"}


def spelled(e: Expr, value: Value) -> tuple[str, ...]:
    """Return C statements and, last, the C expression of an element of ``value``, from operands a, b, ..."""
    speller = _Speller(e)
    if e.kind == "clamp":
        x, low, high = e.sources
        result = clamped(value, speller.text(x), low.low, high.low)
    else:
        result = stored(value, speller.text(e))
    return (*speller.lines, result)


class _Speller:
    """Writes expressions as C; an expression that occurs more than once becomes a variable."""

    def __init__(self, e: Expr) -> None:
        self.lines: list[str] = []
        self.names: dict[Expr, str] = {}
        self.times: Counter[Expr] = Counter()
        self._count(e)

    def _count(self, e: Expr) -> None:
        self.times[e] += 1
        if self.times[e] == 1:
            for source in e.sources:
                self._count(source)

    def text(self, e: Expr) -> str:
        # The expression, or the name that it has.
        if e not in self.names:
            made = self._written(e)
            if self.times[e] == 1 or e.kind in (*_LEAVES, "within"):
                return made
            self.names[e] = f"v{len(self.names)}"
            self.lines.append(f"const int32_t {self.names[e]} = {made};")
        return self.names[e]

    def _written(self, e: Expr) -> str:
        if e.kind == "number":
            return str(e.low)
        if e.kind == "operand":
            return chr(ord("a") + e.place)
        if e.kind == "scaled":
            return self._scaled(*e.sources)
        texts = [self.text(source) for source in e.sources]
        parts = [self._part(*pair) for pair in zip(e.sources, texts, strict=True)]
        if e.kind == "+" and e.sources[1].is_number and not e.wraps:
            return f"{parts[0]} {plus(e.sources[1].low)}"
        form = _WRAPPING[e.kind] if e.wraps and e.kind in _WRAPPING else _FORMS[e.kind]
        return form.format(**dict(zip("abc", texts, strict=False)), **dict(zip("ABC", parts, strict=False)))

    def _scaled(self, x: Expr, multiplier: Expr, shift: Expr) -> str:
        if x.kind == "<<" and not shift.low:
            x, shift = x.sources
        return two_roundings(self.text(x), multiplier.low, shift.low, x.extent)

    def _part(self, e: Expr, text: str) -> str:
        has_operators = _FORMS.get(e.kind, "").startswith(("{A} ", "({a} >=")) and e not in self.names
        return f"({text})" if has_operators else text
