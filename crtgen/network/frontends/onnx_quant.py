"""Quantised `.onnx` networks as layers of integers.

Both forms, QDQ and QOperator, are converted to QOperator: the operators between DequantizeLinear and
QuantizeLinear become a layer that reads and writes integers, each tensor with a scale and a zero point. A
QuantizeLinear that does not end such a layer is kept, and everything before it is computed in float32, except
for sums of quantised values.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from crtgen.network.frontends.onnx_bias import bias_of
from crtgen.network.frontends.onnx_decomposed import decomposed, is_plain_average
from crtgen.network.frontends.onnx_edges import (
    EIGHT,
    OF_BYTE,
    QUANTIZE,
    TRANSPOSED,
    Edge,
    Links,
    numbers_of,
    real_numbers,
    with_constants,
)
from crtgen.network.frontends.onnx_exported import with_sum, with_turned_weights
from crtgen.network.frontends.onnx_file import FileNode, OnnxFileGraph, constant
from crtgen.network.frontends.onnx_lookup import lookup, results
from crtgen.network.frontends.onnx_moved import MOVED, is_move, with_moved_numbers
from crtgen.network.frontends.onnx_pairs import is_one
from crtgen.network.frontends.onnx_real_sums import PLAIN_GEMM, real_sums
from crtgen.network.frontends.onnx_recurrent import with_recurrent_integers
from crtgen.network.frontends.onnx_short import short_layer
from crtgen.network.frontends.onnx_signed import signed
from crtgen.network.frontends.onnx_weights import with_quantised_weights

__all__ = ["with_integer_layers"]

_SUMS = {
    "Conv": "QLinearConv",
    "ConvTranspose": TRANSPOSED,
    "Gemm": "com.microsoft.QGemm",
    "MatMul": "QLinearMatMul",
}
_IMAGES = ("Conv", "ConvTranspose")
_PAIRS = {"Add": "com.microsoft.QLinearAdd", "Mul": "com.microsoft.QLinearMul"}
_ONES = {
    "AveragePool": "com.microsoft.QLinearAveragePool",
    "GlobalAveragePool": "com.microsoft.QLinearGlobalAveragePool",
    "Softmax": "com.microsoft.QLinearSoftmax",
}
# Operators of real numbers, and those of quantised ones that are computed instead.
_LAYERS: Mapping[str, str] = {**_SUMS, **_PAIRS, **_ONES}

Nodes = list[FileNode]


def with_integer_layers(graph: OnnxFileGraph) -> OnnxFileGraph:
    """Make an integer layer of each QuantizeLinear that ends one, and convert uint8 to int8.

    Raises ``ValueError`` with the node whose scales or zero points are not a valid quantisation.
    """
    graph = with_turned_weights(decomposed(with_quantised_weights(with_constants(graph))))
    graph = with_recurrent_integers(with_moved_numbers(graph))
    links = Links.of(graph)
    nodes: Nodes = []
    for node in graph.nodes:
        try:
            if node.code == QUANTIZE:
                way = _layer if links.is_whole(Edge.of(node)) else short_layer
                found = way(links, node)
            else:
                found = real_sums(links, node)
        except ValueError as error:
            raise ValueError(f"{node.code} ({node.place}): {error}") from error
        nodes += [node] if found is None else found
    return signed(replace(graph, tensors=links.tensors, nodes=tuple(nodes)))


def _layer(links: Links, end: FileNode) -> Nodes | None:
    # The integer layer that a QuantizeLinear ends; None if there is none.
    node = links.producers.get(end.inputs[0])
    if node is None or not links.is_alone(end.inputs[0], QUANTIZE):
        return None
    if len(node.outputs) > 1:
        return _part(links, end, node) if node.code == "Split" else None
    for way in (_clamped, _function, *(w for codes, w in _WAYS if node.code in codes)):
        found = way(links, end, node)
        if found is not None:
            return found
    return None


def _function(links: Links, end: FileNode, node: FileNode) -> Nodes | None:
    # A function of one quantised number, by one operator or by several.
    found = results(end, links)
    if found is None:
        return None
    return [replace(lookup(end, found.source, Edge.of(end), found.table, found.label), name=node.name)]


def _clamped(links: Links, end: FileNode, node: FileNode) -> Nodes | None:
    # A layer with a clamp behind it; integers are clamped as what they stand for is.
    before = links.producers.get(node.inputs[0])
    if node.code not in ("Relu", "Clip") or before is None or before.code not in _SUMS | _PAIRS:
        return None
    if not links.is_alone(node.inputs[0], node.code) or len(links.readers[node.inputs[0]]) > 1:
        return None
    edge = Edge.of(end)
    if node.code == "Relu":
        layer = _computed(links, end, before)
        return layer and [replace(layer[0], attributes={**layer[0].attributes, "activation": "Relu"})]
    free = replace(end, outputs=(f"{edge.numbers}.free",))
    layer, limits = _computed(links, free, before), _limits(links, node, edge)
    if layer is None or limits is None or free.outputs[0] in links.tensors:
        return None
    if limits == (-OF_BYTE, OF_BYTE - 1):
        return [replace(layer[0], outputs=end.outputs)]
    links.add_like(free.outputs[0], edge.numbers)
    table = np.clip(np.arange(-OF_BYTE, OF_BYTE), *limits)
    return [*layer, lookup(end, Edge.of(free), edge, table, "clip")]


def _limits(links: Links, clip: FileNode, edge: Edge) -> tuple[int, int] | None:
    # The limits of a clip as numbers of int8; None where they are computed.
    quant, ends = links.quant(edge), [-OF_BYTE, OF_BYTE - 1]
    for place, (name, default) in enumerate(zip(("min", "max"), list(ends), strict=True)):
        given = clip.attributes.get(name)
        if place + 1 < len(clip.inputs) and clip.inputs[place + 1]:
            data = links.data(clip.inputs[place + 1])
            if data is None:
                return None
            given = data.item()
        if given is not None:
            ends[place] = int(numbers_of(given, quant)) if np.isfinite(given) else default
    return ends[0], ends[1]


def _moved(links: Links, end: FileNode, node: FileNode) -> Nodes | None:
    # Integers in other places, quantised otherwise before if they have to be.
    source = links.activation(node.inputs[0])
    if source is None or any(links.data(name) is None for name in node.inputs[1:] if name):
        return None
    if node.code in MOVED and not is_move(node):
        return None
    before, name = _alike(links, end, source, 0)
    return [*before, replace(node, inputs=(name, *node.inputs[1:]), outputs=end.outputs)]


def _part(links: Links, end: FileNode, node: FileNode) -> Nodes | None:
    # Some of the integers: one output of a Split.
    found = _moved(links, end, node)
    if found is None:
        return None
    outputs = tuple(end.outputs[0] if name == end.inputs[0] else "" for name in node.outputs)
    return [*found[:-1], replace(found[-1], outputs=outputs)]


def _scattered(links: Links, end: FileNode, node: FileNode) -> Nodes | None:
    # Integers in other places among integers, each quantised as the result.
    if node.attributes.get("reduction", "none") not in ("none", "max", "min"):
        return None
    parts = [_joined_part(links, end, node.inputs[place], place) for place in (0, 2)]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    (data, updates), made = (name for _, name in known), [one for before, _ in known for one in before]
    inputs = (data, node.inputs[1], updates)
    return [*made, replace(node, inputs=inputs, outputs=end.outputs)]


def _joined(links: Links, end: FileNode, node: FileNode) -> Nodes | None:
    # A concatenation of integers, or the greatest or least of them, each quantised as the result: that keeps
    # their order.
    parts = [found for i, name in enumerate(node.inputs) if (found := _joined_part(links, end, name, i))]
    if len(parts) < len(node.inputs):
        return None
    made = [one for before, _ in parts for one in before]
    return [*made, replace(node, inputs=tuple(name for _, name in parts), outputs=end.outputs)]


def _joined_part(links: Links, end: FileNode, real: str, number: int) -> tuple[Nodes, str] | None:
    # One operand, which may be a constant; None if it is not quantised.
    source = links.activation(real)
    if source is not None:
        return _alike(links, end, source, number)
    data = links.real_data(real)
    if data is None or np.isnan(data).any():
        return None
    edge = Edge.of(end)
    name = f"{edge.numbers}.part{number}"
    links.tensors[name] = constant(name, numbers_of(data, links.quant(edge)).astype(np.int8))
    return [], name


def _chosen(links: Links, end: FileNode, node: FileNode) -> Nodes | None:
    # One of two integers, each quantised as the result.
    parts = [_joined_part(links, end, name, i) for i, name in enumerate(node.inputs[1:])]
    if None in parts:
        return None
    known, edge = [part for part in parts if part is not None], Edge.of(end)
    made = [one for before, _ in known for one in before]
    quant = edge.scale, edge.zero
    (first, second) = (name for _, name in known)
    inputs = (node.inputs[0], first, *quant, second, *quant, *quant)
    return [*made, replace(node, code="com.microsoft.QLinearWhere", inputs=inputs, outputs=end.outputs)]


def _padded(links: Links, end: FileNode, node: FileNode) -> Nodes | None:
    # Padding with the integer that stands for the real number.
    source, edge = links.activation(node.inputs[0]), Edge.of(end)
    given = (
        links.data(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else np.zeros((), np.float32)
    )
    if (
        source is None
        or given is None
        or np.isnan(given).any()
        or "pads" in node.attributes
        or links.data(node.inputs[1]) is None
    ):
        return None
    quant, (before, name) = links.quant(edge), _alike(links, end, source, 0)
    padding = f"{edge.numbers}.padding"
    links.tensors[padding] = constant(padding, numbers_of(given.item(), quant).astype(np.int8))
    inputs = (name, node.inputs[1], padding, *node.inputs[3:])
    return [*before, replace(node, inputs=inputs, outputs=end.outputs)]


def _alike(links: Links, end: FileNode, source: Edge, number: int) -> tuple[Nodes, str]:
    # Quantises an operand like the result, and returns the new name.
    edge = Edge.of(end)
    if links.alike(source, edge):
        return [], source.numbers
    table = numbers_of(real_numbers(links.quant(source)), links.quant(edge))
    name = f"{edge.numbers}.part{number}"
    links.add_like(name, source.numbers)
    made = lookup(end, source, replace(edge, numbers=name), table, "requantise")
    return [made], name


def _computed(links: Links, end: FileNode, node: FileNode) -> Nodes | None:
    # A layer of sums or products.
    node = with_sum(links, node)
    edge, first = Edge.of(end), links.activation(node.inputs[0])
    if first is None or node.code not in _LAYERS or not _is_layer(node):
        return None
    second = _second(links, node) if node.code not in _ONES else None
    bias = bias_of(links, node, first, second)
    if bias is None or (second is None and node.code not in _ONES):
        return None
    if not _as_runtime(links, node, (first, *([second] if second else []), edge)):
        return None
    inputs = (*first.names, *(second.names if second else ()))
    last = (bias, edge.scale, edge.zero) if node.code == "Gemm" else (edge.scale, edge.zero)
    if node.code in _IMAGES and bias:
        last = (*last, bias)
    return [replace(node, code=_LAYERS[node.code], inputs=(*inputs, *last), outputs=end.outputs)]


def _is_layer(node: FileNode) -> bool:
    # True if an integer layer supports the node's attributes; with others, ONNX Runtime computes in float32.
    if node.code == "AveragePool":
        return is_plain_average(node)
    given = {name: node.attributes.get(name, default) for name, default in PLAIN_GEMM.items()}
    return node.code != "Gemm" or given == PLAIN_GEMM


def _as_runtime(links: Links, node: FileNode, edges: tuple[Edge, ...]) -> bool:
    # True if crtgen's layer gives the same results as ONNX Runtime on a PC. The runtime uses integer layers
    # for uint8, and for int8 if each tensor is read once; otherwise it runs the operators as written. Sums of
    # products are equal in both forms, and so are most sums and products of two tensors.
    signed_ = any(links.is_int8(edge) and links.reads(edge.numbers) > 1 for edge in edges)
    if not signed_ or node.code in _SUMS:
        return True
    return node.code in _PAIRS and is_one(node.code, *(links.quant(edge) for edge in edges))


def _second(links: Links, node: FileNode) -> Edge | None:
    # The second operand: weights, which may have a scale per channel, or a tensor.
    edge = links.source(node.inputs[1])
    if edge is None or (node.code not in _IMAGES and links.is_whole(edge)):
        return edge
    numbers, scale = links.data(edge.numbers), links.data(edge.scale)
    known = not edge.zero or links.data(edge.zero) is not None
    weights = numbers is not None and numbers.dtype in EIGHT and scale is not None and known
    if weights and node.code == "ConvTranspose" and not _is_turned(links, edge):
        return None
    return edge if weights and node.code in _SUMS else None


def _is_turned(links: Links, edge: Edge) -> bool:
    # True for weights of a transposed convolution of one or two dimensions that fit into int8 without their
    # zero point: one, with one scale or with one for each output.
    numbers, scale = links.data(edge.numbers), links.data(edge.scale)
    zero = links.data(edge.zero) if edge.zero else np.zeros((), np.int8)
    if numbers is None or scale is None or zero is None or not 3 <= numbers.ndim <= 4:
        return False
    middles = np.unique(zero.astype(np.int64))
    real = numbers.astype(np.int64) - middles[0]
    fits = middles.size == 1 and real.min() >= -OF_BYTE and real.max() < OF_BYTE
    return bool(fits) and scale.size in (1, numbers.shape[1])


# Conversion of the operator before a QuantizeLinear to integers.
_WAYS: tuple[tuple[tuple[str, ...], Callable[[Links, FileNode, FileNode], Nodes | None]], ...] = (
    (MOVED, _moved),
    (("Concat", "Max", "Min"), _joined),
    (("ScatterElements", "ScatterND"), _scattered),
    (("Where",), _chosen),
    (("Pad",), _padded),
    (tuple(_LAYERS), _computed),
)
