"""Operators that compute element by element, and softmax."""

from collections.abc import Mapping
from typing import Any

from crtgen.ir import Node, Op, Signature
from crtgen.ops import Activation, Add, Dequantize, Logistic, Mul, Quantize, Relu, Softmax, Sub, Tanh
from crtgen.ops.activation import LeakyRelu
from tests.ops.oracle.writer import ACTIVATIONS, Write, Writer, Written, plain
from tests.tflite_builder import Options


def _binary(code: str, table: str) -> Write:
    def write(writer: Writer, node: Node, sig: Signature) -> Written:
        op: Any = node.op
        return code, Options(table, FusedActivationFunction=ACTIVATIONS[op.activation]), []

    return write


def _softmax(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    return "SOFTMAX", Options("SoftmaxOptions", Beta=op.beta), []


def _relu(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    code = {Activation.RELU: "RELU", Activation.RELU6: "RELU6", Activation.RELU_N1_1: "RELU_N1_TO_1"}
    return code[op.kind], None, []


def _leaky_relu(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    return "LEAKY_RELU", Options("LeakyReluOptions", Alpha=op.alpha), []


WRITERS: Mapping[type[Op], Write] = {
    Add: _binary("ADD", "AddOptions"),
    Sub: _binary("SUB", "SubOptions"),
    Mul: _binary("MUL", "MulOptions"),
    Softmax: _softmax,
    Logistic: plain("LOGISTIC"),
    Tanh: plain("TANH"),
    Relu: _relu,
    LeakyRelu: _leaky_relu,
    Quantize: plain("QUANTIZE"),
    Dequantize: plain("DEQUANTIZE"),
}
