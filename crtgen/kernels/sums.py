"""What an int8 sum gives for every pair of inputs: what a cheaper form of it has to agree with."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from crtgen.ir import Signature
from crtgen.ops.attrs import tensor_quant
from crtgen.ops.binary import Add, Sub
from crtgen.ops.fixedpoint import Int64

__all__ = ["EverySum", "SumForm", "every_sum"]

_STEPS = (0, 1, -1, 2, -2, 3, -3)
_DELTAS = tuple((a, b) for a in _STEPS for b in _STEPS)


@dataclass(frozen=True, slots=True)
class SumForm:
    """A sum with whole ``factors`` of its inputs and a ``constant``, shifted down by ``shift`` bits."""

    factors: tuple[int, int]
    constant: int
    shift: int


@dataclass(frozen=True, slots=True, eq=False)
class EverySum:
    """The 65,536 pairs ``x`` of int8 values and the reference's ``result`` for each, as int64.

    ``factors`` are the real factors of the two inputs in units of the output (negative for a subtracted
    one), ``limits`` the least and the greatest output.
    """

    x: tuple[Int64, Int64]
    result: Int64
    factors: tuple[float, float]
    limits: tuple[int, int]

    def near(self, bits: int, deltas: Iterable[tuple[int, int]] = _DELTAS) -> Iterator[tuple[int, int]]:
        """Whole numbers near the factors times ``2**bits``, by their distances from the nearest ones."""
        first, second = (round(factor * (1 << bits)) for factor in self.factors)
        yield from ((first + a, second + b) for a, b in deltas)

    def constants(self, total: Int64, shift: int) -> range:
        """The constants with which ``(total + constant) >> shift``, clamped, is the result of every pair."""
        floor, ceiling = self.result > self.limits[0], self.result < self.limits[1]
        least = ((self.result << shift) - total)[floor].max(initial=-(1 << 31))
        beyond = (((self.result + 1) << shift) - total)[ceiling].min(initial=1 << 31)
        return range(int(least), int(beyond))


def every_sum(op: Add | Sub, sig: Signature) -> EverySum:
    """The table of an operator on quantised int8 values."""
    every = np.arange(-128, 128, dtype=np.int64)
    x0, x1 = (a.reshape(-1) for a in np.meshgrid(every, every, indexing="ij"))
    pairs = Signature(
        tuple(replace(v, shape=x0.shape) for v in sig.inputs), (replace(sig.y, shape=x0.shape),)
    )
    (result,) = op.reference(pairs, [x0.astype(np.int8), x1.astype(np.int8)])
    params = op.parameters(sig)
    out = tensor_quant(sig.y).scale
    a, b = (tensor_quant(v).scale / out for v in sig.inputs)
    factors = (a, -b if isinstance(op, Sub) else b)
    return EverySum((x0, x1), result.astype(np.int64), factors, (params.act_min, params.act_max))
