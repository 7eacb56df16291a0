"""Element-wise operators and softmax."""

from collections.abc import Mapping

import numpy as np

from crtgen.network.frontends.builder import Converted, KnownOutput, RefusedOperator, Result
from crtgen.network.frontends.remainder import floor_remainder
from crtgen.network.frontends.tflite_convert.layer import (
    Convert,
    TfliteConverter,
    TfliteLayer,
    pairs,
    same,
    unary,
)
from crtgen.network.frontends.tflite_file import FileTensor
from crtgen.network.ir import DType, shape_text
from crtgen.network.ops import (
    Activation,
    Add,
    Dequantize,
    Mul,
    Quantize,
    Relu,
    Reshape,
    Softmax,
    Sub,
)
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
from crtgen.network.ops.elementwise import Elementwise
from crtgen.network.ops.function import (
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
    Rsqrt,
    Sin,
    Square,
)
from crtgen.network.ops.logsoftmax import LogSoftmax

__all__ = ["CONVERTERS"]


# Integers without a scale, such as positions that are computed.
_PLAIN = (DType.INT32, DType.INT64)


def _binary(kind: type[Add] | type[Sub] | type[Mul] | type[Div]) -> Convert:
    def convert(layer: TfliteLayer) -> Converted:
        # TFLite Micro's addition of int32 does not look at the activation
        plain = kind is Add and layer.x.dtype is DType.INT32
        activation = Activation.NONE if plain else layer.activation()
        return Converted(kind(activation), (layer.tensor(0), layer.tensor(1)), ("operand",))

    return convert


def _sub(layer: TfliteLayer) -> Result:
    # Keras asks "is x finite?" by x - x, whose scale may be too fine for any other difference.
    a, b, y = layer.tensor(0), layer.tensor(1), layer.y
    if (
        a.data is None
        and a.name == b.name
        and y.quant is not None
        and y.quant.axis is None
        and y.dtype is not None
    ):
        return KnownOutput(np.full(y.shape, y.quant.zero_point, y.dtype.numpy))
    return _binary(Sub)(layer)


def _operands(op: Elementwise) -> Convert:
    # An operator without attributes, of some operands.
    def convert(layer: TfliteLayer) -> Converted:
        operands = tuple(layer.tensor(i) for i in range(op.operands))
        return Converted(op, operands, ("operand", "other")[: op.operands - 1])

    return convert


def _less_than_zero(x: FileTensor) -> Converted:
    assert x.dtype is not None
    return Converted(Sub(), (np.zeros((), x.dtype.numpy), x))


def _abs(layer: TfliteLayer) -> Converted:
    # The least integer has no opposite, and stays.
    if layer.x.dtype in _PLAIN:
        return Converted(Maximum(), (_less_than_zero(layer.x), layer.x), ("other",))
    return Converted(Abs(), (layer.x,))


def _neg(layer: TfliteLayer) -> Converted:
    return Converted(Neg(), (layer.x,)) if layer.x.dtype is DType.FLOAT32 else _less_than_zero(layer.x)


def _floor_div(layer: TfliteLayer) -> Converted:
    # Integers: what is left without the remainder is divided without one.
    a, b = layer.tensor(0), layer.tensor(1)
    if layer.x.dtype is None or layer.x.dtype not in _PLAIN:
        return Converted(FloorDiv(), (a, b), ("divisor",))
    whole = Converted(Sub(), (a, floor_remainder(a, b, layer.x.dtype)))
    return Converted(Div(), (whole, b), ("divisor",))


def _floor_mod(layer: TfliteLayer) -> Converted:
    a, b = layer.tensor(0), layer.tensor(1)
    if layer.x.dtype is not None and layer.x.dtype in _PLAIN:
        return floor_remainder(a, b, layer.x.dtype)
    return Converted(FloorMod(), (a, b), ("divisor",))


def _add_n(layer: TfliteLayer) -> Converted:
    return Converted(AddN(), layer.operands)


def _typed(kind: type[Cast] | type[Quantize]) -> Convert:
    # An operator that is told the type of its output.
    def convert(layer: TfliteLayer) -> Converted:
        assert layer.y.dtype is not None
        return Converted(kind(layer.y.dtype), (layer.x,))

    return convert


