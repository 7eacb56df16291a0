"""Passes that recognise spectra and filter banks in the products and sums that other tools export."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from crtgen.network.ir import DType, Node, Signature, Value
from crtgen.network.ops import Activation, BatchMatMul, FullyConnected, Mul, Reshape, Square, Sum
from crtgen.network.ops.spectral import Bands, Power, banded
from crtgen.network.passes.core import Change, GraphLike, Rule

__all__ = ["FindBands", "FindPowers"]

Real = npt.NDArray[np.float32]

# Weights of a matrix that is looked at.
_FEWEST = 256
# A matrix is one of bands if it has so many times as many numbers as are within them.
_SPARSE = 3


@dataclass(frozen=True, slots=True)
class FindBands(Rule):
    """Multiplies only by the nonzero elements of a constant float32 matrix: a filter bank is mostly zeros."""

    name: ClassVar[str] = "find bands"

    def match(self, graph: GraphLike, node: Node) -> Change | None:
        sig = graph.signature(node)
        matrix = _matrix(node, sig)
        if matrix is None or matrix.size < _FEWEST or not np.isfinite(matrix).all():
            return None
        bands = banded(matrix)
        if _SPARSE * bands.weights.size > matrix.size or not bands.weights.size:
            return None
        names = ("weights", "first", "widths")
        tables = [
            Value.constant(f"{node.outputs[0]}_{n}", a) for n, a in zip(names, bands.arrays, strict=True)
        ]
        inputs = (node.inputs[0], *(v.name for v in tables))
        text = f"{bands.weights.size:,} of {matrix.size:,} weights lie within bands"
        return Change(text, {node.name: replace(node, op=Bands(), inputs=inputs)}, values=tuple(tables))


def _matrix(node: Node, sig: Signature) -> Real | None:
    # The constant ``[inputs, outputs]`` that rows of the first input are multiplied with.
    if not isinstance(node.op, FullyConnected | BatchMatMul):
        return None
    if sig.x.dtype is not DType.FLOAT32 or not sig.inputs[1].is_constant:
        return None
    w = sig.inputs[1]
    rows = sig.y.shape[:-1] == sig.x.shape[:-1] and w.dtype is DType.FLOAT32 and len(w.shape) == 2
    if not rows:
        return None
    data = w.array().astype(np.float32)
    match node.op:
        case FullyConnected(activation=Activation.NONE):
            bias = sig.inputs[2]
            return data.T if bias.is_constant and not bias.array().any() else None
        case BatchMatMul(adj_x=False):
            return data.T if node.op.adj_y else data
    return None


@dataclass(frozen=True, slots=True)
class FindPowers(Rule):
    """Computes the powers of complex pairs in one operator instead of squares and a sum."""

    name: ClassVar[str] = "find powers"

    def match(self, graph: GraphLike, node: Node) -> Change | None:
        sig = graph.signature(node)
        if not isinstance(node.op, Sum) or node.op.keep_dims:
            return None
        if sig.x.dtype is not DType.FLOAT32 or len(sig.x.shape) < 2:
            return None
        squared = graph.producer(node.inputs[0])
        last = len(sig.x.shape) - 1
        if squared is None or sig.x.shape[-1] != 2 or node.op.axes not in ((last,), (-1,)):
            return None
        between = node.inputs[0]
        if not _is_square(squared) or between in graph.lasting or len(graph.consumers(between)) != 1:
            return None
        pairs = Value(f"{between}_pairs", (*sig.x.shape[:-2], 2 * sig.x.shape[-2]), DType.FLOAT32)
        flat = replace(squared, op=Reshape(pairs.shape), inputs=squared.inputs[:1], outputs=(pairs.name,))
        powers = replace(node, op=Power(), inputs=(pairs.name,))
        made: dict[str, Node | None] = {squared.name: flat, node.name: powers}
        return Change("squares of pairs are added up", made, values=(pairs,))


def _is_square(node: Node) -> bool:
    if isinstance(node.op, Mul):
        return node.inputs[0] == node.inputs[1] and node.op.activation is Activation.NONE
    return isinstance(node.op, Square)
