"""Einsum as matrix products, sums, diagonals and transpositions, one operand at a time."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from crtgen.network.frontends.builder import Converted
from crtgen.network.frontends.onnx_convert.layer import (
    OnnxConverter,
    OnnxLayer,
    Operand,
    ask_for_room,
    reshaped,
    transposed,
)
from crtgen.network.ir import shape_text
from crtgen.network.ops.gather import Gather
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.reduce import Sum

__all__ = ["CONVERTERS"]

_DOTS = "..."
Labels: TypeAlias = tuple[str | int, ...]
"""A letter for each axis; for the axes of an ellipsis, a number that counts from the last of them."""


@dataclass(frozen=True, slots=True)
class _Term:
    x: Operand
    labels: Labels
    shape: tuple[int, ...]

    def moved(self, labels: Sequence[str | int]) -> "_Term":
        # With its axes in another order.
        if tuple(labels) == self.labels:
            return self
        perm = [self.labels.index(label) for label in labels]
        return _Term(transposed(self.x, perm), tuple(labels), tuple(self.shape[p] for p in perm))

    def without_repeats(self) -> "_Term":
        # The diagonal along axes of one label.
        twice = next((label for label in self.labels if self.labels.count(label) > 1), None)
        if twice is None:
            return self
        first = self.labels.index(twice)
        second = self.labels.index(twice, first + 1)
        others = [axis for axis in range(len(self.labels)) if axis not in (first, second)]
        length, outer = self.shape[first], tuple(self.shape[axis] for axis in others)
        if self.shape[second] != length:
            raise ValueError(f"the diagonal of {shape_text(self.shape)}")
        ask_for_room((length,))
        flat = reshaped(transposed(self.x, (*others, first, second)), (*outer, length * length))
        places = np.arange(length, dtype=np.int32) * (length + 1)
        made = Converted(Gather(len(outer)), (flat, places), ("places",))
        labels = (*(self.labels[axis] for axis in others), twice)
        return _Term(made, labels, (*outer, length)).without_repeats()

    def summed(self, kept: Collection[str | int]) -> "_Term":
        # Without the labels that are not kept.
        gone = tuple(axis for axis, label in enumerate(self.labels) if label not in kept)
        if not gone:
            return self
        labels = tuple(label for label in self.labels if label in kept)
        shape = tuple(length for axis, length in enumerate(self.shape) if axis not in gone)
        return _Term(Converted(Sum(gone), (self.x,)), labels, shape)


def _einsum(layer: OnnxLayer) -> Converted:
    equation = layer.text("equation", "").replace(" ", "")
    before, arrow, after = equation.partition("->")
    texts = before.split(",")
    if len(texts) != len(layer.inputs):
        raise ValueError(f"equation {equation!r} for {len(layer.inputs)} operands")
    terms = [_term(layer, place, text) for place, text in enumerate(texts)]
    ranks = (len(t.shape) - len(x.replace(_DOTS, "")) for t, x in zip(layer.operands, texts, strict=True))
    dots = range(max(ranks))[::-1]
    single = sorted(c for c in set(before) if c.isalpha() and before.count(c) == 1)
    result: Labels = _labels(after, len(dots)) if arrow else (*dots, *single)
    if len(set(result)) < len(result) or not set(before).issuperset(c for c in result if isinstance(c, str)):
        raise ValueError(f"equation {equation!r} has another result")
    made = terms[0]
    for place, term in enumerate(terms[1:], 2):
        later = {label for other in terms[place:] for label in other.labels}
        made = _product(made, term, {*result, *later})
    made = made.summed(result)
    length = dict(zip(made.labels, made.shape, strict=True))
    full = [length.get(label, 1) for label in result]  # an ellipsis may be 1 long in all operands
    own = [label for label in result if label in length]
    return reshaped(made.moved(own).x, full)


def _labels(text: str, dots: int) -> Labels:
    first, found, last = text.partition(_DOTS)
    return (*first, *(reversed(range(dots)) if found else ()), *last)


def _term(layer: OnnxLayer, place: int, text: str) -> _Term:
    # An operand without repeated letters, and without axes of an ellipsis that are 1 long and repeated.
    tensor = layer.tensor(place)
    labels = _labels(text, len(tensor.shape) - len(text.replace(_DOTS, "")))
    if len(labels) != len(tensor.shape):
        raise ValueError(f"{text!r} for {shape_text(tensor.shape)}")
    kept = [(c, d) for c, d in zip(labels, tensor.shape, strict=True) if not (isinstance(c, int) and d == 1)]
    shape = tuple(length for _, length in kept)
    x = tensor if shape == tensor.shape else reshaped(tensor, shape)
    return _Term(x, tuple(label for label, _ in kept), shape).without_repeats()


def _product(a: _Term, b: _Term, kept: Collection[str | int]) -> _Term:
    # ``[batch, rows, sums] x [batch, sums, columns]``.
    a, b = a.summed({*kept, *b.labels}), b.summed({*kept, *a.labels})
    lengths = {**dict(zip(a.labels, a.shape, strict=True)), **dict(zip(b.labels, b.shape, strict=True))}
    batch = [c for c in a.labels if c in b.labels and c in kept]
    sums = [c for c in a.labels if c in b.labels and c not in kept]
    rows, columns = [c for c in a.labels if c not in b.labels], [c for c in b.labels if c not in a.labels]
    sizes = [prod(lengths[c] for c in part) for part in (batch, rows, sums, columns)]
    left = reshaped(a.moved(batch + rows + sums).x, sizes[:3])
    right = reshaped(b.moved(batch + sums + columns).x, (sizes[0], *sizes[2:]))
    labels = (*batch, *rows, *columns)
    shape = tuple(lengths[c] for c in labels)
    made = reshaped(Converted(BatchMatMul(), (left, right), ("operand",)), shape)
    return _Term(made, labels, shape)


CONVERTERS: Mapping[str, OnnxConverter] = {"Einsum": OnnxConverter(_einsum, ("einsum",))}
