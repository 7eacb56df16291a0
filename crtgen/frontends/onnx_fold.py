"""Nodes of an `.onnx` file that follow from constants: the onnx package's own definition computes them."""

from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from crtgen.frontends.builder import Refused, Tensor
from crtgen.frontends.onnx_convert import Layer
from crtgen.frontends.onnx_file import constant

__all__ = ["folded"]

_RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
_MAX_ELEMENTS = 1 << 26


def is_folded(layer: Layer) -> bool:
    """Whether all inputs of the node are constants."""
    inner = any(isinstance(a, onnx.GraphProto) for a in layer.node.attributes.values())
    known = all(t.data is not None for t in layer.inputs if t is not None)
    return known and not inner and "." not in layer.node.code


def folded(layer: Layer) -> dict[str, Tensor]:
    """The outputs of such a node, by name."""
    if layer.node.code in _RANDOM:
        raise Refused("random numbers", "export the model for inference")
    feeds = {key: t.data for key, t in zip(layer.node.inputs, layer.inputs, strict=True) if t is not None}
    try:
        results = _run(layer, feeds)
    except Exception as error:  # the package raises what its Python code happens to raise
        raise ValueError(f"it cannot be computed of its constants: {error}") from error
    found = {}
    for name, array in zip((n for n in layer.node.outputs if n), results, strict=True):
        if not isinstance(array, np.ndarray | np.generic) or array.size > _MAX_ELEMENTS:
            raise Refused("constants that are no tensors, or too large ones")
        found[name] = constant(name, np.asarray(array))
    return found


def _run(layer: Layer, feeds: dict[str, Any]) -> list[Any]:
    node = layer.node
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
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", node.opset)])
    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(model).run(None, feeds))
