"""Weights of an `.onnx` file that would be quantised at run time: computed here, once.

Quantisation-aware training in PyTorch and NNCF leaves the weights as float32 before a QuantizeLinear, often
with a Clip to fewer bits, and a DequantizeLinear reads the result; Brevitas writes the Clip on integers. None
of that depends on an input. As 8-bit constants they become the weights of an integer layer, as in files of
other exporters.

Example: ``w -> QuantizeLinear -> Clip(-7, 7) -> DequantizeLinear -> Conv`` becomes
``w' -> DequantizeLinear -> Conv`` with ``w' = clip(rint(w / scale) + zero, -7, 7)``,
which is what ONNX Runtime computes at each run.

Weights of two or four bits become bytes, which integer layers read.
"""

from dataclasses import replace

import numpy as np

from crtgen.base import budget
from crtgen.network.frontends.builder import NamedTensor
from crtgen.network.frontends.onnx_edges import DEQUANTIZE, QUANTIZE
from crtgen.network.frontends.onnx_file import FileNode, OnnxFileGraph, constant
from crtgen.network.frontends.onnx_fold import compute

__all__ = ["with_quantised_weights"]

# Operators that exporters put around the QuantizeLinear of a constant, or before its DequantizeLinear.
_AROUND = ("Cast", "Clip", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")

# Types of few bits by their names in numpy, and those of bytes.
_WIDER = {"int2": np.int8, "int4": np.int8, "uint2": np.uint8, "uint4": np.uint8}


def with_quantised_weights(graph: OnnxFileGraph) -> OnnxFileGraph:
    """Evaluate each QuantizeLinear of constants, and the operators around it up to DequantizeLinear.

    Raises ``ValueError`` with the node that cannot be computed.
    """
    wanted = _read_by_either(graph)
    tensors, made, nodes = dict(graph.tensors), set[str](), []
    for node in graph.nodes:
        result = node.outputs[0]
        is_near = node.code in _AROUND and (result in wanted or made.intersection(node.inputs))
        is_constant = all(tensors[name].data is not None for name in node.inputs if name)
        if not is_constant or result in graph.outputs or not (node.code == QUANTIZE or is_near):
            nodes.append(node)
            continue
        feeds = {name: tensors[name].data for name in node.inputs if name}
        try:
            (array,) = compute(node, feeds)
        except ValueError as error:
            raise ValueError(f"{node.code} ({node.place}): {error}") from error
        budget.current().take(array.nbytes, f"the constant {result!r}")
        tensors[result] = replace(constant(result, array), key=tensors[result].key)
        made.add(result)
    return replace(graph, tensors=tensors, nodes=tuple(_in_bytes(node, tensors) for node in nodes))


def _in_bytes(node: FileNode, tensors: dict[str, NamedTensor]) -> FileNode:
    # A DequantizeLinear of a constant of few bits as one of int8 or uint8, with its zero point.
    data = tensors[node.inputs[0]].data if node.code == DEQUANTIZE else None
    wider = None if data is None else _WIDER.get(data.dtype.name)
    if data is None or wider is None or node.attributes.get("block_size"):
        return node
    inputs = list(node.inputs)
    for place in (0, 2)[: len(inputs) - 1]:
        found = tensors[inputs[place]].data
        if found is None:
            return node
        inputs[place] = f"{node.outputs[0]}.bytes{place}"
        tensors[inputs[place]] = constant(inputs[place], found.astype(wider))
    return replace(node, inputs=tuple(inputs))


def _read_by_either(graph: OnnxFileGraph) -> set[str]:
    # Names from which a QuantizeLinear or DequantizeLinear follows by operators that are computed with it.
    found: set[str] = set()
    node: FileNode
    for node in reversed(graph.nodes):
        if node.code in (QUANTIZE, DEQUANTIZE) or (node.code in _AROUND and node.outputs[0] in found):
            found.update(node.inputs[:1])
    return found
