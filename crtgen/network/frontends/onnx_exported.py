"""Quantised layers as PyTorch exports them, rewritten to the form of ONNX Runtime's quantiser.

A linear layer is ``MatMul(x, Transpose(DequantizeLinear(weights)))``, then an Add of its bias.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from crtgen.network.frontends.builder import NamedTensor
from crtgen.network.frontends.onnx_edges import DEQUANTIZE, Links
from crtgen.network.frontends.onnx_file import FileNode, OnnxFileGraph, constant

__all__ = ["with_sum", "with_turned_weights"]


def with_turned_weights(graph: OnnxFileGraph) -> OnnxFileGraph:
    """Return the graph with quantised constants transposed as the following nodes require."""
    made = {name: node for node in graph.nodes for name in node.outputs}
    tensors, nodes = dict(graph.tensors), list[FileNode]()
    for node in graph.nodes:
        before = made.get(node.inputs[0]) if node.code == "Transpose" and node.inputs else None
        turned = _turned(node, before, tensors) if before is not None else None
        nodes.append(node if turned is None else turned)
    return replace(graph, tensors=tensors, nodes=tuple(nodes))


def _turned(node: FileNode, before: FileNode, tensors: dict[str, NamedTensor]) -> FileNode | None:
    # The dequantisation of a transposed constant; None for another transpose.
    data = tensors[before.inputs[0]].data if before.code == DEQUANTIZE else None
    if data is None or before.attributes.get("block_size"):
        return None
    perm = [int(p) for p in node.attributes.get("perm", range(data.ndim)[::-1])]
    if sorted(perm) != list(range(data.ndim)):
        return None
    name = f"{node.outputs[0]}.numbers"
    tensors[name] = constant(name, np.ascontiguousarray(data.transpose(perm)))
    axis = int(before.attributes.get("axis", 1)) % max(data.ndim, 1)
    attributes: Mapping[str, int] = {"axis": perm.index(axis)} if data.ndim else {}
    return replace(before, inputs=(name, *before.inputs[1:]), outputs=node.outputs, attributes=attributes)


def with_sum(links: Links, node: FileNode) -> FileNode:
    """Return a MatMul with constant weights and a constant addend as a Gemm; otherwise return the node
    unchanged.
    """
    if node.code != "Add":
        return node
    for product, other in (node.inputs, node.inputs[::-1]):
        matmul, bias = links.producers.get(product), links.data(other)
        if matmul is None or matmul.code != "MatMul" or bias is None or not links.is_alone(product, "Add"):
            continue
        edge = links.source(matmul.inputs[1])
        weights = links.data(edge.numbers) if edge is not None else None
        if weights is not None and weights.ndim == 2 and bias.shape == weights.shape[1:]:
            inputs = (*matmul.inputs, other)
            return replace(matmul, code="Gemm", inputs=inputs, outputs=node.outputs, attributes={})
    return node
