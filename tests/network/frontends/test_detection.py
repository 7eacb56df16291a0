"""TFLite_Detection_PostProcess in whole files."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from crtgen.base.errors import CorruptModelError
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import Array
from tests.network.ops import oracle
from tests.tflite_builder import Model, Operator, Tensor

_FIELDS: dict[str, Any] = {
    "max_detections": 5,
    "max_classes_per_detection": 1,
    "nms_score_threshold": 0.1,
    "nms_iou_threshold": 0.4,
    "num_classes": 3,
    "y_scale": 10.0,
    "x_scale": 10.0,
    "h_scale": 5.0,
    "w_scale": 5.0,
}
_SCALES: dict[str, Any] = {"scales": [0.125], "zero_points": [7]}


def _file(dtype: str = "float32", count: int = 5, fields: Mapping[str, Any] = MappingProxyType({})) -> bytes:
    """Of seven boxes and three classes; quantised boxes and scores have the same scale."""
    quant = {} if dtype == "float32" else _SCALES
    random = np.random.default_rng(2)
    anchors = random.uniform(0.3, 0.7, (7, 4)).astype(np.float32)
    boxes, scores = Tensor("boxes", (1, 7, 4), dtype, **quant), Tensor("scores", (1, 7, 4), dtype, **quant)
    shapes = {"y": (1, count, 4), "classes": (1, count), "best": (1, count), "count": (1,)}
    outputs = [Tensor(name, shape, "float32") for name, shape in shapes.items()]
    inputs = ["boxes", "scores"]
    options = bytes(flexbuffers.Dumps({**_FIELDS, **fields}))
    code = "CUSTOM TFLite_Detection_PostProcess"
    operator = Operator(code, [*inputs, "anchors"], list(shapes), custom=options)
    tensors = [boxes, scores, Tensor("anchors", (7, 4), "float32", data=anchors), *outputs]
    return Model(tensors, [operator], inputs, list(shapes)).to_bytes()


def _inputs(seed: int) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    whole = random.integers(-20, 20, (1, 7, 4)), random.integers(-12, 20, (1, 7, 4))
    return whole[0].astype(np.int8), whole[1].astype(np.int8)


def _real(array: Array) -> Array:
    return ((array.astype(np.float32) - 7) * 0.125).astype(np.float32)


@pytest.mark.parametrize("regular", [True, False])
def test_it_is_tflite_micros(regular: bool) -> None:
    """Options that the file leaves out are TFLite's defaults; what is beyond the last detection is zeros."""
    data = _file(fields={"use_regular_nms": True} if regular else {})
    for seed in range(5):
        inputs = tuple(map(_real, _inputs(seed)))
        ((*found, number),) = load_tflite(data).run([inputs])
        ((*wanted, expected),) = oracle.run_all(data, [inputs], 4)
        oracle.assert_same(number, expected)
        count = int(number[0])
        assert count > 0
        for ours, theirs in zip(found, wanted, strict=True):
            oracle.assert_same(ours[:, :count], theirs[:, :count])
            assert not ours[:, count:].any()


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantised_boxes_and_scores_are_the_numbers_that_they_stand_for(dtype: str) -> None:
    shift = 128 if dtype == "uint8" else 0
    given = [(a.astype(np.int64) + shift).astype(dtype) for a in _inputs(1)]
    (actual,) = load_tflite(_file(dtype)).run([given])
    (expected,) = load_tflite(_file()).run([list(map(_real, given))])
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"num_classes": 2}, "2 classes"),
        ({"max_detections": 0}, "a number of detections that is not positive"),
        ({"max_classes_per_detection": -1}, "a number of detections that is not positive"),
        ({"nms_iou_threshold": 1.5}, "boxes that overlap by 1.5"),
        ({"nms_iou_threshold": float("nan")}, "the option nms_iou_threshold is not a float"),
        ({"h_scale": 0.0}, "scales"),
    ],
)
def test_options_that_make_no_sense(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(CorruptModelError, match=reason):
        load_tflite(_file(fields=fields))
