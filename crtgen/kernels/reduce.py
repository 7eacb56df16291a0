"""The mean over any axes."""

from dataclasses import dataclass

from crtgen.ir import DType, Signature
from crtgen.kernels.kernel import Kernel, Target
from crtgen.kernels.literal import c_float, plus
from crtgen.kernels.loops import Loop, index_of, merge, strides_of
from crtgen.kernels.registry import design
from crtgen.ops import Mean

__all__ = ["MeanView"]


@dataclass(frozen=True, slots=True)
class MeanView:
    """``kept`` loops over outputs, in each the ``reduced`` ones from ``start``; ``result`` is C."""

    x_type: str
    sum_type: str
    kept: tuple[Loop, ...]
    reduced: tuple[Loop, ...]
    start: str
    index: str
    result: str


@design(Mean)
def mean(op: Mean, sig: Signature, target: Target) -> Kernel:
    """The sum of what an output sees, divided in the multiplier."""
    loops = [Loop(n, (s,)) for n, s in zip(sig.x.shape, strides_of(sig.x.shape), strict=True)]
    kept = merge([loop for i, loop in enumerate(loops) if i not in op.axes], 1)
    reduced = merge([loop for i, loop in enumerate(loops) if i in op.axes], 1)
    view = MeanView(
        x_type=sig.x.dtype.c_name,
        sum_type="float" if sig.x.dtype is DType.FLOAT32 else "int32_t",
        kept=kept,
        reduced=reduced,
        start=index_of(kept, 0),
        index=index_of(reduced, 0, "j"),
        result=_result(op, sig),
    )
    cost = sig.x.elements * 5 + sig.y.elements * 25
    return Kernel(design="mean", template="mean.c.j2", view=view, cost=cost)


def _result(op: Mean, sig: Signature) -> str:
    if sig.x.dtype is DType.FLOAT32:
        return f"sum / {c_float(sig.x.elements // sig.y.elements)}"
    p = op.parameters(sig)
    scaled = f"crt_scale(sum {plus(p.count * p.input_offset)}, {p.multiplier}, {p.shift})"
    return f"crt_int8({scaled} {plus(p.output_offset)}, -128, 127)"
