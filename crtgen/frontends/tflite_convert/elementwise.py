"""Operators that compute element by element, and softmax."""

from collections.abc import Mapping

import numpy as np

from crtgen.frontends.builder import Converted, Refused
from crtgen.frontends.remainder import floor_remainder
from crtgen.frontends.tflite_convert.layer import Convert, Converter, Layer, pairs, same, unary
from crtgen.ir import DType
from crtgen.ops import Activation, Add, Dequantize, Logistic, Mul, Quantize, Relu, Reshape, Softmax, Sub, Tanh
from crtgen.ops.activation import LeakyRelu
from crtgen.ops.arithmetic import AddN, Div, FloorDiv, FloorMod, Prelu, SquaredDifference
from crtgen.ops.compare import (
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
from crtgen.ops.elementwise import Elementwise
from crtgen.ops.function import (
    Abs,
    Cast,
    Ceil,
    Cos,
    Elu,
    Floor,
    HardSwish,
    LogicalNot,
    Neg,
    Round,
    Sin,
    Sqrt,
    Square,
)
from crtgen.ops.logsoftmax import LogSoftmax

__all__ = ["CONVERTERS"]


def _binary(kind: type[Add] | type[Sub] | type[Mul] | type[Div]) -> Convert:
    def convert(layer: Layer) -> Converted:
        # TFLite Micro's addition of int32 does not look at the activation
        plain = kind is Add and layer.x.dtype is DType.INT32
        activation = Activation.NONE if plain else layer.activation()
        return Converted(kind(activation), (layer.tensor(0), layer.tensor(1)), ("operand",))

    return convert


def _operands(op: Elementwise) -> Convert:
    """An operator without attributes, of some operands."""

    def convert(layer: Layer) -> Converted:
        operands = tuple(layer.tensor(i) for i in range(op.operands))
        return Converted(op, operands, ("operand", "other")[: op.operands - 1])

    return convert


def _floor_mod(layer: Layer) -> Converted:
    a, b = layer.tensor(0), layer.tensor(1)
    if layer.x.dtype is DType.INT32:
        return floor_remainder(a, b, DType.INT32)
    return Converted(FloorMod(), (a, b), ("divisor",))


def _add_n(layer: Layer) -> Converted:
    return Converted(AddN(), layer.operands)


def _typed(kind: type[Cast] | type[Quantize]) -> Convert:
    """An operator that is told the type of its output."""

    def convert(layer: Layer) -> Converted:
        assert layer.y.dtype is not None
        return Converted(kind(layer.y.dtype), (layer.x,))

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
    wider = layer.y.dtype if layer.y.dtype is not layer.x.dtype else None
    return Converted(Softmax(beta, wider), (layer.x,))


def _relu6(layer: Layer) -> Converted:
    """A clamp in the numbers of the input, which the output takes as they are: as TFLite Micro does it."""
    clamp = Converted(Relu(Activation.RELU6), (layer.x,))
    return clamp if layer.x.quant == layer.y.quant else Converted(Reshape(layer.x.shape), (clamp,))


_FUSED = ("FusedActivationFunction",)

_F32, _I8, _I16, _I32, _I64 = DType.FLOAT32, DType.INT8, DType.INT16, DType.INT32, DType.INT64
_U8, _BOOL = DType.UINT8, DType.BOOL
_REAL = same(_F32)
_SHORT = same(_F32, _I8, _I16)
_WHOLE = same(_F32, _I8, _I16, _I32)
_CAST = (_F32, _I8, _I16, _I32, _I64, _U8, DType.UINT32, _BOOL)
_ORDERED = pairs((_F32, _I8, _I32, _I64), (_BOOL,))
_QUANTISED = (
    pairs((_F32, _I8, _I16, _I32), (_I8, _I16)) | pairs((_I8, _I16), (_I32,)) | {(_I8, _U8), (_U8, _I8)}
)

CONVERTERS: Mapping[str, Converter] = {
    "ABS": Converter(unary(Abs()), ("abs",), types=_SHORT),
    "ADD": Converter(_binary(Add), ("add",), "AddOptions", _FUSED, _WHOLE),
    "ADD_N": Converter(_add_n, ("add_n",)),
    "CAST": Converter(_typed(Cast), ("cast",), types=pairs(_CAST, _CAST)),
    "CEIL": Converter(unary(Ceil()), ("ceil",), types=_REAL),
    "COS": Converter(unary(Cos()), ("cos",), types=_REAL),
    "DEQUANTIZE": Converter(unary(Dequantize()), ("dequantize",), types=pairs((_I8, _I16, _U8), (_F32,))),
    "DIV": Converter(_binary(Div), ("div",), "DivOptions", _FUSED, same(_F32, _I8, _I32)),
    "ELU": Converter(unary(Elu()), ("elu",)),
    "EQUAL": Converter(_operands(Equal()), ("equal",), types=_ORDERED | {(_BOOL, _BOOL)}),
    "FLOOR": Converter(unary(Floor()), ("floor",), types=_REAL),
    "FLOOR_DIV": Converter(_operands(FloorDiv()), ("floor_div",), types=_REAL),
    "FLOOR_MOD": Converter(_floor_mod, ("floor_mod",), types=_REAL | {(_I32, _I32)}),
    "GREATER": Converter(_operands(Greater()), ("greater",), types=_ORDERED),
    "GREATER_EQUAL": Converter(_operands(GreaterEqual()), ("greater_equal",), types=_ORDERED),
    "HARD_SWISH": Converter(unary(HardSwish()), ("hard_swish",)),
    "LEAKY_RELU": Converter(_leaky_relu, ("leaky_relu",), "LeakyReluOptions", ("Alpha",), _SHORT),
    "LESS": Converter(_operands(Less()), ("less",), types=_ORDERED),
    "LESS_EQUAL": Converter(_operands(LessEqual()), ("less_equal",), types=_ORDERED),
    "LOGICAL_AND": Converter(_operands(LogicalAnd()), ("logical_and",), types=same(_BOOL)),
    "LOGICAL_NOT": Converter(unary(LogicalNot()), ("logical_not",), types=same(_BOOL)),
    "LOGICAL_OR": Converter(_operands(LogicalOr()), ("logical_or",), types=same(_BOOL)),
    "LOGISTIC": Converter(unary(Logistic()), ("logistic", "sigmoid"), types=_SHORT),
    "MAXIMUM": Converter(_operands(Maximum()), ("maximum",), types=same(_F32, _I8, _I16, _I32, _I64)),
    "MINIMUM": Converter(_operands(Minimum()), ("minimum",), types=same(_F32, _I8, _I16, _I32, _I64)),
    "MUL": Converter(_binary(Mul), ("mul",), "MulOptions", _FUSED, _WHOLE),
    "NEG": Converter(unary(Neg()), ("neg",), types=_REAL),
    "NOT_EQUAL": Converter(_operands(NotEqual()), ("not_equal",), types=_ORDERED | {(_BOOL, _BOOL)}),
    "PRELU": Converter(_operands(Prelu()), ("prelu",), types=_SHORT),
    "QUANTIZE": Converter(_typed(Quantize), ("quantize",), types=_QUANTISED),
    "RELU": Converter(unary(Relu(Activation.RELU)), ("relu", "re_lu"), types=_SHORT),
    "RELU6": Converter(_relu6, ("relu6",), types=_SHORT),
    "RELU_N1_TO_1": Converter(unary(Relu(Activation.RELU_N1_1)), ("relu_n1_to_1",)),
    "ROUND": Converter(unary(Round()), ("round",), types=_REAL),
    "SELECT_V2": Converter(_operands(Select()), ("select",), types=pairs((_BOOL,), (_F32, _I8, _I16))),
    "SIN": Converter(unary(Sin()), ("sin",), types=_REAL),
    "SOFTMAX": Converter(_softmax, ("softmax",), "SoftmaxOptions", ("Beta",), _SHORT | {(_I8, _I16)}),
    "LOG_SOFTMAX": Converter(unary(LogSoftmax()), ("log_softmax",)),
    "SQRT": Converter(unary(Sqrt()), ("sqrt",), types=_REAL),
    "SQUARE": Converter(unary(Square()), ("square",), types=_REAL),
    "SQUARED_DIFFERENCE": Converter(_operands(SquaredDifference()), ("squared_difference",), types=_WHOLE),
    "SUB": Converter(_binary(Sub), ("sub",), "SubOptions", _FUSED, _WHOLE),
    "TANH": Converter(unary(Tanh()), ("tanh",), types=_SHORT),
}
