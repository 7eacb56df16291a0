"""Conversion of uint8 tensors of an `.onnx` file to int8.

Inputs and outputs of the model stay uint8, and so do tensors that operators read as plain integers; each of
these gets an additional int8 copy.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from crtgen.network.frontends.builder import NamedTensor
from crtgen.network.frontends.onnx_edges import (
    DEQUANTIZE,
    EIGHT,
    LOOKUP,
    OF_BYTE,
    QUANTIZE,
    RECODED,
    TRANSPOSED,
    as_int8,
    quant_of,
)
from crtgen.network.frontends.onnx_file import FileNode, OnnxFileGraph, constant
from crtgen.network.frontends.onnx_moved import MOVED, is_move
from crtgen.network.frontends.onnx_recurrent import RECURRENT
from crtgen.network.ir import DType, Quant

__all__ = ["PLACES", "signed"]

_ONE = (((0, 1, 2),), (3, 4))
_TWO = (((0, 1, 2), (3, 4, 5)), (6, 7))

PLACES: Mapping[str, tuple[tuple[tuple[int, int, int], ...], tuple[int, int]]] = {
    QUANTIZE: ((), (1, 2)),
    DEQUANTIZE: (((0, 1, 2),), (-1, -1)),
    LOOKUP: _ONE,
    RECURRENT: (((0, 1, 2),), (9, 10)),
    TRANSPOSED: _TWO,
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
"""Operators of quantised values: the indices of (numbers, scale, zero point) of inputs, and the output's
two.
"""

# fmt: off
# Operators whose results are quantised as some inputs, by the places of these; all others of a node are not.
_KEPT: Mapping[str, slice] = {
    **dict.fromkeys((*MOVED, "Pad", "Split"), slice(0, 1)),
    **dict.fromkeys(("Clip", "Concat", "Max", "Min"), slice(None)),
    **dict.fromkeys(("ScatterElements", "ScatterND"), slice(0, None, 2)),
    "Where": slice(1, None),
}
# fmt: on

_SCALES = (np.dtype(np.float32), np.dtype(np.float16))

# Operators whose first input may be a constant; its zero point says of which type its numbers were.
_EITHER = ("QLinearMatMul", "com.microsoft.QLinearAdd", "com.microsoft.QLinearMul")

# Operators that read quantised numbers with zero points of their own.
_ZEROS = ("ConvInteger", "MatMulInteger")


@dataclass(frozen=True, slots=True)
class _SignedQuant:
    # The quantisation of a tensor as int8, and its type in the file.

    quant: Quant
    kind: DType


def signed(graph: OnnxFileGraph) -> OnnxFileGraph:
    """Return the graph with the quantisation of its computed tensors; uint8 tensors become int8."""
    quants = _quants(graph)
    others = [node for node in graph.nodes if not _knows(node)]
    plain = {name for node in others for name in (*node.reads, *node.outputs)}
    ends = {*graph.inputs, *graph.outputs}
    tensors, names = dict(graph.tensors), dict[str, str]()
    for name, bytes_ in quants.items():
        tensor, quant = tensors[name], bytes_.quant
        if (tensor.dtype or bytes_.kind) is DType.UINT8 and name in ends | plain:
            names[name] = inner = f"{name}.int8"
            tensors[name] = replace(tensor, dtype=DType.UINT8, type_name="UINT8")
            if name in ends:
                own = replace(quant, zero_points=tuple(z + OF_BYTE for z in quant.zero_points))
                tensors[name] = replace(tensors[name], quant=own)
            tensors[inner] = replace(tensor, key=inner, name=inner, quant=quant, dtype=DType.INT8)
        else:
            tensors[name] = replace(tensor, quant=quant, dtype=DType.INT8, type_name="INT8")
    nodes = [_recoded(graph.nodes[0], name, names[name]) for name in graph.inputs if name in names]
    for node in graph.nodes:
        made = [(name, names[name]) for name in node.outputs if name in names]
        if _knows(node):
            nodes.append(_renamed(_with_constants(node, graph, quants, tensors), names))
            nodes += [_recoded(node, inner, name) for name, inner in made]
        else:
            nodes += [node, *(_recoded(node, name, inner) for name, inner in made)]
    return replace(graph, tensors=tensors, nodes=tuple(nodes))


def _knows(node: FileNode) -> bool:
    # True if an operator accepts int8 instead of uint8.
    known = node.code in (*PLACES, *_KEPT, *_ZEROS, "com.microsoft.QLinearConcat", RECODED)
    return known and not node.graphs and (node.code not in MOVED or is_move(node))


def _with_constants(
    node: FileNode, graph: OnnxFileGraph, quants: Mapping[str, _SignedQuant], tensors: dict[str, NamedTensor]
) -> FileNode:
    # The node with constants of int8 beside its quantised tensors, and with those that stand for zero.
    given, first = list(node.inputs), next((name for name in node.inputs if name in quants), "")
    moved = _moved_by(node) if node.outputs[0] in quants else ()
    places = [n for n, name in enumerate(given) if name in moved and graph.tensors[name].data is not None]
    kind = graph.tensors[first or node.outputs[0]].dtype or (quants[first].kind if first else None)
    if node.code in _EITHER and graph.tensors[given[0]].data is not None:
        places = [0]
    if kind is None and not places:
        return node
    is_pad = node.code == "Pad" and node.attributes.get("mode", "constant") == "constant"
    no_zero = node.code in _ZEROS and first == given[0] and (len(given) < 3 or not given[2])
    if first and (is_pad or no_zero):
        places = [2]
    for place in places:
        given += [""] * (place + 1 - len(given))
        zero = np.zeros((), kind.numpy) if kind else None
        data = graph.tensors[given[place]].data if given[place] else zero
        if data is not None:
            name = f"{node.outputs[0]}.{place}"
            given[place] = name
            tensors[name] = constant(name, data if node.code in _ZEROS else as_int8(data))
    return replace(node, inputs=tuple(given))


def _recoded(model: FileNode, source: str, result: str) -> FileNode:
    return replace(model, name="", code=RECODED, inputs=(source,), outputs=(result,), attributes={})


def _renamed(node: FileNode, names: Mapping[str, str]) -> FileNode:
    inputs, outputs = (tuple(names.get(n, n) for n in part) for part in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs)


def _quants(graph: OnnxFileGraph) -> dict[str, _SignedQuant]:
    # Quantisation of computed 8-bit tensors, from their producer or else from their readers.
    found: dict[str, _SignedQuant] = {}

    def note(names: list[str]) -> None:
        numbers, scale, zero = (graph.tensors[n] if n else None for n in names)
        if numbers is None or scale is None or numbers.data is not None or scale.data is None:
            return
        zeros = None if zero is None else zero.data
        eight = zeros.dtype in EIGHT if zeros is not None else numbers.dtype is DType.UINT8
        if scale.data.size == 1 and scale.data.dtype in _SCALES and eight:
            is_signed = zeros is not None and zeros.dtype == np.int8
            kind = DType.INT8 if is_signed else DType.UINT8
            found.setdefault(numbers.name, _SignedQuant(quant_of(scale.data, zeros), kind))

    for node in graph.nodes:
        try:
            _note_node(node, found, note)
        except ValueError as error:
            raise ValueError(f"{node.code} ({node.place}): {error}") from error
    for node in reversed(graph.nodes):
        for name in _moved_by(node) if node.outputs[0] in found else ():
            if graph.tensors[name].data is None:
                found.setdefault(name, found[node.outputs[0]])
    return found


def _moved_by(node: FileNode) -> tuple[str, ...]:
    # The inputs that a result is quantised as.
    if node.code not in _KEPT or not _knows(node):
        return ()
    return tuple(name for name in node.inputs[_KEPT[node.code]] if name)


def _note_node(node: FileNode, found: dict[str, _SignedQuant], note: Callable[[list[str]], None]) -> None:
    # Quantisation that a node states for its inputs and outputs.
    own = next((name for name in _moved_by(node) if name in found), "")
    if own:
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
