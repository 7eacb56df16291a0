"""The intermediate representation: typed values, operators, nodes, graphs."""

from crtgen.network.ir.graph import AxisMap, Graph, Index, Node, Op, Signature
from crtgen.network.ir.types import Array, DType, Quant, Rescaling, Storage, Value, shape_text

__all__ = [
    "Array",
    "AxisMap",
    "DType",
    "Graph",
    "Index",
    "Node",
    "Op",
    "Quant",
    "Rescaling",
    "Signature",
    "Storage",
    "Value",
    "shape_text",
]
