"""Quantisations that few networks have: the integers of TFLite Micro, or a refusal."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike
from tflite_micro import runtime

from crtgen.base.errors import UnsupportedError
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import Array
from tests.network.ops import oracle
from tests.tflite_builder import Model, Operator, Options, Tensor, packed

_Fields = dict[str, Any]
_GIVEN: dict[str, _Fields] = {
    "int8": {"scales": [0.05], "zero_points": [3]},
    "int16": {"scales": [0.0005], "zero_points": [0]},
}
_MADE: dict[str, _Fields] = {
    "int8": {"scales": [0.07], "zero_points": [-9]},
    "int16": {"scales": [0.0007], "zero_points": [0]},
}
_TYPES = ["int8", "int16"]
_REFUSED = "quantised differently, which TFLite Micro refuses, too"


def _constant(name: str, data: ArrayLike, dtype: str = "int32", **quantisation: Any) -> Tensor:
    array = np.array(data, dtype)
    return Tensor(name, array.shape, dtype, data=array, **quantisation)


def _model(
    code: str, inputs: Sequence[Tensor], shape: Sequence[int], options: Options | None, made: _Fields
) -> bytes:
    y = Tensor("y", shape, next(t.dtype for t in inputs if t.data is None), **made)
    operator = Operator(code, [t.name for t in inputs], ["y"], options)
    variable = [t.name for t in inputs if t.data is None]
    return Model([*inputs, y], [operator], variable, ["y"]).to_bytes()


def _draw(shape: Sequence[int], dtype: str, seed: int = 1) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


def _check(data: bytes) -> None:
    graph = load_tflite(data)
    inputs = {n: _draw(graph.values[n].shape, graph.values[n].dtype.value) for n in graph.inputs}
    (expected,) = oracle.run(data, inputs, tuple(inputs))
    oracle.assert_same(graph.evaluate(inputs)[graph.outputs[0]], expected)


_ROW, _IMAGE = (2, 6), (1, 2, 2, 8)
_MOVES: list[tuple[str, Sequence[int], list[Tensor], Sequence[int], Options | None]] = [
    ("RESHAPE", _ROW, [_constant("s", [3, 4])], (3, 4), Options("ReshapeOptions")),
    ("SQUEEZE", (1, 6), [], (6,), Options("SqueezeOptions")),
    ("EXPAND_DIMS", (6,), [_constant("a", 0)], (1, 6), Options("ExpandDimsOptions")),
    ("SLICE", _ROW, [_constant("b", [0, 1]), _constant("s", [2, 3])], (2, 3), Options("SliceOptions")),
    (
        "STRIDED_SLICE",
        _ROW,
        [_constant("b", [0, 1]), _constant("e", [2, 6]), _constant("s", [1, 2])],
        (2, 3),
        Options("StridedSliceOptions"),
    ),
    ("PAD", _ROW, [_constant("p", [[0, 1], [2, 0]])], (3, 8), Options("PadOptions")),
    ("TRANSPOSE", _ROW, [_constant("p", [1, 0])], (6, 2), Options("TransposeOptions")),
    ("REVERSE_V2", _ROW, [_constant("a", [1])], _ROW, Options("ReverseV2Options")),
    ("BROADCAST_TO", (1, 6), [_constant("s", [3, 6])], (3, 6), None),
    (
        "RESIZE_NEAREST_NEIGHBOR",
        _IMAGE,
        [_constant("s", [3, 4])],
        (1, 3, 4, 8),
        Options("ResizeNearestNeighborOptions"),
    ),
]
_INT8_MOVES: list[tuple[str, Sequence[int], list[Tensor], Sequence[int], Options | None]] = [
    ("MIRROR_PAD", _ROW, [_constant("p", [[0, 1], [2, 0]])], (3, 8), Options("MirrorPadOptions")),
    ("RESIZE_BILINEAR", _IMAGE, [_constant("s", [3, 4])], (1, 3, 4, 8), Options("ResizeBilinearOptions")),
    ("SPACE_TO_DEPTH", _IMAGE, [], (1, 1, 1, 32), Options("SpaceToDepthOptions", BlockSize=2)),
    ("DEPTH_TO_SPACE", _IMAGE, [], (1, 4, 4, 2), Options("DepthToSpaceOptions", BlockSize=2)),
]


@pytest.mark.parametrize(
    ("dtype", "move"),
    [(d, m) for d in _TYPES for m in _MOVES] + [("int8", m) for m in _INT8_MOVES],
    ids=lambda p: p if isinstance(p, str) else p[0],
)
def test_what_moves_elements_takes_integers_as_they_are(dtype: str, move: Any) -> None:
    code, shape, constants, result, options = move
    inputs = [Tensor("x", shape, dtype, **_GIVEN[dtype]), *constants]
    _check(_model(code, inputs, result, options, _MADE[dtype]))


@pytest.mark.parametrize("dtype", _TYPES)
def test_pack_takes_integers_as_they_are(dtype: str) -> None:
    inputs = [Tensor(n, _ROW, dtype, **q[dtype]) for n, q in (("a", _GIVEN), ("b", _MADE))]
    constant = _constant("c", np.arange(12).reshape(_ROW), dtype, **_GIVEN[dtype])
    options = Options("PackOptions", Axis=1, ValuesCount=3)
    _check(_model("PACK", [*inputs, constant], (2, 3, 6), options, _MADE[dtype]))


def _joined(dtype: str) -> bytes:
    inputs = [Tensor(n, _ROW, dtype, **q[dtype]) for n, q in (("a", _GIVEN), ("b", _MADE))]
    return _model("CONCATENATION", inputs, (2, 12), Options("ConcatenationOptions", Axis=1), _MADE[dtype])


def _padded(dtype: str, value: dict[str, _Fields]) -> bytes:
    x, by = Tensor("x", _ROW, dtype, **_GIVEN[dtype]), _constant("p", [[0, 1], [2, 0]])
    inputs = [x, by, _constant("v", 11, dtype, **value[dtype])]
    return _model("PADV2", inputs, (3, 8), Options("PadV2Options"), _MADE[dtype])


def test_concatenations_and_padding_values_of_int16() -> None:
    _check(_joined("int16"))
    _check(_padded("int16", _GIVEN))
    _check(_padded("int8", _MADE))


def _pooled(code: str, dtype: str, apart: float) -> bytes:
    window = {"Padding": 1, "StrideH": 1, "StrideW": 1, "FilterHeight": 2, "FilterWidth": 2}
    options = Options("Pool2DOptions", **window, FusedActivationFunction=3)
    given = _GIVEN[dtype]
    made = {**given, "scales": [given["scales"][0] + apart]}
    return _model(code, [Tensor("x", _IMAGE, dtype, **given)], (1, 1, 1, 8), options, made)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("code", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_poolings_of_scales_that_are_all_but_equal(code: str, dtype: str) -> None:
    _check(_pooled(code, dtype, 9e-7))


_MAXIMUM = [Tensor("x", _ROW, "int8", **_GIVEN["int8"]), _constant("a", [1])]


@pytest.mark.parametrize(
    "data",
    [
        _joined("int8"),
        _padded("int8", _GIVEN),
        _pooled("MAX_POOL_2D", "int8", 2e-6),
        _pooled("AVERAGE_POOL_2D", "int16", 2e-6),
        _model("REDUCE_MAX", _MAXIMUM, (2,), Options("ReducerOptions"), _MADE["int8"]),
    ],
    ids=["concatenation", "pad", "max_pool", "average_pool", "reduce_max"],
)
def test_what_tflite_micro_refuses_is_refused(data: bytes) -> None:
    with pytest.raises(RuntimeError):
        runtime.Interpreter.from_bytes(data).invoke()
    with pytest.raises(UnsupportedError, match=_REFUSED):
        load_tflite(data)


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("code", ["RELU", "RELU6"])
def test_clamps_between_two_quantisations(code: str, dtype: str) -> None:
    """RELU requantises; RELU6 clamps to numbers of the input, which the output takes as they are."""
    _check(_model(code, [Tensor("x", (3, 300), dtype, **_GIVEN[dtype])], (3, 300), None, _MADE[dtype]))


def _layer(code: str, dtype: str, zeros: Sequence[int], most: int = 100) -> bytes:
    """A layer of three outputs; weights reach from ``-most`` to ``most``."""
    shapes = {
        "CONV_2D": ((1, 4, 4, 2), (3, 2, 2, 2), 0, (1, 3, 3, 3)),
        "DEPTHWISE_CONV_2D": ((1, 4, 4, 3), (1, 2, 2, 3), 3, (1, 3, 3, 3)),
        "FULLY_CONNECTED": ((2, 5), (3, 5), 0, (2, 3)),
        "TRANSPOSE_CONV": ((1, 3, 3, 2), (3, 2, 2, 2), 0, (1, 4, 4, 3)),
    }
    tables = {
        "CONV_2D": Options("Conv2DOptions", **_WINDOW),
        "DEPTHWISE_CONV_2D": Options("DepthwiseConv2DOptions", **_WINDOW, DepthMultiplier=1),
        "FULLY_CONNECTED": Options("FullyConnectedOptions"),
        "TRANSPOSE_CONV": Options("TransposeConvOptions", Padding=1, StrideH=1, StrideW=1),
    }
    given, taken, axis, made = shapes[code]
    random, scales = np.random.default_rng(4), [0.01] * len(zeros)
    data = random.integers(-most, most + 1, taken, np.int8)
    data.flat[0], data.flat[1] = -most, most
    biases = "int64" if dtype == "int16" else "int32"
    products = {"scales": [s * _GIVEN[dtype]["scales"][0] for s in scales], "zero_points": [0] * len(scales)}
    tensors = [
        Tensor("x", given, dtype, **_GIVEN[dtype]),
        Tensor("w", taken, "int8", scales, zeros, axis, data),
        _constant("b", [5, -7, 90], biases, **products),
        Tensor("y", made, dtype, [_MADE[dtype]["scales"][0] * 3], _MADE[dtype]["zero_points"]),
    ]
    names = ["x", "w", "b"]
    if code == "TRANSPOSE_CONV":
        tensors.append(_constant("size", made))
        names = ["size", "w", "x", "b"]
    return Model(tensors, [Operator(code, names, ["y"], tables[code])], ["x"], ["y"]).to_bytes()


_WINDOW = {"Padding": 1, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}


@pytest.mark.parametrize("zeros", [[7], [-11], [3, -4, 0]])
@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV"])
def test_weights_with_zero_points(code: str, dtype: str, zeros: list[int]) -> None:
    """TFLite Micro subtracts that of a whole tensor in a fully connected layer; all others are not read."""
    _check(_layer(code, dtype, zeros))


def test_dense_weights_beyond_int8_are_refused() -> None:
    _check(_layer("FULLY_CONNECTED", "int8", [-7], 120))
    with pytest.raises(UnsupportedError, match=r"weights that reach -112 to 128 without their zero point -8"):
        load_tflite(_layer("FULLY_CONNECTED", "int8", [-8], 120))


@pytest.mark.parametrize("zero", [0, 3, -5])
def test_dense_weights_of_four_bits_with_a_zero_point(zero: int) -> None:
    numbers = np.random.default_rng(1).integers(-8, 8, (3, 6), np.int8)
    tensors = [
        Tensor("x", (2, 6), "int8", **_GIVEN["int8"]),
        Tensor("w", (3, 6), "int4", [0.1], [zero], 0, packed(numbers)),
        _constant("b", [5, -7, 90], scales=[0.1 * _GIVEN["int8"]["scales"][0]], zero_points=[0]),
        Tensor("y", (2, 3), "int8", [0.3], [-3]),
    ]
    operator = Operator("FULLY_CONNECTED", ["x", "w", "b"], ["y"], Options("FullyConnectedOptions"))
    _check(Model(tensors, [operator], ["x"], ["y"]).to_bytes())
