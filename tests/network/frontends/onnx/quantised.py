"""Networks that ONNX Runtime's own quantiser quantises, in both formats, with what ONNX Runtime computes."""

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from crtgen.network.ir import Array
from tests.network.frontends.onnx.test_networks import Net

__all__ = [
    "FORMS",
    "NETWORKS",
    "SUMS",
    "Calibration",
    "Form",
    "Whole",
    "added",
    "expected",
    "inputs",
    "pairs",
    "quantised",
    "summed",
]


def _plain() -> Net:
    net = Net(1, 1, 16, 16)
    net.conv(8, 1, 3, pads=[1] * 4)
    net.add("Relu")
    net.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    net.conv(16, 8, 3, pads=[1] * 4)
    net.add("Relu")
    net.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
    net.add("Flatten")
    net.add("Gemm", net.weights(32, 256), net.weights(32), transB=1)
    net.add("Relu")
    net.add("Gemm", net.weights(10, 32), net.weights(10), transB=1)
    return net


def _separable() -> Net:
    net = Net(1, 3, 24, 24)
    net.conv(16, 3, 3, strides=[2, 2], pads=[1] * 4)
    net.add("Relu")
    for stride in (1, 2, 1):
        net.conv(16, 1, 3, group=16, strides=[stride] * 2, pads=[1] * 4)
        net.add("Relu")
        net.conv(16, 16, 1)
        net.add("Relu")
    net.add("GlobalAveragePool")
    net.add("Flatten")
    net.add("Gemm", net.weights(12, 16), net.weights(12), transB=1)
    return net


def _residual() -> Net:
    net = Net(1, 3, 16, 16)
    net.conv(16, 3, 3, pads=[1] * 4)
    start = net.add("Relu")
    net.conv(16, 16, 3, pads=[1] * 4)
    net.add("Relu")
    net.conv(16, 16, 3, pads=[1] * 4)
    net.add("Add", start)
    middle = net.add("Relu")
    side = net.conv(24, 16, 1, strides=[2, 2])
    net.last = middle
    net.conv(24, 16, 3, strides=[2, 2], pads=[1] * 4)
    net.add("Add", side)
    net.add("AveragePool", kernel_shape=[8, 8])
    net.add("Flatten")
    net.add("Gemm", net.weights(10, 24), net.weights(10), transB=1)
    return net


def _autoencoder() -> Net:
    net = Net(1, 64)
    for inputs_, outputs in ((64, 32), (32, 8), (8, 32)):
        net.add("Gemm", net.weights(outputs, inputs_), net.weights(outputs), transB=1)
        net.add("Relu")
    net.add("Gemm", net.weights(64, 32), net.weights(64), transB=1)
    return net


def _functions() -> Net:
    """Functions as tables, a product, a concatenation of different scales."""
    net = Net(1, 4, 12, 12)
    net.conv(8, 4, 3, pads=[1] * 4)
    start = net.add("LeakyRelu", alpha=0.1)
    net.conv(8, 8, 1)
    net.add("Sigmoid")
    gated = net.add("Mul", start)
    net.conv(8, 8, 3, pads=[1] * 4)
    net.add("HardSwish")
    net.add("Concat", gated, axis=1)
    net.conv(6, 16, 3, strides=[2, 2], pads=[1] * 4)
    net.add("Transpose", perm=[0, 2, 3, 1])
    return net


def _attention() -> Net:
    """A block of a transformer without normalisations."""
    net = Net(1, 8, 16)

    def linear(x: str, inputs_: int, outputs: int) -> str:
        net.add("MatMul", net.weights(inputs_, outputs), x=x)
        return net.add("Add", net.weights(outputs))

    query, key, value = (linear("x", 16, 16) for _ in range(3))
    turned = net.add("Transpose", x=key, perm=[0, 2, 1])
    net.add("MatMul", turned, x=query)
    shares = net.add("Softmax", axis=-1)
    net.add("MatMul", value, x=shares)
    start = net.add("Add", "x", x=linear(net.last, 16, 16))
    linear(start, 16, 32)
    net.add("Relu")
    net.add("Add", start, x=linear(net.last, 32, 16))
    return net


