"""Quantisation at run time: what ONNX Runtime's dynamic quantiser writes, and its operators one by one."""

import logging
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from crtgen.boards.core import find_core
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Array, Graph
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.compiler.kernels.program import Run, run_on_host, run_on_qemu
from tests.network.frontends.onnx.test_networks import Net


def _mlp() -> Net:
    net = Net(1, 64)
    for inputs, outputs in ((64, 32), (32, 16)):
        net.add("MatMul", net.weights(inputs, outputs))
        net.add("Add", net.weights(outputs))
        net.add("Relu")
    net.add("Gemm", net.weights(10, 16), net.weights(10), transB=1)
    return net


def _cnn() -> Net:
    """Padded and not, depthwise, and a dense layer."""
    net = Net(1, 3, 16, 16)
    net.conv(8, 3, 3, pads=[1] * 4)
    net.add("Relu")
    net.conv(16, 8, 3, strides=[2, 2])
    net.add("Relu")
    net.conv(16, 1, 3, group=16, pads=[1] * 4)
    net.add("MaxPool", kernel_shape=[7, 7])
    net.add("Flatten")
    net.add("Gemm", net.weights(10, 16), net.weights(10), transB=1)
    return net


def _scores() -> Net:
    """Products of two quantised tensors, which are computed both."""
    net = Net(1, 8, 16)
    query, key = (net.add("MatMul", net.weights(16, 16), x="x") for _ in range(2))
    net.add("MatMul", net.add("Transpose", x=key, perm=[0, 2, 1]), x=query)
    return net


def _lstm() -> Net:
    net = Net(6, 1, 8)
    net.add("LSTM", net.weights(1, 48, 8), net.weights(1, 48, 12), net.weights(1, 96), hidden_size=12)
    return net


_NETWORKS: Mapping[str, Callable[[], Net]] = {"mlp": _mlp, "cnn": _cnn, "scores": _scores}
_KINDS = {"signed": QuantType.QInt8, "unsigned": QuantType.QUInt8}
_ALL = [(name, kind) for name in _NETWORKS for kind in _KINDS]


def _quantised(net: Net, weights: QuantType, each: bool) -> bytes:
    logging.disable(logging.WARNING)
    operators = ["MatMul", "Conv", "LSTM", "Gemm"]
    try:
        with tempfile.TemporaryDirectory() as folder:
            real, made = Path(folder) / "real.onnx", Path(folder) / "made.onnx"
            onnx.save(net.model(), real)
            options = {"MatMulConstBOnly": False}
            quantize_dynamic(real, made, operators, each, weight_type=weights, extra_options=options)
            return made.read_bytes()
    finally:
        logging.disable(logging.NOTSET)


@cache
def _model(name: str, kind: str) -> bytes:
    return _quantised(_NETWORKS[name](), _KINDS[kind], kind == "signed")


def _graph(model: bytes) -> Graph:
    return run_passes(load_onnx(model), DEFAULT_PASSES)[0]


def _expected(model: bytes, feeds: Mapping[str, Array]) -> list[Array]:
    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return [np.asarray(y) for y in session.run(None, dict(feeds))]


def _inputs(name: str) -> list[Array]:
    random, shape = np.random.default_rng(7), _NETWORKS[name]().shape
    zeros = np.zeros(shape, np.float32)
    return [*(random.normal(0, 1.2, shape).astype(np.float32) for _ in range(5)), zeros]


@pytest.mark.parametrize(("name", "kind"), _ALL)
def test_references_equal_onnx_runtime(name: str, kind: str) -> None:
    """Bit for bit: all that is of real numbers is computed element by element."""
    graph = _graph(_model(name, kind))
    for x in _inputs(name):
        found = graph.evaluate({graph.inputs[0]: x})[graph.outputs[0]]
        (wanted,) = _expected(_model(name, kind), {"x": x})
        assert np.array_equal(found.reshape(wanted.shape), wanted)


def _runs() -> list[Run]:
    found = []
    for name, kind in _ALL:
        graph = _graph(_model(name, kind))
        found.append(Run(f"{name}_{kind}", graph, {graph.inputs[0]: _inputs(name)[0]}))
    return found


def _check(printed: list[bytes]) -> None:
    wanted = [_expected(_model(name, kind), {"x": _inputs(name)[0]})[0] for name, kind in _ALL]
    found = [np.frombuffer(data, np.float32) for data in printed]
    wrong = [n for n, f, w in zip(_ALL, found, wanted, strict=True) if not np.array_equal(f, w.reshape(-1))]
    assert wrong == []


@pytest.mark.cc
def test_host(tmp_path: Path) -> None:
    _check(run_on_host(tmp_path, _runs()))


@pytest.mark.qemu
@pytest.mark.parametrize(("machine", "core"), [("mps2-an386", "cortex-m4"), ("mps3-an547", "cortex-m55")])
def test_qemu(tmp_path: Path, machine: str, core: str) -> None:
    _check(run_on_qemu(tmp_path, _runs(), machine, find_core(core)))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", [QuantType.QInt8, QuantType.QUInt8])
