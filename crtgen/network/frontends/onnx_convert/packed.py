"""Weights of four or eight bits in blocks, packed as in ONNX Runtime's ``MatMulNBits``."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import OnnxConverter, OnnxLayer
from crtgen.network.ir import Array, shape_text
from crtgen.network.ops import FullyConnected

__all__ = ["CONVERTERS"]

Real = npt.NDArray[np.float32]


def _unpacked(data: Array, bits: int) -> Array:
    # Numbers of so many bits, the first one in the lowest, along the last axis.
    whole = data.astype(np.int64)
    parts = [(whole >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(*data.shape[:-1], -1)


def _matmul(layer: OnnxLayer) -> Converted:
    # ``x[..., K]`` by weights ``[N, K]`` that become float32, with a bias.
    depth, outputs, bits = layer.whole("K"), layer.whole("N"), layer.whole("bits", 4)
    if bits not in (4, 8):
        raise RefusedOperator(f"weights of {bits} bits; supported: 4, 8")
    if layer.has(4):
        raise RefusedOperator("a permutation of the inputs (g_idx)")
    if layer.whole("accuracy_level") > 1:
        raise RefusedOperator(
            "inputs that are quantised (accuracy_level)", "write the model with accuracy_level 0"
        )
    weights = _weights(layer, depth, outputs, bits)
    bias = layer.constant(5, "biases") if layer.has(5) else np.zeros(outputs, np.float32)
    return Converted(FullyConnected(keep_dims=True), (layer.x, weights, bias), ("weights", "bias"))


def _weights(layer: OnnxLayer, depth: int, outputs: int, bits: int) -> Real:
    size = layer.whole("block_size")
    blocks = -(-depth // size) if size > 0 else 0
    data, scales = layer.constant(1, "weights"), layer.constant(2, "scales")
    fits = data.size * 8 == outputs * blocks * size * bits and scales.size == outputs * blocks
    if not fits or data.dtype != np.uint8:
        text = f"{shape_text(data.shape)} bytes and {scales.size} scales for blocks of {size}"
        raise ValueError(f"{text}, {outputs} outputs and {depth} inputs")
    numbers = _unpacked(data.reshape(outputs, blocks, -1), bits).astype(np.float32)
    zeros = _zeros(layer, outputs, blocks, bits)
    real = (numbers - zeros[:, :, None]) * scales.reshape(outputs, blocks, 1).astype(np.float32)
    rows: Real = real.reshape(outputs, -1)[:, :depth].astype(np.float32)
    return np.ascontiguousarray(rows)


def _zeros(layer: OnnxLayer, outputs: int, blocks: int, bits: int) -> Real:
    # One per output and block; without them half of the range.
    if not layer.has(3):
        return np.full((outputs, blocks), 1 << (bits - 1), np.float32)
    data = layer.constant(3, "zero points")
    if data.dtype != np.uint8:
        return data.reshape(outputs, blocks).astype(np.float32)
    return _unpacked(data.reshape(outputs, -1), bits)[:, :blocks].astype(np.float32)


CONVERTERS: Mapping[str, OnnxConverter] = {
    "com.microsoft.MatMulNBits": OnnxConverter(_matmul, ("matmul",)),
}
