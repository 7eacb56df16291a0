"""Quantised operators for which no integer layer exists, expanded into float operators.

They become DequantizeLinear, the operator on floats, and QuantizeLinear.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from crtgen.network.frontends.builder import NamedTensor
from crtgen.network.frontends.onnx_edges import DEQUANTIZE, QUANTIZE
from crtgen.network.frontends.onnx_file import FileNode, OnnxFileGraph

__all__ = ["decomposed", "is_plain_average"]


@dataclass(frozen=True, slots=True)
class _RealForm:
    """The operator on floats, and the test of which nodes it replaces."""

    code: str
    is_one: Callable[[FileNode], bool]


def is_plain_average(node: FileNode) -> bool:
    """Return True if each window of an average is complete and not dilated, on an image or a 1-D signal."""
    padded = any(node.attributes.get("pads", ())) or node.attributes.get("ceil_mode")
    spread = set(node.attributes.get("dilations", ())) - {1}
    if len(node.attributes.get("kernel_shape", ())) > 2:
        return False
    return not padded and not spread and node.attributes.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")


_FORMS: Mapping[str, _RealForm] = {
    "com.microsoft.QLinearAveragePool": _RealForm("AveragePool", lambda node: not is_plain_average(node)),
    "com.microsoft.QLinearReduceMean": _RealForm("ReduceMean", lambda node: True),
}

_AVERAGES = ("AveragePool", "com.microsoft.QLinearAveragePool")


def _without_ceil(node: FileNode, graph: OnnxFileGraph) -> FileNode:
    # An average that rounds the number of its windows up, without that if they divide the image anyway.
    # PyTorch writes ``ceil_mode`` for each pooling that has it.
    image = graph.tensors[node.inputs[0]].shape[2:]
    if not node.attributes.get("ceil_mode") or any(node.attributes.get("pads", ())):
        return node
    taps = node.attributes.get("kernel_shape", ())
    strides = node.attributes.get("strides", (1,) * len(taps))
    if not len(image) == len(taps) == len(strides) or set(node.attributes.get("dilations", ())) - {1}:
        return node
    if any(n < k or s < 1 or (n - k) % s for n, k, s in zip(image, taps, strides, strict=True)):
        return node
    return replace(node, attributes={k: v for k, v in node.attributes.items() if k != "ceil_mode"})


def decomposed(graph: OnnxFileGraph) -> OnnxFileGraph:
    tensors, nodes = dict(graph.tensors), list[FileNode]()
    opset = max((node.opset for node in graph.nodes if "." not in node.code), default=1)
    for node in graph.nodes:
        node = _without_ceil(node, graph) if node.code in _AVERAGES else node
        form = _FORMS.get(node.code)
        if form is None or not form.is_one(node) or len(node.inputs) < 4:
            nodes.append(node)
            continue
        (output,) = node.outputs
        names = real, result = f"{output}.input", f"{output}.real"
        tensors |= {name: NamedTensor(name, name, (-1,), "", None, None, None) for name in names}
        own = replace(node, opset=opset)
        nodes += [
            replace(own, code=DEQUANTIZE, inputs=node.inputs[:3], outputs=(real,), attributes={}),
            replace(own, code=form.code, inputs=(real,), outputs=(result,)),
            replace(own, code=QUANTIZE, inputs=(result, *node.inputs[3:]), outputs=(output,), attributes={}),
        ]
    return replace(graph, tensors=tensors, nodes=tuple(nodes))
