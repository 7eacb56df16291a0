"""Operators of quantised numbers, one by one, and int16: compared with ONNX Runtime."""

import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

from crtgen.base.errors import UnsupportedError
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Array, DType, Graph
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.network.frontends.onnx.quantised import NETWORKS, Calibration, expected, inputs
from tests.network.frontends.onnx.test_networks import Net

_TYPES = [np.uint8, np.int8]


def _graph(model: bytes) -> Graph:
    return run_passes(load_onnx(model), DEFAULT_PASSES)[0]


def _equal(model: bytes, x: Array) -> Graph:
    """The graph, whose output is that of ONNX Runtime."""
    graph = _graph(model)
    np.testing.assert_array_equal(graph.evaluate({"x": x})[graph.outputs[0]], expected(model, x))
    return graph


def _model(code: str, x: Array, others: Mapping[str, Array], names: list[str], **attributes: Any) -> bytes:
    """A model of one operator of ONNX Runtime on ``x``, whose other operands are constants."""
    domain = "" if onnx.defs.has(code) else "com.microsoft"
    node = helper.make_node(code, names, ["y"], name="node", domain=domain, **attributes)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [node],
        "net",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, [None] * x.ndim)],
        [numpy_helper.from_array(array, name) for name, array in others.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return bytes(model.SerializeToString())


def _numbers(dtype: Any, *shape: int, seed: int = 0) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


def _quants(dtype: Any, **scales: float) -> dict[str, Array]:
    """A scale and a zero point for each name."""
    found: dict[str, Array] = {}
    for number, (name, scale) in enumerate(scales.items()):
        found[f"{name}s"] = np.array(scale, np.float32)
        found[f"{name}z"] = np.array(5 + 20 * number, dtype)
    return found


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("code", ["QLinearAdd", "QLinearMul", "QLinearMatMul"])
def test_a_constant_comes_first(code: str, dtype: Any) -> None:
    x = _numbers(dtype, 4, 6)
    others = _quants(dtype, c=0.04, x=0.03, y=0.2) | {"c": _numbers(dtype, 4, 4, seed=1)}
    if code != "QLinearMatMul":
        others["c"] = _numbers(dtype, 6, seed=1)
    _equal(_model(code, x, others, ["c", "cs", "cz", "x", "xs", "xz", "ys", "yz"]), x)


@pytest.mark.parametrize("length", range(2, 10))
def test_halves_of_a_step_in_a_softmax(length: int) -> None:
    """A scale so coarse that only the greatest numbers of a row have a share."""
    x = np.tril(np.full((length, length), 127, np.int8)) + np.triu(
        np.full((length, length), -128, np.int8), 1
    )
    others = _quants(np.int8, x=1.3e36, y=1 / 255) | {"yz": np.array(-128, np.int8)}
    _equal(_model("QLinearSoftmax", x, others, ["x", "xs", "xz", "ys", "yz"], axis=-1, opset=13), x)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize(("alpha", "turned"), [(1.0, 1), (0.37, 0), (2.5, 1)])
def test_gemm_with_a_factor(dtype: Any, alpha: float, turned: int) -> None:
    x = _numbers(dtype, *((12, 7) if turned else (7, 12)))
    others = _quants(dtype, x=0.03, y=0.11) | {
        "w": _numbers(np.int8, 5, 12, seed=1),
        "ws": np.array(0.02, np.float32),
        "wz": np.array(0, np.int8),
        "c": np.arange(-200, 300, 100, dtype=np.int32),
    }
    names = ["x", "xs", "xz", "w", "ws", "wz", "c", "ys", "yz"]
    _equal(_model("QGemm", x, others, names, alpha=alpha, transA=turned, transB=1), x)


@pytest.mark.parametrize("dtype", _TYPES)
def test_one_of_two(dtype: Any) -> None:
    x = _numbers(dtype, 2, 3, 8)
    others = _quants(dtype, x=0.03, o=0.05, y=0.04) | {
        "if": np.arange(8) % 3 == 0,
        "o": _numbers(dtype, 3, 1, seed=2),
    }
    names = ["if", "x", "xs", "xz", "o", "os", "oz", "ys", "yz"]
    graph = _equal(_model("QLinearWhere", x, others, names), x)
    assert "select" in [node.op.name for node in graph.nodes]


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("counted", [0, 1])
def test_averages_over_padding(dtype: Any, counted: int) -> None:
    x, others = _numbers(dtype, 1, 4, 9, 8), _quants(dtype, x=0.0371, y=0.0251)
    attributes = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 1], "count_include_pad": counted}
    model = _model("QLinearAveragePool", x, others, ["x", "xs", "xz", "ys", "yz"], **attributes)
    _equal(model, x)