def _dequantize(layer: TfliteLayer) -> Result:
    # Constants become float32; nothing else of float16 is in memory.
    if layer.x.dtype is DType.FLOAT16:
        return KnownOutput(layer.constant(0, "values of float16").astype(np.float32))
    quant = layer.x.quant
    if layer.x.data is not None and quant is not None:
        along = [-1 if axis == quant.axis else 1 for axis in range(len(layer.x.shape))]
        zeros = np.array(quant.zero_points, np.int64).reshape(along if quant.axis is not None else ())
        scales = np.array(quant.scales, np.float64).reshape(along if quant.axis is not None else ())
        return KnownOutput(((layer.x.data.astype(np.int64) - zeros) * scales).astype(np.float32))
    return Converted(Dequantize(), (layer.x,))


def _select(layer: TfliteLayer) -> Converted:
    # One condition for all elements, for each, or for each row along the first axis.
    condition, a, b = (layer.tensor(i) for i in range(3))
    if a.shape != b.shape:
        raise ValueError(f"a choice between {shape_text(a.shape)} and {shape_text(b.shape)}")
    if condition.shape in (a.shape, ()):
        return Converted(Select(), (condition, a, b), ("operand", "other"))
    if condition.shape != a.shape[:1]:
        raise ValueError(f"a condition of {shape_text(condition.shape)} for {shape_text(a.shape)}")
    rows = Converted(Reshape((a.shape[0], *(1 for _ in a.shape[1:]))), (condition,))
    return Converted(Select(), (rows, a, b), ("operand", "other"))


def _leaky_relu(layer: TfliteLayer) -> Converted:
    alpha = float(layer.option("Alpha"))
    if not np.isfinite(alpha):
        raise ValueError(f"alpha is {alpha}")
    return Converted(LeakyRelu(alpha), (layer.x,))


def _softmax(layer: TfliteLayer) -> Converted:
    beta = float(layer.option("Beta"))
    if not 0 < beta < np.inf:
        raise RefusedOperator(f"beta {beta}; supported: positive numbers")
    wider = layer.y.dtype if layer.y.dtype is not layer.x.dtype else None
    return Converted(Softmax(beta, wider), (layer.x,))


def _relu6(layer: TfliteLayer) -> Converted:
    # A clamp in the numbers of the input, which the output takes as they are: as TFLite Micro does it.
    # TensorFlow Lite, which alone has uint8, rescales them.
    clamp = Converted(Relu(Activation.RELU6), (layer.x,))
    return (
        clamp
        if layer.x.quant == layer.y.quant or layer.x.is_unsigned
        else Converted(Reshape(layer.x.shape), (clamp,))
    )


_FUSED = ("FusedActivationFunction",)

_F32, _I8, _I16, _I32, _I64 = DType.FLOAT32, DType.INT8, DType.INT16, DType.INT32, DType.INT64
_U8, _BOOL = DType.UINT8, DType.BOOL
_REAL = same(_F32)
_SHORT = same(_F32, _I8, _I16)
_WHOLE = same(_F32, _I8, _I16, _I32)
_EVERY = same(_F32, _I8, _I16, _I32, _I64)
_CAST = (_F32, _I8, _I16, _I32, _I64, _U8, DType.UINT32, _BOOL)
_ORDERED = pairs((_F32, _I8, _I32, _I64), (_BOOL,))
_QUANTISED = (
    pairs((_F32, _I8, _I16, _I32), (_I8, _I16)) | pairs((_I8, _I16), (_I32,)) | {(_I8, _U8), (_U8, _I8)}
)

