"""Functions of one int8 value that a file computes in float32 become tables.

Converters leave float32 where TFLite has no kernel of int8: DEQUANTIZE, some operators, QUANTIZE. If all of
these are element-wise with single constants, the result is a function of one int8 value, however many
operators there are, and 256 runs of their references are the table of a ``lookup``. For example, RELU, two
products and a difference of litert-torch take 47 instructions for each element on a Cortex-M4, a table 5.

Operators in between that something else reads, too, stay as they are. If the last float is read by something
else, there is no table: litert-torch's mobile network would need 2,592 bytes of arena instead of 2,080, for
5 % fewer instructions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Node, Op, Signature, Value
from crtgen.network.ops import (
    INT8,
    Abs,
    Add,
    Dequantize,
    Div,
    Elu,
    Exp,
    HardSwish,
    LeakyRelu,
    Log,
    Logistic,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Quantize,
    Relu,
    Rsqrt,
    Sqrt,
    Square,
    Sub,
    Tanh,
)
from crtgen.network.ops.arithmetic import SquaredDifference
from crtgen.network.ops.function import Ceil, Cos, Erf, Floor, Gelu, GeluTanh, Round, Sin
from crtgen.network.ops.lookup import Lookup
from crtgen.network.passes.core import Change, GraphLike, Rule

__all__ = ["TabulateFloats"]

_ELEMENTWISE: tuple[type[Op], ...] = (
    *(Abs, Add, Ceil, Cos, Div, Elu, Erf, Exp, Floor, Gelu, GeluTanh, HardSwish, LeakyRelu, Log, Logistic),
    *(Maximum, Minimum, Mul, Neg, Relu, Round, Rsqrt, Sin, Sqrt, Square, SquaredDifference, Sub, Tanh),
)
_MOST = 32
"""Operators between a tensor of int8 and the next."""


@dataclass(frozen=True, slots=True)
class TabulateFloats(Rule):
    name: ClassVar[str] = "tabulate floats"

    def match(self, graph: GraphLike, node: Node) -> Change | None:
        sig = graph.signature(node)
        ends = sig.x.dtype is DType.FLOAT32 and sig.y.dtype is INT8.activations and sig.y.shape != ()
        if not isinstance(node.op, Quantize) or not ends:
            return None
        # A float that something else reads is in memory anyway: the source would have to stay beside it.
        if len(graph.consumers(node.inputs[0])) > 1 or node.inputs[0] in graph.lasting:
            return None
        island = _Island(graph, sig.y.shape)
        if not island.reach(node.inputs[0]) or len(island.nodes) == 1:
            return None
        table = island.results(node)
        names = [other.op.name for other in island.nodes.values() if not isinstance(other.op, Dequantize)]
        lookup = replace(node, op=Lookup.of(table, "_".join(names)), inputs=(island.source,))
        return Change(f"{', '.join(names)} in float32 of int8 is a table", {node.name: lookup})


class _Island:
    """The nodes that compute a value from ``source``, a tensor of int8, each after those that it reads."""

    def __init__(self, graph: GraphLike, shape: tuple[int, ...]) -> None:
        self.graph, self.shape = graph, shape
        self.nodes: dict[str, Node] = {}
        self.source = ""

    def reach(self, value: str) -> bool:
        # True if the value is a function of each element of the source.
        node = self.graph.producer(value)
        if node is None:
            return False
        if node.name in self.nodes:
            return True
        sig = self.graph.signature(node)
        if sig.y.shape != self.shape or sig.y.dtype is not DType.FLOAT32 or len(self.nodes) > _MOST:
            return False
        if isinstance(node.op, Dequantize):
            source = node.inputs[0]
            fits = sig.x.dtype is INT8.activations and not sig.x.is_constant
            if not fits or self.source not in ("", source):
                return False
            self.source = source
        elif not isinstance(node.op, _ELEMENTWISE) or not all(
            value.elements == 1 if value.is_constant else self.reach(name)
            for name, value in zip(node.inputs, sig.inputs, strict=True)
        ):
            return False
        self.nodes[node.name] = node
        return bool(self.source)

    def results(self, last: Node) -> Array:
        # What the nodes and ``last`` make of each int8 value, in order.
        known: dict[str, Array] = {self.source: INT8.every_number()}
        with np.errstate(all="ignore"):
            for node in (*self.nodes.values(), last):
                known[node.outputs[0]] = _computed(node, self.graph.signature(node), known)
        return known[last.outputs[0]]


def _computed(node: Node, sig: Signature, known: Mapping[str, Array]) -> Array:
    def of(value: Value) -> Value:
        return replace(value, shape=(INT8.high - INT8.low + 1,))

    inputs = tuple(
        replace(value, shape=(1,), data=value.array().reshape(1)) if value.is_constant else of(value)
        for value in sig.inputs
    )
    arrays = [
        value.array() if value.is_constant else known[name]
        for name, value in zip(node.inputs, inputs, strict=True)
    ]
    (result,) = node.op.reference(Signature(inputs, (of(sig.y),)), arrays)
    return result
