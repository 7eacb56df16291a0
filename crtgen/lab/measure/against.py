"""Loss of a network against another one, such as its float version, layer by layer, computed by the
reference.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from crtgen.base.errors import UsageError
from crtgen.lab.measure.cases import ReferenceRun
from crtgen.network.ir import Array, Graph, Node, Value
from crtgen.network.ops import Activation, Quantize, Relu, Reshape, Transpose

__all__ = ["BINS", "Loss", "losses", "sqnr", "within_range"]

BINS = 9
"""Bins of an error histogram, from the most negative to the most positive error."""

_Axes: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Loss:
    """Error of a value that both networks compute under the same name, over all cases, as real values.

    ``sqnr`` is the ratio of signal to error in decibels, ``largest`` the largest absolute error, ``range``
    the largest absolute value in the other network. ``histogram`` counts errors from -``largest`` to
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
        return {**asdict(self), "sqnr": self.sqnr if math.isfinite(self.sqnr) else None}


def losses(graph: Graph, other: Graph, cases: Sequence[ReferenceRun]) -> tuple[Loss, ...]:
    """Return the loss of every value that both networks name, in the order of ``graph``.

    Shapes must be equal, except that one network may have channels first and the other last. If ``graph`` has
    an activation folded into an operator, it is compared with the value after the activation in ``other``.
    """
    orders = [
        next(_orders(graph.values[ours].shape, other.values[theirs].shape), None)
        for ours, theirs in zip(graph.inputs, other.inputs, strict=False)
    ]
    if len(graph.inputs) != len(other.inputs) or None in orders:
        raise UsageError(
            "the inputs of the two networks differ in shape",
            where=other.name,
            hint="compare networks that take the same inputs",
        )
    known = [order for order in orders if order is not None]
    both = [(node, name) for node in graph.nodes for name in node.outputs if _is_in_both(name, graph, other)]
    if not both:
        raise UsageError(
            f"no value has the name and the shape of one in {graph.name}",
            where=other.name,
            hint="compare a network with the one that it was made from",
        )
    ours = _values(graph, graph, cases, [_same(o) for o in known])
    theirs = _values(other, graph, cases, known)
    is_moved = any(order != _same(order) for order in known)
    found = []
    for node, name in both:
        real = np.clip(theirs[name], *_folded(node, name, graph, other).float_range())
        found.append(_loss(node, name, ours[name], _fitting(ours[name], real, is_moved)))
    return tuple(found)


def _loss(node: Node, name: str, quantised: Array, real: Array) -> Loss:
    error = np.subtract(quantised, real)
    largest = float(np.abs(error).max())
    counts, _ = np.histogram(error, BINS, (-largest, largest) if largest else (-1.0, 1.0))
    measure = (sqnr(real, quantised), largest, float(np.abs(real).max()), tuple(counts.tolist()))
    return Loss(name, node.name, node.op.name, *measure)


def within_range(cases: Sequence[ReferenceRun], graph: Graph, other: Graph) -> tuple[ReferenceRun, ...]:
    """Return cases of ``graph`` with inputs from -1 to 1 scaled to the range that either network quantises.

    An input that neither quantises is unchanged, and so is an integer input.
    """
    ranges = [
        _range(graph, ours) or _range(other, theirs)
        for ours, theirs in zip(graph.inputs, other.inputs, strict=False)
    ]

    def spread(array: Array, limits: tuple[float, float] | None) -> Array:
        if limits is None or array.dtype.kind != "f":
            return array
        low, high = limits
        return (low + (array.astype(np.float64) + 1) / 2 * (high - low)).astype(array.dtype)

    return tuple(
        replace(case, inputs=tuple(map(spread, case.inputs, (*ranges, *[None] * len(case.inputs)))))
        for case in cases
    )


def _range(graph: Graph, name: str) -> tuple[float, float] | None:
    # The least and the greatest real number that is left of a value when it is quantised first of all.
    value = graph.values[name]
    if value.quant is not None and value.quant.axis is None and value.dtype.is_integer:
        limits = np.iinfo(value.dtype.value)
        low, high = ((n - value.quant.zero_point) * value.quant.scale for n in (limits.min, limits.max))
        return low, high
    after = (n.outputs[0] for n in graph.consumers(name) if isinstance(n.op, Quantize | Reshape | Transpose))
    return next((found for found in (_range(graph, output) for output in after) if found), None)


