"""Linear Resize of int8, uint8 and float32, as ONNX Runtime's operator has it, to the last bit."""

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

SHAPE = (1, 3, 5, 7)


def _model(
    kind: type[np.generic], given: str, numbers: Any, quantised: bool = True, **attributes: Any
) -> bytes:
    """The numbers, between a QuantizeLinear and a DequantizeLinear if ``quantised``."""
    constants = {"s": np.array(0.1, np.float32), "z": np.array(3, kind), given: np.asarray(numbers)}
    inputs = ["q", "", given] if given == "scales" else ["q", "", "", given]
    nodes = [helper.make_node("Resize", inputs, ["u"], mode="linear", **attributes)]
    if quantised:
        nodes.insert(0, helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]))
        nodes.append(helper.make_node("DequantizeLinear", ["u", "s", "z"], ["y"]))
    ends = ("x", "y") if quantised else ("q", "u")
    element = TensorProto.FLOAT if quantised else helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    values = [
        helper.make_tensor_value_info(name, element, shape)
        for name, shape in zip(ends, (SHAPE, [None] * 4), strict=True)
    ]
    known = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "model", values[:1], values[1:], known)
    opsets = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def _same(model: bytes, x: Array) -> Any:
    session = onnxruntime.InferenceSession(model)
    (expected,) = session.run(None, {session.get_inputs()[0].name: x})
    ((got,),) = load_onnx(model).run([[x]])
    np.testing.assert_array_equal(got, np.asarray(expected))
    return got


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("mode", ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("size", [(11, 14), (3, 4), (5, 13), (1, 7)])
def test_pixels_are_cut_as_the_runtime_cuts_them(kind: Any, mode: str, size: tuple[int, int]) -> None:
    random, info = np.random.default_rng(size[0]), np.iinfo(kind)
    raw = random.integers(info.min, info.max, SHAPE, kind, endpoint=True)
    sizes = np.array([*SHAPE[:2], *size])
    attributes: dict[str, Any] = {"coordinate_transformation_mode": mode}
    _same(_model(kind, "sizes", sizes, quantised=False, **attributes), raw)
    x = ((raw.astype(np.float32) - 3) * np.float32(0.1)).astype(np.float32)
    _same(_model(kind, "sizes", sizes, **attributes), x)


_GIVEN: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("sizes", (11, 14)),
    ("sizes", (3, 4)),
    ("sizes", (5, 13)),
    ("sizes", (1, 7)),
    ("scales", (2, 2)),
    ("scales", (4, 1)),
    ("scales", (1.8, 0.6)),
)
_MODES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
# With these, ONNX Runtime differs from the standard, which crtgen follows.
_OTHERWISE = ("align_corners", (1.8, 0.6))


@pytest.mark.parametrize(
    ("mode", "given", "numbers"),
    [(mode, *given) for mode in _MODES for given in _GIVEN if (mode, given[1]) != _OTHERWISE],
)
def test_floats_have_the_same_bits(mode: str, given: str, numbers: Sequence[float]) -> None:
    """So have numbers of eight bits behind a QuantizeLinear, of which many are halves before."""
    random, sizes = np.random.default_rng(int(sum(numbers))), given == "sizes"
    array = np.array([*(SHAPE[:2] if sizes else (1, 1)), *numbers], np.int64 if sizes else np.float32)
    x = random.normal(size=SHAPE).astype(np.float32)
    for pair in (False, True):
        model = _real_model(given, array, pair, coordinate_transformation_mode=mode)
        session = onnxruntime.InferenceSession(model)
        (expected,) = session.run(None, {"x": x})
        ((got,),) = load_onnx(model).run([[x]])
        np.testing.assert_array_equal(got, np.asarray(expected))


def _real_model(given: str, numbers: Array, pair: bool, **attributes: Any) -> bytes:
    """Resize of float32; with a ``pair`` on either side."""
    inputs = ["q", "", given] if given == "scales" else ["q", "", "", given]
    quantised = ["s", "z"]
    before = [
        helper.make_node("QuantizeLinear", ["x", *quantised], ["a"]),
        helper.make_node("DequantizeLinear", ["a", *quantised], ["q"]),
    ]
    after = [
        helper.make_node("QuantizeLinear", ["u", *quantised], ["b"]),
        helper.make_node("DequantizeLinear", ["b", *quantised], ["y"]),
    ]
    resize = helper.make_node(
        "Resize", inputs if pair else ["x", *inputs[1:]], ["u" if pair else "y"], mode="linear", **attributes
    )
    constants: dict[str, Array] = {
        "s": np.array(0.021, np.float32),
        "z": np.array(3, np.int8),
        given: numbers,
    }
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", SHAPE), ("y", [None] * 4))
    ]
    known = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    nodes = [*before, resize, *after] if pair else [resize]
    graph = helper.make_graph(nodes, "model", values[:1], values[1:], known)
    opsets = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


@pytest.mark.cc
def test_scales_and_generated_code(tmp_path: Path) -> None:
    model = _model(np.int8, "scales", np.array([1, 1, 1.7, 0.6], np.float32))
    x = np.random.default_rng(1).uniform(-13, 13, SHAPE).astype(np.float32)
    expected, graph = _same(model, x), load_onnx(model)
    (printed,) = run_on_host(tmp_path, [Run("net", graph, {graph.inputs[0]: x})])
    np.testing.assert_array_equal(np.frombuffer(printed, np.float32).reshape(expected.shape), expected)


@pytest.mark.parametrize("mode", ["tf_crop_and_resize", "half_pixel_symmetric"])
def test_other_coordinates_are_refused(mode: str) -> None:
    model = _model(np.int8, "sizes", np.array([1, 3, 9, 9]), coordinate_transformation_mode=mode)
    with pytest.raises(UnsupportedError, match=mode):
        load_onnx(model)
