"""Exact integer intervals: the least and greatest value that each element of a network can have.

Every operator is applied to the bounds of its inputs by its own reference, which is monotone in each
element, or split into two parts that are. Each element has its own interval, so padding is exact: an output
at the border has the interval of the window that it sees.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen.errors import UsageError
from crtgen.files import memory_limit
from crtgen.ir import Array, DType, Graph, Node, Op, Signature
from crtgen.ops import (
    AveragePool2d,
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    Logistic,
    MaxPool2d,
    Mul,
    Sub,
    Tanh,
)
from crtgen.ops.attrs import padded_elements

__all__ = ["FULL", "Interval", "intervals", "is_affordable"]

Mask = npt.NDArray[np.bool_]
Real = npt.NDArray[np.float64]

_PER_TAP = 20_000
_KEPT = 18
"""Bytes that stay of each element: its bounds, and those of the sums behind it."""

_MOST_MACS = 1 << 33
"""Four times as many are computed, in some seconds. No network for a microcontroller has so many."""

FULL = (-128, 127)
"""What an int8 element can be at all."""


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Least and greatest value of each element of an int8 value: two int8 arrays of its shape.

    ``sums`` bounds the accumulators behind them, bias included, where a layer with weights computes it.
    """

    low: Array
    high: Array
    sums: tuple[Real, Real] | None = None

    @property
    def constant(self) -> Mask:
        """The elements that have one value whatever the input."""
        mask: Mask = self.low == self.high
        return mask


def intervals(
    graph: Graph, inputs: Mapping[str, tuple[int, int]] = MappingProxyType({})
) -> dict[str, Interval]:
    """The interval of every quantised int8 value by name.

    ``inputs`` narrows the range of inputs of the network, which is -128..127 otherwise; ``UsageError`` if it
    names none or is no range.
    """
    _check(graph, inputs)
    known: dict[str, Interval] = {}
    for name, value in graph.values.items():
        if value.dtype is DType.INT8 and value.quant is not None:
            low, high = inputs.get(name, FULL)
            known[name] = Interval(np.full(value.shape, low, np.int8), np.full(value.shape, high, np.int8))
            if value.data is not None:
                known[name] = Interval(value.data, value.data)
    for node in graph.nodes:
        if all(name in known for name in node.outputs):
            found = _apply(graph, node, known)
            if found is not None:
                known[node.outputs[0]] = found
    return known


def is_affordable(graph: Graph) -> bool:
    """Whether the intervals of all values can be computed with the memory and in the time there is."""
    elements = sum(value.elements for value in graph.values.values())
    macs = sum(_work(node, graph) for node in graph.nodes)
    working = max((_working(node, graph) for node in graph.nodes), default=0)
    return elements * _KEPT + working <= memory_limit(2) and macs <= _MOST_MACS


def _work(node: Node, graph: Graph) -> int:
    """Multiplications, or what takes as long: a pooling goes through the taps of its window one by one."""
    sig = graph.signature(node)
    if isinstance(node.op, AveragePool2d | MaxPool2d):
        return prod(node.op.window) * (sig.y.elements + _PER_TAP)
    return node.op.macs(sig)


