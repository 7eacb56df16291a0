"""The tables with which Pillow, OpenCV and TensorFlow resize: source pixels and weights.

Formulas are those of the libraries; tests compare with pictures that the libraries resized.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import Array
from crtgen.network.ops.resample import BLEND_BITS

__all__ = [
    "PILLOW_BITS",
    "Shorts",
    "Spans",
    "area_blend",
    "area_means",
    "linear_blend",
    "nearest",
    "pillow_axes",
    "pillow_spans",
    "real_blend",
    "whole_scale",
]

PILLOW_BITS = 22
"""Fraction bits of Pillow's weights: 32, less 8 for a byte and 2 of headroom."""

# OpenCV ignores pixels that are covered by less than this.
_NOTHING = 1e-3

Shorts = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Spans:
    weights: Array
    first: Shorts
    widths: Shorts

    @classmethod
    def of(cls, spans: Sequence[tuple[int, Sequence[float]]], dtype: type[np.generic]) -> "Spans":
        weights = np.concatenate([np.array(weights) for _, weights in spans]).astype(dtype)
        first, widths = [start for start, _ in spans], [len(weights) for _, weights in spans]
        return cls(weights, np.array(first, np.int16), np.array(widths, np.int16))

    def shifted(self, by: int) -> "Spans":
        """Move each span for an input with ``by`` additional values at the front."""
        return Spans(self.weights, (self.first + by).astype(np.int16), self.widths)

    @property
    def arrays(self) -> tuple[Array, ...]:
        return self.weights, self.first, self.widths


def nearest(length: int, count: int) -> npt.NDArray[np.int32]:
    """Return the source pixels that Pillow selects for ``count`` of ``length`` pixels, accumulating the step
    as Pillow does.
    """
    step = length / count
    at, places = step * 0.5, []
    for _ in range(count):
        places.append(int(at))
        at += step
    return np.array(places, np.int32)


def pillow_axes(before: tuple[int, int], after: tuple[int, int], version: int) -> tuple[int, int]:
    """Return the order in which Pillow resamples the axes (1 is the width); sizes are height and width.

    From version 13 on the height comes first if it is reduced by more than twice as many pixels as the width.
    """
    lost = [old - new for old, new in zip(before, after, strict=True)]
    return (0, 1) if version >= 13 and lost[0] > max(2 * lost[1], 0) else (1, 0)


def pillow_spans(length: int, count: int, kind: str) -> Spans:
    """Return spans of Pillow's ``bilinear`` or ``box`` filter, which widen when a picture is reduced.

    The weights of a sum are scaled to a total of 1 in float64, and rounded to 22 bits.
    """
    scale = length / count
    wide = max(scale, 1.0)
    reach = wide * (1.0 if kind == "bilinear" else 0.5)
    spans: list[tuple[int, Sequence[float]]] = []
    for i in range(count):
        centre = (i + 0.5) * scale
        start = max(int(centre - reach + 0.5), 0)
        end = min(int(centre + reach + 0.5), length)
        at = [(x + start - centre + 0.5) * (1.0 / wide) for x in range(end - start)]
        if kind == "bilinear":
            weights = [max(0.0, 1.0 - abs(x)) for x in at]
        else:
            weights = [float(-0.5 < x <= 0.5) for x in at]
        total = sum(weights)
        spans.append((start, [int(w / total * (1 << PILLOW_BITS) + 0.5) for w in weights]))
    return Spans.of(spans, np.int32)


def _pairs(places: Sequence[int], parts: Sequence[float], length: int) -> tuple[Shorts, Shorts]:
    # Places of two neighbours within the picture, and what each has of 2^11 by the part of the second.
    second = np.array(parts, np.float32)
    one, bits = np.float32(1), np.float32(1 << BLEND_BITS)
    weights = np.rint(np.stack([(one - second) * bits, second * bits])).astype(np.int16)
    at = np.array(places, np.int64)
    return np.clip(np.stack([at, at + 1]), 0, length - 1).astype(np.int16), weights


def _kept(place: int, part: float, length: int) -> tuple[int, float]:
    # Along rows OpenCV leaves the outermost pixels alone; along columns it blends them with themselves.
    if place < 0 or place >= length - 1:
        return min(max(place, 0), length - 1), 0.0
    return place, part


def linear_blend(length: int, count: int, *, columns: bool) -> tuple[Shorts, Shorts]:
    """Return OpenCV's linear resize: source positions ``[2, count]``, and weights in units of 2^-11."""
    scale = 1.0 / (count / length)
    found = []
    for i in range(count):
        at = np.float32((i + 0.5) * scale - 0.5)
        place = floor(at)
        pair = place, float(np.float32(at - np.float32(place)))
        found.append(_kept(*pair, length) if columns else pair)
    return _pairs([p for p, _ in found], [w for _, w in found], length)


def area_blend(length: int, count: int, *, columns: bool) -> tuple[Shorts, Shorts]:
    """Return OpenCV's area resize for a picture that is enlarged along some axis."""
    inverse = count / length
    scale = 1.0 / inverse
    found = []
    for i in range(count):
        place = floor(i * scale)
        part = np.float32((i + 1) - (place + 1) * inverse)
        pair = place, float(part - np.floor(part)) if part > 0 else 0.0
        found.append(_kept(*pair, length) if columns else pair)
    return _pairs([p for p, _ in found], [w for _, w in found], length)


def whole_scale(length: int, count: int) -> int:
    """Return the number of input pixels per output pixel if it is an integer, otherwise 0."""
    return length // count if length % count == 0 else 0


def area_means(length: int, count: int) -> Spans:
    """Return OpenCV's area resize for a smaller picture: the share of each input pixel in each output pixel,
    in float32.
    """
    scale = 1.0 / (count / length)
    spans: list[tuple[int, Sequence[float]]] = []
    for i in range(count):
        low = i * scale
        high, cell = low + scale, min(scale, length - low)
        end = min(floor(high), length - 1)
        start = min(ceil(low), end)
        weights = [1.0 / cell] * (end - start)
        first = start
        if start - low > _NOTHING:
            weights.insert(0, (start - low) / cell)
            first -= 1
        if high - end > _NOTHING:
            weights.append(min(high - end, 1.0, cell) / cell)
        spans.append((first, weights))
    return Spans.of(spans, np.float32)


def real_blend(length: int, count: int) -> tuple[Shorts, npt.NDArray[np.float32]]:
    """Return TensorFlow's bilinear resize with half-pixel centres: source positions ``[2, count]``, and the
    weight of the second.
    """
    scale = np.float32(length) / np.float32(count)
    at = (np.arange(count, dtype=np.float32) + np.float32(0.5)) * scale - np.float32(0.5)
    low = np.floor(at)
    places = np.stack([np.maximum(low, 0), np.minimum(np.ceil(at), length - 1)])
    return places.astype(np.int16), (at - low).astype(np.float32)
