"""Softmax along the last axis."""

from dataclasses import dataclass

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.literal import c_float
from crtgen.kernels.registry import design
from crtgen.ops import Softmax, scheme_of
from crtgen.ops.fixedpoint import Int64, saturating_rounding_doubling_high_mul
from crtgen.ops.gemmlowp import exp_on_negative_values

__all__ = ["FloatSoftmaxView", "SoftmaxView", "TableSoftmaxView", "powers_const"]

_INTEGER_BITS = 5  # of an exponent
_ELEMENTS = 64  # from so many on, a table is worth up to 1 KB


@dataclass(frozen=True, slots=True)
class SoftmaxView:
    """``rows`` of ``depth`` elements; ``multiplier`` and ``shift`` make a difference of inputs an exponent.

    A difference below ``least`` counts as nothing.
    """

    rows: int
    depth: int
    multiplier: int
    shift: int
    least: int


@dataclass(frozen=True, slots=True)
class TableSoftmaxView:
    """``rows`` of ``depth`` elements; differences beyond ``last``, if that is not 255, count as this one."""

    rows: int
    depth: int
    last: int


@dataclass(frozen=True, slots=True)
class FloatSoftmaxView:
    """``rows`` of ``depth`` elements; ``beta`` as a C literal."""

    rows: int
    depth: int
    beta: str


@design(Softmax, types=(DType.INT8, DType.FLOAT32))
def softmax(op: Softmax, sig: Signature, target: Target) -> Kernel:
    """int8 in gemmlowp's fixed point, or float32."""
    depth = sig.x.shape[-1]
    rows = sig.x.elements // depth
    if scheme_of(sig.x).is_real:
        view: FloatSoftmaxView | SoftmaxView = FloatSoftmaxView(rows, depth, c_float(op.beta))
        template = "softmax_float.c.j2"
    else:
        p = op.parameters(sig)
        view = SoftmaxView(rows, depth, p.input_multiplier, p.input_left_shift, p.diff_min)
        template = "softmax.c.j2"
    return Kernel(
        design="softmax",
        template=template,
        view=view,
        inplace=(InPlace(),),
        cost=sig.x.elements * 250,
    )


@design(Softmax, types=(DType.INT8,))
def softmax_table(op: Softmax, sig: Signature, target: Target) -> Kernel | None:
    """int8 with the powers from a table; None for others, for few elements, and for size."""
    if target.optimize == "size" or sig.x.elements < _ELEMENTS:
        return None
    depth = sig.x.shape[-1]
    powers = powers_const(op, sig)
    view = TableSoftmaxView(sig.x.elements // depth, depth, powers.shape[0] - 1)
    return Kernel(
        design="softmax table",
        template="softmax_table.c.j2",
        view=view,
        consts=(powers,),
        inplace=(InPlace(),),
        cost=view.rows * (100 + 34 * depth),
    )


def powers_const(op: Softmax, sig: Signature) -> Const:
    """The power for each difference 0, 1, ...: 256 of them, or up to the first one that is 0."""
    params = op.parameters(sig)
    difference = -np.arange(256, dtype=np.int64)
    counts = difference >= params.diff_min
    exponent = saturating_rounding_doubling_high_mul(
        np.where(counts, difference, 0) << params.input_left_shift, params.input_multiplier
    )
    powers: Int64 = np.where(counts, exp_on_negative_values(exponent, _INTEGER_BITS), 0)
    used = int(np.argmin(powers)) + 1 if powers[-1] == 0 else len(powers)
    note = "e to minus the difference from the greatest, times 2^31"
    return Const.of("powers", powers[:used].astype(np.int32), 4, note)
