"""Moves DequantizeLinear behind operators that only move values, so that a following layer reads quantised
values.

Many exporters write ``DequantizeLinear -> Reshape -> MatMul`` without another pair of QuantizeLinear and
DequantizeLinear after the Reshape. Moving elements, or taking the maximum of several, gives the same result
before and after DequantizeLinear, so this becomes ``Reshape -> DequantizeLinear -> MatMul``, whose MatMul
reads quantised values. ONNX Runtime does the same.
"""

from dataclasses import replace

from crtgen.network.frontends.onnx_edges import QUANTIZE, Links
from crtgen.network.frontends.onnx_file import FileNode, OnnxFileGraph

__all__ = ["MOVED", "is_move", "with_moved_numbers"]

MOVED = (
    "Compress",
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "GlobalMaxPool",
    "Identity",
    "MaxPool",
    "ReduceMax",
    "ReduceMin",
    "Reshape",
    "Resize",
    "ReverseSequence",
    "Slice",
    "SpaceToDepth",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
)
"""Operators that take their first input's elements to other places, or extremes of them; see ``is_move``."""

_LAYERS = ("Conv", "ConvTranspose", "Gemm", "GRU", "LSTM", "MatMul")


def is_move(node: FileNode) -> bool:
    """Return True if results are elements of the first input. A Resize has to take the nearest one, and none
    from outside of the image.
    """
    if node.code != "Resize":
        return node.code in MOVED
    outside = node.attributes.get("coordinate_transformation_mode", "") == "tf_crop_and_resize"
    return node.attributes.get("mode", "nearest") == "nearest" and not outside


def with_moved_numbers(graph: OnnxFileGraph) -> OnnxFileGraph:
    """Exchange each DequantizeLinear with the moves after it that lead to a layer."""
    links = Links.of(graph)
    wanted, producers = _read_by_layers(graph, links), dict(links.producers)
    links = replace(links, producers=producers)
    nodes: list[FileNode] = []
    for node in graph.nodes:
        found = _exchanged(links, node) if is_move(node) and node.outputs[0] in wanted else None
        for one in found or ():
            producers[one.outputs[0]] = one
        nodes += found or [node]
    return replace(graph, tensors=links.tensors, nodes=tuple(nodes))


def _read_by_layers(graph: OnnxFileGraph, links: Links) -> set[str]:
    # Names from which a layer follows by moves alone, without a QuantizeLinear on the way.
    found: set[str] = set()
    node: FileNode
    for node in reversed(graph.nodes):
        if node.code in _LAYERS:
            found.update(node.inputs[:2])
        elif is_move(node) and node.outputs[0] in found and not links.is_alone(node.outputs[0], QUANTIZE):
            found.add(node.inputs[0])
    return found


def _exchanged(links: Links, node: FileNode) -> list[FileNode] | None:
    # A move of numbers, and their DequantizeLinear; None if what is moved is not quantised.
    source, result = links.activation(node.inputs[0]), node.outputs[0]
    given = all(links.data(name) is not None for name in node.inputs[1:] if name)
    if source is None or not given or any(node.outputs[1:]) or result in links.outputs:
        return None
    numbers, model = links.new_name(f"{result}.numbers"), links.tensors[source.numbers]
    links.add_like(numbers, result)
    links.tensors[numbers] = replace(
        links.tensors[numbers], dtype=model.dtype, type_name=model.type_name, quant=model.quant
    )
    read = links.producers[node.inputs[0]]
    moved = replace(node, inputs=(source.numbers, *node.inputs[1:]), outputs=(numbers,))
    return [moved, replace(read, inputs=(numbers, *read.inputs[1:]), outputs=(result,))]
