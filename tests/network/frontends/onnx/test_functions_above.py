"""Operators that ONNX defines by simpler ones, in models with newer operators than their definition has."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime import InferenceSession

from crtgen import api
from crtgen.base.errors import CorruptModelError
from crtgen.network.frontends import load_onnx

NEWEST = onnx.defs.onnx_opset_version()
OPSETS = (18, 20, 22, NEWEST)
F = np.float32
ONES = np.linspace(0.5, 1.5, 8, dtype=F)
CASES: dict[str, tuple[int, tuple[int, ...], dict[str, Any], tuple[Any, ...]]] = {
    "LayerNormalization": (17, (1, 4, 8), {"axis": -1}, (ONES, ONES)),
    "Gelu": (20, (1, 8), {"approximate": "tanh"}, ()),
    "GroupNormalization": (21, (1, 4, 3, 3), {"num_groups": 2}, (ONES[:4], ONES[4:])),
    "RMSNormalization": (23, (1, 4, 8), {"axis": -1}, (ONES,)),
    "RotaryEmbedding": (
        *(23, (1, 2, 4, 8), {}),
        (np.resize(ONES, (4, 4)), np.resize(ONES, (4, 4)), np.arange(4, dtype=np.int64)[None]),
    ),
    "Swish": (24, (1, 8), {"alpha": 0.7}, ()),
    "MeanVarianceNormalization": (13, (1, 4, 3, 3), {}, ()),
    "Mish": (18, (1, 8), {}, ()),
    "HardSwish": (14, (1, 8), {}, ()),
    "Celu": (12, (1, 8), {"alpha": 0.7}, ()),
    "LogSoftmax": (13, (1, 8), {}, ()),
}


@pytest.mark.parametrize(
    ("code", "opset"),
    [(code, v) for code, case in CASES.items() for v in (*OPSETS, case[0]) if v >= case[0]],
)
def test_a_definition_serves_newer_models(code: str, opset: int, tmp_path: Path) -> None:
    _, shape, attributes, constants = CASES[code]
    names = [f"k{n}" for n in range(len(constants))]
    node = helper.make_node(code, ["x", *names], ["y"], **attributes)
    x_info, y_info = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y"))
    tensors = [numpy_helper.from_array(array, name) for array, name in zip(constants, names, strict=True)]
    graph = helper.make_graph([node], "g", [x_info], [y_info], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    x = np.random.default_rng(0).standard_normal(shape).astype(F)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    loaded = api.load(tmp_path / "m.onnx")
    assert isinstance(loaded, api.Model)
    given = x.transpose(0, 2, 3, 1) if loaded.inputs[0].shape != shape else x
    (found,) = next(iter(loaded.graph.run([(given,)])))
    difference = np.asarray(found, F).reshape(shape) - np.asarray(expected)
    assert np.abs(difference).max() <= 1e-5 * max(1.0, float(np.abs(expected).max()))


@pytest.mark.parametrize(("opset", "axis", "inputs"), [(12, -1, 3), (16, -2, 2), (9, -1, 3)])
def test_layer_normalisation_before_its_version(opset: int, axis: int, inputs: int) -> None:
    """ONNX Runtime computes it, and its optimiser writes it."""
    shape = (2, 4, 8)
    constants = {"s": np.resize(ONES, shape[axis:]), "b": np.resize(-ONES, shape[axis:])}
    names = ["x", *constants][:inputs]
    node = helper.make_node("LayerNormalization", names, ["y"], axis=axis, epsilon=0.01)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    data = model.SerializeToString()
    x = np.random.default_rng(0).standard_normal(shape).astype(F)
    (expected,) = InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    ((found,),) = load_onnx(data).run([(x,)])
    difference = np.asarray(found, F) - np.asarray(expected, F)
    assert float(np.abs(difference).max()) <= 1e-5 * float(np.abs(np.asarray(expected, F)).max())


@pytest.mark.parametrize("axis", [1, -99])
def test_layer_normalisation_over_axes_that_are_not_known(axis: int) -> None:
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y"], axis=axis)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8)) for name in ("x", "y")]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [numpy_helper.from_array(ONES, "s")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)
    with pytest.raises(CorruptModelError, match="no such operator in opset 12"):
        load_onnx(model.SerializeToString())
