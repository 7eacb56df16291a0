"""The reference models, whole: references against the recorded outputs of TFLite Micro."""

import numpy as np
import pytest

from crtgen.network.frontends import load
from crtgen.network.ir import DType
from tests.support import FLOAT_MODELS, INT8_MODELS, model_path

pytestmark = pytest.mark.models

_CASES = 8


@pytest.mark.parametrize("name", [*INT8_MODELS, *FLOAT_MODELS])
def test_every_case(name: str) -> None:
    graph = load(model_path(name))
    recorded = np.load(model_path(name).with_suffix(".npz"))
    for position, output in enumerate(graph.outputs):
        expected = np.stack([recorded[f"case{c}_output{position}"] for c in range(_CASES)])
        actual = np.stack(
            [
                graph.evaluate({n: recorded[f"case{c}_input{i}"] for i, n in enumerate(graph.inputs)})[output]
                for c in range(_CASES)
            ]
        )
        if graph.values[output].dtype is DType.INT8:
            np.testing.assert_array_equal(actual, expected)
        else:
            assert np.abs(actual - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("kws_int8", ["conv2d", "depthwise_conv2d", "conv2d_1", "depthwise_conv2d_1"]),
        ("ic01_float32", ["conv2d", "conv2d_1", "conv2d_2", "add"]),
        ("ad01_int8", ["dense", "dense_1", "dense_2", "dense_3"]),
    ],
)
def test_layers_keep_their_names(name: str, expected: list[str]) -> None:
    assert [n.name for n in load(model_path(name)).nodes][:4] == expected
