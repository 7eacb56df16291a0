"""LSTM by weights that are computed at run time, against ONNX Runtime."""

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from crtgen.base.errors import UnsupportedError
from crtgen.network.frontends import load_onnx
from crtgen.network.ir import Array

STEPS, BATCH, INPUTS, HIDDEN = 5, 2, 3, 4
SHAPES = {
    "x": (STEPS, BATCH, INPUTS),
    "w": (1, 4 * HIDDEN, INPUTS),
    "r": (1, 4 * HIDDEN, HIDDEN),
    "b": (1, 8 * HIDDEN),
    "h": (1, BATCH, HIDDEN),
    "c": (1, BATCH, HIDDEN),
}


def model(names: list[str], outputs: list[str], **attributes: Any) -> bytes:
    node = helper.make_node("LSTM", names, outputs, hidden_size=HIDDEN, **attributes)
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPES[n]) for n in names if n]
    ranks = {"y": 4, "yh": 3, "yc": 3}
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * ranks[n]) for n in outputs if n]
    graph = helper.make_graph([node], "model", given, ends)
    opsets = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def drawn(names: list[str]) -> dict[str, Array]:
    random = np.random.default_rng(4)
    return {n: random.normal(size=SHAPES[n]).astype(np.float32) for n in names if n}


@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("names", [["x", "w", "r"], ["x", "w", "r", "b"], ["x", "w", "r", "b", "", "h", "c"]])
def test_outputs_are_those_of_the_runtime(direction: str, names: list[str]) -> None:
    data, inputs = model(names, ["y", "yh", "yc"], direction=direction), drawn(names)
    expected = onnxruntime.InferenceSession(data).run(None, inputs)
    (got,) = load_onnx(data).run([list(inputs.values())])
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.shape == np.shape(theirs)
        assert np.abs(ours.astype(np.float64) - theirs).max() < 1e-5


def test_an_output_that_nothing_reads_is_left_out() -> None:
    data, inputs = model(["x", "w", "r"], ["", "yh"]), drawn(["x", "w", "r"])
    (expected,) = onnxruntime.InferenceSession(data).run(None, inputs)
    ((got,),) = load_onnx(data).run([list(inputs.values())])
    assert np.abs(got.astype(np.float64) - expected).max() < 1e-5


def test_what_is_not_known_is_refused() -> None:
    for attributes, reason in (({"clip": 1.0}, "clip"), ({"activations": ["Relu"] * 3}, "activations")):
        with pytest.raises(UnsupportedError, match=f"run time with {reason}"):
            load_onnx(model(["x", "w", "r"], ["y"], **attributes))
