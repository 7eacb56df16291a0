"""Quantised tensors of `.onnx` files: values, a scale and a zero point, each a tensor of its own."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from crtgen.network.frontends.builder import NamedTensor
from crtgen.network.frontends.onnx_file import FileNode, OnnxFileGraph, constant
from crtgen.network.ir import Array, Quant, Rescaling
from crtgen.network.ops.scheme import INT8

__all__ = [
    "DEQUANTIZE",
    "EIGHT",
    "LOOKUP",
    "OF_BYTE",
    "QUANTIZE",
    "RECODED",
    "TRANSPOSED",
    "Edge",
    "Links",
    "as_int8",
    "check_finite",
    "numbers_of",
    "quant_of",
    "real_numbers",
    "with_constants",
]

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"

LOOKUP = "crtgen.Lookup"
"""Function of a quantised number, as a table of its results; its inputs are those of QLinearSigmoid."""

RECODED = "crtgen.Recoded"
"""Operator that converts to the other 8-bit type with the same values."""

TRANSPOSED = "crtgen.QLinearConvTranspose"
"""Transposed convolution of quantised values; its inputs are those of QLinearConv."""

# Types of QuantizeLinear without a zero point, by the number in its attribute.
_KINDS: Mapping[int, type[np.generic]] = {
    0: np.uint8,
    int(TensorProto.UINT8): np.uint8,
    int(TensorProto.INT8): np.int8,
}

EIGHT = (np.dtype(np.int8), np.dtype(np.uint8))
OF_BYTE = -INT8.low
"""Offset of a uint8 value from the int8 value that represents it."""


def quant_of(scale: Array, zero: Array | None, axis: int | None = None) -> Quant:
    """Return the quantisation as int8, also for uint8 in the file. Raises ``ValueError`` for invalid
    scales.
    """
    check_finite(scale)
    scales = tuple(float(s) for s in scale.astype(np.float32).reshape(-1))
    wrong = [s for s in scales if not 0 < s < math.inf]
    if wrong:
        raise ValueError(f"a scale of {wrong[0]}")
    zeros = np.zeros(1, np.int64) if zero is None else zero.astype(np.int64).reshape(-1)
    if zero is None or zero.dtype == np.uint8:
        zeros = zeros - OF_BYTE  # without a zero point, ONNX means uint8
    whole = tuple(np.broadcast_to(zeros, len(scales)).tolist())
    return Quant(scales, whole, axis if len(scales) > 1 else None, Rescaling.FLOAT32)


def check_finite(scale: Array) -> None:
    if np.isinf(scale.astype(np.float32)).any():
        raise ValueError(
            "a scale of inf, as the calibration saw an infinite number: mask with a large one, such as -1e4"
        )


def as_int8(numbers: Array) -> Array:
    return (numbers.astype(np.int16) - OF_BYTE).astype(np.int8) if numbers.dtype == np.uint8 else numbers


def real_numbers(quant: Quant) -> npt.NDArray[np.float32]:
    """Return the real values of the 256 int8 codes, in order."""
    numbers = np.arange(-OF_BYTE, OF_BYTE) - quant.zero_point
    return numbers.astype(np.float32) * np.float32(quant.scale)


def numbers_of(real: npt.ArrayLike, quant: Quant) -> npt.NDArray[np.int64]:
    """Quantise floats to int8 as QuantizeLinear does; NaN becomes zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.rint(np.asarray(real, np.float32) / np.float32(quant.scale))
    whole = np.nan_to_num(steps, posinf=np.inf, neginf=-np.inf) + quant.zero_point
    numbers: npt.NDArray[np.int64] = np.clip(whole, -OF_BYTE, OF_BYTE - 1).astype(np.int64)
    return numbers


@dataclass(frozen=True, slots=True)
class Edge:
    """Names of the tensors of a quantised value: its integers, its scale and its zero point (empty if there
    is none).
    """

    numbers: str
    scale: str
    zero: str

    @classmethod
    def of(cls, node: FileNode) -> "Edge":
        """Return the quantised value that a DequantizeLinear reads, or a QuantizeLinear writes."""
        numbers = node.inputs[0] if node.code == DEQUANTIZE else node.outputs[0]
        return cls(numbers, node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else "")

    @property
    def names(self) -> tuple[str, str, str]:
        return self.numbers, self.scale, self.zero


