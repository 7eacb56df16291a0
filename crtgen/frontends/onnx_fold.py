"""Nodes of an `.onnx` file that follow from constants: the onnx package's own definition computes them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from crtgen.frontends.builder import Refused, Tensor
from crtgen.frontends.onnx_convert import Layer
from crtgen.frontends.onnx_file import FileNode, constant

__all__ = ["evaluated", "folded", "is_folded"]

_RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
_WITH_QUANTISED = 19
"""The first version of DequantizeLinear that the package computes; older ones mean the same."""

_MAX_ELEMENTS = 1 << 26


def is_folded(layer: Layer, inputs: Sequence[Tensor]) -> bool:
    """Whether all inputs of the node are constants, and it has no subgraphs."""
    plain = not layer.node.graphs and "." not in layer.node.code
    return plain and all(t.data is not None for t in inputs)


def folded(layer: Layer, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """The outputs of such a node, by name."""
    if layer.node.code in _RANDOM:
        raise Refused("random numbers", "export the model for inference")
    names = (name for name in layer.node.reads if name)
    feeds = {name: tensor.data for name, tensor in zip(names, inputs, strict=True)}
    results = evaluated(layer.node, feeds)
    found = {}
    made = (tensor for tensor in layer.outputs if tensor is not None)
    for name, tensor, array in zip((n for n in layer.node.outputs if n), made, results, strict=True):
        if not isinstance(array, np.ndarray | np.generic) or array.size > _MAX_ELEMENTS:
            raise Refused("constants that are no tensors, or too large ones")
        found[name] = replace(constant(name, np.asarray(array)), key=tensor.key)
    return found


def evaluated(node: FileNode, feeds: Mapping[str, Any]) -> list[Any]:
    """What a node makes of these inputs, by name; ``ValueError`` if it makes nothing."""
    try:
        return _run(node, feeds)
    except Exception as error:  # the package raises what its Python code happens to raise
        raise ValueError(f"it cannot be computed of its constants: {error}") from error


def _run(node: FileNode, feeds: Mapping[str, Any]) -> list[Any]:
    made = [name for name in node.outputs if name]
    graph = onnx.helper.make_graph(
        [node.proto],
        "constants",
        [
            onnx.helper.make_tensor_value_info(k, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for k, v in feeds.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in made],
    )
    opset = max(node.opset, _WITH_QUANTISED) if node.code == "DequantizeLinear" else node.opset
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(model).run(None, dict(feeds)))
