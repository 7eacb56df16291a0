"""Operators of scikit-learn's pipelines, compared with ONNX Runtime."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from crtgen.base.errors import CorruptModelError
from crtgen.boards.core import find_core
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Array
from tests.compiler.kernels.program import Run, run_on_host, run_on_qemu


def _model(code: str, x: Array, domain: str = "ai.onnx.ml", stated: Any = None, **attributes: Any) -> bytes:
    node = helper.make_node(code, ["x"], ["y"], name="node", domain=domain, **attributes)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    shape = stated or [None] * (x.ndim + (code == "OneHotEncoder"))
    ends = [
        helper.make_tensor_value_info(*end) for end in (("x", kind, x.shape), ("y", TensorProto.FLOAT, shape))
    ]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node], "net", ends[:1], ends[1:])
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def _reals() -> Array:
    x = np.random.default_rng(2).normal(size=(3, 4)).astype(np.float32)
    x[0, 1] = x[2] = np.nan
    x[1, 2], x[1, 3], x[1, 1] = -1.0, np.inf, -0.0
    return x


_CASES: list[tuple[str, Array, dict[str, Any]]] = [
    ("Imputer", _reals(), {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": np.nan}),
    ("Imputer", _reals(), {"imputed_value_floats": [0.5], "replaced_value_float": np.nan}),
    ("Imputer", _reals(), {"imputed_value_floats": [9.0], "replaced_value_float": -1.0}),
    ("Imputer", _reals(), {"imputed_value_floats": [9.0, 8.0, 7.0, 6.0], "replaced_value_float": 0.0}),
    (
        "LabelEncoder",
        np.array([[3, 0], [7, 5]], np.int64),
        {"keys_int64s": [5, 3, 8], "values_floats": [0.5, -2.0, 7.25], "default_float": 9.0},
    ),
    (
        "LabelEncoder",
        np.array([[3.5, -0.0], [7, 5]], np.float32),
        {"keys_floats": [0.0, 3.5, 8.0], "values_floats": [0.5, -2.0, 7.25]},
    ),
    ("OneHotEncoder", np.array([[3, 0], [7, 5]], np.int64), {"cats_int64s": [0, 3, 5], "zeros": 1}),
    ("OneHotEncoder", np.array([[3.7, -0.2], [7, 5]], np.float32), {"cats_int64s": [0, 3, 5], "zeros": 1}),
]


@pytest.mark.parametrize(("code", "x", "attributes"), _CASES)
def test_it_is_what_onnx_runtime_computes(code: str, x: Array, attributes: dict[str, Any]) -> None:
    data = _model(code, x, **attributes)
    (wanted,) = onnxruntime.InferenceSession(data).run(None, {"x": x})
    ((found,),) = load_onnx(data).run([[x]])
    np.testing.assert_array_equal(found, wanted)


def _runs() -> list[Run]:
    graphs = [load_onnx(_model(code, x, **given)) for code, x, given in _CASES]
    return [Run(f"case{n}", graph, {"x": _CASES[n][1]}) for n, graph in enumerate(graphs)]


def _check(printed: list[bytes]) -> None:
    for (code, x, given), data in zip(_CASES, printed, strict=True):
        (wanted,) = onnxruntime.InferenceSession(_model(code, x, **given)).run(None, {"x": x})
        assert np.asarray(wanted).tobytes() == data


@pytest.mark.cc
def test_host(tmp_path: Path) -> None:
    _check(run_on_host(tmp_path, _runs()))


@pytest.mark.qemu
def test_qemu(tmp_path: Path) -> None:
    _check(run_on_qemu(tmp_path, _runs(), "mps2-an386", find_core("cortex-m4")))


def test_a_shape_that_is_stated_wrongly_is_inferred() -> None:
    """skl2onnx states the outputs' shapes of some models wrongly; ONNX Runtime computes them."""
    x = np.ones((3, 4), np.float32)
    graph = load_onnx(_model("Abs", x, "", (3, 7)))
    assert graph.values[graph.outputs[0]].shape == (3, 4)


def test_types_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CorruptModelError):
        load_onnx(_model("IsNaN", np.ones((3, 4), np.float32), "", (3, 4)))