@dataclass(frozen=True, slots=True)
class Links:
    tensors: dict[str, NamedTensor]
    producers: Mapping[str, FileNode]
    readers: Mapping[str, list[FileNode]]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, graph: OnnxFileGraph) -> "Links":
        readers: dict[str, list[FileNode]] = {}
        for node in graph.nodes:
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
        producers = {name: node for node in graph.nodes for name in node.outputs}
        return cls(dict(graph.tensors), producers, readers, graph.outputs)

    def data(self, name: str) -> Array | None:
        return self.tensors[name].data if name else None

    def is_alone(self, name: str, *codes: str) -> bool:
        """Return True if all readers of a tensor are operators of these types."""
        return name not in self.outputs and all(n.code in codes for n in self.readers.get(name, []))

    def is_whole(self, edge: Edge) -> bool:
        """Return True if a value is quantised per tensor, to 8 bits, with constant parameters."""
        scale, zero = self.data(edge.scale), self.data(edge.zero)
        return (
            scale is not None
            and zero is not None
            and scale.size == zero.size == 1
            and scale.dtype == np.float32
            and zero.dtype in EIGHT
        )

    def is_int8(self, edge: Edge) -> bool:
        zero = self.data(edge.zero)
        return zero is not None and zero.dtype == np.int8 and self.data(edge.numbers) is None

    def reads(self, numbers: str) -> int:
        readers = self.readers.get(numbers, [])
        return sum(max(1, len(self.readers.get(node.outputs[0], []))) for node in readers)

    def quant(self, edge: Edge) -> Quant:
        scale = self.data(edge.scale)
        assert scale is not None
        return quant_of(scale, self.data(edge.zero))

    def source(self, name: str) -> Edge | None:
        """Return the quantised value of which a float tensor is the dequantised form."""
        node = self.producers.get(name)
        plain = node is not None and node.code == DEQUANTIZE and not node.attributes.get("block_size")
        return Edge.of(node) if node is not None and plain else None

    def activation(self, name: str) -> Edge | None:
        edge = self.source(name)
        return edge if edge and self.is_whole(edge) and self.data(edge.numbers) is None else None

    def real_data(self, name: str) -> Array | None:
        """Return a float constant, which may be stored quantised per tensor."""
        data, edge = self.data(name), self.source(name)
        if edge is None:
            return data
        numbers = self.data(edge.numbers)
        if numbers is None or not self.is_whole(edge) or numbers.dtype not in EIGHT:
            return None
        return real_numbers(self.quant(edge))[as_int8(numbers).astype(np.int64) + OF_BYTE]

    def alike(self, first: Edge, second: Edge) -> bool:
        """Return True if two per-tensor quantised values have the same parameters and type."""
        zeros = self.data(first.zero), self.data(second.zero)
        types = [zero.dtype for zero in zeros if zero is not None]
        return self.quant(first) == self.quant(second) and len(set(types)) == 1

    def new_name(self, name: str) -> str:
        while name in self.tensors:
            name += "_"
        return name

    def add_like(self, name: str, model: str) -> None:
        self.tensors[name] = replace(self.tensors[model], key=name, name=name, data=None)


def with_constants(graph: OnnxFileGraph) -> OnnxFileGraph:
    found = {
        node.outputs[0]: constant(node.outputs[0], node.attributes["value"])
        for node in graph.nodes
        if node.code == "Constant" and isinstance(node.attributes.get("value"), np.ndarray)
    }
    nodes = tuple(n for n in graph.nodes if not (n.code == "Constant" and n.outputs[0] in found))
    return _with_zeros(replace(graph, tensors={**graph.tensors, **found}, nodes=nodes))


def _with_zeros(graph: OnnxFileGraph) -> OnnxFileGraph:
    # The zero points of bytes that are left out, which are 0.
    tensors, kinds, nodes = dict(graph.tensors), dict[str, type[np.generic]](), list[FileNode]()
    for node in graph.nodes:
        kind, inputs = None, node.inputs
        if node.code == QUANTIZE and len(inputs) == 2:
            kind = _KINDS.get(int(node.attributes.get("output_dtype", 0)))
        elif node.code == DEQUANTIZE and len(inputs) == 2:
            kind = kinds.get(inputs[0])
        if kind is not None and not node.attributes.get("block_size"):
            name = f"{node.outputs[0]}.zero"
            tensors[name] = constant(name, np.zeros(tensors[inputs[1]].shape, kind))
            nodes.append(replace(node, inputs=(*inputs, name)))
            kinds[node.outputs[0]] = kind
        else:
            nodes.append(node)
    return replace(graph, tensors=tensors, nodes=tuple(nodes))
