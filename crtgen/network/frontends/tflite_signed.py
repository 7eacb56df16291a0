"""Converts uint8 networks, as older converters wrote them, to int8: all values minus 128.

Inputs and outputs of a graph stay uint8, and so do tensors that operators read as plain bytes; each of these
gets an additional int8 copy, made by a QUANTIZE with the same scale.
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from crtgen.network.frontends.tflite_file import FileOperator, FileTensor, TfliteFileGraph
from crtgen.network.ir import Array, DType, Quant
from crtgen.network.ops import INT8

__all__ = ["signed"]

# fmt: off
# Operators whose results of uint8 are those of int8 and 128: compared with TFLite's reference kernels.
# RESIZE_BILINEAR, RELU6 with another scale and averages of even windows have converters that ask for the type
# in the file; L2_NORMALIZATION computes in another way.
_COMPUTES = frozenset((
    "ADD", "ARG_MAX", "ARG_MIN", "AVERAGE_POOL_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "DIV", "EQUAL",
    "FULLY_CONNECTED", "GELU", "GREATER", "GREATER_EQUAL", "HARD_SWISH", "LEAKY_RELU", "LESS", "LESS_EQUAL",
    "LOGISTIC", "MAXIMUM", "MAX_POOL_2D", "MEAN", "MINIMUM", "MUL", "NOT_EQUAL", "PRELU", "REDUCE_MAX",
    "REDUCE_MIN", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "RESIZE_BILINEAR", "SOFTMAX", "SUB", "TANH",
    "TRANSPOSE_CONV",
))

# Operators that keep numbers, compare them, or convert them, of either type.
_MOVES = frozenset((
    "BATCH_TO_SPACE_ND", "CONCATENATION", "DEPTH_TO_SPACE", "DEQUANTIZE", "EXPAND_DIMS", "MIRROR_PAD", "PACK",
    "PAD", "PADV2", "QUANTIZE", "RESHAPE", "RESIZE_NEAREST_NEIGHBOR", "SLICE", "SPACE_TO_BATCH_ND",
    "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "SQUEEZE", "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK",
))
# fmt: on

# Offset of a uint8 value from the int8 value that represents it.
_OF_BYTE = -INT8.low


def signed(graph: TfliteFileGraph) -> TfliteFileGraph:
    """Return the graph with int8 instead of uint8, or the same graph if it computes nothing in uint8."""
    tensors = graph.tensors
    if not any(_computes(op, tensors) and _bytes(tensors, op.inputs[:3]) for op in graph.operators):
        return graph
    others = [op for op in graph.operators if op.code not in _COMPUTES | _MOVES]
    plain = {i for op in others for i in (*op.inputs, *op.outputs)} | {*graph.inputs, *graph.outputs}
    made, inner = list(tensors), dict[int, int]()
    for index in _bytes(tensors, range(len(tensors))):
        if index in plain:
            inner[index] = len(made)
            made.append(_of_int8(tensors[index], ".int8"))
        else:
            made[index] = _of_int8(tensors[index])
    return replace(graph, tensors=tuple(made), operators=tuple(_operators(graph, inner)))


def _computes(op: FileOperator, tensors: tuple[FileTensor, ...]) -> bool:
    # Parts of other scales than the whole are computed, too.
    joined = {tensors[i].quant for i in (*op.inputs, *op.outputs) if i is not None}
    return op.code in _COMPUTES or (op.code == "CONCATENATION" and len(joined) > 1)


def _bytes(tensors: tuple[FileTensor, ...], indices: Iterable[int | None]) -> list[int]:
    # Those of quantised numbers of uint8.
    given = (i for i in indices if i is not None)
    return [i for i in given if tensors[i].dtype is DType.UINT8 and tensors[i].quant is not None]


def _of_int8(tensor: FileTensor, ending: str = "") -> FileTensor:
    # The type's name stays: it tells of weights that their zero point counts.
    quant = tensor.quant
    assert quant is not None
    zeros = tuple(zero - _OF_BYTE for zero in quant.zero_points)
    return replace(
        tensor,
        key=f"{tensor.key}{ending}",
        name=f"{tensor.name}{ending}",
        dtype=DType.INT8,
        quant=Quant(quant.scales, zeros, quant.axis),
        data=None if tensor.data is None else _less(tensor.data),
    )


def _less(numbers: Array) -> Array:
    return (numbers.astype(np.int16) - _OF_BYTE).astype(np.int8)


def _operators(graph: TfliteFileGraph, inner: dict[int, int]) -> Iterable[FileOperator]:
    # With conversions where numbers come in as uint8, or are wanted as uint8.
    if not graph.operators:
        return
    first = graph.operators[0]
    yield from (_converted(first, i, inner[i]) for i in graph.inputs if i in inner)
    for op in graph.operators:
        made = [i for i in op.outputs if i in inner]
        if op.code in _COMPUTES | _MOVES:
            yield replace(
                op,
                inputs=tuple(i if i is None else inner.get(i, i) for i in op.inputs),
                outputs=tuple(inner.get(i, i) for i in op.outputs),
            )
            yield from (_converted(op, inner[i], i) for i in made)
        else:
            yield op
            yield from (_converted(op, i, inner[i]) for i in made)


def _converted(near: FileOperator, source: int, to: int) -> FileOperator:
    return FileOperator(near.index, "QUANTIZE", (source,), (to,), "QuantizeOptions", {})
