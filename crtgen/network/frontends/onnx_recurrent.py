"""LSTM and GRU between DequantizeLinear and QuantizeLinear, as TFLite computes an LSTM of integers.

ONNX has no recurrent layer of integers: a quantised file says how the input, the output and the weights are
rounded, and ONNX Runtime computes what is between them in float32. TFLite defines an LSTM of integers,
which also says how gates and states are rounded; ``crtgen.network.ops.gru`` defines a GRU of the same
parts. A layer that the file quantises is computed as these: hidden states have the output's scale, so that
a step reads what the next layer reads.

The file does not say two things. The cell state of an LSTM holds values up to the least power of two from 2
to 16 that it cannot exceed: it grows by at most 1 per step, and tanh of 16 is 1. Weights of int8 without
zero points are taken as they are; others (quantised as activations, or to 16 bits) are rounded to int8 with
a scale per gate, the greatest magnitude over 127.

A layer stays float32 if one of its outputs that is read is not quantised (but for the LSTM's last cell
state), if its input is not, or if it has what the operators lack: lengths of sequences, peepholes, other
activations, clips, coupled gates, and a GRU without ``linear_before_reset``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from crtgen.network.frontends.onnx_edges import (
    DEQUANTIZE,
    LOOKUP,
    QUANTIZE,
    Edge,
    Links,
    numbers_of,
    real_numbers,
)
from crtgen.network.frontends.onnx_file import FileNode, OnnxFileGraph, constant
from crtgen.network.frontends.onnx_gates import (
    GATE_COUNTS,
    GATE_CURVES,
    GATE_ORDER,
    QuantisedEdge,
    RecurrentSizes,
    first_state,
    gate_weights,
    is_quantised,
    operand_of,
    real_constant,
    steps_of,
)
from crtgen.network.ir import Array, DType, Quant
from crtgen.network.ops.gru import STATE
from crtgen.network.ops.scheme import INT8, INT16

__all__ = ["RECURRENT", "with_recurrent_integers"]

RECURRENT = "crtgen.Recurrent"
"""A layer with time first: ``x``, its scale and zero point, ``hidden, state, w, r, bias, hidden bias``, the
output's scale and zero point become ``y, hidden, state``.

