"""Support vector machines against ONNX Runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Array
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.compiler.kernels.program import Run, check_outputs, run_on_host

_FEATURES, _VECTORS, _ROWS = 5, 12, 7
_PARAMS = {
    "LINEAR": [0.0, 0.0, 0.0],
    "RBF": [0.3, 0.0, 3.0],
    "POLY": [0.2, 0.5, 3.0],
    "SIGMOID": [0.1, 0.2, 3.0],
}


def _model(kind: str, code: str = "SVMRegressor", **more: Any) -> bytes:
    random = np.random.default_rng(1)
    given: dict[str, Any] = {
        "kernel_type": kind,
        "kernel_params": _PARAMS.get(kind, [0.0, 0.0, 0.0]),
        "n_supports": _VECTORS,
        "support_vectors": random.normal(size=_VECTORS * _FEATURES).astype(np.float32).tolist(),
        "coefficients": random.normal(size=_VECTORS).astype(np.float32).tolist(),
        "rho": [0.25],
        **more,
    }
    if code != "SVMRegressor":
        del given["n_supports"]
    outputs = ["y"] if code == "SVMRegressor" else ["label", "y"]
    node = helper.make_node(code, ["x"], outputs, domain="ai.onnx.ml", **given)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [_ROWS, _FEATURES])
    y = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [_ROWS, 1])]
    if code != "SVMRegressor":
        kind_of_label = TensorProto.INT64 if "classlabels_ints" in given else TensorProto.STRING
        y = [
            helper.make_tensor_value_info("label", kind_of_label, [_ROWS]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [_ROWS, None]),
        ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node], "svm", [x], y)
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def _classes(kind: str, count: int, **more: Any) -> bytes:
    random = np.random.default_rng(count)
    sizes = [_VECTORS // count] * count
    given = {
        "classlabels_ints": [7 * n - 3 for n in range(count)],
        "vectors_per_class": sizes,
        "coefficients": random.normal(size=(count - 1) * _VECTORS).astype(np.float32).tolist(),
        "rho": random.normal(size=count * (count - 1) // 2).astype(np.float32).tolist(),
        **more,
    }
    return _model(kind, "SVMClassifier", **{k: v for k, v in given.items() if v is not None})


def _x() -> Array:
    return np.random.default_rng(2).normal(size=(_ROWS, _FEATURES)).astype(np.float32)


_MODELS = {
    **{kind: _model(kind) for kind in _PARAMS},
    "novelty": _model("RBF", one_class=1, rho=[0.0]),
    "linear_weights": _model(
        "LINEAR", n_supports=0, support_vectors=[0.0], coefficients=[0.5, -1.0, 2.0, 0.1, -0.3]
    ),
}


@pytest.mark.cc
def test_classes_are_onnx_runtimes(tmp_path: Path) -> None:
    runs, labels = [], set()
    for kind, count in [("RBF", 2), ("LINEAR", 3), ("POLY", 4), ("SIGMOID", 3), ("RBF", 6)]:
        data = _classes(kind, count)
        graph, _ = run_passes(load_onnx(data), DEFAULT_PASSES)
        label, values = ort.InferenceSession(data).run(None, {"x": _x()})
        ((found, scores),) = graph.run([(_x(),)])
        np.testing.assert_array_equal(found, label)
        np.testing.assert_allclose(np.float64(scores), np.float64(values), atol=1e-5)
        labels |= {*map(int, label)}
        runs.append(Run(f"{kind}_{count}", graph, {"x": _x()}))
    printed = run_on_host(tmp_path, runs)
    assert not [text for run, data in zip(runs, printed, strict=True) if (text := check_outputs(run, data))]
    assert len(labels) > 3


@pytest.mark.cc
def test_outputs_are_onnx_runtimes(tmp_path: Path) -> None:
    runs = []
    for name, data in _MODELS.items():
        graph, _ = run_passes(load_onnx(data), DEFAULT_PASSES)
        (y,) = ort.InferenceSession(data).run(None, {"x": _x()})
        ((found,),) = graph.run([(_x(),)])
        np.testing.assert_allclose(found.astype(np.float64), np.asarray(y, np.float64), atol=1e-5)
        assert len(np.unique(y)) > 1
        runs.append(Run(name, graph, {"x": _x()}))
    printed = run_on_host(tmp_path, runs)
    found_ = (check_outputs(run, data) for run, data in zip(runs, printed, strict=True))
    assert [text for text in found_ if text] == []


def test_words_of_classes_are_left_out() -> None:
    data = _classes("RBF", 3, classlabels_ints=None, classlabels_strings=["no", "yes", "maybe"])
    graph = load_onnx(data)
    (values,) = ort.InferenceSession(data).run(["y"], {"x": _x()})
    ((found,),) = graph.run([(_x(),)])
    np.testing.assert_allclose(np.float64(found), np.float64(values), atol=1e-5)


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="kernel_type COSINE"):
        load_onnx(_model("COSINE"))
    with pytest.raises(CorruptModelError, match="60 numbers for 13 vectors"):
        load_onnx(_model("RBF", n_supports=13))
    with pytest.raises(UnsupportedError, match="probabilities of classes"):
        load_onnx(_classes("RBF", 2, prob_a=[-1.0], prob_b=[0.0]))
    with pytest.raises(CorruptModelError, match="12 coefficients and 2 rhos for 2 classes"):
        load_onnx(_classes("RBF", 2, rho=[0.5, 0.5]))
    with pytest.raises(CorruptModelError, match="4 labels for vectors of 3 classes"):
        load_onnx(_classes("RBF", 3, classlabels_ints=[1, 2, 3, 4]))
