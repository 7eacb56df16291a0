"""The largest or smallest values along an axis."""

from dataclasses import dataclass

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import Signature
from crtgen.network.ops.topk import TopK

__all__ = ["TopKView"]


@dataclass(frozen=True, slots=True)
class TopKView:
    """``outer`` times ``inner`` rows of ``length`` values, of which ``count`` are kept; ``sign`` is the C
    comparison.

    ``places`` is the type of their indices.
    """

    type: str
    places: str
    outer: int
    length: int
    inner: int
    count: int
    sign: str


@design(TopK)
def top_k(op: TopK, sig: Signature, target: Target) -> Kernel:
    """Insert each value in order among those found before it."""
    outer, length, inner = op.sizes(sig)
    view = TopKView(
        sig.x.dtype.c_name, op.places.c_name, outer, length, inner, op.count, ">" if op.largest else "<"
    )
    kind, rows = sig.x.dtype.value, outer * inner
    moved = rows * sum(min(i, op.count) for i in range(length)) / 4
    work = Work().block(f"{kind} element", sig.x.elements).block(f"{kind} moved", moved).block("row", rows)
    return Kernel("top k", "topk.c.j2", view, work=work)
