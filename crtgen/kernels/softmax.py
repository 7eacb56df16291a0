"""Softmax along the last axis."""

from dataclasses import dataclass

from crtgen.ir import DType, Signature
from crtgen.kernels.kernel import InPlace, Kernel, Target
from crtgen.kernels.literal import c_float
from crtgen.kernels.registry import design
from crtgen.ops import Softmax

__all__ = ["FloatSoftmaxView", "SoftmaxView"]


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
class FloatSoftmaxView:
    """``rows`` of ``depth`` elements; ``beta`` as a C literal."""

    rows: int
    depth: int
    beta: str


@design(Softmax)
def softmax(op: Softmax, sig: Signature, target: Target) -> Kernel:
    """int8 in gemmlowp's fixed point, or float32."""
    depth = sig.x.shape[-1]
    rows = sig.x.elements // depth
    if sig.x.dtype is DType.FLOAT32:
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
