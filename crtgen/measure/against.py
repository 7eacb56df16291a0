"""What a network loses against another one, of floats for example, layer by layer, by the reference."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from crtgen.errors import UsageError
from crtgen.ir import Array, Graph, Value
from crtgen.measure.cases import Case

__all__ = ["BINS", "Loss", "losses", "sqnr"]

BINS = 9
"""Of a histogram of errors, from the largest below zero to the largest above."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What becomes of a value that both networks name, over all cases, in real numbers.

    ``sqnr`` is the ratio of the signal to the error in decibels, ``largest`` the greatest error, ``range``
    the greatest absolute value of the other network. ``histogram`` counts errors from -``largest`` to
    ``largest`` in ``BINS`` equal parts.
    """

    value: str
    layer: str
    operator: str
    sqnr: float
    largest: float
    range: float
    histogram: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity."""
        return {**asdict(self), "sqnr": self.sqnr if math.isfinite(self.sqnr) else None}


def losses(graph: Graph, other: Graph, cases: Sequence[Case]) -> tuple[Loss, ...]:
    """The loss of every value of that name and shape in both networks, in the order of ``graph``."""
    if [graph.values[n].shape for n in graph.inputs] != [other.values[n].shape for n in other.inputs]:
        raise UsageError("the inputs of both networks have other shapes", where=other.name)
    both = [
        (node, name)
        for node in graph.nodes
        for name in node.outputs
        if name in other.values and other.values[name].shape == graph.values[name].shape
    ]
    if not both:
        raise UsageError(
            f"no value of it has the name and the shape of one in {graph.name}",
            where=other.name,
            hint="compare a network with the one that it was made from",
        )
    ours, theirs = _values(graph, graph, cases), _values(other, graph, cases)
    found = []
    for node, name in both:
        near, real = ours[name], theirs[name]
        error = np.subtract(near, real)
        largest = float(np.abs(error).max())
        counts, _ = np.histogram(error, BINS, (-largest, largest) if largest else (-1.0, 1.0))
        measure = (sqnr(real, near), largest, float(np.abs(real).max()), tuple(counts.tolist()))
        found.append(Loss(name, node.name, node.op.name, *measure))
    return tuple(found)


def sqnr(real: Array, near: Array) -> float:
    """The ratio of the signal to the error in decibels; infinite where both are equal."""
    wide = real.astype(np.float64)
    signal, noise = float(np.linalg.norm(wide)), float(np.linalg.norm(wide - near.astype(np.float64)))
    return 20 * math.log10(signal / noise) if signal and noise else math.inf if not noise else -math.inf


def _values(graph: Graph, given: Graph, cases: Sequence[Case]) -> dict[str, Array]:
    """Every value as real numbers, stacked over cases whose inputs are those of the graph ``given``."""
    found: dict[str, list[Array]] = {}
    states: dict[str, Array] = {}
    for case in cases:
        inputs = {
            name: _stored(_real(array, given.values[theirs]), graph.values[name])
            for name, theirs, array in zip(graph.inputs, given.inputs, case.inputs, strict=True)
        }
        values = graph.evaluate({**(states if case.follows else {}), **inputs})
        states = {before: values[after] for before, after in graph.states}
        for name, array in values.items():
            if not graph.values[name].is_constant:
                found.setdefault(name, []).append(_real(array, graph.values[name]))
    return {name: np.stack(arrays) for name, arrays in found.items()}


def _real(array: Array, value: Value) -> Array:
    """(number - zero point) x scale."""
    quant = value.quant
    wide = array.astype(np.float64)
    return wide if quant is None or quant.axis is not None else (wide - quant.zero_point) * quant.scale


def _stored(real: Array, value: Value) -> Array:
    """As the value stores it."""
    quant, kind = value.quant, np.dtype(value.dtype.numpy)
    if kind.kind == "f" or quant is None or quant.axis is not None:
        return real.astype(kind)
    limits = np.iinfo(value.dtype.value)
    numbers = np.rint(np.divide(real, quant.scale)) + quant.zero_point
    stored: Array = np.clip(numbers, limits.min, limits.max).astype(kind)
    return stored
