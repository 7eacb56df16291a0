"""Grouped and transposed convolutions, weights of four bits, against TFLite Micro."""

from dataclasses import replace
from typing import Any

import flatbuffers
import numpy as np
import pytest
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from crtgen.base.errors import CorruptModelError, UnsupportedError
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import Array, DType
from tests.network.ops import oracle
from tests.tflite_builder import Model, Operator, Options, Tensor, packed

_SCALES = {"int8": (0.05, 3), "int16": (0.0004, 0)}
_BIASES = {"int8": "int32", "int16": "int64", "float32": "float32"}
_SAME, _VALID = 0, 1


def _image(name: str, shape: tuple[int, ...], dtype: str, scale: float = 1.0) -> Tensor:
    if dtype == "float32":
        return Tensor(name, shape, dtype)
    factor, zero = _SCALES[dtype]
    return Tensor(name, shape, dtype, [factor * scale], [zero])


def _weights(shape: tuple[int, ...], dtype: str, per_axis: bool, seed: int) -> list[Tensor]:
    rng = np.random.default_rng(seed)
    outputs = shape[0]
    if dtype == "float32":
        real = rng.uniform(-1, 1, shape).astype(np.float32), rng.uniform(-1, 1, outputs).astype(np.float32)
        return [Tensor("w", shape, dtype, data=real[0]), Tensor("b", [outputs], dtype, data=real[1])]
    scales = rng.uniform(0.004, 0.02, outputs if per_axis else 1).astype(np.float32).tolist()
    products = [s * _SCALES[dtype][0] for s in scales]
    zeros = [0] * len(scales)
    bias = rng.integers(-900, 900, outputs).astype(_BIASES[dtype])
    return [
        Tensor("w", shape, "int8", scales, zeros, 0, rng.integers(-127, 128, shape, np.int8)),
        Tensor("b", [outputs], bias.dtype.name, products, zeros, 0, bias),
    ]