_HALVES = [
    (0.5, 0.5, 5),
    (0.5, 0.5, -6),
    (0.25, 0.25, 127),
    (1.0, 1.0, -101),
    (0.625, 0.5, -9),
    (0.375, 0.5, 3),
]


@pytest.mark.parametrize(("scale", "end", "zero"), _HALVES)
@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize(("size", "name"), [(8, "average_pool2d"), (2, "mean")])
def test_averages_of_half_a_step(
    dtype: Any, scale: float, end: float, zero: int, size: int, name: str
) -> None:
    """A half goes to the even result, also if the zero point is odd; of a global average, without it."""
    x = _numbers(dtype, 50 // size, 40, size, size)
    point = np.array(zero + (128 if dtype is np.uint8 else 0), dtype)
    others = _quants(dtype, x=scale, y=end) | {"xz": point, "yz": point}
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    graph = _equal(_model("QLinearAveragePool", x, others, ["x", "xs", "xz", "ys", "yz"], **attributes), x)
    assert name in [node.op.name for node in graph.nodes]


def test_averages_of_far_too_large_scales() -> None:
    x, attributes = _numbers(np.int8, 1, 4, 8, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}
    others = _quants(np.int8, x=1e38, y=1e-38)
    model = _model("QLinearAveragePool", x, others, ["x", "xs", "xz", "ys", "yz"], **attributes)
    with pytest.raises(UnsupportedError, match="means are inf of its output's steps: too many"):
        load_onnx(model)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize(("length", "name"), [(8, "average_pool2d"), (9, "quantize")])
def test_averages_whose_windows_are_rounded_up(dtype: Any, length: int, name: str) -> None:
    """Windows that divide the image are averages of integers all the same."""
    x, others = _numbers(dtype, 1, 4, length, 6), _quants(dtype, x=0.0371, y=0.0251)
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}
    model = _model("QLinearAveragePool", x, others, ["x", "xs", "xz", "ys", "yz"], **attributes)
    assert name in [node.op.name for node in _equal(model, x).nodes]


