"""The best boxes of each class: ONNX's NonMaxSuppression, with room for the largest possible result."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array, DType, Op, Signature, Value, shape_text
from crtgen.network.ops.attrs import require, require_inputs
from crtgen.network.ops.case import Case, floats, make

__all__ = ["NOTHING", "NonMaxSuppression", "cases"]

NOTHING = -1
"""Value in rows without a box."""

Real = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class NonMaxSuppression(Op):
    """``boxes[N,S,4], scores[N,C,S] -> rows[N * C * most, 3]``, each row a batch, a class and a box.

    Boxes need a score above ``least_score``. A box that overlaps a better box of its class by more than
    ``most_overlap`` (intersection over union) is dropped. At most ``most`` are kept per class, the best
    first; of equal ones, the earlier first. A box is given by two opposite corners, or by its centre and size
    if ``centred``. Unused rows hold -1.
    """

    name: ClassVar[str] = "non_max_suppression"

    most: int
    most_overlap: float
    least_score: float = -inf
    centred: bool = False

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 2)
        boxes, scores = inputs
        text = f"boxes of {shape_text(boxes.shape)} and scores of {shape_text(scores.shape)}"
        fits = len(boxes.shape) == len(scores.shape) == 3 and boxes.shape[2] == 4
        fits = fits and (boxes.shape[0], boxes.shape[1]) == (scores.shape[0], scores.shape[2])
        require(fits, text)
        require(boxes.dtype is scores.dtype is DType.FLOAT32, "boxes or scores that are not float32")
        require(self.most > 0, f"{self.most} boxes of a class")
        return (((scores.shape[0] * scores.shape[1] * self.kept(boxes), 3), DType.INT64),)

    def kept(self, boxes: Value) -> int:
        return min(self.most, boxes.shape[1])

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        boxes, scores = (a.astype(np.float32) for a in arrays)
        made, count = np.full(sig.y.shape, NOTHING, np.int64), 0
        for batch, number in np.ndindex(*scores.shape[:2]):
            for box in self._best(self._sides(boxes[batch]), scores[batch, number]):
                made[count] = batch, number, box
                count += 1
        return (made,)

    def _sides(self, boxes: Real) -> Real:
        # Both low sides, then both high ones.
        first, second = boxes[:, :2], boxes[:, 2:]
        if self.centred:
            half = second * np.float32(0.5)
            first, second = first - half, first + half
        low, high = np.minimum(first, second), np.maximum(first, second)
        return np.concatenate([low, high], axis=1)

    def _best(self, sides: Real, scores: Real) -> list[int]:
        left = [int(i) for i in np.argsort(-scores, kind="stable") if scores[i] > self.least_score]
        kept: list[int] = []
        while left and len(kept) < self.most:
            best, *left = left
            kept.append(best)
            left = [i for i in left if not _overlap(sides[best], sides[i]) > self.most_overlap]
        return kept


def _overlap(a: Real, b: Real) -> np.float32:
    # Intersection over union; 0 for boxes without an area.
    lengths = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    if not min(*lengths, *areas) > 0:
        return np.float32(0)
    common = lengths[0] * lengths[1]
    return np.float32(common / (areas[0] + areas[1] - common))


def cases() -> Iterator[Case]:
    boxes, scores = floats("b", (2, 9, 4)), floats("s", (2, 3, 9))
    limits = {"b": (0.0, 1.0), "s": (0.0, 1.0)}
    for most, overlap, least in ((3, 0.3, 0.2), (20, 0.5, -inf), (9, 0.1, 0.6)):
        for centred in (False, True):
            name = f"{most}_{'centred' if centred else 'corners'}_onnx"
            op = NonMaxSuppression(most, float(np.float32(overlap)), float(np.float32(least)), centred)
            yield make(name, op, [boxes, scores], limits=limits)
