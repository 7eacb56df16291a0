"""Quantised tensors among operators that take whole numbers as they stand: equal to ONNX Runtime."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Array
from crtgen.network.passes import DEFAULT_PASSES, run_passes

_node = helper.make_node
_PADS = {"p": np.array([1, 0, 1, 0])}
_Q = _node("QuantizeLinear", ["x", "s", "z"], ["q"])
_D = _node("DequantizeLinear", ["t", "s", "z"], ["y"])
_C = _node("Cast", ["t"], ["y"], to=TensorProto.FLOAT)
_WEIGHTS = {"w": np.arange(-4, 4).reshape(4, 2).astype(np.int8)}

_CASES: Mapping[str, tuple[Sequence[Any], tuple[int, ...], Mapping[str, Array]]] = {
    "moved_before_a_cast": ([_Q, _node("Transpose", ["q"], ["t"], perm=[1, 0]), _C], (3, 4), {}),
    "greatest": ([_Q, _node("Max", ["q", "z"], ["t"]), _D], (3, 4), {}),
    "chosen": ([_Q, _node("Where", ["c", "q", "z"], ["t"]), _D], (3, 4), {"c": np.arange(4) % 2 == 0}),
    "padded": ([_Q, _node("Pad", ["q", "p", "z"], ["t"]), _D], (3, 4), _PADS),
    "padded_by_zero": ([_Q, _node("Pad", ["q", "p"], ["t"]), _D], (3, 4), _PADS),
    "mirrored": ([_Q, _node("Pad", ["q", "p"], ["t"], mode="reflect"), _D], (3, 4), _PADS),
    "joined": (
        [_Q, _node("Concat", ["q", "o"], ["t"], axis=0), _D],
        (3, 4),
        {"o": np.array([[1, 99, 3, 4]])},
    ),
    "joined_first": (
        [_Q, _node("Concat", ["o", "q"], ["t"], axis=0), _D],
        (3, 4),
        {"o": np.array([[7] * 4])},
    ),
    "greatest_of_windows": (
        [_Q, _node("MaxPool", ["q"], ["t"], kernel_shape=[2, 2], pads=[1, 1, 0, 0]), _D],
        (1, 2, 4, 4),
        {},
    ),
    "product": ([_Q, _node("MatMulInteger", ["q", "w", "z"], ["t"]), _C], (3, 4), _WEIGHTS),
    "product_without_zero": ([_Q, _node("MatMulInteger", ["q", "w"], ["t"]), _C], (3, 4), _WEIGHTS),
}


def _check(nodes: Sequence[Any], x: Array, dtype: Any, more: Mapping[str, Array]) -> None:
    kept = {"s": np.array(0.02, np.float32), "z": np.array(100, dtype)}
    kept |= {n: a.astype(dtype) if n == "o" else a for n, a in more.items()}
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in kept.items()],
    )
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=sets, ir_version=9)
    model = onnx.shape_inference.infer_shapes(made).SerializeToString()
    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, wanted.shape))
    model = onnx.shape_inference.infer_shapes(made).SerializeToString()
    loaded = run_passes(load_onnx(model), DEFAULT_PASSES)[0]
    np.testing.assert_array_equal(loaded.evaluate({"x": x})[loaded.outputs[0]], wanted)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("name", _CASES)
def test_of_real_inputs(name: str, dtype: Any) -> None:
    nodes, shape, more = _CASES[name]
    _check(nodes, np.random.default_rng(0).normal(0, 1, shape).astype(np.float32), dtype, more)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("name", _CASES)
def test_of_tensors_whose_type_no_file_states(name: str, dtype: Any) -> None:
    """ONNX infers no types of ONNX Runtime's own operators, and its quantiser writes none."""
    nodes, shape, more = _CASES[name]
    first = _node("QuantizeLinear", ["x", "s", "z"], ["before"])
    layer = _node("QLinearAdd", ["before", "s", "z"] * 2 + ["s", "z"], ["q"], domain="com.microsoft")
    x = np.random.default_rng(0).normal(0, 0.5, shape).astype(np.float32)
    _check([first, layer, *nodes[1:]], x, dtype, more)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_of_inputs_that_are_quantised_later(dtype: Any) -> None:
    info = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(info.min, info.max, (3, 4), dtype, endpoint=True)
    _check([_node("Transpose", ["x"], ["t"], perm=[1, 0]), _D], x, dtype, {})
    real = np.random.default_rng(1).uniform(0, 100, (3, 4)).astype(np.float32)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    _check([_node("Cast", ["x"], ["t"], to=to), _D], real, dtype, {})


def test_parts_that_nothing_reads_are_left_out() -> None:
    """Each part of a Split is quantised apart, and an operator leaves out an input, whose name is empty."""
    nodes = [
        _Q,
        _node("DequantizeLinear", ["q", "s", "z"], ["real"]),
        _node("Split", ["real"], ["a", "b"], axis=1),
        _node("QuantizeLinear", ["a", "s", "z"], ["aq"]),
        _node("QuantizeLinear", ["b", "s", "z"], ["bq"]),
        _node("DequantizeLinear", ["aq", "s", "z"], ["unread"]),
        _node("DequantizeLinear", ["bq", "s", "z"], ["part"]),
        _node("Clip", ["part", "", "most"], ["y"]),
    ]
    x = np.random.default_rng(0).normal(0, 1, (3, 4)).astype(np.float32)
    _check(nodes, x, np.uint8, {"most": np.array(0.1, np.float32)})
