"""Quantisation to 4 and 16 bits, also in ONNX Runtime's own domain, and constants that are dequantised."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from crtgen.base.errors import CorruptModelError
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Array, DType, Graph
from tests.network.frontends.onnx.quantised import expected

_node = helper.make_node
_SHAPE = (1, 3, 8, 8)


def _file(nodes: Sequence[Any], constants: dict[str, Array], shape: Sequence[int], opset: int) -> bytes:
    shapes = (("x", shape), ("y", [None] * len(shape)))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes]
    kept = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], kept)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def _layer(opset: int, domain: str, weights: Any, activations: Any) -> bytes:
    """A convolution with a scale per channel, between a pair of each operator."""
    random = np.random.default_rng(3)
    low, high = (0, 15) if weights is ml_dtypes.uint4 else (-8, 7)
    middle = (low + high + 1) // 2
    numbers = random.integers(low, high, (5, 3, 3, 3), endpoint=True).astype(weights)
    constants = {
        "xs": np.array(4.0 / np.iinfo(activations).max, np.float32),
        "xz": np.array(0 if np.iinfo(activations).min else 100, activations),
        "w": numbers,
        "ws": random.uniform(0.01, 0.05, 5).astype(np.float32),
        "wz": np.full(5, middle, weights),
    }
    pair = ["xs", "xz"]
    nodes = [
        _node("QuantizeLinear", ["x", *pair], ["q"], domain=domain),
        _node("DequantizeLinear", ["q", *pair], ["d"], domain=domain),
        _node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0, domain=domain),
        _node("Conv", ["d", "wd"], ["c"], pads=[1] * 4),
        _node("QuantizeLinear", ["c", *pair], ["p"], domain=domain),
        _node("DequantizeLinear", ["p", *pair], ["y"], domain=domain),
    ]
    return _file(nodes, constants, _SHAPE, opset)


def _images(model: bytes) -> tuple[Graph, int]:
    """The graph, and how many results of four images differ from ONNX Runtime's."""
    graph, apart = load_onnx(model), 0
    for seed in range(4):
        x = np.random.default_rng(seed).normal(size=_SHAPE).astype(np.float32)
        found, wanted = graph.evaluate({"x": x})[graph.outputs[0]], expected(model, x)
        assert (np.abs(found.astype(np.float64) - wanted.astype(np.float64)) < 1e-3).all()
        apart += int((found != wanted).sum())
    return graph, apart


@pytest.mark.parametrize("weights", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize(("opset", "domain"), [(21, ""), (17, "com.microsoft"), (20, "com.microsoft")])
def test_weights_of_four_bits(weights: Any, opset: int, domain: str) -> None:
    """ONNX Runtime's quantiser writes them in its own domain; their sums are of integers all the same."""
    graph, apart = _images(_layer(opset, domain, weights, np.uint8))
    layer = next(node for node in graph.nodes if node.op.name == "conv2d")
    assert apart == 0
    assert graph.signature(layer).x.dtype is DType.INT8


@pytest.mark.parametrize(("opset", "domain"), [(21, ""), (17, "com.microsoft")])
def test_activations_with_a_zero_point_stay_real(opset: int, domain: str) -> None:
    graph, apart = _images(_layer(opset, domain, np.int8, np.uint16))
    assert apart == 0
    assert "are computed in float32 though" in " ".join(graph.notes)


_FLAT = (4, 12)


def _short(code: str, each: bool, behind: str, has_bias: bool) -> tuple[bytes, tuple[int, ...]]:
    """A layer of int16 activations and int8 weights, with a clamp behind it."""
    random, is_conv = np.random.default_rng(5), code == "Conv"
    shape = (1, 4, 6, 5) if is_conv else _FLAT
    weights = random.integers(-128, 128, (6, 2, 3, 3) if is_conv else (12, 6)).astype(np.int8)
    constants: dict[str, Array] = {
        "xs": np.array(2.5 / 32767, np.float32),
        "ys": np.array(8.0 / 32767, np.float32),
        "z": np.array(0, np.int16),
        "w": weights,
        "ws": random.uniform(0.005, 0.02, 6 if each else 1).astype(np.float32),
        "wz": np.zeros(6 if each else 1, np.int8),
        "b": random.normal(0, 0.5, 6).astype(np.float32),
        "low": np.array(0, np.float32),
        "high": np.array(6, np.float32),
    }
    axis, bias = (0 if is_conv else 1), ["b"] if has_bias and code != "MatMul" else []
    attributes: dict[str, Any] = {"pads": [1] * 4, "group": 2} if is_conv else {}
    nodes = [
        _node("QuantizeLinear", ["x", "xs", "z"], ["q"]),
        _node("DequantizeLinear", ["q", "xs", "z"], ["d"]),
        _node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=axis),
        _node(code, ["d", "wd", *bias], ["c"], **attributes),
    ]
    last = "c"
    if has_bias and code == "MatMul":
        nodes.append(_node("Add", ["c", "b"], ["s"]))
        last = "s"
    if behind:
        nodes.append(_node(behind, [last, *(["low", "high"] if behind == "Clip" else [])], ["r"]))
        last = "r"
    nodes.append(_node("QuantizeLinear", [last, "ys", "z"], ["p"]))
    nodes.append(_node("DequantizeLinear", ["p", "ys", "z"], ["y"]))
    used = {name for node in nodes for name in node.input}
    return _file(nodes, {n: a for n, a in constants.items() if n in used}, shape, 21), shape


