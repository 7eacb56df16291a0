"""LSTM and GRU beside ONNX Runtime's quantiser, which leaves them alone or treats weights as activations."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from crtgen.network.ir import Array

__all__ = ["quantise_gates", "quantised_types", "recurrent_layers"]

_BIAS = 3  # the input of recurrent layers
_ROWS = 13  # the first opset with a scale per row


def recurrent_layers(path: Path, other: bool = False) -> list[str]:
    """Return the names of LSTM and GRU nodes that have a form of integers, or of the others."""
    import onnx

    def has_form(node: Any) -> bool:
        fields = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        return node.op_type == "LSTM" or bool(fields.get("linear_before_reset"))

    nodes = onnx.load(path).graph.node
    return [n.name for n in nodes if n.op_type in ("LSTM", "GRU") and has_form(n) is not other]


def quantised_types() -> list[str]:
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

    return sorted({*QLinearOpsRegistry, *QDQRegistry, "LSTM", "GRU"})


def quantise_gates(prepared: Path, made: Path, names: Collection[str]) -> None:
    """Give recurrent layers weights of int8 with a scale per gate, and biases of float32.

    ONNX Runtime quantises these as activations: by one scale, which the greatest gate decides, and biases to
    eight bits.
    """
    import onnx
    from onnx import helper, numpy_helper
    from onnxruntime.quantization.onnx_model import ONNXModel

    plain, proto = onnx.load(prepared), onnx.load(made)
    if any(entry.domain == "" and entry.version < _ROWS for entry in proto.opset_import):
        return
    known = {t.name: numpy_helper.to_array(t) for t in plain.graph.initializer}
    wanted = {node.name: node for node in plain.graph.node if node.name in names}
    added = []
    for node in proto.graph.node:
        given = wanted.get(node.name)
        for place, name in enumerate(given.input[:4] if given is not None else ()):
            if name not in known or place == 0:
                continue
            held = f"{node.name}.{name}"
            if place == _BIAS:
                proto.graph.initializer.append(numpy_helper.from_array(known[name], held))
                node.input[place] = held
                continue
            numbers, scales = _by_gates(known[name], 4 if node.op_type == "LSTM" else 3)
            parts = (numbers, scales, np.zeros(len(scales), np.int8))
            ends = [f"{held}.{part}" for part in ("numbers", "scale", "zero")]
            proto.graph.initializer.extend(
                numpy_helper.from_array(a, n) for a, n in zip(parts, ends, strict=True)
            )
            added.append(helper.make_node("DequantizeLinear", ends, [held], name=held, axis=1))
            node.input[place] = held
    read = {o.name for o in proto.graph.output}.union(*(node.input for node in proto.graph.node))
    rest = [n for n in proto.graph.node if n.op_type != "DequantizeLinear" or n.output[0] in read]
    del proto.graph.node[:]
    proto.graph.node.extend([*added, *rest])
    ONNXModel(proto).clean_initializers()
    onnx.save(proto, made)


def _by_gates(weights: Array, gates: int) -> tuple[Array, Array]:
    # ``[directions, gates * S, K]`` as int8, and the scale of each row, that of its gate in all directions.
    parts = weights.reshape(weights.shape[0], gates, -1)
    largest = np.abs(parts).max(axis=(0, 2))
    scales = (np.where(largest > 0, largest, 1.0) / 127).astype(np.float32)
    rows = np.repeat(scales, weights.shape[1] // gates)
    return np.clip(np.rint(np.asarray(weights, np.float32) / rows[:, None]), -127, 127).astype(np.int8), rows