The attribute ``gru`` tells a GRU from an LSTM; ``x_quant``, ``y_quant`` and ``state_quant`` are
quantisations; ``weight_scales`` and ``hidden_scales`` have a scale per gate.
"""

Real = npt.NDArray[np.float64]

_LENGTHS, _PEEPHOLES = 4, 7
_LOWEST_POWER, _HIGHEST_POWER = 1, 4  # of the greatest cell state


@dataclass(slots=True)
class RecurrentNodes:
    """The node of the file, and the nodes that are made of it."""

    links: Links
    node: FileNode
    made: list[FileNode] = field(default_factory=list)

    def tensor(self, role: str, shape: Sequence[int], dtype: DType, quant: Quant | None) -> str:
        name = self.links.new_name(f"{self.node.outputs[0] or self.node.outputs[1]}.{role}")
        model = constant(name, np.zeros((), dtype.numpy))
        self.links.tensors[name] = replace(model, shape=tuple(shape), data=None, quant=quant)
        return name

    def constant(self, role: str, data: Array) -> str:
        name = self.links.new_name(f"{self.node.outputs[0] or self.node.outputs[1]}.{role}")
        self.links.tensors[name] = constant(name, data)
        return name

    def add(self, code: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        name = self.node.name if code == RECURRENT else ""
        opset = max(self.node.opset, 13)
        self.made.append(
            replace(
                self.node,
                name=name,
                code=code,
                opset=opset,
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                attributes=attributes,
            )
        )


def with_recurrent_integers(graph: OnnxFileGraph) -> OnnxFileGraph:
    """Make layers of integers of each LSTM and GRU that the file quantises."""
    if not any(node.code in GATE_COUNTS for node in graph.nodes):
        return graph
    links = Links.of(graph)
    nodes: list[FileNode] = []
    replaced: set[int] = set()
    for node in graph.nodes:
        found = _layer(links, node)
        nodes += [node] if found is None else found[0]
        replaced |= set() if found is None else {id(end) for end in found[1]}
    return replace(graph, tensors=links.tensors, nodes=tuple(n for n in nodes if id(n) not in replaced))


def _layer(links: Links, node: FileNode) -> tuple[list[FileNode], list[FileNode]] | None:
    # The nodes of a layer of integers, and the QuantizeLinear that they replace; None if it stays float32.
    if node.code not in GATE_COUNTS or not _is_plain(links, node):
        return None
    source = links.source(node.inputs[0])
    x = QuantisedEdge.of(links, source) if source and links.data(source.numbers) is None else None
    weights = [real_constant(links, name) for name in node.inputs[1:3]]
    bias = real_constant(links, node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] else None
    ends = _ends(links, node)
    if (
        x is None
        or ends is None
        or any(w is None for w in weights)
        or (bias is None and len(node.inputs) > 3 and node.inputs[3])
    ):
        return None
    outputs = [None if end is None else QuantisedEdge.of(links, Edge.of(end)) for end in ends]
    if any(
        end is not None and (q is None or q.dtype is not x.dtype)
        for end, q in zip(ends, outputs, strict=True)
    ):
        return None
    y = next((q for q in outputs if q is not None), None)
    if y is None or not any(is_quantised(links, name) for name in node.inputs[1:3]):
        return None
    layer = RecurrentNodes(links, node)
    found = RecurrentSizes.of(links, node)
    if found is None:
        return None
    _write(layer, found, x, y, outputs, bias)
    return layer.made, [end for end in ends if end is not None]


def _is_plain(links: Links, node: FileNode) -> bool:
    # True if the operators of integers have all that the node asks for.
    given = node.attributes
    curves = [n.decode() if isinstance(n, bytes) else str(n) for n in given.get("activations", ())]
    count = 2 if given.get("direction") == "bidirectional" else 1
    first = {
        isinstance(first_state(links, node, place), str) for place in (5, 6)[: GATE_COUNTS[node.code] - 2]
    }
    if len(first) > 1:
        return False
    usual = not curves or [c.lower() for c in curves] == [*GATE_CURVES[node.code]] * count
    plain = not any(given.get(name) for name in ("clip", "input_forget", "layout"))
    after = node.code == "LSTM" or bool(given.get("linear_before_reset"))
    return usual and plain and after and _is_whole(links, node) and not operand_of(node, _PEEPHOLES)


def _is_whole(links: Links, node: FileNode) -> bool:
    # True if all sequences have all steps.
    name = operand_of(node, _LENGTHS)
    lengths = links.data(name) if name else None
    return not name or (
        lengths is not None and bool((lengths == links.tensors[node.inputs[0]].shape[0]).all())
    )


def _ends(links: Links, node: FileNode) -> list[FileNode | None] | None:
    # The QuantizeLinear of the outputs y and hidden, None for one that nothing reads. None if others read it.
    found: list[FileNode | None] = []
    for name in (*node.outputs, "", "")[:2]:
        readers = links.readers.get(name, []) if name else []
        if (name in links.outputs and name) or any(reader.code != QUANTIZE for reader in readers):
            return None
        if len(readers) > 1:
            return None
        found.append(readers[0] if readers else None)
    return found


def _write(
    layer: RecurrentNodes,
    sizes: RecurrentSizes,
    x: QuantisedEdge,
    y: QuantisedEdge,
    outputs: Sequence[QuantisedEdge | None],
    bias: Real | None,
) -> None:
    # The nodes of all directions, and of what joins their outputs.
    links, node = layer.links, layer.node
    cells = len(node.outputs) > 2 and bool(node.outputs[2])
    states = _state_scale(layer, sizes)
    ends: list[list[str]] = [[], [], []]
    backward = node.attributes.get("direction", "forward") == "reverse"
    for direction in range(sizes.directions):
        turned = backward or direction == 1
        made = _direction(layer, sizes, direction, (x, y), bias, turned, states)
        shapes = ((sizes.steps, 1, sizes.batch, sizes.units), *[(1, sizes.batch, sizes.units)] * 2)
        for place, name in enumerate(made):
            if (place < 2 and outputs[place] is None) or (place == 2 and not cells):
                continue
            if place == 0 and turned:
                name = _flipped(layer, name, (sizes.steps, sizes.batch, sizes.units))
            kind, quant = links.tensors[name].dtype, links.tensors[name].quant
            assert kind is not None
            shaped = layer.tensor(f"shaped{place}_{direction}", shapes[place], kind, quant)
            shape = layer.constant(f"shape{place}_{direction}", np.array(shapes[place], np.int64))
            layer.add("Reshape", (name, shape), (shaped,))
            ends[place].append(shaped)
    for place, (names, wanted) in enumerate(zip(ends, (*outputs, None), strict=True)):
        if names:
            _joined(layer, names, place, y, wanted, states)


def _state_scale(layer: RecurrentNodes, sizes: RecurrentSizes) -> float:
    # The scale of the state of 16 bits.
    if layer.node.code == "GRU":
        return float(STATE.scale)
    first = first_state(layer.links, layer.node, 6)
    start = float(np.abs(first).max()) if isinstance(first, np.ndarray) else math.inf if first else 0.0
    power = math.ceil(math.log2(min(sizes.steps + start, 2**_HIGHEST_POWER)))
    return float(2.0 ** (max(power, _LOWEST_POWER) - 15))


def _first(
    layer: RecurrentNodes, place: int, direction: int, sizes: RecurrentSizes, quant: Quant, dtype: DType
) -> str:
    # The name of a state before the first step, quantised.
    given, shape = first_state(layer.links, layer.node, place), (sizes.batch, sizes.units)
    role = f"first{place}_{direction}"
    if not isinstance(given, str):
        real = np.zeros(shape) if given is None else given[direction]
        scheme = INT8 if dtype is DType.INT8 else INT16
        steps = np.rint(real / quant.scale) + quant.zero_point
        return layer.constant(role, np.clip(steps, *scheme.limits).astype(dtype.numpy))
    begin, end, axis = (
        layer.constant(f"{role}_{n}", np.array([v], np.int64))
        for n, v in (("begin", direction), ("end", direction + 1), ("axis", 0))
    )
    cut = layer.tensor(f"{role}_cut", (1, *shape), DType.FLOAT32, None)
    layer.add("Slice", (given, begin, end, axis), (cut,))
    flat = layer.tensor(f"{role}_flat", shape, DType.FLOAT32, None)
    layer.add("Reshape", (cut, layer.constant(f"{role}_shape", np.array(shape, np.int64))), (flat,))
    made = layer.tensor(role, shape, dtype, quant)
    layer.add(QUANTIZE, (flat, *_parameters(layer, role, quant, dtype)), (made,))
    return made


def _parameters(layer: RecurrentNodes, role: str, quant: Quant, dtype: DType) -> tuple[str, str]:
    scale = layer.constant(f"{role}_scale", np.array(quant.scale, np.float32))
    return scale, layer.constant(f"{role}_zero", np.array(quant.zero_point, dtype.numpy))


def _flipped(layer: RecurrentNodes, name: str, shape: tuple[int, ...]) -> str:
    tensor = layer.links.tensors[name]
    if shape[0] == 1:
        return name
    made = layer.links.new_name(f"{name}.turned")
    layer.links.tensors[made] = replace(tensor, key=made, name=made, data=None)
    values = {"begin": -1, "end": -shape[0] - 1, "axis": 0, "step": -1}
    given = [layer.constant(f"{made}_{n}", np.array([v], np.int64)) for n, v in values.items()]
    layer.add("Slice", (name, *given), (made,))
    return made


def _direction(
    layer: RecurrentNodes,
    sizes: RecurrentSizes,
    direction: int,
    ends: tuple[QuantisedEdge, QuantisedEdge],
    bias: Real | None,
    turned: bool,
    state_scale: float,
) -> tuple[str, str, str]:
    # One direction: the names of its outputs, with time first.
    (x, y), node, links = ends, layer.node, layer.links
    code, gates, units = node.code, GATE_COUNTS[node.code], sizes.units
    (w, w_scales), (r, r_scales) = (gate_weights(links, node.inputs[n], direction, code) for n in (1, 2))
    hidden = Quant.tensor(y.scale, y.zero)
    own = np.zeros((2, gates, units)) if bias is None else bias[direction].reshape(2, gates, units)
    fresh, old = own[:, list(GATE_ORDER[code])]
    if code == "LSTM":
        fresh, old = fresh + old, np.zeros_like(old)
    biases = [
        steps_of(b, q.scale, scales, x.dtype) for b, q, scales in ((fresh, x, w_scales), (old, y, r_scales))
    ]
    first = _first(layer, 5, direction, sizes, hidden, x.dtype)
    # A GRU's state of 16 bits is its hidden state.
    state = _first(
        layer, 6 if code == "LSTM" else 5, direction, sizes, Quant.tensor(state_scale), DType.INT16
    )
    given = x.edge.numbers
    if turned:
        given = _flipped(layer, given, (sizes.steps, sizes.batch, sizes.depth))
    constants = [layer.constant(f"{n}{direction}", a) for n, a in zip("wrbc", (w, r, *biases), strict=True)]
    shapes = ((sizes.steps, sizes.batch, units), *[(sizes.batch, units)] * 2)
    quants = (hidden, hidden, Quant.tensor(state_scale))
    names = tuple(
        layer.tensor(f"{role}{direction}", shape, kind, quant)
        for role, shape, kind, quant in zip(
            ("y", "h", "s"), shapes, (x.dtype, x.dtype, DType.INT16), quants, strict=True
        )
    )
    layer.add(
        RECURRENT,
        (given, x.edge.scale, x.edge.zero, first, state, *constants, y.edge.scale, y.edge.zero),
        names,
        gru=code == "GRU",
        x_quant=Quant.tensor(x.scale, x.zero),
        y_quant=hidden,
        state_quant=Quant.tensor(state_scale),
        weight_scales=w_scales,
        hidden_scales=r_scales,
    )
    return names[0], names[1], names[2]


def _joined(
    layer: RecurrentNodes,
    names: list[str],
    place: int,
    y: QuantisedEdge,
    wanted: QuantisedEdge | None,
    state_scale: float,
) -> None:
    # An output of the file's node: of both directions, and quantised as the file says.
    links, node = layer.links, layer.node
    if len(names) > 1:
        shapes, axis = [links.tensors[name].shape for name in names], 1 if place == 0 else 0
        total = sum(shape[axis] for shape in shapes)
        both = _like(layer, names[0], (*shapes[0][:axis], total, *shapes[0][axis + 1 :]))
        layer.add("Concat", names, (both,), axis=axis)
        names = [both]
    if wanted is None:
        named = _parameters(layer, "cell", Quant.tensor(state_scale), DType.INT16)
        layer.add(DEQUANTIZE, (names[0], *named), (node.outputs[2],))
        return
    result = wanted.edge.numbers
    if wanted.dtype is DType.INT16:
        quant = Quant.tensor(wanted.scale)
        links.tensors[result] = replace(
            links.tensors[result], dtype=DType.INT16, type_name="INT16", quant=quant
        )
    if (wanted.scale, wanted.zero) == (y.scale, y.zero):
        shape = layer.constant(f"shape{place}", np.array(links.tensors[names[0]].shape, np.int64))
        layer.add("Reshape", (names[0], shape), (result,))
    elif wanted.dtype is DType.INT8:
        table = numbers_of(real_numbers(links.quant(y.edge)), links.quant(wanted.edge))
        inputs = (names[0], y.edge.scale, y.edge.zero, wanted.edge.scale, wanted.edge.zero)
        layer.add(LOOKUP, inputs, (result,), table=table, label="requantise")
    else:
        shape_ = links.tensors[names[0]].shape
        real = layer.tensor(f"real{place}", shape_, DType.FLOAT32, None)
        layer.add(DEQUANTIZE, (names[0], y.edge.scale, y.edge.zero), (real,))
        layer.add(QUANTIZE, (real, wanted.edge.scale, wanted.edge.zero), (result,))


def _like(layer: RecurrentNodes, name: str, shape: tuple[int, ...]) -> str:
    tensor = layer.links.tensors[name]
    made = layer.links.new_name(f"{name}.like")
    layer.links.tensors[made] = replace(tensor, key=made, name=made, shape=shape, data=None)
    return made