def _working(node: Node, graph: Graph) -> int:
    """The bytes that the reference of a node allocates, about: copies in float64, windows side by side."""
    sig = graph.signature(node)
    elements = sum(value.elements for value in (*sig.inputs, *sig.outputs))
    if isinstance(node.op, Conv2d | DepthwiseConv2d | AveragePool2d | MaxPool2d):
        elements += padded_elements(sig.x.shape, node.op.padding)
    if isinstance(node.op, Conv2d):
        elements += 2 * (sig.y.elements // sig.y.shape[-1]) * (sig.inputs[1].elements // sig.y.shape[-1])
    return 32 * elements


def _check(graph: Graph, inputs: Mapping[str, tuple[int, int]]) -> None:
    for name, (low, high) in inputs.items():
        if name not in graph.inputs or graph.values[name].dtype is not DType.INT8:
            raise UsageError(f"{name} is no int8 input of the network", where=graph.name)
        if not FULL[0] <= low <= high <= FULL[1]:
            raise UsageError(f"{low}..{high} is no range of int8", where=f"{graph.name}: {name}")


def _apply(graph: Graph, node: Node, known: Mapping[str, Interval]) -> Interval | None:
    """The interval of the node's output; None where nothing narrower than all of int8 is known."""
    rule = _rising if node.op.rising else _RULES.get(type(node.op))
    if isinstance(node.op, _LAYERS):
        if node.inputs[0] not in known or not all(graph.values[n].is_constant for n in node.inputs[1:]):
            return None
        return _layer(node.op, graph.signature(node), known[node.inputs[0]])
    if rule is None or any(name not in known for name in node.inputs):
        return None
    return rule(node.op, graph.signature(node), [known[name] for name in node.inputs])


def _rising(op: Op, sig: Signature, inputs: Sequence[Interval]) -> Interval:
    """An operator that rises, or stays, with each of its inputs."""
    (low,), (high,) = op.reference(sig, [x.low for x in inputs]), op.reference(sig, [x.high for x in inputs])
    return Interval(low, high)


def _difference(op: Op, sig: Signature, inputs: Sequence[Interval]) -> Interval:
    a, b = inputs
    (low,), (high,) = op.reference(sig, [a.low, b.high]), op.reference(sig, [a.high, b.low])
    return Interval(low, high)


def _product(op: Op, sig: Signature, inputs: Sequence[Interval]) -> Interval:
    """Linear in each factor: the extremes are at the corners."""
    corners = [op.reference(sig, pair)[0] for pair in product(*((x.low, x.high) for x in inputs))]
    return Interval(np.minimum.reduce(corners), np.maximum.reduce(corners))


def _tabulated(op: Op, sig: Signature, inputs: Sequence[Interval]) -> Interval:
    """Any function of one element: the least and greatest of its results over the interval."""
    (table,) = op.reference(sig, [np.arange(FULL[0], FULL[1] + 1).astype(np.int8)])
    outside = np.tri(len(table), k=-1, dtype=np.bool_)  # [first, last] where last < first
    least = np.minimum.accumulate(np.where(outside, 127, table), axis=1).astype(np.int8)
    greatest = np.maximum.accumulate(np.where(outside, -128, table), axis=1).astype(np.int8)
    first, last = (a.astype(np.int64) - FULL[0] for a in (inputs[0].low, inputs[0].high))
    return Interval(least[first, last], greatest[first, last])


def _layer(op: "Conv2d | DepthwiseConv2d | FullyConnected", sig: Signature, x: Interval) -> Interval:
    """Positive weights take an input's bound to the sum's, negative ones its other bound."""
    params = op.parameters(sig)
    weights, bias = (v.array().astype(np.float64) for v in sig.inputs[1:])
    low, high = (a.astype(np.float64) + params.input_offset for a in (x.low, x.high))
    positive, negative = np.maximum(weights, 0.0), np.minimum(weights, 0.0)
    least = _sum(op, sig, low, positive) + _sum(op, sig, high, negative) + bias
    greatest = _sum(op, sig, high, positive) + _sum(op, sig, low, negative) + bias
    least, greatest = least.reshape(sig.y.shape), greatest.reshape(sig.y.shape)
    return Interval(params.finish(least), params.finish(greatest), (least, greatest))


def _sum(op: "Conv2d | DepthwiseConv2d | FullyConnected", sig: Signature, x: Real, w: Real) -> Real:
    if isinstance(op, FullyConnected):
        rows: Real = x.reshape(-1, w.shape[1]) @ w.T
        return rows
    return op.accumulate(x, w, sig)


_LAYERS = (Conv2d, DepthwiseConv2d, FullyConnected)
_Rule = Callable[[Any, Signature, Sequence[Interval]], Interval]
_RULES: dict[type[Op], _Rule] = {Sub: _difference, Mul: _product, Logistic: _tabulated, Tanh: _tabulated}