def _pieces() -> Net:
    """A tensor in parts, one of which is a constant, and an average over padding."""
    net = Net(1, 8, 6, 6)
    net.conv(8, 8, 1)
    first, second = net.split(2, axis=1)
    start = net.conv(4, 4, 1)
    net.last = first
    net.add("Relu")
    net.add("Concat", net.weights(1, 3, 6, 6), start, second, axis=1)
    net.add("AveragePool", kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
    net.conv(4, 15, 1)
    return net


def _gru() -> Net:
    """A classifier of sequences, whose GRU stays float32."""
    net = Net(10, 1, 6)
    weights = [net.weights(1, 24, 6), net.weights(1, 24, 8), net.weights(1, 48)]
    net.add("GRU", *weights, hidden_size=8)
    net.add("Slice", *(net.integers(*at) for at in ((-1,), (10,), (0,))))
    net.add("Reshape", net.integers(1, 8))
    net.add("Gemm", net.weights(16, 8), net.weights(16), transB=1)
    net.add("Relu")
    net.add("Gemm", net.weights(4, 16), net.weights(4), transB=1)
    return net


NETWORKS: Mapping[str, Callable[[], Net]] = {
    "attention": _attention,
    "autoencoder": _autoencoder,
    "functions": _functions,
    "gru": _gru,
    "pieces": _pieces,
    "plain": _plain,
    "residual": _residual,
    "separable": _separable,
}


@dataclass(frozen=True)
class Form:
    """How a network is quantised."""

    format: QuantFormat
    activations: QuantType
    per_channel: bool
    weights: QuantType = QuantType.QInt8
    real_bias: bool = False


FORMS = {
    "qdq_uint8": Form(QuantFormat.QDQ, QuantType.QUInt8, False),
    "qdq_int8": Form(QuantFormat.QDQ, QuantType.QInt8, True),
    "qdq_real_bias": Form(QuantFormat.QDQ, QuantType.QUInt8, True, real_bias=True),
    "qdq_uint8_weights": Form(QuantFormat.QDQ, QuantType.QUInt8, False, QuantType.QUInt8),
    "qoperator_uint8": Form(QuantFormat.QOperator, QuantType.QUInt8, True),
    "qoperator_int8": Form(QuantFormat.QOperator, QuantType.QInt8, False),
}


class Calibration(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, shape: tuple[int, ...]) -> None:
        random = np.random.default_rng(5)
        self.left = [random.normal(0, 1, shape).astype(np.float32) for _ in range(6)]

    def get_next(self) -> Any:
        return {"x": self.left.pop()} if self.left else None


def quantised(name: str, form: Form) -> bytes:
    """The model, quantised."""
    net = NETWORKS[name]()
    logging.disable(logging.WARNING)
    try:
        with tempfile.TemporaryDirectory() as folder:
            real, made = Path(folder) / "real.onnx", Path(folder) / "made.onnx"
            onnx.save(net.model(), real)
            quantize_static(
                real,
                made,
                Calibration(net.shape),
                quant_format=form.format,
                activation_type=form.activations,
                weight_type=form.weights,
                per_channel=form.per_channel,
                # the format of operators keeps weights per output only behind symmetric activations
                extra_options={
                    "ActivationSymmetric": form == FORMS["qoperator_int8"],
                    "QuantizeBias": not form.real_bias,
                },
            )
            return made.read_bytes()
    finally:
        logging.disable(logging.NOTSET)


def inputs(name: str, count: int) -> Iterator[Array]:
    random = np.random.default_rng(7)
    shape = NETWORKS[name]().shape
    return (random.normal(0, 1.2, shape).astype(np.float32) for _ in range(count))


def expected(model: bytes, x: Array) -> Array:
    """What ONNX Runtime computes."""
    (y,) = _session(model).run(None, {"x": x})
    return np.asarray(y)


@lru_cache(maxsize=4)
def _session(model: bytes) -> Any:
    onnxruntime.set_default_logger_severity(3)
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


Whole = type[np.int8] | type[np.uint8]
SUMS = [([0.05, 0.11, 0.13], [7, -30, 12]), ([0.082, 0.043, 0.13], [-94, -113, -57])]
"""Scales and zero points of two operands and their sum, where many sums are halves."""


def added(kind: Whole, scales: list[float], zeros: list[int]) -> bytes:
    """Two tensors of 256 x 256 numbers, quantised, added, and quantised again.

    Of uint8, the zero points are 128 greater.
    """
    more = 128 if kind is np.uint8 else 0
    nodes, kept = [], []
    for name, scale, zero in zip("xwr", scales, zeros, strict=True):
        kept += [
            numpy_helper.from_array(np.array(scale, np.float32), f"{name}_scale"),
            numpy_helper.from_array(np.array(zero + more, kind), f"{name}_zero"),
        ]
        if name == "r":
            nodes.append(helper.make_node("Add", ["x_real", "w_real"], ["r"]))
        pair = [f"{name}_scale", f"{name}_zero"]
        nodes.append(helper.make_node("QuantizeLinear", [name, *pair], [f"{name}_whole"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_whole", *pair], [f"{name}_real"]))
    x, w, r = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [256, 256]) for n in ("x", "w", "r_real"))
    graph = helper.make_graph(nodes, "added", [x, w], [r], kept)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(made.SerializeToString())


def averaged(scale: float, zero: int) -> bytes:
    """Windows of 2x2 of an image of 8x16 pixels and 4 channels, quantised to uint8 before and behind."""
    kept = [
        numpy_helper.from_array(np.array(scale, np.float32), "scale"),
        numpy_helper.from_array(np.array(zero, np.uint8), "zero"),
    ]
    nodes = []
    for source, end in (("x", "first"), ("mean", "last")):
        nodes.append(helper.make_node("QuantizeLinear", [source, "scale", "zero"], [f"{end}_whole"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{end}_whole", "scale", "zero"], [end]))
    nodes.insert(2, helper.make_node("AveragePool", ["first"], ["mean"], kernel_shape=[2, 2], strides=[2, 2]))
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, *size])
        for name, size in (("x", (8, 16)), ("last", (4, 8)))
    )
    graph = helper.make_graph(nodes, "averaged", [x], [y], kept)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(made.SerializeToString())


def dense(seed: int = 3) -> bytes:
    """A layer of 12 to 4 with a bias, between tensors of int8 at both ends. Every 2048th sum is a tie."""
    random = np.random.default_rng(seed)
    weights, bias = random.integers(-127, 128, (4, 12)), random.integers(-9000, 9000, 4)
    scales = {"x": 2**-5, "w": 3 * 2**-9, "b": 3 * 2**-14, "y": 2**-3}
    zeros: dict[str, Whole | type[np.int32]] = {"x": np.int8, "w": np.int8, "b": np.int32, "y": np.int8}
    kept = [
        numpy_helper.from_array(weights.astype(np.int8), "w"),
        numpy_helper.from_array(bias.astype(np.int32), "b"),
    ]
    for name, kind in zeros.items():
        kept += [
            numpy_helper.from_array(np.array(scales[name], np.float32), f"{name}_scale"),
            numpy_helper.from_array(np.array({"x": 5, "y": -11}.get(name, 0), kind), f"{name}_zero"),
        ]
    nodes = [
        helper.make_node("DequantizeLinear", [n, f"{n}_scale", f"{n}_zero"], [f"{n}_real"]) for n in "xwb"
    ]
    nodes.append(helper.make_node("Gemm", ["x_real", "w_real", "b_real"], ["sum"], transB=1))
    nodes.append(helper.make_node("QuantizeLinear", ["sum", "y_scale", "y_zero"], ["y"]))
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.INT8, [1, size]) for n, size in (("x", 12), ("y", 4))
    )
    graph = helper.make_graph(nodes, "dense", [x], [y], kept)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(made.SerializeToString())


def pairs(scales: list[float], zeros: list[int]) -> tuple[Array, Array]:
    """Inputs of it that quantise to all pairs of int8."""
    whole = np.arange(-128, 128)
    reals = [
        ((whole - z) * np.float64(s)).astype(np.float32) for s, z in zip(scales[:2], zeros[:2], strict=True)
    ]
    x, w = np.meshgrid(*reals, indexing="ij")
    return x, w


def summed(model: bytes, scales: list[float], zeros: list[int]) -> Array:
    """What ONNX Runtime makes of all pairs."""
    x, w = pairs(scales, zeros)
    (y,) = _session(model).run(None, {"x": x, "w": w})
    return np.asarray(y)
