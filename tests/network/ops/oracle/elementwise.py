"""Operators that compute element by element, and softmax."""

from collections.abc import Mapping
from typing import Any

from crtgen.network.ir import Node, Op, Signature
from crtgen.network.ops import Activation, Add, Dequantize, Logistic, Mul, Quantize, Relu, Softmax, Sub, Tanh
from crtgen.network.ops.activation import LeakyRelu
from crtgen.network.ops.arithmetic import AddN, Div, FloorDiv, FloorMod, Prelu, SquaredDifference
from crtgen.network.ops.compare import (
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalOr,
    Maximum,
    Minimum,
    NotEqual,
    Select,
)
from crtgen.network.ops.function import (
    Abs,
    Cast,
    Ceil,
    Cos,
    Elu,
    Exp,
    Floor,
    HardSwish,
    Log,
    LogicalNot,
    Neg,
    Round,
    Rsqrt,
    Sin,
    Sqrt,
    Square,
)
from crtgen.network.ops.logsoftmax import LogSoftmax
from tests.network.ops.oracle.writer import ACTIVATIONS, Write, Writer, Written, plain
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
    code = {
        Activation.RELU: "RELU",
        Activation.RELU6: "RELU6",
        Activation.RELU_N1_1: "RELU_N1_TO_1",
        Activation.RELU_0_1: "RELU_0_TO_1",
    }
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
    LogSoftmax: plain("LOG_SOFTMAX"),
    Abs: plain("ABS"),
    AddN: plain("ADD_N"),
    Cast: plain("CAST"),
    Ceil: plain("CEIL"),
    Cos: plain("COS"),
    Div: _binary("DIV", "DivOptions"),
    Elu: plain("ELU"),
    Equal: plain("EQUAL"),
    Exp: plain("EXP"),
    Floor: plain("FLOOR"),
    FloorDiv: plain("FLOOR_DIV"),
    FloorMod: plain("FLOOR_MOD"),
    Greater: plain("GREATER"),
    GreaterEqual: plain("GREATER_EQUAL"),
    HardSwish: plain("HARD_SWISH"),
    Less: plain("LESS"),
    LessEqual: plain("LESS_EQUAL"),
    Log: plain("LOG"),
    LogicalAnd: plain("LOGICAL_AND"),
    LogicalNot: plain("LOGICAL_NOT"),
    LogicalOr: plain("LOGICAL_OR"),
    Maximum: plain("MAXIMUM"),
    Minimum: plain("MINIMUM"),
    Neg: plain("NEG"),
    NotEqual: plain("NOT_EQUAL"),
    Prelu: plain("PRELU"),
    Round: plain("ROUND"),
    Rsqrt: plain("RSQRT"),
    Select: plain("SELECT_V2"),
    Sin: plain("SIN"),
    Sqrt: plain("SQRT"),
    Square: plain("SQUARE"),
    SquaredDifference: plain("SQUARED_DIFFERENCE"),
    Dequantize: plain("DEQUANTIZE"),
}