def _orders(shape: Sequence[int], other: Sequence[int]) -> Iterator[_Axes]:
    # The orders of the axes of ``shape`` that make it ``other``: its own, channels first, channels last.
    axes = tuple(range(len(shape)))
    found = [axes]
    if len(axes) > 2:
        found += [(0, axes[-1], *axes[1:-1]), (0, *axes[2:], 1)]
    return (order for order in found if [shape[axis] for axis in order] == list(other))


def _same(order: _Axes) -> _Axes:
    return tuple(range(len(order)))


def _is_in_both(name: str, graph: Graph, other: Graph) -> bool:
    return name in other.values and any(_orders(other.values[name].shape, graph.values[name].shape))


def _fitting(ours: Array, theirs: Array, is_moved: bool) -> Array:
    # The values of the other network, cases before their axes, in the layout of ours. Between networks whose
    # inputs have other layouts, equal lengths may hide that of a value: of those that fit it is the one with
    # the least error.
    fitting = [
        theirs.transpose(0, *(axis + 1 for axis in order))
        for order in _orders(theirs.shape[1:], ours.shape[1:])
    ]
    return max(fitting, key=lambda real: sqnr(real, ours)) if is_moved else fitting[0]


def _folded(node: Node, name: str, graph: Graph, other: Graph) -> Activation:
    # The activation that ``other`` has in a node of its own behind the value, and ``graph`` within ``node``.
    # It is in the operator, or the least number of the output's type stands for its bound.
    value, quant = graph.values[name], graph.values[name].quant
    inside = getattr(node.op, "activation", Activation.NONE) is not Activation.NONE
    if quant is not None and quant.axis is None and value.dtype.is_integer:
        inside |= quant.zero_point == np.iinfo(value.dtype.value).min
    return _next_activation(other, name) if inside else Activation.NONE


def _next_activation(graph: Graph, name: str) -> Activation:
    # The clamp by the only node that reads the value, after changes of layout.
    consumers = graph.consumers(name)
    if name in graph.outputs or len(consumers) != 1:
        return Activation.NONE
    (node,) = consumers
    if isinstance(node.op, Relu):
        return node.op.kind
    return (
        _next_activation(graph, node.outputs[0])
        if isinstance(node.op, Reshape | Transpose)
        else Activation.NONE
    )


def sqnr(real: Array, quantised: Array) -> float:
    """Return the signal-to-error ratio in decibels; infinite if both are equal."""
    wide = real.astype(np.float64)
    signal, noise = float(np.linalg.norm(wide)), float(np.linalg.norm(wide - quantised.astype(np.float64)))
    return 20 * math.log10(signal / noise) if signal and noise else math.inf if not noise else -math.inf


def _values(
    graph: Graph, given: Graph, cases: Sequence[ReferenceRun], orders: Sequence[_Axes]
) -> dict[str, Array]:
    # Every value as real numbers, stacked over cases whose inputs are those of the graph ``given``.
    # ``orders`` are the orders of their axes that make inputs of ``graph``.
    found: dict[str, list[Array]] = {}
    states: dict[str, Array] = {}
    for case in cases:
        inputs = {
            name: _stored(_real(array, given.values[theirs]).transpose(order), graph.values[name])
            for name, theirs, array, order in zip(
                graph.inputs, given.inputs, case.inputs, orders, strict=True
            )
        }
        values = graph.evaluate({**(states if case.follows else {}), **inputs})
        states = {before: values[after] for before, after in graph.states}
        for name, array in values.items():
            if not graph.values[name].is_constant:
                found.setdefault(name, []).append(_real(array, graph.values[name]))
    return {name: np.stack(arrays) for name, arrays in found.items()}


def _real(array: Array, value: Value) -> Array:
    # (number - zero point) x scale.
    quant = value.quant
    wide = array.astype(np.float64)
    return wide if quant is None or quant.axis is not None else (wide - quant.zero_point) * quant.scale


def _stored(real: Array, value: Value) -> Array:
    # Rounds as the value's type does.
    quant, kind = value.quant, np.dtype(value.dtype.numpy)
    if kind.kind == "f" or quant is None or quant.axis is not None:
        return real.astype(kind)
    limits = np.iinfo(value.dtype.value)
    numbers = np.rint(np.divide(real, quant.scale)) + quant.zero_point
    stored: Array = np.clip(numbers, limits.min, limits.max).astype(kind)
    return stored
