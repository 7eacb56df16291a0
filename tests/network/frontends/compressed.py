"""Models whose constants are compressed, as TFLite Micro has them."""

from collections.abc import Sequence

import flatbuffers
import numpy as np
from tflite_micro.tensorflow.lite.micro.compression import spec
from tflite_micro.tensorflow.lite.micro.compression.compress import compress
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from crtgen.network.ir import Array
from tests.tflite_builder import Model, Operator, Tensor

__all__ = ["SHAPE", "by_metadata", "clustered", "coding", "compressed", "maximum", "packed_bits"]

SHAPE = (4, 6)
_WEIGHTED = (schema.BuiltinOperator.CONV_2D, schema.BuiltinOperator.DEPTHWISE_CONV_2D)
_DENSE = schema.BuiltinOperator.FULLY_CONNECTED


def coding(kind: int, parameters: Sequence[int], tables: Array, version: int = 1) -> Array:
    """The constant that says how a TFLM_DECODE decodes: 16 bytes and tables."""
    header = bytes([kind, version, 0, 0]) + bytes(parameters).ljust(12, b"\0")
    return np.frombuffer(header + tables.tobytes(), np.uint8)


def packed_bits(numbers: Array, bits: int) -> Array:
    """Numbers of so many bits side by side, the highest bit first."""
    ones = numbers.reshape(-1, 1).astype(np.int64) >> np.arange(bits)[::-1] & 1
    return np.packbits(ones.astype(np.uint8))


def maximum(
    encoded: Array,
    ancillary: Array,
    scales: Sequence[float] = (0.5,),
    axis: int = 0,
    dtype: str = "int8",
    zero: int = 0,
    shape: Sequence[int] = SHAPE,
    constant: bool = True,
) -> bytes:
    """The greater one of an input and of what is decoded, both of ``shape``; codes may be an input, too."""
    tensors = [
        Tensor("x", shape, dtype, [0.5], [zero]),
        Tensor("codes", encoded.shape, "uint8", data=encoded if constant else None),
        Tensor("tables", ancillary.shape, "uint8", data=ancillary),
        Tensor("w", shape, dtype, scales, [zero] * len(scales), axis),
        Tensor("y", shape, dtype, [0.5], [zero]),
    ]
    operators = [
        Operator("CUSTOM TFLM_DECODE", ["codes", "tables"], ["w"]),
        Operator("MAXIMUM", ["x", "w"], ["y"]),
    ]
    return Model(tensors, operators, ["x"] if constant else ["x", "codes"], ["y"]).to_bytes()


def clustered(data: bytes, values: int) -> tuple[bytes, list[tuple[int, bool, int]]]:
    """The model with as many different weights in each layer at most.

    Beside it, for each layer: the tensor, whether scales are those of channels, and the axis of these.
    """
    model = schema.ModelT.InitFromPackedBuf(bytearray(data), 0)
    graph, found = model.subgraphs[0], []
    levels = np.linspace(-127, 127, values).round().astype(np.int8)
    for operator in graph.operators:
        code = model.operatorCodes[operator.opcodeIndex]
        code.builtinCode = number = max(code.builtinCode, code.deprecatedBuiltinCode)
        if number not in (*_WEIGHTED, _DENSE):
            continue
        tensor = graph.tensors[operator.inputs[1]]
        buffer = model.buffers[tensor.buffer]
        weights = np.array(buffer.data, np.uint8).view(np.int8).astype(np.int64)
        nearest = np.abs(weights[:, None] - levels.astype(np.int64)).argmin(axis=1)
        buffer.data = levels[nearest].view(np.uint8)
        axis = 3 if number == schema.BuiltinOperator.DEPTHWISE_CONV_2D else 0
        found.append((operator.inputs[1], len(tensor.quantization.scale) > 1, axis))
    return _written(model), found


def compressed(data: bytes, layers: list[tuple[int, bool, int]], bits: int, by_channel: bool) -> bytes:
    """The model by the package's tool; tables are those of channels where scales are, if ``by_channel``."""
    tensors = []
    for tensor, scaled, axis in layers:
        mode = spec.PerChannel(axis) if by_channel and scaled else spec.PerTensor()
        tensors.append(spec.Tensor(0, tensor, [spec.LookUpTableCompression(bits, mode)]))
    return bytes(compress(data, tensors))


def by_metadata(
    data: bytes, tensor: int, indices: Array, tables: Array, bits: int, version: int = 1
) -> bytes:
    """The model with the older form of compression for one tensor."""
    model = schema.ModelT.InitFromPackedBuf(bytearray(data), 0)
    model.buffers[model.subgraphs[0].tensors[tensor].buffer].data = indices
    metadata = _metadata(tensor, len(model.buffers), bits, version)
    for content in (tables.ravel().view(np.uint8), np.frombuffer(metadata, np.uint8)):
        buffer = schema.BufferT()
        buffer.data = content
        model.buffers.append(buffer)
    entry = schema.MetadataT()
    entry.name, entry.buffer = b"COMPRESSION_METADATA", len(model.buffers) - 1
    model.metadata = [*(model.metadata or []), entry]
    return _written(model)


def _written(model: schema.ModelT) -> bytes:
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _metadata(tensor: int, values: int, bits: int, version: int) -> bytes:
    b = flatbuffers.Builder(0)

    def vector(item: int) -> int:
        b.StartVector(4, 1, 4)
        b.PrependUOffsetTRelative(item)
        return int(b.EndVector())

    b.StartObject(3)
    b.PrependInt32Slot(0, tensor, 0)
    b.PrependUint32Slot(1, values, 0)
    b.PrependUint8Slot(2, bits, 0)
    tensors = vector(b.EndObject())
    b.StartObject(1)
    b.PrependUOffsetTRelativeSlot(0, tensors, 0)
    subgraphs = vector(b.EndObject())
    b.StartObject(2)
    b.PrependUint32Slot(0, version, 1)
    b.PrependUOffsetTRelativeSlot(1, subgraphs, 0)
    b.Finish(b.EndObject())
    return bytes(b.Output())
