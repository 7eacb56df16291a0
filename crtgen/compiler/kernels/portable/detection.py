"""Detections from boxes and scores, without sorting: repeatedly selects the best remaining box."""

from dataclasses import dataclass

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_float
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import Signature
from crtgen.network.ops.detection import DetectionPostProcess

__all__ = ["DetectionView"]


@dataclass(frozen=True, slots=True)
class DetectionView:
    """``boxes`` encodings of ``coordinates`` values, with ``scores`` each, of which ``classes`` are used.

    ``anchors`` is the name of the anchors in C. ``outputs`` is the room for detections; ``told`` is the
    number of classes reported per box, ``kept`` the number of boxes that are kept. Limits and scales are C.
    """

    anchors: str
    boxes: int
    coordinates: int
    scores: int
    classes: int
    outputs: int
    told: int
    kept: int
    regular: bool
    least_score: str
    most_overlap: str
    scales: tuple[str, ...]

    @property
    def background(self) -> int:
        return self.scores - self.classes


@design(DetectionPostProcess, weights=(2,))
def detection(op: DetectionPostProcess, sig: Signature, target: Target) -> Kernel:
    encodings, scores, anchors = sig.inputs
    boxes = encodings.shape[1]
    outputs = sig.outputs[1].elements
    view = DetectionView(
        anchors="anchors" if anchors.is_constant else "x2",
        boxes=boxes,
        coordinates=encodings.shape[2],
        scores=scores.shape[2],
        classes=op.classes,
        outputs=outputs,
        told=op.told,
        kept=op.per_class if op.regular else op.detections,
        regular=op.regular,
        least_score=c_float(op.least_score),
        most_overlap=c_float(op.most_overlap),
        scales=tuple(c_float(s) for s in op.scales),
    )
    rounds = op.classes * min(op.per_class, boxes) if op.regular else min(op.detections, boxes)
    work = Work().block("box", boxes).block("score", scores.elements).block("compared", rounds * boxes)
    consts = (Const.of("anchors", anchors.array()),) if anchors.is_constant else ()
    scratch = 17 * boxes + 4 * (outputs if op.regular else boxes)
    return Kernel("best left", "detection.c.j2", view, consts, scratch, work=work)
