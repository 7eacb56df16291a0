"""Convolutions by weights and biases that are computed at run time."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from crtgen.base.errors import UnsupportedError
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Array
from tests.compiler.kernels.program import Run, run_on_host


def _model(inputs: dict[str, Array], fixed: Sequence[str], **attributes: Any) -> bytes:
    node = helper.make_node("Conv", list(inputs), ["y"], **attributes)
    given = [n for n in inputs if n not in fixed]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, inputs[n].shape) for n in given]
    known = [numpy_helper.from_array(inputs[name], name) for name in fixed]
    end = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * inputs["x"].ndim)
    graph = helper.make_graph([node], "model", values, [end], known)
    opsets = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def _inputs(spatial: int, groups: int) -> dict[str, Array]:
    random = np.random.default_rng(groups)
    shapes = {"x": (2, 4, *(9, 7)[:spatial]), "w": (8, 4 // groups, *(3, 2)[:spatial]), "b": (8,)}
    return {name: random.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("spatial", [1, 2])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("fixed", [(), ("w",), ("b",)])
def test_they_are_those_of_the_runtime(spatial: int, groups: int, fixed: tuple[str, ...]) -> None:
    """Strides, dilations, and padding on one side."""
    inputs = _inputs(spatial, groups)
    lists = {"pads": [1, 0][:spatial] + [2, 1][:spatial], "strides": [2, 1][:spatial]}
    model = _model(inputs, fixed, group=groups, dilations=[1, 2][:spatial], **lists)
    given = {name: array for name, array in inputs.items() if name not in fixed}
    (expected,) = onnxruntime.InferenceSession(model).run(None, given)
    ((got,),) = load_onnx(model).run([list(given.values())])
    assert got.shape == np.shape(expected)
    assert np.abs(got.astype(np.float64) - expected).max() < 1e-5


@pytest.mark.cc
def test_generated_code(tmp_path: Path) -> None:
    inputs = _inputs(2, 2)
    graph = load_onnx(_model(inputs, (), group=2, pads=[1, 1, 1, 1]))
    ((expected,),) = graph.run([list(inputs.values())])
    (printed,) = run_on_host(
        tmp_path, [Run("net", graph, dict(zip(graph.inputs, inputs.values(), strict=True)))]
    )
    got = np.frombuffer(printed, np.float32).reshape(expected.shape)
    assert np.abs(got - expected.astype(np.float64)).max() < 1e-5


def test_windows_of_many_weights_are_refused() -> None:
    inputs: dict[str, Array] = {
        "x": np.zeros((1, 1, 9, 9), np.float32),
        "w": np.zeros((1, 1, 9, 9), np.float32),
    }
    with pytest.raises(UnsupportedError, match="81 weights of a window"):
        load_onnx(_model(inputs, ()))