_VOLUMES: tuple[dict[str, Any], ...] = (
    {"pads": [1] * 6},
    {"pads": [0, 1, 0, 2, 1, 1], "strides": [2, 1, 2], "group": 3},
    {"dilations": [2, 1, 1], "group": 6},
)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("attributes", _VOLUMES)
def test_convolutions_of_volumes(dtype: Any, attributes: dict[str, Any]) -> None:
    x, groups = _numbers(dtype, 1, 6, 7, 5, 6), attributes.get("group", 1)
    others = _quants(dtype, x=0.03, y=0.8) | {
        "w": _numbers(np.int8, 6, 6 // groups, 3, 2, 3, seed=1),
        "ws": np.linspace(0.01, 0.03, 6, dtype=np.float32),
        "wz": np.zeros(6, np.int8),
        "b": np.arange(-300, 300, 100, dtype=np.int32),
    }
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    graph = _equal(_model("QLinearConv", x, others, names, **attributes), x)
    assert "add" not in [node.op.name for node in graph.nodes]


@pytest.mark.parametrize("attributes", _VOLUMES)
def test_sums_of_volumes(attributes: dict[str, Any]) -> None:
    x, groups = _numbers(np.uint8, 1, 6, 7, 5, 6), attributes.get("group", 1)
    others = {"w": _numbers(np.int8, 6, 6 // groups, 3, 2, 3, seed=1), "xz": np.array(77, np.uint8)}
    model = onnx.load_from_string(_model("ConvInteger", x, others, ["x", "w", "xz"], **attributes))
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT32
    _equal(model.SerializeToString(), x)


@pytest.mark.parametrize("dtype", _TYPES)
def test_averages_of_volumes(dtype: Any) -> None:
    x, others = _numbers(dtype, 1, 3, 4, 6, 8), _quants(dtype, x=0.0371, y=0.0251)
    attributes = {"kernel_shape": [2, 3, 2], "strides": [2, 3, 2]}
    _equal(_model("QLinearAveragePool", x, others, ["x", "xs", "xz", "ys", "yz"], **attributes), x)


def _static(net: Net, activations: QuantType, weights: QuantType) -> bytes:
    logging.disable(logging.WARNING)
    try:
        with tempfile.TemporaryDirectory() as folder:
            real, made = Path(folder) / "real.onnx", Path(folder) / "made.onnx"
            model = onnx.version_converter.convert_version(net.model(), 21)
            onnx.save(model, real)
            quantize_static(
                real,
                made,
                Calibration(net.shape),
                quant_format=QuantFormat.QDQ,
                activation_type=activations,
                weight_type=weights,
            )
            return made.read_bytes()
    finally:
        logging.disable(logging.NOTSET)


def test_gemm_with_factors_between_two_quantisations() -> None:
    """ONNX Runtime computes it in float32, and so does crtgen."""
    net = Net(6, 16)
    net.add("Gemm", net.weights(16, 8), net.weights(8), alpha=0.5, beta=2.0)
    net.add("Relu")
    net.add("Gemm", net.weights(6, 5), net.weights(5), transA=1)
    model = _static(net, QuantType.QUInt8, QuantType.QInt8)
    _equal(model, np.random.default_rng(1).normal(0, 1, (6, 16)).astype(np.float32))


@pytest.mark.parametrize("name", ["plain", "pieces", "autoencoder"])
@pytest.mark.parametrize("kind", [QuantType.QInt16, QuantType.QUInt16])
def test_activations_of_16_bits(name: str, kind: QuantType) -> None:
    """Layers are computed in float32, as ONNX Runtime does it: sums may be rounded otherwise."""
    model = _static(NETWORKS[name](), kind, QuantType.QInt8)
    graph = _graph(model)
    for x in inputs(name, 4):
        found = graph.evaluate({graph.inputs[0]: x})[graph.outputs[0]]
        wanted = expected(model, x)
        assert np.allclose(found, wanted, atol=1e-4 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_packed_weights(bits: int, zeros: bool) -> None:
    """They become float32."""
    random, outputs, depth, size = np.random.default_rng(bits), 6, 40, 16
    blocks = -(-depth // size)
    x = random.normal(0, 1, (3, depth)).astype(np.float32)
    others: dict[str, Array] = {
        "w": random.integers(0, 256, (outputs, blocks, size * bits // 8), np.uint8),
        "s": random.uniform(0.01, 0.1, (outputs, blocks)).astype(np.float32),
    }
    if zeros:
        others["z"] = random.integers(0, 256, (outputs, -(-blocks * bits // 8)), np.uint8)
    attributes = {"K": depth, "N": outputs, "bits": bits, "block_size": size}
    model = _model("MatMulNBits", x, others, ["x", *others], **attributes)
    graph = _graph(model)
    assert np.allclose(graph.evaluate({"x": x})[graph.outputs[0]], expected(model, x), rtol=1e-4, atol=1e-4)


def test_weights_in_blocks_of_four_bits() -> None:
    """They become float32."""
    random = np.random.default_rng(0)
    weights = helper.make_tensor("w", TensorProto.INT4, (8, 6), random.integers(-8, 8, 48).tolist())
    scales = numpy_helper.from_array(random.uniform(0.01, 0.1, (2, 6)).astype(np.float32), "s")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=4),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [3, 8]), ("y", [3, 6])))
    graph = helper.make_graph(nodes, "net", [x], [y], [weights, scales])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    data, real = model.SerializeToString(), random.normal(0, 1, (3, 8)).astype(np.float32)
    loaded = _graph(data)
    onnxruntime.set_default_logger_severity(3)
    found = loaded.evaluate({"x": real})[loaded.outputs[0]]
    assert np.allclose(found, expected(data, real), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activations", [QuantType.QUInt8, QuantType.QInt8])
def test_a_bias_that_two_layers_share(activations: QuantType) -> None:
    """It has the scale of one of them, as the quantiser writes it by channels: in the other, steps differ."""
    net = Net(1, 3, 6, 6)
    bias = net.weights(4)
    net.add("Conv", net.weights(4, 3, 3, 3), bias)
    net.add("Conv", net.weights(4, 4, 3, 3), bias)
    made = onnx.load_from_string(_static(net, activations, QuantType.QInt8))
    first, second = (node for node in made.graph.node if node.op_type == "Conv")
    first.input[2] = second.input[2]
    model = made.SerializeToString()
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=net.shape).astype(np.float32)
        graph = _equal(model, x)
        own = [graph.signature(node).x.dtype for node in graph.nodes if node.op.name == "conv2d"]
        assert own == [DType.INT8] * 2


@pytest.mark.parametrize("shape", [(5,), (1, 5)])
def test_a_bias_that_stays_real(shape: tuple[int, ...]) -> None:
    """It is rounded to steps of the sums, also if it is written as a row."""
    random = np.random.default_rng(4)
    constants: dict[str, Array] = {
        **_quants(np.int8, x=0.02, y=0.05),
        **{"w": _numbers(np.int8, 8, 5), "ws": np.array(0.01, np.float32)},
        "bias": random.normal(0, 1, shape).astype(np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "xz"], ["xr"]),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["wr"]),
        helper.make_node("Gemm", ["xr", "wr", "bias"], ["sum"]),
        helper.make_node("QuantizeLinear", ["sum", "ys", "yz"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [3, 8]), ("y", [3, 5])))
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "net", [x], [y], weights),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    graph = _equal(model.SerializeToString(), random.normal(0, 1, (3, 8)).astype(np.float32))
    assert [graph.signature(n).x.dtype for n in graph.nodes if n.op.name == "fully_connected"] == [DType.INT8]