@pytest.mark.parametrize("code", ["Conv", "Gemm", "MatMul"])
@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize(("behind", "has_bias"), [("", True), ("Relu", False), ("Clip", True)])
def test_layers_of_sixteen_bits(code: str, each: bool, behind: str, has_bias: bool) -> None:
    """Computed in integers, at most one step of 16 bits away from ONNX Runtime's floats.

    Its optimiser would write MatMulNBits, which rounds inputs to eight bits.
    """
    model, shape = _short(code, each, behind, has_bias)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options)
    graph, steps = load_onnx(model), []
    layer = next(node for node in graph.nodes if "w" in "".join(node.inputs) or "dense" in node.op.name)
    assert graph.signature(layer).x.dtype is DType.INT16
    for seed in range(4):
        x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
        found, wanted = graph.evaluate({"x": x})[graph.outputs[0]], session.run(None, {"x": x})[0]
        steps.append(np.abs(found.astype(np.float64) - wanted.astype(np.float64)) / (8.0 / 32767))
    assert np.max(steps) < 1.01
    assert np.mean(steps) < 0.25


@pytest.mark.parametrize("behind", ["", "Relu"])
@pytest.mark.parametrize("is_output", [True, False])
def test_a_real_sum_with_another_reader_is_computed_once(behind: str, is_output: bool) -> None:
    """It stays float32: an integer layer beside it would compute it again."""
    model = onnx.load_from_string(_short("Conv", True, behind, True)[0])
    if not is_output:
        model.graph.node.append(_node("Abs", ["c"], ["other"]))
    name = "c" if is_output else "other"
    model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 6, 6, 5)))
    graph = load_onnx(model.SerializeToString())
    types = [graph.signature(node).x.dtype for node in graph.nodes if node.op.name == "conv2d"]
    assert types == [DType.FLOAT32] * 2  # one of each group


@pytest.mark.parametrize("axis", [0, 1])
def test_a_transposed_constant_that_no_layer_reads(axis: int) -> None:
    """Computed from constants with the names and the axis that it has by then."""
    random = np.random.default_rng(1)
    constants: dict[str, Array] = {
        "w": random.integers(-128, 128, (3, 5)).astype(np.int8),
        "s": random.uniform(0.1, 0.3, (3, 5)[axis]).astype(np.float32),
        "z": np.zeros((3, 5)[axis], np.int8),
    }
    nodes = [
        _node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=axis),
        _node("Transpose", ["d"], ["t"], perm=[1, 0]),
        _node("Mul", ["x", "t"], ["y"]),
    ]
    model, x = _file(nodes, constants, (5, 3), 17), random.normal(size=(5, 3)).astype(np.float32)
    graph = load_onnx(model)
    np.testing.assert_array_equal(graph.evaluate({"x": x})[graph.outputs[0]], expected(model, x))


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
def test_an_infinite_scale(dtype: Any) -> None:
    """Calibration gives it to a mask of infinite values."""
    constants = {"s": np.array(np.inf, np.float32), "z": np.array(0, dtype)}
    nodes = [
        _node("QuantizeLinear", ["x", "s", "z"], ["q"], name="mask"),
        _node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    with pytest.raises(CorruptModelError, match=r"'mask'.*a scale of inf.*-1e4"):
        load_onnx(_file(nodes, constants, (4,), 21))
