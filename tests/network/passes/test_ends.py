"""Inputs and outputs of another type, and images with their channels last: the same network."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import crtgen
from crtgen.base.errors import UsageError
from crtgen.network.ir import DType
from crtgen.network.ops import Transpose
from crtgen.network.passes import DEFAULT_PASSES, run_passes
from tests.support import ROOT
from tests.tflite_builder import Model, Operator, Tensor

_X, _Y = (0.05, -7), (0.02, 30)


def _model(folder: Path, dtype: str) -> Path:
    """A TANH of int8 between conversions from and to another type."""
    byte = {"uint8": ([_X[0]], [_X[1] + 128]), "float32": ((), ())}[dtype]
    result = {"uint8": ([_Y[0]], [_Y[1] + 128]), "float32": ((), ())}[dtype]
    tensors = [
        Tensor("x", (1, 9), dtype, *byte),
        Tensor("a", (1, 9), "int8", [_X[0]], [_X[1]]),
        Tensor("b", (1, 9), "int8", [1 / 128], [0]),
        Tensor("c", (1, 9), "int8", [_Y[0]], [_Y[1]]),
        Tensor("y", (1, 9), dtype, *result),
    ]
    back = "DEQUANTIZE" if dtype == "float32" else "QUANTIZE"
    operators = [
        Operator("QUANTIZE", ["x"], ["a"]),
        Operator("TANH", ["a"], ["b"]),
        Operator("QUANTIZE", ["b"], ["c"]),
        Operator(back, ["c"], ["y"]),
    ]
    path = folder / "net.tflite"
    path.write_bytes(Model(tensors, operators, ["x"], ["y"]).to_bytes())
    return path


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize("io", ["int8", "uint8"])
def test_the_application_gives_what_the_conversion_would(tmp_path: Path, dtype: str, io: str) -> None:
    path = _model(tmp_path, dtype)
    if io == dtype:
        with pytest.raises(UsageError, match="no input and no output becomes uint8"):
            crtgen.load(path, io=io)
        return
    whole, inner = crtgen.load(path), crtgen.load(path, io=io)
    assert isinstance(whole, crtgen.Model)
    assert isinstance(inner, crtgen.Model)
    more = 128 if io == "uint8" else 0
    for value, (scale, zero) in ((inner.inputs[0], _X), (inner.outputs[0], _Y)):
        assert (value.dtype, value.quant.zero_point) == (DType(io), zero + more)  # type: ignore[union-attr]
        assert value.quant.scale == pytest.approx(scale)  # type: ignore[union-attr]
    numbers = np.array([[-128, -100, -50, -8, 0, 9, 60, 100, 127]], np.int16)
    given = {"uint8": (numbers + 128).astype(np.uint8), "float32": ((numbers - _X[1]) * _X[0])}[dtype]
    expected = whole.graph.evaluate({"x": given.astype(dtype)})["y"]
    found = inner.graph.evaluate({"x": (numbers + more).astype(io)})["y"]
    if dtype == "float32":
        real = (found.astype(int) - more - _Y[1]) * _Y[0]
        assert np.abs(real - expected.astype(float)).max() < 1e-6
    else:
        assert (found.astype(int) + 128 - more).tolist() == expected.tolist()
    assert len(inner.graph.nodes) == len(whole.graph.nodes) - (2 if io == "int8" else 0)


def test_images_with_their_channels_last(tmp_path: Path) -> None:
    """What turned them in front of the convolution is gone."""
    rng = np.random.default_rng(3)
    w = onnx.numpy_helper.from_array(rng.normal(size=(4, 3, 3, 3)).astype(np.float32), "w")
    ends = [
        onnx.helper.make_tensor_value_info(name, 1, shape)
        for name, shape in (("x", [1, 3, 8, 6]), ("y", [1, 4, 6, 4]))
    ]
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:], [w])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "net.onnx")
    first, last = (crtgen.load(tmp_path / "net.onnx", channels=channels) for channels in ("", "last"))
    assert isinstance(first, crtgen.Model)
    assert isinstance(last, crtgen.Model)
    assert (last.inputs[0].shape, last.outputs[0].shape) == ((1, 8, 6, 3), (1, 6, 4, 4))
    x = rng.normal(size=(1, 3, 8, 6)).astype(np.float32)
    found = last.graph.evaluate({"x": x.transpose(0, 2, 3, 1)})["y"]
    np.testing.assert_array_equal(found.transpose(0, 3, 1, 2), first.graph.evaluate({"x": x})["y"])
    assert not any(isinstance(n.op, Transpose) for n in run_passes(last.graph, DEFAULT_PASSES)[0].nodes)


def test_what_is_refused(tmp_path: Path) -> None:
    digits = ROOT / "demo" / "digits"
    with pytest.raises(UsageError, match="already have their channels last"):
        crtgen.load(digits.with_suffix(".tflite"), channels="last")
    with pytest.raises(UsageError, match="unknown order of channels first"):
        crtgen.load(digits.with_suffix(".onnx"), channels="first")
    with pytest.raises(UsageError, match="unknown type of inputs and outputs int16"):
        crtgen.load(digits.with_suffix(".tflite"), io="int16")
