"""Softmax of int8 with exponentials from a table and float32 quotients."""

from dataclasses import dataclass

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_float, plus
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.lookup_softmax import LookupSoftmax

__all__ = ["LookupSoftmaxView"]


@dataclass(frozen=True, slots=True)
class LookupSoftmaxView:
    """``rows`` of ``depth`` elements; ``share``, the reciprocal of a sum, and ``zero_point`` are C."""

    rows: int
    depth: int
    share: str
    zero_point: str


@design(LookupSoftmax, types=(DType.INT8,))
def lookup_softmax(op: LookupSoftmax, sig: Signature, target: Target) -> Kernel:
    p, depth = op.parameters(sig), sig.x.shape[-1]
    share = f"(power[x0[i]] * {c_float(p.steps)}) / total"
    share = f"crt_minf({share}, {c_float(p.FAR)})" if p.is_far else share
    view = LookupSoftmaxView(sig.x.elements // depth, depth, share, plus(p.zero_point))
    work = Work().block("row", view.rows).block("element", sig.x.elements)
    table = Const.of("table", p.table, 4, "multiples of powers, by 255 less the distance from the greatest")
    return Kernel("lookup softmax", "lookup_softmax.c.j2", view, (table,), inplace=(InPlace(),), work=work)
