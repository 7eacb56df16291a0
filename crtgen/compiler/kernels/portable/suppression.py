"""The best boxes of each class, without sorting: repeatedly selects the best remaining box."""

from dataclasses import dataclass

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import operands
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_float
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import Signature
from crtgen.network.ops.suppression import NOTHING, NonMaxSuppression

__all__ = ["SuppressionView"]


@dataclass(frozen=True, slots=True)
class SuppressionView:
    """``classes`` of ``boxes`` in each of ``batch``; at most ``kept`` are kept; limits are C."""

    x: str
    scores: str
    batch: int
    classes: int
    boxes: int
    kept: int
    rows: int
    nothing: int
    centred: bool
    least_score: str
    most_overlap: str


@design(NonMaxSuppression, weights=None)
def suppression(op: NonMaxSuppression, sig: Signature, target: Target) -> Kernel:
    # Keep the remaining boxes in scratch.
    boxes, scores = sig.inputs
    (x, numbers), consts = operands(sig)
    view = SuppressionView(
        x=x,
        scores=numbers,
        batch=scores.shape[0],
        classes=scores.shape[1],
        boxes=boxes.shape[1],
        kept=op.kept(boxes),
        rows=sig.y.shape[0],
        nothing=NOTHING,
        centred=op.centred,
        least_score=c_float(op.least_score),
        most_overlap=c_float(op.most_overlap),
    )
    work = Work().block("score", scores.elements).block("compared", sig.y.shape[0] * boxes.shape[1])
    return Kernel("best left", "non_max_suppression.c.j2", view, consts, boxes.shape[1], work=work)
