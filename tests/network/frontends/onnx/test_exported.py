"""Quantised linear layers as PyTorch writes them: one layer of integers, equal to ONNX Runtime."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from crtgen.network.frontends import load_onnx
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.network.frontends.onnx.quantised import expected

_node = helper.make_node


def _model(shape: tuple[int, ...], dtype: Any, each: bool, bias: tuple[str, ...], relu: bool) -> bytes:
    random = np.random.default_rng(5)
    scales = random.uniform(0.005, 0.02, 6 if each else ()).astype(np.float32)
    constants = {
        "xs": np.array(0.03, np.float32),
        "xz": np.array(3, dtype),
        "w": random.integers(-127, 128, (6, 16)).astype(np.int8),
        "ws": scales,
        "wz": np.zeros(scales.shape, np.int8),
        "b": random.normal(0, 1, 6).astype(np.float32),
        "ys": np.array(0.2, np.float32),
        "yz": np.array(5, dtype),
    }
    nodes = [
        _node("QuantizeLinear", ["x", "xs", "xz"], ["q"], name="start"),
        _node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
        _node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        _node("Transpose", ["wd"], ["wt"], perm=[1, 0]),
        _node("MatMul", ["d", "wt"], ["m"], name="linear"),
    ]
    last = "m"
    if bias:
        nodes.append(_node("Add", list(bias), ["a"]))
        last = "a"
    if relu:
        nodes.append(_node("Relu", [last], ["r"]))
        last = "r"
    nodes.append(_node("QuantizeLinear", [last, "ys", "yz"], ["p"]))
    nodes.append(_node("DequantizeLinear", ["p", "ys", "yz"], ["y"], name="end"))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", None))]
    kept = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())


@pytest.mark.parametrize("shape", [(3, 16), (2, 5, 16)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("bias", [(), ("m", "b"), ("b", "m")])
@pytest.mark.parametrize("relu", [False, True])
def test_linear(shape: tuple[int, ...], dtype: Any, each: bool, bias: tuple[str, ...], relu: bool) -> None:
    """ONNX Runtime computes those of more than two dimensions with a bias in float32."""
    model = _model(shape, dtype, each, bias, relu)
    graph = run_passes(load_onnx(model), DEFAULT_PASSES)[0]
    names = [node.name for node in graph.nodes if node.op.name != "reshape"]
    assert names == ["start", "linear", "end"]
    different, total = 0, 0
    for seed in range(4):
        x = np.random.default_rng(seed).normal(0, 1.5, shape).astype(np.float32)
        found, wanted = graph.evaluate({"x": x})[graph.outputs[0]], expected(model, x)
        different, total = different + int((found != wanted).sum()), total + found.size
    assert different <= (0.01 * total if len(shape) > 2 and bias else 0)


def test_a_spectrum_of_a_signal_without_a_last_axis() -> None:
    """ONNX asks for ``[batch, length, 1]``; torch's older exporter writes ``[batch, length]``."""
    random = np.random.default_rng(2)
    x, window = (random.normal(size=shape).astype(np.float32) for shape in ((2, 40), (16,)))
    constants = {"step": np.array(8), "window": window, "size": np.array(16)}
    node = _node("STFT", ["x", *constants], ["y"], onesided=1)
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 4, 9, 2)),
    ]
    kept = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph([node], "net", ends[:1], ends[1:], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    loaded = load_onnx(model.SerializeToString())
    found = loaded.evaluate({"x": x})[loaded.outputs[0]]
    frames = np.stack([x[:, at : at + 16] for at in range(0, 25, 8)], axis=1) * window
    wanted = np.fft.rfft(frames)
    apart = found.astype(np.float64) - np.stack([wanted.real, wanted.imag], axis=-1)
    assert np.abs(apart).max() < 1e-5
