"""Weights, biases and first states of recurrent layers in a quantised `.onnx` file."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtgen.network.frontends.onnx_edges import OF_BYTE, Edge, Links, as_int8
from crtgen.network.frontends.onnx_file import FileNode
from crtgen.network.ir import Array, DType
from crtgen.network.ops.scheme import INT8

__all__ = [
    "GATE_COUNTS",
    "GATE_CURVES",
    "GATE_ORDER",
    "QuantisedEdge",
    "RecurrentSizes",
    "first_state",
    "gate_weights",
    "is_quantised",
    "operand_of",
    "real_constant",
    "steps_of",
]

Real = npt.NDArray[np.float64]

GATE_COUNTS = {"LSTM": 4, "GRU": 3}
# Gates of the operators, by their places in ONNX: input, output, forget, cell; update, reset, hidden.
GATE_ORDER = {"LSTM": (0, 2, 3, 1), "GRU": (0, 1, 2)}
GATE_CURVES = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh")}


@dataclass(frozen=True, slots=True)
class QuantisedEdge:
    """Scale and zero point of a tensor, as the file has them: names, and values of int8 or int16."""

    edge: Edge
    scale: float
    zero: int
    dtype: DType

    @classmethod
    def of(cls, links: Links, edge: Edge) -> "QuantisedEdge | None":
        scale, zero = links.data(edge.scale), links.data(edge.zero)
        if scale is None or zero is None or scale.size != 1 or zero.size != 1 or scale.dtype != np.float32:
            return None
        if links.is_whole(edge):
            offset = OF_BYTE if zero.dtype == np.uint8 else 0
            return cls(edge, float(scale.item()), int(zero.item()) - offset, DType.INT8)
        short = zero.dtype == np.int16 and not zero.any()
        return cls(edge, float(scale.item()), 0, DType.INT16) if short else None


@dataclass(frozen=True, slots=True)
class RecurrentSizes:
    steps: int
    batch: int
    depth: int
    units: int
    directions: int

    @classmethod
    def of(cls, links: Links, node: FileNode) -> "RecurrentSizes | None":
        x, w, r = (links.tensors[name].shape for name in node.inputs[:3])
        gates = GATE_COUNTS[node.code]
        if len(x) != 3 or len(w) != 3 or len(r) != 3 or min(x) < 1:
            return None
        found = cls(x[0], x[1], x[2], r[2], w[0])
        rows = gates * found.units
        wanted = 2 if node.attributes.get("direction", "forward") == "bidirectional" else 1
        fits = w == (wanted, rows, found.depth) and r == (wanted, rows, found.units)
        return found if fits else None


def operand_of(node: FileNode, place: int) -> str:
    return node.inputs[place] if place < len(node.inputs) else ""


def is_quantised(links: Links, name: str) -> bool:
    edge = links.source(name)
    return edge is not None and links.data(edge.numbers) is not None


def real_constant(links: Links, name: str) -> Real | None:
    # A constant as real numbers, dequantised if it has to be.
    data, edge = links.data(name), links.source(name)
    if edge is None:
        return None if data is None or data.dtype.kind != "f" else data.astype(np.float64)
    numbers, scale = links.data(edge.numbers), links.data(edge.scale)
    zero = links.data(edge.zero) if edge.zero else None
    if numbers is None or scale is None or (edge.zero and zero is None):
        return None
    given = links.producers[name].attributes.get("axis", 1)
    along = [-1 if axis == int(given) % numbers.ndim else 1 for axis in range(numbers.ndim)]
    shaped = [a.reshape(along) if a.size > 1 else a.reshape(()) for a in (scale, zero) if a is not None]
    steps = numbers.astype(np.float64) - (shaped[1].astype(np.float64) if len(shaped) > 1 else 0)
    return steps * shaped[0].astype(np.float64)


def first_state(links: Links, node: FileNode, place: int) -> Real | str | None:
    # A state before the first step: a constant, the name of one that is computed, or None for zeros.
    name = operand_of(node, place)
    if not name:
        return None
    real = real_constant(links, name)
    if real is None:
        return name
    return real if real.any() else None


def gate_weights(links: Links, name: str, direction: int, code: str) -> tuple[Array, tuple[float, ...]]:
    """Return ``[gates, S, K]`` of int8 in the operator's order of gates, and a scale per gate."""
    gates, order = GATE_COUNTS[code], list(GATE_ORDER[code])
    real = real_constant(links, name)
    assert real is not None
    parts = real[direction].reshape(gates, -1, real.shape[2])[order]
    own = _own(links, name, direction, gates)
    if own is not None:
        numbers, scales = own
        return np.ascontiguousarray(numbers[order]), tuple(float(s) for s in scales[order])
    scales = np.abs(parts).max(axis=(1, 2)) / INT8.high
    scales = np.where(scales > 0, scales, 1.0).astype(np.float32)
    steps = np.rint(parts / scales.astype(np.float64)[:, None, None])
    return np.clip(steps, -INT8.high, INT8.high).astype(np.int8), tuple(float(s) for s in scales)


def _own(links: Links, name: str, direction: int, gates: int) -> tuple[Array, Array] | None:
    # The numbers of int8 in the file, if each gate has one scale and no zero point.
    edge = links.source(name)
    numbers = links.data(edge.numbers) if edge is not None else None
    scale = links.data(edge.scale) if edge is not None else None
    if edge is None or numbers is None or scale is None or numbers.dtype not in (np.int8, np.uint8):
        return None
    zero = links.data(edge.zero) if edge.zero else np.zeros(1, np.uint8)
    middle = OF_BYTE if numbers.dtype == np.uint8 else 0
    if zero is None or (zero.astype(np.int64) != middle).any():
        return None
    each = (
        np.broadcast_to(scale.reshape(-1), numbers.shape[1]) if scale.size in (1, numbers.shape[1]) else None
    )
    if each is None or (scale.size > 1 and links.producers[name].attributes.get("axis", 1) != 1):
        return None
    scales = each.reshape(gates, -1)
    if (scales != scales[:, :1]).any():
        return None
    parts = as_int8(numbers)[direction].reshape(gates, -1, numbers.shape[2])
    return parts, scales[:, 0].astype(np.float32)


def steps_of(real: Real, scale: float, scales: Sequence[float], dtype: DType) -> Array:
    steps = np.rint(real / (np.float64(np.float32(scale)) * np.array(scales, np.float64))[:, None])
    kind = np.int32 if dtype is DType.INT8 else np.int64
    limits = np.iinfo(np.int32)
    return np.clip(steps, limits.min, limits.max).astype(kind)
