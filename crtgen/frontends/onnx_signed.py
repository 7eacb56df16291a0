"""The quantisation of the tensors of an `.onnx` file: those of uint8 become tensors of int8.

Only inputs and outputs of the model stay as they are, and what operators read that take whole numbers as they
stand; beside each of these is one of int8.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from crtgen.frontends.onnx_edges import DEQUANTIZE, EIGHT, LOOKUP, OF_BYTE, QUANTIZE, RECODED, quant_of
from crtgen.frontends.onnx_file import FileGraph, FileNode
from crtgen.ir import DType, Quant

__all__ = ["PLACES", "signed"]

_ONE = (((0, 1, 2),), (3, 4))
_TWO = (((0, 1, 2), (3, 4, 5)), (6, 7))

PLACES: Mapping[str, tuple[tuple[tuple[int, int, int], ...], tuple[int, int]]] = {
    QUANTIZE: ((), (1, 2)),
    DEQUANTIZE: (((0, 1, 2),), (-1, -1)),
    LOOKUP: _ONE,
    "QLinearConv": _TWO,
    "QLinearMatMul": _TWO,
    "com.microsoft.QGemm": (((0, 1, 2), (3, 4, 5)), (7, 8)),
    "com.microsoft.QLinearAdd": _TWO,
    "com.microsoft.QLinearAveragePool": _ONE,
    "com.microsoft.QLinearGlobalAveragePool": _ONE,
    "com.microsoft.QLinearLeakyRelu": _ONE,
    "com.microsoft.QLinearMul": _TWO,
    "com.microsoft.QLinearSigmoid": _ONE,
    "com.microsoft.QLinearSoftmax": _ONE,
    "com.microsoft.QLinearWhere": (((1, 2, 3), (4, 5, 6)), (7, 8)),
}
"""Of each operator of quantised numbers: its inputs as (numbers, scale, zero point), and its output's two."""

# fmt: off
_KEPT = (
    "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
    "MaxPool", "Pad", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose",
    "Unsqueeze",
)
# fmt: on
"""Operators whose results are quantised as their first input; those of Concat as each of them."""

_ZEROS = ("ConvInteger", "MatMulInteger")
"""Operators that read quantised numbers with zero points of their own."""


def signed(graph: FileGraph) -> FileGraph:
    """The graph with the quantisation of its computed tensors, and with those of uint8 as int8."""
    quants = _quants(graph)
    plain = {name for node in graph.nodes for name in node.reads if not _knows(node)}
    tensors, names = dict(graph.tensors), dict[str, str]()
    for name, quant in quants.items():
        tensor = tensors[name]
        if tensor.dtype is DType.UINT8 and name in (*graph.inputs, *graph.outputs, *plain):
            names[name] = inner = f"{name}.int8"
            bytes_ = replace(quant, zero_points=tuple(z + OF_BYTE for z in quant.zero_points))
            tensors[name] = replace(tensor, quant=bytes_)
            tensors[inner] = replace(tensor, key=inner, name=inner, quant=quant, dtype=DType.INT8)
        else:
            tensors[name] = replace(tensor, quant=quant, dtype=DType.INT8, type_name="INT8")
    nodes = [_recoded(graph.nodes[0], name, names[name]) for name in graph.inputs if name in names]
    for node in graph.nodes:
        known = _renamed(node, names)
        nodes.append(known if _knows(node) else replace(known, inputs=node.inputs))
        made = (name for name in node.outputs if name in names)
        nodes += [_recoded(node, names[name], name) for name in made]
    return replace(graph, tensors=tensors, nodes=tuple(nodes))


def _knows(node: FileNode) -> bool:
    """Whether an operator takes numbers of int8 for quantised ones of uint8."""
    known = node.code in (*PLACES, *_KEPT, *_ZEROS, "com.microsoft.QLinearConcat", RECODED)
    return known and not node.graphs


def _recoded(model: FileNode, source: str, result: str) -> FileNode:
    return replace(model, name="", code=RECODED, inputs=(source,), outputs=(result,), attributes={})


def _renamed(node: FileNode, names: Mapping[str, str]) -> FileNode:
    inputs, outputs = (tuple(names.get(n, n) for n in part) for part in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs)


def _quants(graph: FileGraph) -> dict[str, Quant]:
    """How computed tensors of eight bits are quantised: as what computes them says, else what reads them."""
    found: dict[str, Quant] = {}

    def note(names: list[str]) -> None:
        numbers, scale, zero = (graph.tensors[n] if n else None for n in names)
        if numbers is None or scale is None or numbers.data is not None or scale.data is None:
            return
        zeros = None if zero is None else zero.data
        eight = zeros.dtype in EIGHT if zeros is not None else numbers.dtype is DType.UINT8
        if scale.data.size == 1 and scale.data.dtype == np.float32 and eight:
            found.setdefault(numbers.name, quant_of(scale.data, zeros))

    for node in graph.nodes:
        try:
            _note_node(node, found, note)
        except ValueError as error:
            raise ValueError(f"{node.code} ({node.place}): {error}") from error
    return found


def _note_node(node: FileNode, found: dict[str, Quant], note: Callable[[list[str]], None]) -> None:
    """What a node says of its inputs and outputs."""
    moved = node.inputs if node.code == "Concat" else node.inputs[:1]
    own = next((name for name in moved if name in found), "")
    if node.code in _KEPT and own:
        for name in node.outputs[:1] if node.code == "MaxPool" else filter(None, node.outputs):
            found.setdefault(name, found[own])
    sources, result = PLACES.get(node.code, ((), (-1, -1)))
    if node.code == "com.microsoft.QLinearConcat":
        sources = tuple((i, i + 1, i + 2) for i in range(2, len(node.inputs), 3))
        result = (0, 1)
    for places in sources:
        note([node.inputs[i] if i < len(node.inputs) else "" for i in places])
    if 0 <= result[0] < len(node.inputs):
        scale, zero = (node.inputs[i] if i < len(node.inputs) else "" for i in result)
        note([node.outputs[0], scale, zero])
