"""Exact integer intervals: the smallest and largest possible value of each element in a network.

Every operator is applied to the bounds of its inputs by its own reference, which is monotone in each element,
or is split into two parts that are. Each element has its own interval, so padding is exact: an output at the
border has the interval of the window that it sees.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from crtgen.base.budget import memory_limit
from crtgen.base.errors import UsageError
from crtgen.network.ir import Array, Graph, Node, Signature
from crtgen.network.ops import INT8, Weighted
from crtgen.network.ops.traits import Real

__all__ = ["Interval", "intervals", "is_affordable"]

Mask = npt.NDArray[np.bool_]

# Bytes that stay of each element: its bounds, and those of the sums behind it.
_KEPT = 18

# Weights that are in memory as floats at a time.
_WEIGHTS = 1 << 19

# Four times as many are computed, in two seconds. No network for a microcontroller has so many.
_MOST_MACS = 1 << 31


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """Smallest and largest value of each element of an int8 value: two int8 arrays of its shape.

    If a layer with weights computes the value, ``sums`` bounds its accumulators, including the bias.
    """

    low: Array
    high: Array
    sums: tuple[Real, Real] | None = None

    @property
    def constant(self) -> Mask:
        mask: Mask = self.low == self.high
        return mask


def intervals(
    graph: Graph, inputs: Mapping[str, tuple[int, int]] = MappingProxyType({})
) -> dict[str, Interval]:
    """Return the interval of every quantised int8 value by name.

    ``inputs`` narrows the range of network inputs, which by default is that of int8. Raises ``UsageError`` if
    it names something that is not an input, or an invalid range.
    """
    _check(graph, inputs)
    known: dict[str, Interval] = {}
    for name, value in graph.values.items():
        if value.dtype is INT8.activations and value.quant is not None:
            if value.is_constant:
                known[name] = Interval(value.array(), value.array())
                continue
            low, high = inputs.get(name, INT8.limits)
            known[name] = Interval(np.full(value.shape, low, np.int8), np.full(value.shape, high, np.int8))
    for node in graph.nodes:
        if all(name in known for name in node.outputs):
            found = _apply(graph, node, known)
            if found is not None:
                known[node.outputs[0]] = found
    return known


def is_affordable(graph: Graph) -> bool:
    """Return True if memory and time suffice for the intervals of all values."""
    elements = sum(value.elements for value in graph.values.values())
    pairs = [(node.op, graph.signature(node)) for node in graph.nodes]
    macs = sum(op.work(sig) for op, sig in pairs)
    working = 32 * max((op.working_elements(sig) for op, sig in pairs), default=0)
    return elements * _KEPT + working <= memory_limit() and macs <= _MOST_MACS


def _check(graph: Graph, inputs: Mapping[str, tuple[int, int]]) -> None:
    for name, (low, high) in inputs.items():
        if name not in graph.inputs or graph.values[name].dtype is not INT8.activations:
            raise UsageError(
                f"{name} is not an int8 input of the network",
                where=graph.name,
                hint="crtgen inspect lists the inputs",
            )
        if not INT8.low <= low <= high <= INT8.high:
            raise UsageError(
                f"{low}..{high} is not a range within int8",
                where=f"{graph.name}: {name}",
                hint="-128..127 is the widest",
            )


def _apply(graph: Graph, node: Node, known: Mapping[str, Interval]) -> Interval | None:
    # The interval of the node's output; None where nothing narrower than all numbers is known.
    sig = graph.signature(node)
    if isinstance(node.op, Weighted):
        if node.inputs[0] not in known or not all(v.is_constant for v in sig.inputs[1:]):
            return None
        return _layer(node.op, sig, known[node.inputs[0]])
    if any(name not in known for name in node.inputs):
        return None
    inputs = [known[name] for name in node.inputs]
    found = node.op.bounds(sig, [x.low for x in inputs], [x.high for x in inputs])
    return None if found is None else Interval(*found)


def _layer(op: Weighted, sig: Signature, x: Interval) -> Interval:
    params = op.parameters(sig)
    weights, bias = sig.inputs[1].array(), sig.inputs[2].array().astype(np.float64)
    outputs = max(_WEIGHTS * len(weights) // weights.size, 1) if op.mixes else len(weights)
    low, high = (a.astype(np.float64) + params.input_offset for a in (x.low, x.high))
    parts = [_sums(op, sig, weights[i : i + outputs], low, high) for i in range(0, len(weights), outputs)]
    least, greatest = (np.concatenate(p, axis=-1) + bias for p in zip(*parts, strict=True))
    least, greatest = least.reshape(sig.y.shape), greatest.reshape(sig.y.shape)
    return Interval(params.finish(least), params.finish(greatest), (least, greatest))


def _sums(op: Weighted, sig: Signature, weights: Array, low: Real, high: Real) -> tuple[Real, Real]:
    # Positive weights take an input's bound to the sum's, negative ones its other bound.
    part = np.maximum(weights, 0).astype(np.float64)
    least, greatest = op.sums(low, part, sig), op.sums(high, part, sig)
    part = np.minimum(weights, 0).astype(np.float64)
    return least + op.sums(high, part, sig), greatest + op.sums(low, part, sig)
