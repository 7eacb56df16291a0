"""Tables of functions of one quantised value: the operators between a DequantizeLinear and a QuantizeLinear.

The package's own definition of each operator computes the results for all 256 inputs, in float32.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from crtgen.network.frontends.onnx_edges import LOOKUP, Edge, Links, numbers_of, real_numbers
from crtgen.network.frontends.onnx_file import FileNode
from crtgen.network.frontends.onnx_fold import evaluated
from crtgen.network.ir import Array

__all__ = ["Results", "lookup", "results"]

# fmt: off
# Operators whose results each depend on one element of each operand.
_FUNCTIONS = frozenset(
    (
        "Abs", "Acos", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Clip", "Cos",
        "Cosh", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity",
        "LeakyRelu", "Log", "Max", "Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "Reciprocal", "Relu", "Round",
        "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Swish", "Tan",
        "Tanh", "ThresholdedRelu",
    )
)
# fmt: on

_DEEPEST = 24
# Ways from a result to its source; each operator that reads one tensor twice doubles them.
_MOST_VISITS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """A function of the int8 values of ``source``: ``table[256]`` of int8, indexed by code."""

    source: Edge
    table: Array
    label: str


def lookup(end: FileNode, source: Edge, result: Edge, table: Array, label: str) -> FileNode:
    inputs = (*source.names, result.scale, result.zero)
    attributes = {"table": table, "label": label}
    return replace(end, code=LOOKUP, inputs=inputs, outputs=(result.numbers,), attributes=attributes)


def results(end: FileNode, links: Links) -> Results | None:
    """Return the function that ends with a QuantizeLinear; None if there is none, or if it reads several
    tensors.
    """
    nodes: dict[str, FileNode] = {}
    sources = set(_sources(end.inputs[0], links, nodes, 0, count()))
    if len(sources) != 1 or None in sources or not nodes:
        return None
    (source,) = sources
    assert source is not None
    chain = [n for n in nodes.values()][::-1]
    quant, edge = links.quant(source), Edge.of(end)
    real = real_numbers(quant)
    known: dict[str, Array] = {name: real for name, found in _read(chain, links) if found == source}
    known |= {n: d for node in chain for n in node.inputs if n and (d := links.data(n)) is not None}
    try:
        for node in chain:
            (known[node.outputs[0]],) = evaluated(node, {n: known[n] for n in node.inputs if n})
    except ValueError:  # the package's definition does not take them: they are computed in float32
        return None
    result = known[end.inputs[0]].astype(np.float32)
    if np.isnan(result).any():
        return None
    return Results(source, numbers_of(result, links.quant(edge)), " ".join(n.code.lower() for n in chain))


def _read(chain: list[FileNode], links: Links) -> Iterator[tuple[str, Edge | None]]:
    # The real tensors that a function reads, with what they are of.
    for node in chain:
        yield from ((name, links.activation(name)) for name in node.inputs if name)


def _sources(
    name: str, links: Links, nodes: dict[str, FileNode], depth: int, visits: Iterator[int]
) -> Iterator[Edge | None]:
    # The quantised tensors that a real one follows from; None for what is no function of them. ``nodes``
    # collects the operators, last ones first.
    data, edge, node = links.data(name), links.activation(name), links.producers.get(name)
    if data is not None:
        if data.size != 1 or data.ndim > 1 or data.dtype != np.float32:
            yield None
    elif edge is not None:
        yield edge
    elif (
        node is None
        or node.code not in _FUNCTIONS
        or len(node.outputs) > 1
        or depth > _DEEPEST
        or next(visits) > _MOST_VISITS
    ):
        yield None
    else:
        nodes.pop(name, None)
        nodes[name] = node
        for operand in (n for n in node.inputs if n):
            yield from _sources(operand, links, nodes, depth + 1, visits)
