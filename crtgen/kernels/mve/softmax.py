"""Softmax of int8 with Helium: powers from a table, since a difference of two int8 values has 256 values."""

from dataclasses import dataclass

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.ops import Softmax
from crtgen.ops.fixedpoint import Int64, saturating_rounding_doubling_high_mul
from crtgen.ops.gemmlowp import exp_on_negative_values

__all__ = ["SoftmaxView", "softmax"]

_INTEGER_BITS = 5  # of an exponent


@dataclass(frozen=True, slots=True)
class SoftmaxView:
    """``rows`` of ``depth`` elements; differences beyond ``last``, if that is not 255, count as this one."""

    rows: int
    depth: int
    last: int

    @property
    def cost(self) -> float:
        vectors = -(-self.depth // 4)
        return self.rows * (115 + 3 * -(-self.depth // 16) + (15 + 2 * (self.last < 255)) * vectors)


@design(Softmax)
def softmax(op: Softmax, sig: Signature, target: Target) -> Kernel | None:
    """int8; None for others, and for size: the table takes up to 1 KB."""
    if not target.core.mve or sig.x.dtype is not DType.INT8 or target.optimize == "size":
        return None
    powers = _powers(op, sig)
    depth = sig.x.shape[-1]
    view = SoftmaxView(sig.x.elements // depth, depth, len(powers) - 1)
    note = "e to minus the difference from the greatest, times 2^31"
    return Kernel(
        design="mve softmax",
        template="mve/softmax.c.j2",
        view=view,
        consts=(Const("powers", powers.astype(np.int32), 4, note),),
        inplace=(InPlace(),),
        cost=view.cost,
    )


def _powers(op: Softmax, sig: Signature) -> Int64:
    """For each difference 0, 1, ...: 256 of them, or up to the first for which the power is 0."""
    params = op.parameters(sig)
    difference = -np.arange(256, dtype=np.int64)
    counts = difference >= params.diff_min
    exponent = saturating_rounding_doubling_high_mul(
        np.where(counts, difference, 0) << params.input_left_shift, params.input_multiplier
    )
    powers: Int64 = np.where(counts, exp_on_negative_values(exponent, _INTEGER_BITS), 0)
    return powers[: int(np.argmin(powers)) + 1] if powers[-1] == 0 else powers
