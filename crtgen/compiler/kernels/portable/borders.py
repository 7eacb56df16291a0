"""Conversion of float32 to int8 without a division: the borders between results, as bit patterns of floats.

``x / scale``, rounded to float32 and then to an integer, never falls as x grows, and is symmetric for ``-x``.
So the distance of a result from the zero point is the number of borders that are not above the magnitude of
x. Bit patterns of non-negative floats are in the order of their values.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import INT8, AffineParams, Quantize
from crtgen.network.ops.rescaling import by_float

__all__ = ["BordersView", "Floats", "borders", "borders_of", "fused"]

Floats = npt.NDArray[np.float32]

# Scales of which neither a border nor a reciprocal is too small or too large for a float32's digits.
_USUAL = (2.0**-60, 2.0**60)
_UNIT = 140  # a number with the exponent e and 14 digits d is about d * 2 ** (e - 140)
_DIGITS = 16  # of the reciprocal: products have 30
_NEAR = 8  # float32 numbers on both sides


@dataclass(frozen=True, slots=True)
class BordersView:
    """``elements`` values; the ``first`` and the ``last`` border, which is ``steps`` from the zero point.

    A float with the exponent e and the 14 leading mantissa bits d is about ``d * factor >> (shift - e)``
    steps, or slightly less.
    """

    elements: int
    zero_point: int
    first: int
    last: int
    steps: int
    factor: int
    shift: int


@cache
def borders_of(scale: float, count: int, even: bool = False) -> Floats | None:
    """Return the smallest floats whose quotients are rounded to 1, 2, ...; None for an unusable scale.

    Ties are rounded away from zero or, if ``even``, to even: then 0.5, 2.5, ... are below their borders.
    """
    if not _USUAL[0] < scale < _USUAL[1]:
        return None
    halves = (np.arange(1, 2 * count, 2) / 2).astype(np.float32)
    reached = (
        np.where(np.arange(count) % 2, halves, np.nextafter(halves, np.float32(np.inf))) if even else halves
    )
    below = (halves * float(np.float32(scale))).astype(np.float32)
    for _ in range(_NEAR):
        below = np.nextafter(below, np.float32(0))
    found = below
    for _ in range(2 * _NEAR):
        found = np.where(found / np.float32(scale) < reached, np.nextafter(found, np.float32(np.inf)), found)
    return found


def fused(x: Floats, factor: np.float32, to: Floats) -> Floats:
    """Return ``x * factor + to``, rounded once.

    The product is exact in double; the sum is rounded to odd there, after which rounding to float32 is right.
    """
    product, addend = x.astype(np.float64) * float(factor), to.astype(np.float64)
    total = product + addend
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    even = (total.view(np.int64) & 1) == 0
    odd = np.where((lost != 0) & even, np.nextafter(total, np.copysign(np.inf, lost)), total)
    return odd.astype(np.float32)


@design(Quantize, types=(DType.FLOAT32,), to=DType.INT8)
def borders(op: Quantize, sig: Signature, target: Target) -> Kernel | None:
    """Count the borders that are not above a value; None for an unusable scale."""
    params = op.parameters(sig)
    assert isinstance(params, AffineParams)
    steps = INT8.magnitude(params.zero_point)
    found = borders_of(params.scale, steps, by_float(sig.y))
    if found is None:
        return None
    bits = found.view(np.uint32)
    fraction, exponent = np.frexp(1 / float(np.float32(params.scale)))
    view = BordersView(
        elements=sig.y.elements,
        zero_point=params.zero_point,
        first=int(bits[0]),
        last=int(bits[-1]),
        steps=steps,
        factor=int(fraction * (1 << _DIGITS)),
        shift=_UNIT + _DIGITS - int(exponent),
    )
    return Kernel(
        design="borders",
        template="borders.c.j2",
        view=view,
        consts=(Const.of("borders", bits, 4, "bits of the least numbers that are 1, 2, ... steps"),),
        inplace=(InPlace(),),
        work=Work().block("element", sig.y.elements),
    )
