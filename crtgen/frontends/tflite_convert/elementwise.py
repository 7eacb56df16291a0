"""Operators that compute element by element, and softmax."""

from collections.abc import Mapping

import numpy as np

from crtgen.frontends.builder import Converted, Refused
from crtgen.frontends.tflite_convert.layer import Convert, Converter, Layer, pairs, unary
from crtgen.ir import DType
from crtgen.ops import Activation, Add, Dequantize, Logistic, Mul, Quantize, Relu, Softmax, Sub, Tanh
from crtgen.ops.activation import LeakyRelu

__all__ = ["CONVERTERS"]


def _binary(kind: type[Add] | type[Sub] | type[Mul]) -> Convert:
    def convert(layer: Layer) -> Converted:
        operands = (layer.tensor(0), layer.tensor(1))
        return Converted(kind(layer.activation()), operands, ("operand",))

    return convert


def _leaky_relu(layer: Layer) -> Converted:
    alpha = float(layer.option("Alpha"))
    if not np.isfinite(alpha):
        raise ValueError(f"alpha is {alpha}")
    return Converted(LeakyRelu(alpha), (layer.x,))


def _softmax(layer: Layer) -> Converted:
    beta = float(layer.option("Beta"))
    if not 0 < beta < np.inf:
        raise Refused(f"beta {beta}; supported: positive numbers")
    return Converted(Softmax(beta), (layer.x,))


_FUSED = ("FusedActivationFunction",)

CONVERTERS: Mapping[str, Converter] = {
    "ADD": Converter(_binary(Add), ("add",), "AddOptions", _FUSED),
    "DEQUANTIZE": Converter(unary(Dequantize()), ("dequantize",), types=pairs([DType.INT8], [DType.FLOAT32])),
    "LEAKY_RELU": Converter(_leaky_relu, ("leaky_relu",), "LeakyReluOptions", ("Alpha",)),
    "LOGISTIC": Converter(unary(Logistic()), ("logistic", "sigmoid")),
    "MUL": Converter(_binary(Mul), ("mul",), "MulOptions", _FUSED),
    "QUANTIZE": Converter(
        unary(Quantize()), ("quantize",), types=pairs([DType.FLOAT32, DType.INT8], [DType.INT8])
    ),
    "RELU": Converter(unary(Relu(Activation.RELU)), ("relu", "re_lu")),
    "RELU6": Converter(unary(Relu(Activation.RELU6)), ("relu6",)),
    "RELU_N1_TO_1": Converter(unary(Relu(Activation.RELU_N1_1)), ("relu_n1_to_1",)),
    "SOFTMAX": Converter(_softmax, ("softmax",), "SoftmaxOptions", ("Beta",)),
    "SUB": Converter(_binary(Sub), ("sub",), "SubOptions", _FUSED),
    "TANH": Converter(unary(Tanh()), ("tanh",)),
}
