"""Results of an int8 sum for all pairs of inputs, which a cheaper form must reproduce.

The cheapest form is ``a x0 + b x1 + c >> s``, which rounds ties up. Scales whose ratios are powers of two
have many ties, and TFLite rounds them away from zero, ONNX Runtime to even numbers. So the sum is moved
first:

    away from zero   t += (t >> 31) << step     by -(2^step), if it is below zero
    to even          t += (t >> s) & 1          by 1, if the result would be odd without rounding

and a last constant makes ``t + last >> s`` round to the nearest integer. With other scales few pairs are near
ties, but TFLite's own roundings are symmetric about zero, which a larger step allows for: without it, two or
three of a thousand sums with scales drawn at random have no form.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np

from crtgen.network.ir import Quant, Signature, Value
from crtgen.network.ops.attrs import tensor_quant
from crtgen.network.ops.binary import Add, Sub
from crtgen.network.ops.fixedpoint import Int64
from crtgen.network.ops.rescaling import by_float
from crtgen.network.ops.scheme import INT8

__all__ = ["EverySum", "SumForm", "Ties", "every_sum", "quants_of"]

_STEPS = (0, 1, -1, 2, -2, 3, -3)
_STEPS_AWAY = (0, 3, 4)
_DELTAS = tuple((a, b) for a in _STEPS for b in _STEPS)


class Ties(Enum):
    UP = 0
    AWAY = 1
    EVEN = 2


@dataclass(frozen=True, slots=True)
class SumForm:
    """A sum of inputs with integer ``factors`` and a ``constant``, shifted right by ``shift`` bits.

    Unless ``ties`` are rounded up, it is moved before the shift, by ``2**step`` if they go away from zero,
    and then ``last`` is added.
    """

    factors: tuple[int, int]
    constant: int
    shift: int
    ties: Ties = Ties.UP
    last: int = 0
    step: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class EverySum:
    """The 65,536 pairs ``x`` of int8 values and the reference's ``result`` for each, as int64.

    ``factors`` are the real factors of the two inputs in units of the output (negative for a subtracted one),
    ``limits`` are the smallest and the largest output, ``zero_points`` those of the inputs and the output.
    ``even``: ties are rounded to even.
    """

    x: tuple[Int64, Int64]
    result: Int64
    factors: tuple[float, float]
    limits: tuple[int, int]
    zero_points: tuple[int, int, int]
    even: bool

    def near(self, bits: int, deltas: Iterable[tuple[int, int]] = _DELTAS) -> Iterator[tuple[int, int]]:
        """Yield pairs of integers near the factors times ``2**bits``, in the order of their distance."""
        first, second = (round(factor * (1 << bits)) for factor in self.factors)
        yield from ((first + a, second + b) for a, b in deltas)

    def constants(self, total: Int64, shift: int) -> range:
        """Return the constants with which ``(total + constant) >> shift``, clamped, is the result for every
        pair.
        """
        floor, ceiling = self.result > self.limits[0], self.result < self.limits[1]
        least = ((self.result << shift) - total)[floor].max(initial=-(1 << 31))
        beyond = (((self.result + 1) << shift) - total)[ceiling].min(initial=1 << 31)
        return range(int(least), int(beyond))

    def with_ties(self, factors: tuple[int, int], total: Int64, zeros: int, shift: int) -> SumForm | None:
        """Return the form that rounds ties as the reference does, for a ``total`` of inputs times factors.

        ``zeros`` is ``total`` where both inputs are their zero points. None if there is no such form.
        """
        t = total + (self.zero_points[2] << shift if self.even else 0) - zeros
        for step in (0,) if self.even else _STEPS_AWAY:
            moved = t + ((t >> shift) & 1 if self.even else (t >> 63) << step)
            last = self.constants(moved, shift)
            middle = (last.start + last.stop) // 2
            if last and int(np.abs(moved).max()) + abs(middle) < 1 << 31:
                ties = Ties.EVEN if self.even else Ties.AWAY
                return SumForm(factors, int(t[0] - total[0]), shift, ties, middle, step)
        return None


def quants_of(sig: Signature) -> tuple[Quant, Quant, Quant]:
    """Return the quantisations of both inputs and of the output, which together with the operator determine a
    sum.
    """
    return tensor_quant(sig.inputs[0]), tensor_quant(sig.inputs[1]), tensor_quant(sig.y)


@lru_cache(maxsize=16)
def every_sum(op: Add | Sub, quants: tuple[Quant, Quant, Quant]) -> EverySum:
    """Return the table of an operator on int8 values with these quantisations."""
    every = INT8.every_number()
    shapes = ((256, 1), (1, 256), (256, 256))
    a, b, y = (Value(n, s, INT8.activations, q) for n, s, q in zip("aby", shapes, quants, strict=True))
    sig = Signature((a, b), (y,))
    (result,) = op.reference(sig, [every.reshape(a.shape), every.reshape(b.shape)])
    params = op.parameters(sig)
    first, second = quants[0].scale / quants[2].scale, quants[1].scale / quants[2].scale
    wide = every.astype(np.int64)
    return EverySum(
        (np.repeat(wide, 256), np.tile(wide, 256)),
        result.astype(np.int64).reshape(-1),
        (first, -second if isinstance(op, Sub) else second),
        (params.act_min, params.act_max),
        (quants[0].zero_point, quants[1].zero_point, quants[2].zero_point),
        by_float(y),
    )
