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
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [_ROWS, 1])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node], "svm", [x], [y])
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


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


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="kernel_type COSINE"):
        load_onnx(_model("COSINE"))
    with pytest.raises(CorruptModelError, match="60 numbers for 13 vectors"):
        load_onnx(_model("RBF", n_supports=13))
    classes = {"classlabels_ints": [0, 1], "vectors_per_class": [6, 6]}
    with pytest.raises(UnsupportedError, match="classes by votes of support vectors"):
        load_onnx(_model("RBF", "SVMClassifier", **classes))
