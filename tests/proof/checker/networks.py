"""Small networks of operators that the demonstration does not have."""

from collections.abc import Sequence

import numpy as np

from tests.tflite_builder import Model, Operator, Options, Tensor

__all__ = ["average_pool", "elements", "rare", "reals", "root", "two_inputs"]


def average_pool() -> bytes:
    """The mean of fifteen elements, which no shift divides."""
    shapes = {"x": (1, 3, 5, 8), "y": (1, 1, 1, 8)}
    tensors = [Tensor(name, shape, "int8", [0.05], [3]) for name, shape in shapes.items()]
    window = {"FilterHeight": 3, "FilterWidth": 5, "StrideH": 3, "StrideW": 5, "Padding": 1}
    operator = Operator("AVERAGE_POOL_2D", ["x"], ["y"], Options("Pool2DOptions", **window))
    return Model(tensors, [operator], ["x"], ["y"]).to_bytes()


def elements() -> bytes:
    """Element by element: a rescaling, a leaky relu, a product with a constant, a difference."""

    def tensor(name: str, scale: float, zero: int) -> Tensor:
        return Tensor(name, (1, 2, 2, 8), "int8", [scale], [zero])

    factors = np.random.default_rng(1).integers(-128, 128, 8).astype(np.int8)
    constant = Tensor("k", (8,), "int8", [0.01], [2], data=factors)
    tensors = [
        *(tensor("x", 0.05, 3), tensor("a", 0.071, -7), tensor("b", 0.06, 5)),
        *(constant, tensor("c", 0.013, -20), tensor("y", 0.09, 11)),
    ]
    operators = [
        Operator("QUANTIZE", ["x"], ["a"], Options("QuantizeOptions")),
        Operator("LEAKY_RELU", ["a"], ["b"], Options("LeakyReluOptions", Alpha=0.3)),
        Operator("MUL", ["b", "k"], ["c"], Options("MulOptions")),
        Operator("SUB", ["c", "x"], ["y"], Options("SubOptions")),
    ]
    return Model(tensors, operators, ["x"], ["y"]).to_bytes()


def root() -> bytes:
    """A square root of int8, which is cut off instead of rounded."""
    tensors = [
        Tensor(*end) for end in (("x", (16,), "int8", [0.05], [-30]), ("y", (16,), "int8", [0.03], [5]))
    ]
    return Model(tensors, [Operator("SQRT", ["x"], ["y"])], ["x"], ["y"]).to_bytes()


def two_inputs() -> bytes:
    """A sum and a difference of two tensors of int16: two inputs, two outputs."""

    def tensor(name: str, scale: float) -> Tensor:
        return Tensor(name, (1, 6), "int16", [scale], [0])

    tensors = [tensor("a", 0.001), tensor("b", 0.0007), tensor("c", 0.0015), tensor("d", 0.0013)]
    fields = {"PotScaleInt16": False}
    operators = [
        Operator("ADD", ["a", "b"], ["c"], Options("AddOptions", **fields)),
        Operator("SUB", ["b", "a"], ["d"], Options("SubOptions", **fields)),
    ]
    return Model(tensors, operators, ["a", "b"], ["c", "d"]).to_bytes()


def rare(hidden: bool = False, weights: Sequence[int] = (16,) * 8) -> bytes:
    """A sum whose greatest value, 32784, is above 16 bits for 9 of the 2^64 inputs only.

    With a ``hidden`` layer before, half of its weights are negative.
    """
    factors, bias = np.array([weights], np.int8), np.array([32784 - 8 * 255 * 16], np.int32)
    tensors = [
        Tensor("x", (1, 8), "int8", [0.05], [-128]),
        Tensor("w", (1, 8), "int8", [0.01], [0], data=factors),
        Tensor("b", (1,), "int32", [0.0005], [0], data=bias),
        Tensor("y", (1, 1), "int8", [0.1], [-40]),
    ]
    operators = [Operator("FULLY_CONNECTED", ["x", "w", "b"], ["y"], Options("FullyConnectedOptions"))]
    if hidden:
        signs = np.diag([127, -127] * 4).astype(np.int8)
        biases = np.array([0, 255 * 127] * 4, np.int32)
        tensors += [
            Tensor("i", (1, 8), "int8", [0.05], [-128]),
            Tensor("v", (8, 8), "int8", [1 / 127], [0], data=signs),
            Tensor("a", (8,), "int32", [0.05 / 127], [0], data=biases),
        ]
        before = Operator("FULLY_CONNECTED", ["i", "v", "a"], ["x"], Options("FullyConnectedOptions"))
        operators.insert(0, before)
    return Model(tensors, operators, ["i" if hidden else "x"], ["y"]).to_bytes()


def reals() -> bytes:
    """Float32: padding, two convolutions, a sum, an average of nine, a fully connected layer; means."""
    rng = np.random.default_rng(3)

    def constant(name: str, *shape: int) -> Tensor:
        return Tensor(name, shape, "float32", data=rng.normal(0, 0.5, shape).astype(np.float32))

    def numbers(name: str, values: object) -> Tensor:
        data = np.array(values, np.int32)
        return Tensor(name, data.shape, "int32", data=data)

    shapes: dict[str, tuple[int, ...]] = {
        "x": (1, 5, 5, 3),
        "p": (1, 7, 7, 3),
        "a": (1, 3, 3, 8),
        "b": (1, 3, 3, 8),
        "c": (1, 3, 3, 8),
    }
    shapes |= {"d": (1, 1, 1, 8), "y": (1, 4), "m": (1, 8)}
    tensors = [
        *(Tensor(name, shape, "float32") for name, shape in shapes.items()),
        *(constant("w", 8, 3, 3, 3), constant("wb", 8), constant("v", 1, 3, 3, 8), constant("vb", 8)),
        *(constant("f", 4, 8), constant("fb", 4)),
        *(numbers("pads", [[0, 0], [1, 1], [1, 1], [0, 0]]), numbers("axes", [1, 2])),
    ]
    step = {"StrideH": 2, "StrideW": 2, "DilationHFactor": 1, "DilationWFactor": 1}
    one = {**step, "StrideH": 1, "StrideW": 1}
    window = {"FilterHeight": 3, "FilterWidth": 3, "StrideH": 3, "StrideW": 3, "Padding": 1}
    convolution = Options("Conv2DOptions", **step, Padding=1, FusedActivationFunction=3)
    depthwise = Options(
        "DepthwiseConv2DOptions", **one, Padding=0, DepthMultiplier=1, FusedActivationFunction=1
    )
    operators = [
        Operator("PAD", ["x", "pads"], ["p"], Options("PadOptions")),
        Operator("CONV_2D", ["p", "w", "wb"], ["a"], convolution),
        Operator("DEPTHWISE_CONV_2D", ["a", "v", "vb"], ["b"], depthwise),
        Operator("ADD", ["b", "a"], ["c"], Options("AddOptions")),
        Operator("AVERAGE_POOL_2D", ["c"], ["d"], Options("Pool2DOptions", **window)),
        Operator("FULLY_CONNECTED", ["d", "f", "fb"], ["y"], Options("FullyConnectedOptions")),
        Operator("MEAN", ["b", "axes"], ["m"], Options("ReducerOptions", KeepDims=False)),
    ]
    return Model(tensors, operators, ["x"], ["y", "m"]).to_bytes()