def test_an_lstm_is_near_what_is_quantised_at_each_step(kind: QuantType, per_channel: bool) -> None:
    model = _quantised(_lstm(), kind, per_channel)
    graph = load_onnx(model)
    value = onnx.load_from_string(model).graph.input[0]
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    x = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    (found,) = graph.run([(x,)])
    for y, wanted in zip(found, _expected(model, {value.name: x}), strict=True):
        apart = np.abs(y.astype(np.float64) - wanted.astype(np.float64)).max()
        assert apart < 0.02 * np.abs(wanted).max()


def _node(
    code: str, operands: Mapping[str, Array], constants: Mapping[str, Array], **attributes: Any
) -> tuple[bytes, list[str]]:
    """A model of one node with these operands, some of which are constants."""
    names = [*operands, *(n for n in constants if n not in operands)]
    given = {**operands, **constants}
    node = helper.make_node(code, [n if given[n].size else "" for n in sorted(names)], ["y"], **attributes)
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in operands.items()
    ]
    kept = [numpy_helper.from_array(a, n) for n, a in constants.items() if a.size]
    y = helper.make_tensor_value_info("y", _RESULTS.get(code, TensorProto.INT32), None)
    graph = helper.make_graph([node], "net", values, [y], kept)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(onnx.shape_inference.infer_shapes(model).SerializeToString()), list(operands)


_RESULTS = {"DequantizeLinear": TensorProto.FLOAT, "QuantizeLinear": TensorProto.UINT8}


def _equal(
    code: str, operands: Mapping[str, Array], constants: Mapping[str, Array], **attributes: Any
) -> None:
    model, names = _node(code, operands, constants, **attributes)
    graph, feeds = _graph(model), {n: operands[n] for n in names}
    found = graph.evaluate(dict(zip(graph.inputs, feeds.values(), strict=True)))[graph.outputs[0]]
    (wanted,) = _expected(model, feeds)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


_NONE = np.zeros(0, np.uint8)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("pads", [0, 1])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("zero", [None, 0, 200])
def test_conv_integer(known: bool, pads: int, groups: int, zero: int | None) -> None:
    random = np.random.default_rng(groups + pads)
    x = random.integers(0, 256, (1, 4, 6, 5), np.uint8)
    weights = random.integers(0, 256, (8, 4 // groups, 3, 3), np.uint8)
    zeros = _NONE if zero is None else np.array(zero, np.uint8)
    operands, constants = {"a": x}, {"b": weights, "c": zeros, "d": np.array(131, np.uint8)}
    if not known and zero is not None:
        operands["c"] = constants.pop("c")
    _equal("ConvInteger", operands, constants, pads=[pads] * 4, group=groups)


@pytest.mark.parametrize(
    "shapes", [((3, 7), (7, 5)), ((2, 3, 7), (7, 5)), ((2, 3, 7), (2, 7, 4)), ((7,), (7, 2))]
)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("types", [(np.uint8, np.int8), (np.uint8, np.uint8)])
def test_matmul_integer(shapes: tuple[tuple[int, ...], ...], known: bool, types: tuple[Any, Any]) -> None:
    random = np.random.default_rng(5)
    a, b = (
        random.integers(np.iinfo(t).min, np.iinfo(t).max, s, t, endpoint=True)
        for s, t in zip(shapes, types, strict=True)
    )
    zeros = {"c": np.array(77, types[0]), "d": random.integers(0, 120, shapes[1][-1:], types[1])}
    if len(shapes[1]) > 2:
        zeros["d"] = np.array(9, types[1])
    operands, constants = ({"a": a}, {"b": b, **zeros}) if known else ({"a": a, "b": b, **zeros}, {})
    _equal("MatMulInteger", operands, constants)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_scales_of_channels(dtype: Any, axis: int | None) -> None:
    random, shape = np.random.default_rng(2), (3, 4, 5)
    count = () if axis is None else (shape[axis],)
    scale = random.uniform(0.001, 0.01, count).astype(np.float32)
    zero = random.integers(0, 90, count).astype(dtype)
    real = random.normal(0, 1, shape).astype(np.float32)
    operands: dict[str, Array] = {"a": real, "b": scale, "c": zero}
    attributes = {} if axis is None else {"axis": axis}
    _RESULTS["QuantizeLinear"] = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    _equal("QuantizeLinear", operands, {}, **attributes)
    operands["a"] = random.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype)
    _equal("DequantizeLinear", operands, {}, **attributes)


def test_quantised_numbers_as_they_are() -> None:
    """What reads them as whole numbers gets those of the file, not those of int8."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["again"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 9])
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 9]) for n in ("y", "again")]
    kept = [
        numpy_helper.from_array(np.array(0.02, np.float32), "s"),
        numpy_helper.from_array(np.array(100, np.uint8), "z"),
    ]
    graph = helper.make_graph(nodes, "net", [x], outputs, kept)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model, real = made.SerializeToString(), np.linspace(-2, 3, 18, dtype=np.float32).reshape(2, 9)
    loaded = _graph(model)
    found = loaded.evaluate({"x": real})
    for name, wanted in zip(loaded.outputs, _expected(model, {"x": real}), strict=True):
        np.testing.assert_array_equal(found[name], wanted)
