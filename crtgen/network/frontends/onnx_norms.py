"""Merges batch normalisations that follow convolutions into the weights."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen.network.frontends.builder import NamedTensor
from crtgen.network.frontends.onnx_file import FileNode, OnnxFileGraph, constant
from crtgen.network.ir import DType

__all__ = ["with_norms_in_weights"]

# The axis of the output channels among those of the weights.
_AXES = {"Conv": 0, "ConvTranspose": 1}

Real = npt.NDArray[np.float64]


def with_norms_in_weights(graph: OnnxFileGraph) -> OnnxFileGraph:
    """Merge batch normalisations into convolutions whose output nothing else reads.

    ``y = factor * (w x + b) + shift`` becomes ``(factor * w) x + (factor * b + shift)``, computed in double.
    """
    readers: dict[str, list[FileNode]] = {}
    for node in graph.nodes:
        for name in node.reads:
            readers.setdefault(name, []).append(node)
    tensors, made, gone = dict(graph.tensors), [], set[int]()
    for node in graph.nodes:
        norm = _only_reader(node, readers, graph)
        folded = _folded(node, norm, tensors) if norm is not None else None
        if folded is not None and norm is not None:
            gone.add(norm.index)
            weights, bias = folded
            tensors |= {weights.name: weights, bias.name: bias}
            node = _with_constants(node, (node.inputs[0], weights.name, bias.name), norm.outputs)
        made.append(node)
    return replace(graph, tensors=tensors, nodes=tuple(n for n in made if n.index not in gone))


def _only_reader(
    node: FileNode, readers: Mapping[str, list[FileNode]], graph: OnnxFileGraph
) -> FileNode | None:
    # The batch normalisation that alone reads what a convolution gives.
    if node.code not in _AXES or node.outputs[0] in graph.outputs:
        return None
    found = readers.get(node.outputs[0], [])
    if len(found) != 1 or found[0].code != "BatchNormalization" or found[0].inputs[0] != node.outputs[0]:
        return None
    training = found[0].attributes.get("training_mode", 0) or len(found[0].outputs) > 1
    return None if training else found[0]


def _folded(
    node: FileNode, norm: FileNode, tensors: Mapping[str, NamedTensor]
) -> tuple[NamedTensor, NamedTensor] | None:
    # Weights and bias with the normalisation in them; None if they are not constants that allow it.
    numbers = list(_constants(node.inputs[1:] + norm.inputs[1:], tensors))
    if any(array is None for array in numbers):
        return None
    arrays = [array for array in numbers if array is not None]
    weights, (scale, shift, mean, variance) = arrays[0], arrays[-4:]
    bias = arrays[1] if len(arrays) == 6 else np.zeros_like(scale)
    axis = _AXES[node.code]
    alike = all(a.shape == scale.shape for a in (bias, shift, mean, variance)) and scale.ndim == 1
    if not alike or weights.ndim < 3 or weights.shape[axis] != len(scale):
        return None
    factor = scale / np.sqrt(variance + np.float32(norm.attributes.get("epsilon", 1e-5)))
    along = factor.reshape([-1 if a == axis else 1 for a in range(weights.ndim)])
    names = [f"{norm.outputs[0]}.{role}" for role in ("weights", "bias")]
    if any(name in tensors for name in names):
        return None
    made = (weights * along).astype(np.float32), (factor * (bias - mean) + shift).astype(np.float32)
    first, second = (constant(name, array) for name, array in zip(names, made, strict=True))
    return first, second


def _constants(names: tuple[str, ...], tensors: Mapping[str, NamedTensor]) -> Iterator[Real | None]:
    # Constants of float32 in double; None for what is no such constant.
    for tensor in (tensors[name] for name in names if name):
        known = tensor.data is not None and tensor.dtype is DType.FLOAT32
        yield tensor.data.astype(np.float64) if known and tensor.data is not None else None


def _with_constants(node: FileNode, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> FileNode:
    proto: Any = type(node.proto)()
    proto.CopyFrom(node.proto)
    del proto.input[:], proto.output[:]
    proto.input.extend(inputs)
    proto.output.extend(outputs)
    return replace(node, inputs=inputs, outputs=outputs, proto=proto)