def _input(shape: tuple[int, ...], dtype: str) -> Array:
    rng = np.random.default_rng(sum(shape))
    if dtype == "float32":
        return rng.uniform(-2, 2, shape).astype(np.float32)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def _check(model: Model, dtype: str) -> None:
    data, shape = model.to_bytes(), tuple(model.tensors[0].shape)
    inputs = {"x": _input(shape, dtype)}
    graph = load_tflite(data)
    (expected,) = oracle.run(data, inputs, ("x",))
    oracle.assert_same(graph.evaluate(inputs)[graph.outputs[0]], expected)


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32"])
@pytest.mark.parametrize(
    ("size", "taps", "stride", "padding"),
    [
        ((5, 7), (3, 3), (2, 2), _SAME),
        ((4, 3), (4, 4), (2, 2), _SAME),
        ((4, 3), (2, 2), (2, 2), _VALID),
        ((6, 2), (3, 5), (1, 3), _VALID),
        ((3, 3), (1, 1), (2, 1), _SAME),
        ((2, 9), (5, 2), (1, 1), _SAME),
        ((1, 5), (2, 6), (3, 4), _VALID),
        ((3, 2), (7, 3), (3, 2), _SAME),
    ],
)
def test_transposed(
    dtype: str, size: tuple[int, int], taps: tuple[int, int], stride: tuple[int, int], padding: int
) -> None:
    extra = [max(t - s, 0) if padding == _VALID else 0 for t, s in zip(taps, stride, strict=True)]
    height, width = (n * s + e for n, s, e in zip(size, stride, extra, strict=True))
    shape = (2, height, width, 3)
    tensors = [
        _image("x", (2, *size, 4), dtype),
        _image("y", shape, dtype, 3.0),
        Tensor("shape", [4], "int32", data=np.array(shape, np.int32)),
        *_weights((3, *taps, 4), dtype, True, sum(taps)),
    ]
    fields = {"Padding": padding, "StrideH": stride[0], "StrideW": stride[1]}
    operator = Operator(
        "TRANSPOSE_CONV", ["shape", "w", "x", "b"], ["y"], Options("TransposeConvOptions", **fields)
    )
    _check(Model(tensors, [operator], ["x"], ["y"]), dtype)


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32"])
@pytest.mark.parametrize("per_axis", [True, False])
@pytest.mark.parametrize(("inputs", "outputs", "groups"), [(6, 4, 2), (4, 8, 4), (3, 3, 3), (8, 4, 2)])
def test_grouped(dtype: str, per_axis: bool, inputs: int, outputs: int, groups: int) -> None:
    tensors = [
        _image("x", (1, 5, 6, inputs), dtype),
        _image("y", (1, 3, 3, outputs), dtype, 3.0),
        *_weights((outputs, 3, 3, inputs // groups), dtype, per_axis, groups),
    ]
    fields = {"Padding": _SAME, "StrideH": 2, "StrideW": 2, "DilationHFactor": 1, "DilationWFactor": 1}
    operator = Operator("CONV_2D", ["x", "w", "b"], ["y"], Options("Conv2DOptions", **fields))
    _check(Model(tensors, [operator], ["x"], ["y"]), dtype)


def test_groups_that_do_not_divide_the_channels_are_corrupt() -> None:
    tensors = [_image("x", (1, 4, 4, 5), "int8"), _image("y", (1, 4, 4, 4), "int8")]
    tensors += _weights((4, 1, 1, 2), "int8", True, 1)
    fields = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    operator = Operator("CONV_2D", ["x", "w", "b"], ["y"], Options("Conv2DOptions", **fields))
    with pytest.raises(CorruptModelError, match="weights for 2 of 5 channels"):
        load_tflite(Model(tensors, [operator], ["x"], ["y"]).to_bytes())


@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_weights_of_four_bits(code: str) -> None:
    rng = np.random.default_rng(4)
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = {
        "CONV_2D": ((1, 5, 5, 3), (4, 3, 3, 3), (1, 3, 3, 4)),
        "DEPTHWISE_CONV_2D": ((1, 5, 5, 3), (1, 3, 3, 3), (1, 3, 3, 3)),
        "FULLY_CONNECTED": ((1, 15), (5, 15), (1, 5)),
    }
    x, w, y = shapes[code]
    numbers = rng.integers(-8, 8, w, np.int8)
    channels = y[-1]
    tensors: list[Tensor] = [
        _image("x", x, "int8"),
        _image("y", y, "int8", 3.0),
        Tensor("w", w, "int4", [0.04], [0], data=packed(numbers)),
        Tensor("b", [channels], "int32", [0.002], [0], data=rng.integers(-90, 90, channels, np.int32)),
    ]
    fields: dict[str, Any] = {"Padding": _VALID, "StrideH": 1, "StrideW": 1}
    fields |= {"DilationHFactor": 1, "DilationWFactor": 1}
    options = {
        "CONV_2D": Options("Conv2DOptions", **fields),
        "DEPTHWISE_CONV_2D": Options("DepthwiseConv2DOptions", DepthMultiplier=1, **fields),
        "FULLY_CONNECTED": Options("FullyConnectedOptions"),
    }
    model = Model(tensors, [Operator(code, ["x", "w", "b"], ["y"], options[code])], ["x"], ["y"])
    graph = load_tflite(model.to_bytes())
    weights = graph.values[graph.nodes[0].inputs[1]]
    assert weights.dtype is DType.INT4
    np.testing.assert_array_equal(weights.array(), numbers)
    _check(model, "int8")


def test_int8_weights_on_floats_are_the_numbers_that_they_stand_for() -> None:
    """TFLite Micro refuses such layers; TFLite quantises the input, too, which is less exact."""
    w = np.array([[1, -2, 3, 4], [-5, 6, 7, -8]], np.int8)
    tensors = [Tensor("x", [1, 4], "float32"), Tensor("y", [1, 2], "float32")]
    tensors += [Tensor("w", [2, 4], "int8", [0.5, 0.25], [0, 0], data=w)]
    model = Model(tensors, [Operator("FULLY_CONNECTED", ["x", "w"], ["y"])], ["x"], ["y"])
    graph = load_tflite(model.to_bytes())
    (y,) = next(graph.run([(np.array([[1, 1, 1, 2]], np.float32),)]))
    assert y.tolist() == [[5.0, -2.0]]
    weights = graph.values[graph.nodes[0].inputs[1]]
    assert (weights.dtype, weights.nbytes) == (DType.INT8, 8)


def test_weights_on_another_type_are_refused() -> None:
    tensors = [_image("x", (1, 4), "int8"), _image("y", (1, 2), "int8")]
    tensors += [Tensor("w", [2, 4], "float32", data=np.ones((2, 4), np.float32))]
    model = Model(tensors, [Operator("FULLY_CONNECTED", ["x", "w"], ["y"])], ["x"], ["y"])
    with pytest.raises(
        UnsupportedError, match="weights of FLOAT32 on INT8; supported: INT8 on INT8; INT8 on INT16"
    ):
        load_tflite(model.to_bytes())


def _dense(
    x: Tensor, constants: list[Tensor], y: Tensor, before: list[Operator], more: list[Tensor]
) -> Model:
    """A fully connected layer of ``w`` and ``b``, which operators ``before`` may compute."""
    options = Options("FullyConnectedOptions", KeepNumDims=True, FusedActivationFunction=1)
    operators = [*before, Operator("FULLY_CONNECTED", ["x", "w", "b"], ["y"], options)]
    return Model([x, *constants, *more, y], operators, ["x"], ["y"])


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32"])
def test_a_bias_of_the_outputs_rank(dtype: str) -> None:
    x, y = _image("x", (1, 2, 3, 5), dtype), _image("y", (1, 2, 3, 4), dtype, 2.0)
    w, b = _weights((4, 5), dtype, False, 3)
    _check(_dense(x, [w, replace(b, shape=[1, 1, 1, 4])], y, [], []), dtype)


@pytest.mark.parametrize("computed", [("w",), ("b",), ("w", "b")])
def test_weights_and_biases_that_are_computed(computed: tuple[str, ...]) -> None:
    """Some converters compute a recurrent layer's bias within the loop."""
    x, y = _image("x", (2, 3, 5), "float32"), _image("y", (2, 3, 4), "float32")
    before, tensors, more = list[Operator](), list[Tensor](), list[Tensor]()
    for tensor in _weights((4, 5), "float32", False, 3):
        name = str(tensor.name)
        if name in computed:
            more.append(replace(tensor, name=f"{name}0"))
            before.append(Operator("TANH", [f"{name}0"], [name]))
            tensor = replace(tensor, data=None)
        tensors.append(tensor)
    _check(_dense(x, tensors, y, before, more), "float32")


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_a_channel_without_a_scale_is_the_zero_point(dtype: str) -> None:
    """Converters write a scale of 0 where all weights of a channel are 0; the bias does not count then."""
    x, y = _image("x", (1, 4, 5, 3), dtype), _image("y", (1, 4, 5, 6), dtype, 3.0)
    w, b = _weights((6, 1, 1, 3), dtype, True, 5)
    scales = [s if n != 2 else 0.0 for n, s in enumerate(w.scales or [])]
    options = Options(
        "Conv2DOptions", Padding=_VALID, StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1
    )
    operator = Operator("CONV_2D", ["x", "w", "b"], ["y"], options)
    _check(Model([x, replace(w, scales=scales), b, y], [operator], ["x"], ["y"]), dtype)


def _product(dtype: str, batch: int, turned: bool, per_axis: bool) -> tuple[Model, Array]:
    """A product of matrices with int8 constants, and these with their columns first."""
    first, rng = _weights((6, 8), "int8", per_axis, 5)[0], np.random.default_rng(6)
    columns = rng.integers(-127, 128, (batch, *first.shape), np.int8)
    data = columns if turned else np.ascontiguousarray(columns.swapaxes(1, 2))
    axis = 1 if turned else 2
    w = Tensor("w", data.shape, "int8", first.scales, first.zero_points, axis, data)
    x, y = _image("x", (batch, 5, 8), dtype), _image("y", (batch, 5, 6), dtype, 8.0)
    options = Options("BatchMatMulOptions", AdjY=turned)
    return Model([x, w, y], [Operator("BATCH_MATMUL", ["x", "w"], ["y"], options)], ["x"], ["y"]), columns


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32"])
@pytest.mark.parametrize(("batch", "turned"), [(1, False), (3, True), (3, False)])
def test_products_with_a_scale_per_column(dtype: str, batch: int, turned: bool) -> None:
    """Each matrix as a fully connected layer of TFLite Micro, whose product of matrices has one scale."""
    model, columns = _product(dtype, batch, turned, True)
    x, w, y = model.tensors
    given = _input(tuple(x.shape), dtype)
    found = load_tflite(model.to_bytes()).evaluate({"x": given})["y"]
    for place, matrix in enumerate(columns):
        weights = Tensor("w", matrix.shape, "int8", w.scales, w.zero_points, 0, matrix)
        parts = [replace(x, shape=(5, 8)), weights, replace(y, shape=(5, 6))]
        layer = Operator("FULLY_CONNECTED", ["x", "w"], ["y"], Options("FullyConnectedOptions"))
        one = {"x": given[place]}
        if dtype == "float32":
            real = matrix.astype(np.float64) * np.reshape(w.scales, (-1, 1))
            np.testing.assert_allclose(found[place], one["x"].astype(np.float64) @ real.T, 1e-5, 1e-5)
            continue
        (wanted,) = oracle.run(Model(parts, [layer], ["x"], ["y"]).to_bytes(), one, ("x",))
        oracle.assert_same(found[place], wanted)


def test_products_of_int16_with_int8_of_one_scale() -> None:
    model, columns = _product("int16", 1, True, False)
    x, w, y = model.tensors
    given = _input(tuple(x.shape), "int16")
    found = load_tflite(model.to_bytes()).evaluate({"x": given})["y"].astype(np.float64)
    wanted = given.astype(np.float64) @ columns[0].T * (x.scales[0] * w.scales[0] / y.scales[0])
    assert np.abs(found - np.clip(wanted, -32768, 32767)).max() <= 1.0


def test_constants_that_are_dequantised() -> None:
    """Weights of int8 that the file makes floats, as ai-edge-quantizer does for weights only.

    It writes the number of DEQUANTIZE in the newer field alone, which older readers take for ADD.
    """
    numbers, scales = np.arange(-24, 24, dtype=np.int8).reshape(6, 8), np.linspace(0.01, 0.02, 6)
    tensors = [
        Tensor("x", (2, 8), "float32"),
        Tensor("w", (6, 8), "int8", scales.tolist(), [0] * 6, 0, numbers),
        Tensor("r", (6, 8), "float32"),
        Tensor("y", (2, 6), "float32"),
    ]
    layer = Operator("FULLY_CONNECTED", ["x", "r"], ["y"], Options("FullyConnectedOptions"))
    model = Model(tensors, [Operator("DEQUANTIZE", ["w"], ["r"]), layer], ["x"], ["y"]).to_bytes()
    parsed = schema.ModelT.InitFromPackedBuf(bytearray(model), 0)
    for code in parsed.operatorCodes:
        code.builtinCode, code.deprecatedBuiltinCode = max(code.builtinCode, code.deprecatedBuiltinCode), 0
    builder = flatbuffers.Builder(1024)
    builder.Finish(parsed.Pack(builder), b"TFL3")
    x = _input((2, 8), "float32")
    found = load_tflite(bytes(builder.Output())).evaluate({"x": x})["y"]
    real = numbers * scales.astype(np.float32)[:, None]
    wanted = x.astype(np.float64) @ real.T
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=1e-5, atol=1e-6)
