"""Layers of int16 activations and int8 weights, as TFLite's 16x8 computes them.

ONNX Runtime has no integer kernels for these on a PC: it computes ``QuantizeLinear(Conv(DequantizeLinear(x),
DequantizeLinear(w)))`` in float32. Its float32 sums are rounded at each addition, so they are not exact to 16
bits. Integer sums are exact; the factor ``xs * ws / ys`` has 15 bits, like TFLite's, so a result is at most
one step from the exact one. On cores without an FPU, float32 costs ten times as much.

Numbers that move between two such layers stay int16. Zero points must be 0: the kernels have none.
Activations with others, and all other operators, stay float32.
"""

from dataclasses import replace

import numpy as np

from crtgen.network.frontends.onnx_bias import bias_of
from crtgen.network.frontends.onnx_edges import Edge, Links
from crtgen.network.frontends.onnx_exported import with_sum
from crtgen.network.frontends.onnx_file import FileNode
from crtgen.network.frontends.onnx_moved import is_move
from crtgen.network.frontends.onnx_real_sums import PLAIN_GEMM
from crtgen.network.ir import Array, DType, Quant

__all__ = ["CONV", "DENSE", "TURNED", "short_layer"]

CONV, DENSE, TURNED = "crtgen.ShortConv", "crtgen.ShortDense", "crtgen.ShortConvTranspose"
"""A layer of int16: its inputs are numbers, weights with their outputs in the file's place, and a bias.

Attributes ``x_scale``, ``weight_scales`` and ``y_scale`` are arrays; ``activation`` is a name.
"""

_CODES = {"Conv": CONV, "ConvTranspose": TURNED, "Gemm": DENSE, "MatMul": DENSE}
_IMAGES = ("Conv", "ConvTranspose")
_SIX = 6.0


def short_layer(links: Links, end: FileNode) -> list[FileNode] | None:
    """Return the int16 layer that a QuantizeLinear ends; None if it ends none."""
    node, edge, activation = links.producers.get(end.inputs[0]), Edge.of(end), ""
    scale = _scale(links, edge)
    if node is None or scale is None or not _is_only(links, end.inputs[0]):
        return None
    if is_move(node):
        return _moved(links, end, node, scale)
    if node.code in ("Relu", "Clip"):
        activation = _activation(links, node)
        before = links.producers.get(node.inputs[0])
        if not activation or before is None or not _is_only(links, node.inputs[0]):
            return None
        node = before
    node = with_sum(links, node)
    if node.code not in _CODES or any(node.attributes.get(n, v) != v for n, v in PLAIN_GEMM.items()):
        return None
    x, weights = links.source(node.inputs[0]), links.source(node.inputs[1])
    x_scale = _scale(links, x) if x is not None and links.data(x.numbers) is None else None
    scales = _weight_scales(links, node, weights) if weights is not None else None
    if x is None or weights is None or x_scale is None or scales is None:
        return None
    bias = bias_of(links, node, x, weights)
    if bias is None:
        return None
    _state_type(links, edge, scale)
    own = {"x_scale": x_scale, "weight_scales": scales, "y_scale": scale, "activation": activation}
    attributes = {**node.attributes, **own}
    inputs = (x.numbers, weights.numbers, *([bias] if bias else []))
    code = _CODES[node.code]
    return [replace(node, code=code, inputs=inputs, outputs=end.outputs, attributes=attributes)]


def _moved(links: Links, end: FileNode, node: FileNode, scale: Array) -> list[FileNode] | None:
    # Numbers in other places, if a layer made them and their scale stays.
    source = links.source(node.inputs[0])
    before = links.tensors[source.numbers].quant if source is not None else None
    given = all(links.data(name) is not None for name in node.inputs[1:] if name)
    if source is None or before is None or before.scale != float(scale) or not given or any(node.outputs[1:]):
        return None
    _state_type(links, Edge.of(end), scale)
    return [replace(node, inputs=(source.numbers, *node.inputs[1:]), outputs=end.outputs)]


def _state_type(links: Links, edge: Edge, scale: Array) -> None:
    kind = {"dtype": DType.INT16, "type_name": DType.INT16.name, "quant": Quant.tensor(float(scale))}
    links.tensors[edge.numbers] = replace(links.tensors[edge.numbers], **kind)  # type: ignore[arg-type]


def _is_only(links: Links, name: str) -> bool:
    return name not in links.outputs and len(links.readers.get(name, [])) == 1


def _activation(links: Links, node: FileNode) -> str:
    # The name of a clamp that the kernels have; empty for another one.
    if node.code == "Relu":
        return "RELU"
    low, high = (node.attributes.get(name) for name in ("min", "max"))
    given = [links.data(name) for name in node.inputs[1:]]
    if given:  # from opset 11 on
        low, high = [
            *(data.item() if data is not None and data.size == 1 else None for data in given),
            None,
        ][:2]
    return "RELU6" if (low, high) == (0, _SIX) else ""


def _scale(links: Links, edge: Edge) -> Array | None:
    # The scale of a tensor of int16 whose zero point is 0.
    scale, zero = links.data(edge.scale), links.data(edge.zero)
    if scale is None or zero is None or zero.dtype != np.int16 or zero.any():
        return None
    return scale.reshape(()) if scale.size == 1 and _are_scales(scale) else None


def _are_scales(scale: Array) -> bool:
    real = scale.astype(np.float64)
    return scale.dtype == np.float32 and bool(((real > 0) & np.isfinite(real)).all())


def _weight_scales(links: Links, node: FileNode, edge: Edge) -> Array | None:
    # Scales of constant int8 weights without zero points: one, or one per output.
    data, scale = links.data(edge.numbers), links.data(edge.scale)
    zero = links.data(edge.zero) if edge.zero else np.zeros((), np.int8)
    if data is None or scale is None or zero is None or zero.any() or data.dtype != np.int8:
        return None
    if node.code not in _IMAGES and data.ndim != 2:
        return None
    if node.code == "ConvTranspose" and data.ndim > 4:
        return None
    first = node.code == "Conv" or bool(node.attributes.get("transB", 0))
    axis = 0 if first else 1
    given = int(links.producers[node.inputs[1]].attributes.get("axis", 1)) % data.ndim
    along = scale.size == 1 or (scale.size == data.shape[axis] and given == axis)
    return scale.reshape(-1) if along and _are_scales(scale) else None
