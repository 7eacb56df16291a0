"""The mean over any axes."""

from dataclasses import dataclass
from math import prod

import numpy as np

from crtgen.ir import DType, Signature, Value
from crtgen.kernels.epilogue import one_rounding, two_roundings
from crtgen.kernels.kernel import Kernel, Target
from crtgen.kernels.literal import c_float, plus
from crtgen.kernels.loops import Loop, index_of, merge, strides_of
from crtgen.kernels.registry import design
from crtgen.kernels.requant import Rescale
from crtgen.ops import INT8, Mean, scheme_of

__all__ = ["MeanView", "image_of", "mean_result"]

_TILE = 4


@dataclass(frozen=True, slots=True)
class MeanView:
    """``kept`` loops over outputs, in each the ``reduced`` ones from ``start``; ``result`` is C of ``sum``.

    ``tile`` neighbouring outputs are summed at once; it divides the innermost kept loop.
    """

    x_type: str
    sum_type: str
    kept: tuple[Loop, ...]
    reduced: tuple[Loop, ...]
    start: str
    index: str
    result: str
    tile: int


@design(Mean, types=(DType.INT8, DType.FLOAT32))
def mean(op: Mean, sig: Signature, target: Target) -> Kernel:
    """The sum of what an output sees, divided in the multiplier."""
    loops = [Loop(n, (s,)) for n, s in zip(sig.x.shape, strides_of(sig.x.shape), strict=True)]
    kept = merge([loop for i, loop in enumerate(loops) if i not in op.axes], 1)
    reduced = merge([loop for i, loop in enumerate(loops) if i in op.axes], 1)
    tile = _TILE if kept[-1].strides == (1,) and kept[-1].count % _TILE == 0 else 1
    view = MeanView(
        x_type=sig.x.dtype.c_name,
        sum_type=scheme_of(sig.x).accumulators.c_name,
        kept=kept,
        reduced=reduced,
        start=index_of(kept, 0),
        index=index_of(reduced, 0, "j"),
        result=mean_result(op, sig),
        tile=tile,
    )
    cost = sig.x.elements * (5 if tile == 1 else 3) + sig.y.elements * 25
    return Kernel(design="mean", template="mean.c.j2", view=view, cost=cost)


def image_of(op: Mean, x: Value) -> tuple[int, int, int] | None:
    """Images, pixels, channels of ``x``, where the mean is over the pixels; None if these are apart."""
    axes = sorted(op.axes)
    if not axes or axes != list(range(axes[0], axes[-1] + 1)):
        return None
    before, inside, after = x.shape[: axes[0]], x.shape[axes[0] : axes[-1] + 1], x.shape[axes[-1] + 1 :]
    return prod(before), prod(inside), prod(after)


def mean_result(op: Mean, sig: Signature) -> str:
    """C for the mean of the elements whose ``sum`` is known."""
    if scheme_of(sig.x).is_real:
        return f"sum / {c_float(sig.x.elements // sig.y.elements)}"
    p = op.parameters(sig)
    ends = p.count * (np.array([[INT8.low], [INT8.high]], np.int64) + p.input_offset)
    multiplier, shift = np.array([p.multiplier], np.int64), np.array([p.shift], np.int64)
    rescale = Rescale(multiplier, shift, p.output_offset, *INT8.limits, ends[0], ends[1])
    total = f"(sum {plus(p.count * p.input_offset)})"
    scaled = one_rounding(total, rescale)
    if scaled is None:
        extent = (INT8.high - INT8.low) * p.count
        scaled = f"{two_roundings(total, p.multiplier, p.shift, extent)} {plus(p.output_offset)}"
    return f"crt_int8({scaled}, {INT8.low}, {INT8.high})"