CONVERTERS: Mapping[str, TfliteConverter] = {
    "RSQRT": TfliteConverter(unary(Rsqrt()), ("rsqrt",), types=_SHORT),
    "ABS": TfliteConverter(_abs, ("abs",), types=_EVERY),
    "ADD": TfliteConverter(_binary(Add), ("add",), "AddOptions", _FUSED, _EVERY),
    "ADD_N": TfliteConverter(_add_n, ("add_n",)),
    "CAST": TfliteConverter(_typed(Cast), ("cast",), types=pairs(_CAST, _CAST)),
    "CEIL": TfliteConverter(unary(Ceil()), ("ceil",), types=_REAL),
    "COS": TfliteConverter(unary(Cos()), ("cos",), types=_REAL),
    "DEQUANTIZE": TfliteConverter(
        _dequantize, ("dequantize",), types=pairs((_I8, _I16, _U8, DType.FLOAT16), (_F32,))
    ),
    "DIV": TfliteConverter(_binary(Div), ("div",), "DivOptions", _FUSED, _EVERY),
    "ELU": TfliteConverter(unary(Elu()), ("elu",)),
    "EQUAL": TfliteConverter(_operands(Equal()), ("equal",), types=_ORDERED | {(_BOOL, _BOOL)}),
    "FLOOR": TfliteConverter(unary(Floor()), ("floor",), types=_REAL),
    "FLOOR_DIV": TfliteConverter(_floor_div, ("floor_div",), types=same(_F32, _I32, _I64)),
    "FLOOR_MOD": TfliteConverter(_floor_mod, ("floor_mod",), types=same(_F32, _I32, _I64)),
    "GREATER": TfliteConverter(_operands(Greater()), ("greater",), types=_ORDERED),
    "GREATER_EQUAL": TfliteConverter(_operands(GreaterEqual()), ("greater_equal",), types=_ORDERED),
    "HARD_SWISH": TfliteConverter(unary(HardSwish()), ("hard_swish",)),
    "LEAKY_RELU": TfliteConverter(_leaky_relu, ("leaky_relu",), "LeakyReluOptions", ("Alpha",), _SHORT),
    "LESS": TfliteConverter(_operands(Less()), ("less",), types=_ORDERED),
    "LESS_EQUAL": TfliteConverter(_operands(LessEqual()), ("less_equal",), types=_ORDERED),
    "LOGICAL_AND": TfliteConverter(_operands(LogicalAnd()), ("logical_and",), types=same(_BOOL)),
    "LOGICAL_NOT": TfliteConverter(unary(LogicalNot()), ("logical_not",), types=same(_BOOL)),
    "LOGICAL_OR": TfliteConverter(_operands(LogicalOr()), ("logical_or",), types=same(_BOOL)),
    "MAXIMUM": TfliteConverter(_operands(Maximum()), ("maximum",), types=same(_F32, _I8, _I16, _I32, _I64)),
    "MINIMUM": TfliteConverter(_operands(Minimum()), ("minimum",), types=same(_F32, _I8, _I16, _I32, _I64)),
    "MUL": TfliteConverter(_binary(Mul), ("mul",), "MulOptions", _FUSED, _EVERY),
    "NEG": TfliteConverter(_neg, ("neg",), types=same(_F32, _I32, _I64)),
    "NOT_EQUAL": TfliteConverter(_operands(NotEqual()), ("not_equal",), types=_ORDERED | {(_BOOL, _BOOL)}),
    "PRELU": TfliteConverter(_operands(Prelu()), ("prelu",), types=_SHORT),
    "QUANTIZE": TfliteConverter(_typed(Quantize), ("quantize",), types=_QUANTISED),
    "RELU": TfliteConverter(unary(Relu(Activation.RELU)), ("relu", "re_lu"), types=_SHORT),
    "RELU6": TfliteConverter(_relu6, ("relu6",), types=_SHORT),
    "RELU_0_TO_1": TfliteConverter(unary(Relu(Activation.RELU_0_1)), ("relu_0_to_1",)),
    "RELU_N1_TO_1": TfliteConverter(unary(Relu(Activation.RELU_N1_1)), ("relu_n1_to_1",)),
    "ROUND": TfliteConverter(unary(Round()), ("round",), types=_REAL),
    "SELECT": TfliteConverter(_select, ("select",), types=pairs((_BOOL,), DType)),
    "SELECT_V2": TfliteConverter(_operands(Select()), ("select",), types=pairs((_BOOL,), DType)),
    "SIN": TfliteConverter(unary(Sin()), ("sin",), types=_REAL),
    "SOFTMAX": TfliteConverter(_softmax, ("softmax",), "SoftmaxOptions", ("Beta",), _SHORT | {(_I8, _I16)}),
    "LOG_SOFTMAX": TfliteConverter(unary(LogSoftmax()), ("log_softmax",)),
    "SQUARE": TfliteConverter(unary(Square()), ("square",), types=_REAL),
    "SQUARED_DIFFERENCE": TfliteConverter(
        _operands(SquaredDifference()), ("squared_difference",), types=_WHOLE
    ),
    "SUB": TfliteConverter(_sub, ("sub",), "SubOptions", _FUSED, _EVERY),
}
