"""Boxes, regions of images, and convolutions that look where they are told to."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from crtgen.base.errors import UnsupportedError
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Array
from tests.compiler.kernels.program import Run, run_on_host


def _model(node: Any, inputs: Mapping[str, Array], constants: Mapping[str, Array], opset: int = 22) -> bytes:
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in inputs.items()
    ]
    kind = 7 if node.op_type == "NonMaxSuppression" else 1
    outputs = [helper.make_tensor_value_info("y", kind, [None] * (2 if kind == 7 else 4))]
    known = [numpy_helper.from_array(a, name) for name, a in constants.items()]
    graph = helper.make_graph([node], "model", given, outputs, known)
    opsets = [helper.make_opsetid("", opset)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def _outputs(model: bytes, inputs: Mapping[str, Array], tmp_path: Path) -> tuple[Any, Any]:
    """By the references, and by generated C."""
    graph = load_onnx(model)
    ((made,),) = graph.run([list(inputs.values())])
    run = Run("net", graph, dict(zip(graph.inputs, inputs.values(), strict=True)))
    (printed,) = run_on_host(tmp_path, [run])
    return made, np.frombuffer(printed, made.dtype).reshape(made.shape)


@pytest.mark.cc
@pytest.mark.parametrize(("most", "least", "centred"), [(3, 0.8, 0), (50, None, 1)])
def test_boxes_are_those_of_the_runtime(tmp_path: Path, most: int, least: float | None, centred: int) -> None:
    """And rows of -1 follow."""
    random = np.random.default_rng(most)
    inputs = {"b": random.random((2, 12, 4), np.float32), "s": random.random((2, 3, 12), np.float32)}
    inputs["s"] = np.round(inputs["s"], 1)  # many are equal
    constants = {"most": np.array([most]), "overlap": np.array([0.3], np.float32)}
    if least is not None:
        constants["least"] = np.array([least], np.float32)
    node = helper.make_node("NonMaxSuppression", ["b", "s", *constants], ["y"], center_point_box=centred)
    model = _model(node, inputs, constants)
    (expected,) = onnxruntime.InferenceSession(model).run(None, inputs)
    rows = 6 * min(most, 12)
    assert 0 < len(expected) < rows
    for got in _outputs(model, inputs, tmp_path):
        assert got.shape == (rows, 3)
        np.testing.assert_array_equal(got[: len(expected)], expected)
        assert (got[len(expected) :] == -1).all()


@pytest.mark.cc
@pytest.mark.parametrize(("opset", "batch", "attributes"), [(16, 3, {}), (10, 1, {"output_width": 1})])
def test_regions(tmp_path: Path, opset: int, batch: int, attributes: Mapping[str, int]) -> None:
    """Some reach beyond the image, some have no area."""
    random = np.random.default_rng(2)
    corners = random.uniform(-30, 90, (5, 4)).astype(np.float32)
    corners[:, 2:] = np.maximum(corners[:, :2], corners[:, 2:])
    x, images = random.random((batch, 4, 9, 7), np.float32), np.arange(5) % batch
    inputs: dict[str, Array] = {"x": x, "r": corners, "i": images}
    given: dict[str, Any] = {
        "output_height": 2,
        "output_width": 3,
        "sampling_ratio": 2,
        "spatial_scale": 0.125,
        **attributes,
    }
    model = _model(helper.make_node("RoiAlign", ["x", "r", "i"], ["y"], **given), inputs, {}, opset)
    (expected,) = onnxruntime.InferenceSession(model).run(None, inputs)
    for got in _outputs(model, inputs, tmp_path):
        np.testing.assert_allclose(got, expected, atol=2e-6)


def test_points_by_the_size_of_a_region_are_refused() -> None:
    inputs = {
        "x": np.zeros((1, 1, 4, 4), np.float32),
        "r": np.zeros((1, 4), np.float32),
        "i": np.zeros(1, int),
    }
    with pytest.raises(UnsupportedError, match="sampling_ratio 0"):
        load_onnx(_model(helper.make_node("RoiAlign", ["x", "r", "i"], ["y"]), inputs, {}))


@pytest.mark.cc
@pytest.mark.parametrize("groups", [1, 2])
def test_deformed_convolutions(tmp_path: Path, groups: int) -> None:
    """Strides, dilations, padding, groups of both kinds, and a mask."""
    random = np.random.default_rng(groups)
    offsets = random.uniform(-2, 2, (2, 2 * 2 * 6, 5, 4)).astype(np.float32)
    inputs = {"x": random.random((2, 4, 8, 7), np.float32), "o": offsets}
    inputs["m"] = random.random((2, 2 * 6, 5, 4), np.float32)
    constants = {"w": random.random((6, 4 // groups, 3, 2), np.float32), "b": random.random(6, np.float32)}
    attributes: dict[str, Any] = {"pads": [2, 1, 1, 1], "strides": [2, 2], "dilations": [1, 2]}
    inside = ["x", "w", "o", "b", "m"]
    node = helper.make_node("DeformConv", inside, ["y"], group=groups, offset_group=2, **attributes)
    model = _model(node, inputs, constants)
    (expected,) = ReferenceEvaluator(onnx.load_from_string(model)).run(None, inputs)
    for got in _outputs(model, inputs, tmp_path):
        np.testing.assert_allclose(got, np.asarray(expected), atol=2e-5)
