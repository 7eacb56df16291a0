"""Networks of uint8 against TFLite Micro, which computes with int8 only: with the same network less 128.

TFLite's reference kernels of uint8 (LiteRT 2.3) give the same, but for the last bit of one in a thousand
outputs of fully connected layers, which they round once instead of twice; of int8, too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from crtgen.base.errors import UnsupportedError
from crtgen.network.frontends import load_tflite
from crtgen.network.ir import Array
from tests.network.ops import oracle
from tests.tflite_builder import Model, Operator, Options, Tensor

_X, _Y = (0.043, 117), (0.061, 101)
_OTHER = (0.031, 60)
_IMAGE = (1, 6, 6, 4)


def _tensor(name: str, shape: Sequence[int], quant: tuple[float, int] = _X) -> Tensor:
    return Tensor(name, shape, "uint8", [quant[0]], [quant[1]])


def _less(numbers: Array) -> Array:
    return (numbers.astype(np.int16) - 128).astype(np.int8)


def _twin(tensor: Tensor) -> Tensor:
    if tensor.dtype != "uint8":
        return tensor
    data = None if tensor.data is None else _less(tensor.data)
    return replace(tensor, dtype="int8", zero_points=[z - 128 for z in tensor.zero_points], data=data)


def _expected(model: Model, inputs: Mapping[str, Array]) -> Array:
    """By TFLite Micro, of the network of int8."""
    twin = replace(model, tensors=[_twin(tensor) for tensor in model.tensors])
    given = {name: _less(numbers) for name, numbers in inputs.items()}
    (found,) = oracle.run(twin.to_bytes(), given, tuple(model.inputs))
    return (found.astype(np.int16) + 128).astype(np.uint8)


def _rescaled(model: Model, sums: Array) -> Array:
    """Sums of products as a layer's outputs: by TFLite Micro's QUANTIZE, and the clamp of RELU6."""
    b, y = model.tensors[2:4]
    given = Tensor("s", sums.shape, "int32", b.scales, [0])
    made = Model([given, _twin(y)], [Operator("QUANTIZE", ["s"], ["y"])], ["s"], ["y"])
    (found,) = oracle.run(made.to_bytes(), {"s": sums.astype(np.int32)}, ("s",))
    numbers = found.astype(np.int16) + 128
    if model.operators[0].options and model.operators[0].options.fields["FusedActivationFunction"]:
        zero = y.zero_points[0]
        numbers = np.clip(numbers, zero, zero + round(6 / y.scales[0]))
    return numbers.astype(np.uint8)


def _sums(model: Model, x: Array) -> Array:
    """What a layer sums up, with the zero points of inputs and weights, in plain numpy."""
    w, b = model.tensors[1:3]
    assert w.data is not None
    assert b.data is not None
    x = x.astype(np.int64) - _X[1]
    weights = w.data.astype(np.int64) - w.zero_points[0]
    if model.operators[0].code == "FULLY_CONNECTED":
        rows: Array = x @ weights.T + b.data
        return rows
    padded = np.pad(x, ((0, 0), (0, 1), (1, 1), (0, 0)))  # SAME, by strides of 2 and 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2]
    formula = "nhwcij,oijc->nhwo" if model.operators[0].code == "CONV_2D" else "nhwcij,nijc->nhwc"
    found: Array = np.einsum(formula, windows, weights) + b.data
    return found


def _drawn(model: Model) -> dict[str, Array]:
    rng = np.random.default_rng(5)
    shapes = {tensor.name: tensor.shape for tensor in model.tensors}
    return {name: rng.integers(0, 256, shapes[name], np.uint8) for name in model.inputs}


def _found(model: Model, inputs: Mapping[str, Array]) -> Array:
    graph = load_tflite(model.to_bytes())
    return graph.evaluate(inputs)[graph.outputs[0]]


def _layer(code: str, zero: int, activation: int, spread: int) -> Model:
    """A layer with weights around their zero point, as far as ``spread`` allows."""
    rng = np.random.default_rng(zero + activation)
    window = {"Padding": 0, "StrideH": 2, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    x, w, y, options = {
        "CONV_2D": ((1, 8, 8, 4), (6, 3, 3, 4), (1, 4, 8, 6), Options("Conv2DOptions", **window)),
        "DEPTHWISE_CONV_2D": (
            (1, 8, 8, 4),
            (1, 3, 3, 4),
            (1, 4, 8, 4),
            Options("DepthwiseConv2DOptions", **window, DepthMultiplier=1),
        ),
        "FULLY_CONNECTED": ((3, 60), (7, 60), (3, 7), Options("FullyConnectedOptions")),
    }[code]
    options.fields["FusedActivationFunction"] = activation
    outputs, scale = y[-1], 0.0037
    product = float(np.float32(_X[0]) * np.float32(scale))
    numbers = np.clip(zero + rng.integers(-spread, spread + 1, w), 0, 255).astype(np.uint8)
    bias = rng.integers(-2000, 2000, outputs).astype(np.int32)
    tensors = [
        _tensor("x", x),
        Tensor("w", w, "uint8", [scale], [zero], 0, numbers),
        Tensor("b", [outputs], "int32", [product], [0], 0, bias),
        _tensor("y", y, _Y),
    ]
    return Model(tensors, [Operator(code, ["x", "w", "b"], ["y"], options)], ["x"], ["y"])


@pytest.mark.parametrize(("zero", "spread"), [(128, 127), (150, 100), (20, 255), (255, 255), (0, 255)])
@pytest.mark.parametrize("activation", [0, 3])
@pytest.mark.parametrize("code", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
def test_layers_with_weights(code: str, activation: int, zero: int, spread: int) -> None:
    """Weights less their zero point have nine bits where they spread; activations are none and RELU6."""
    model = _layer(code, zero, activation, spread)
    inputs = _drawn(model)
    expected = _rescaled(model, _sums(model, inputs["x"]))
    assert len(np.unique(expected)) > 2
    np.testing.assert_array_equal(_found(model, inputs), expected)


def _of(
    code: str,
    options: Options | None,
    inputs: Sequence[tuple[Sequence[int], tuple[float, int]]],
    output: tuple[Sequence[int], tuple[float, int]],
    *constants: Tensor,
) -> Model:
    given = [_tensor("x" * (n + 1), *kind) for n, kind in enumerate(inputs)]
    names = [tensor.name for tensor in (*given, *constants)]
    tensors = [*given, *constants, _tensor("y", *output)]
    return Model(tensors, [Operator(code, names, ["y"], options)], names[: len(given)], ["y"])


def _pool(code: str, window: int, stride: int, padding: int, size: int) -> Model:
    options = Options(
        "Pool2DOptions",
        Padding=padding,
        StrideH=stride,
        StrideW=stride,
        FilterHeight=window,
        FilterWidth=window,
        FusedActivationFunction=0,
    )
    return _of(code, options, [(_IMAGE, _X)], ((1, size, size, 4), _X))


def _fused(table: str) -> Options:
    return Options(table, FusedActivationFunction=0)


def _axes(*axes: int) -> Tensor:
    return Tensor("axes", [len(axes)], "int32", data=np.array(axes, np.int32))


_TWO = [(_IMAGE, _X), (_IMAGE, _OTHER)]
_OPERATORS: Mapping[str, Callable[[], Model]] = {
    "add": lambda: _of("ADD", _fused("AddOptions"), _TWO, (_IMAGE, (0.07, 120))),
    "sub": lambda: _of("SUB", _fused("SubOptions"), _TWO, (_IMAGE, (0.07, 120))),
    "mul": lambda: _of("MUL", _fused("MulOptions"), _TWO, (_IMAGE, (0.27, 100))),
    "average": lambda: _pool("AVERAGE_POOL_2D", 3, 1, 1, 4),
    "max": lambda: _pool("MAX_POOL_2D", 3, 2, 0, 3),
    "logistic": lambda: _of("LOGISTIC", None, [(_IMAGE, _X)], (_IMAGE, (1 / 256, 0))),
    "tanh": lambda: _of("TANH", None, [(_IMAGE, _X)], (_IMAGE, (1 / 128, 128))),
    "softmax": lambda: _of(
        "SOFTMAX", Options("SoftmaxOptions", Beta=1.0), [((9, 20), _X)], ((9, 20), (1 / 256, 0))
    ),
    "concat": lambda: _of(
        "CONCATENATION",
        Options("ConcatenationOptions", Axis=3, FusedActivationFunction=0),
        [(_IMAGE, _X), (_IMAGE, _X)],
        ((1, 6, 6, 8), _X),
    ),
    "mean": lambda: _of(
        "MEAN", Options("ReducerOptions", KeepDims=False), [(_IMAGE, _X)], ((1, 4), _X), _axes(1, 2)
    ),
    "leaky": lambda: _of("LEAKY_RELU", Options("LeakyReluOptions", Alpha=0.1), [(_IMAGE, _X)], (_IMAGE, _Y)),
    "maximum": lambda: _of("MAXIMUM", None, [(_IMAGE, _X), (_IMAGE, _X)], (_IMAGE, _X)),
    "hard_swish": lambda: _of("HARD_SWISH", None, [(_IMAGE, _X)], (_IMAGE, _Y)),
}


@pytest.mark.parametrize("name", _OPERATORS)
def test_operators(name: str) -> None:
    model = _OPERATORS[name]()
    inputs = _drawn(model)
    np.testing.assert_array_equal(_found(model, inputs), _expected(model, inputs))


def test_a_network() -> None:
    """Layers one after the other, with a branch, and bytes that an operator takes as they are."""
    first, second = _layer("CONV_2D", 131, 3, 255), _layer("FULLY_CONNECTED", 120, 0, 255)
    x, w, b, _ = first.tensors
    _, v, c, _ = second.tensors
    tensors = [
        x,
        w,
        b,
        _tensor("h", (1, 4, 8, 6), _Y),
        _tensor("g", (1, 4, 8, 6), _X),
        Tensor("shape", [2], "int32", data=np.array([4, 48], np.int32)),
        _tensor("r", (4, 48), _X),
        Tensor("v", (7, 48), "uint8", v.scales, v.zero_points, 0, None if v.data is None else v.data[:, :48]),
        replace(c, name="c"),
        _tensor("y", (4, 7), _Y),
    ]
    operators = [
        Operator("CONV_2D", ["x", "w", "b"], ["h"], first.operators[0].options),
        Operator("ADD", ["h", "h"], ["g"], _fused("AddOptions")),
        Operator("RESHAPE", ["g", "shape"], ["r"], None),
        Operator("FULLY_CONNECTED", ["r", "v", "c"], ["y"], second.operators[0].options),
    ]
    model = Model(tensors, operators, ["x"], ["y"])
    inputs = _drawn(model)
    hidden = _rescaled(first, _sums(first, inputs["x"]))
    rest = Model(tensors[3:], operators[1:], ["h"], ["y"])
    np.testing.assert_array_equal(_found(model, inputs), _expected(rest, {"h": hidden}))


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="L2_NORMALIZATION: UINT8 to UINT8; supported"):
        load_tflite(_of("L2_NORMALIZATION", None, [(_IMAGE, _X)], (_IMAGE, _X)).to_bytes())
