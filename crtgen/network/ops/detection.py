"""Detections from boxes and scores: TFLite's custom operator TFLite_Detection_PostProcess."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, DType, Op, Signature, Value, shape_text
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, floats

__all__ = ["DetectionPostProcess", "cases"]

Real = npt.NDArray[np.float32]
# Detections: box, class and score.
_Found = list[tuple[int, int, float]]


@dataclass(frozen=True, slots=True)
class DetectionPostProcess(Op):
    """``encodings[1,N,4+], scores[1,N,C], anchors[N,4] -> boxes[1,M,4], classes, scores[1,M], count``.

    An encoding is the centre and the size of a box, in units of ``scales`` (y, x, h, w), relative to its
    anchor. Of boxes that overlap by more than ``most_overlap`` (intersection over union), the one with the
    best score is kept. With ``regular`` this is done for each class, with up to ``per_class`` boxes;
    otherwise once, for the best ``classes_per_box`` classes of each box. C may include a background class,
    which comes first. A box with area zero overlaps with none; unused outputs are 0.
    """

    name: ClassVar[str] = "detection_post_process"

    classes: int
    detections: int
    classes_per_box: int
    per_class: int
    regular: bool
    least_score: float
    most_overlap: float
    scales: tuple[float, float, float, float]

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 3)
        encodings, scores, anchors = inputs
        shapes = [v.shape for v in inputs]
        text = ", ".join(shape_text(s) for s in shapes)
        fits = len(encodings.shape) == len(scores.shape) == 3 and encodings.shape[2] >= 4
        fits = fits and encodings.shape[:2] == scores.shape[:2] and encodings.shape[0] == 1
        require(fits and anchors.shape == (encodings.shape[1], 4), f"boxes, scores and anchors of {text}")
        require(
            all(v.dtype is DType.FLOAT32 for v in inputs), "boxes, scores or anchors that are not float32"
        )
        require(scores.shape[2] - self.classes in (0, 1) and self.classes > 0, f"{self.classes} classes")
        numbers = min(self.detections, self.per_class if self.regular else self.classes_per_box)
        require(numbers > 0, "a number of detections that is not positive")
        require(0 < self.most_overlap <= 1, f"boxes that overlap by {self.most_overlap}")
        require(all(np.isfinite(s) and s != 0 for s in self.scales), f"scales {self.scales}")
        count, float32 = self.detections * (1 if self.regular else self.told), DType.FLOAT32
        return ((1, count, 4), float32), ((1, count), float32), ((1, count), float32), ((1,), float32)

    @property
    def told(self) -> int:
        """Return the number of classes reported per box, if its best ones are reported."""
        return min(self.classes_per_box, self.classes)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        encodings, scores, anchors = (a.astype(np.float32) for a in arrays)
        boxes = self._boxes(encodings[0], anchors)
        own = scores[0, :, scores.shape[2] - self.classes :]
        found = self._regular(boxes, own) if self.regular else self._fast(boxes, own)
        places = range(len(found)) if self.regular else self._places(len(found))
        made = [np.zeros(v.shape, np.float32) for v in sig.outputs]
        for place, (box, number, score) in zip(places, found, strict=True):
            if place < made[1].shape[1]:
                made[0][0, place], made[1][0, place], made[2][0, place] = boxes[box], number, score
        made[3][0] = len(found)
        return tuple(made)

    def _places(self, count: int) -> Iterator[int]:
        # Positions at which TFLite Micro writes detections: several per box leave gaps after the first one.
        return (self.told * i + i % self.told for i in range(count))

    def _boxes(self, encodings: Real, anchors: Real) -> Real:
        # Top, left, bottom and right of each.
        relative = encodings[:, :4].astype(np.float64) / np.array(self.scales)
        sizes = anchors[:, 2:].astype(np.float64)
        centres = (relative[:, :2] * sizes + anchors[:, :2]).astype(np.float32)
        halves = (0.5 * np.exp(relative[:, 2:]) * sizes).astype(np.float32)
        return np.concatenate([centres - halves, centres + halves], axis=1)

    def _fast(self, boxes: Real, scores: Real) -> _Found:
        found: _Found = []
        for box in self._kept(boxes, scores.max(axis=1), self.detections):
            best = np.argsort(-scores[box], kind="stable")[: self.told]
            found += [(box, int(c), float(scores[box, c])) for c in best]
        return found

    def _regular(self, boxes: Real, scores: Real) -> _Found:
        found: _Found = []
        for number in range(self.classes):
            kept = self._kept(boxes, scores[:, number], self.per_class)
            found += [(box, number, float(scores[box, number])) for box in kept]
            found = sorted(found, key=lambda f: -f[2])[: self.detections]
        return found

    def _kept(self, boxes: Real, scores: Real, most: int) -> list[int]:
        # Boxes by their scores, without those that overlap with a better one.
        kept: list[int] = []
        with np.errstate(invalid="ignore"):
            left = [int(i) for i in np.argsort(-scores, kind="stable") if scores[i] >= self.least_score]
        while left and len(kept) < most:
            best, *left = left
            kept.append(best)
            left = [i for i in left if not _overlap(boxes[best], boxes[i]) > self.most_overlap]
        return kept


def _overlap(a: Real, b: Real) -> np.float32:
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    if not min(areas) > 0:
        return np.float32(0)
    height, width = (max(min(a[i + 2], b[i + 2]) - max(a[i], b[i]), np.float32(0)) for i in range(2))
    return np.float32(height * width / (areas[0] + areas[1] - height * width))


def cases() -> Iterator[Case]:
    scales = (10.0, 10.0, 5.0, 5.0)
    yield detection_case("fast", DetectionPostProcess(3, 4, 1, 100, False, -9.0, 1.0, scales), 9, 4)
    yield detection_case("regular", DetectionPostProcess(3, 10, 1, 4, True, 0.2, 0.4, scales), 12, 3)
    yield detection_case("background", DetectionPostProcess(3, 5, 1, 100, True, -1.0, 0.3, scales), 8, 4)
    yield detection_case("own", DetectionPostProcess(4, 6, 2, 100, False, 0.5, 0.3, scales), 16, 5)


def detection_case(name: str, op: DetectionPostProcess, boxes: int, scores: int, seed: int = 1) -> Case:
    random = np.random.default_rng(seed)
    centres, sizes = random.uniform(0, 1, (boxes, 2)), random.uniform(0.2, 0.5, (boxes, 2))
    anchors = Value.constant("anchors", np.concatenate([centres, sizes], axis=1).astype(np.float32))
    inputs = (floats("x", (1, boxes, 4)), floats("scores", (1, boxes, scores)), anchors)
    made = zip(("y", "numbers", "best", "count"), op.infer(inputs), strict=True)
    outputs = tuple(Value(n, shape, dtype) for n, (shape, dtype) in made)
    return Case(f"{op.name}_{name}", op, Signature(inputs, outputs))
