"""Addition and subtraction with the DSP extension: two SMLAW and one SSAT per element.

``sat8((x0 * a >> 8) + (x1 * b >> 8) + c >> shift)`` replaces TFLite's five roundings where a search finds
factors with which all 65,536 pairs of inputs come out right.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.dsp.finish import Finish
from crtgen.kernels.kernel import InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.kernels.sums import EverySum, every_sum
from crtgen.ops.binary import Add, Sub
from crtgen.ops.fixedpoint import Int64

__all__ = ["SumForm", "SumView", "add", "solve_sum"]

_DELTAS = (0, 1, -1, 2, -2, 3, -3)
_SHIFTS = 4  # tried from the largest one down


@dataclass(frozen=True, slots=True)
class SumForm:
    """Factors of ``sat8((x0 * a >> 8) + (x1 * b >> 8) + c >> shift)``; all fit into int32."""

    a: int
    b: int
    c: int
    shift: int

    def apply(self, x0: Int64, x1: Int64) -> Int64:
        """The saturated sum, before any narrower clamp."""
        total: Int64 = (((x0 * self.a) >> 8) + ((x1 * self.b) >> 8) + self.c) >> self.shift
        return np.clip(total, -128, 127)


@dataclass(frozen=True, slots=True)
class SumView:
    """``elements`` sums, four at a time and the rest one by one; factors as unsigned words."""

    elements: int
    a: int
    b: int
    c: int
    finish: Finish

    @property
    def whole(self) -> int:
        return self.elements // 4 * 4

    @property
    def rest(self) -> int:
        return self.elements % 4


@design(Add, Sub)
def add(op: Add | Sub, sig: Signature, target: Target) -> Kernel | None:
    """For int8 operands of one shape; None for others or if no factors are exact."""
    operands = sig.inputs
    if not target.core.dsp or any(v.dtype is not DType.INT8 for v in operands):
        return None
    if any(v.shape != sig.y.shape for v in operands):
        return None
    params = op.parameters(sig)
    form = solve_sum(op, sig)
    if form is None:
        return None
    low = params.act_min if params.act_min > -128 else None
    high = params.act_max if params.act_max < 127 else None
    finish = Finish("floor", (form.shift,), low, high)
    a, b, c = (n & 0xFFFFFFFF for n in (form.a, form.b, form.c))
    view = SumView(sig.y.elements, a, b, c, finish)
    rest = view.rest * (7 + 3 * finish.clamps) + 4
    return Kernel(
        design="dsp_sum",
        template="dsp/sum.c.j2",
        view=view,
        inplace=(InPlace(0), InPlace(1)),
        cost=20 + view.whole / 4 * (24 + 12 * finish.clamps) + rest,
    )


def solve_sum(op: Add | Sub, sig: Signature) -> SumForm | None:
    """Factors that agree with the reference for every pair of int8 values; None if the search finds none."""
    table = every_sum(op, sig)
    largest = 22 - max(0, int(np.ceil(np.log2(max(map(abs, table.factors))))))
    for shift in range(largest, max(largest - _SHIFTS, 0), -1):
        form = _solve_with(table, shift)
        if form is not None:
            return form
    return None


def _solve_with(table: EverySum, shift: int) -> SumForm | None:
    x, result, limits = table.x, table.result, table.limits
    ideal = [round(r * (1 << (shift + 8))) for r in table.factors]
    floor, ceiling = result > limits[0], result < limits[1]
    for da in _DELTAS:
        for db in _DELTAS:
            total = ((x[0] * (ideal[0] + da)) >> 8) + ((x[1] * (ideal[1] + db)) >> 8)
            least = ((result << shift) - total)[floor].max(initial=-(1 << 31))
            beyond = (((result + 1) << shift) - total)[ceiling].min(initial=1 << 31)
            c = int(least + beyond) // 2
            if least < beyond and abs(c) + int(np.abs(total).max()) < 1 << 31:
                return SumForm(ideal[0] + da, ideal[1] + db, c, shift)
    return None
