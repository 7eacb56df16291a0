"""Element-wise operators: each output element depends on the input elements at the same position."""

from collections.abc import Mapping
from functools import reduce

import numpy as np

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    ANY,
    Convert,
    OnnxConverter,
    OnnxLayer,
    Operand,
    ask_for_room,
    cast,
    number,
    pair,
    power,
    reshaped,
    same,
    unary,
)
from crtgen.network.frontends.onnx_convert.whole import like, whole_pow
from crtgen.network.ir import DType, Op
from crtgen.network.ops import Activation, Add, Logistic, Mul, Relu, Sub, Tanh
from crtgen.network.ops.activation import LeakyRelu
from crtgen.network.ops.arithmetic import Div, Pow, Prelu
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
    Sin,
    Sqrt,
)

__all__ = ["CONVERTERS"]


def _many(op: Op) -> Convert:
    # An operator of two numbers, from the first of many to the last.
    def convert(layer: OnnxLayer) -> Converted:
        first, *others = layer.operands
        if not others:
            return same(first)
        made = reduce(
            lambda a, b: Converted(op, (a, b), ("other",)),
            others[1:],
            Converted(op, (first, others[0]), ("other",)),
        )
        return made

    return convert


def _mean(layer: OnnxLayer) -> Converted:
    total = _many(Add())(layer)
    assert isinstance(total, Converted)
    return total if len(layer.inputs) == 1 else Converted(Div(), (total, number(len(layer.inputs))))


def _relu(layer: OnnxLayer) -> Converted:
    # Integers mean themselves, also those of a quantised tensor.
    if layer.x.dtype is DType.FLOAT32:
        return Converted(Relu(), (layer.x,))
    return Converted(Maximum(), (layer.x, number(0, layer.x.dtype or DType.INT32)), ("zero",))


def _xor(layer: OnnxLayer) -> Converted:
    return Converted(NotEqual(), (layer.tensor(0), layer.tensor(1)), ("other",))


def _where(layer: OnnxLayer) -> Converted:
    operands = (layer.tensor(0), layer.tensor(1), layer.tensor(2))
    return Converted(Select(), operands, ("chosen", "other"))


def _clip(layer: OnnxLayer) -> Converted:
    # Between two numbers, which older versions have as attributes.
    low, high = (_bound(layer, name, at) for at, name in ((1, "min"), (2, "max")))
    if isinstance(low, np.ndarray) and isinstance(high, np.ndarray) and layer.x.dtype is DType.FLOAT32:
        kinds = {a.float_range(): a for a in Activation if a is not Activation.NONE}
        kind = kinds.get((float(low.reshape(-1)[0]), float(high.reshape(-1)[0])))
        if kind is not None:
            return Converted(Relu(kind), (layer.x,))
    made: Operand = layer.x
    for op, bound in ((Maximum(), low), (Minimum(), high)):
        if bound is not None:
            made = Converted(op, (made, bound), ("bound",))
    return made if isinstance(made, Converted) else same(layer.x)


def _bound(layer: OnnxLayer, name: str, position: int) -> Operand | None:
    if name in layer.node.attributes:
        return number(layer.real(name, 0.0))
    if not layer.has(position):
        return None
    tensor = layer.tensor(position)
    return tensor.data if tensor.data is not None else tensor


def _scaled(x: Operand, factor: float) -> Operand:
    return x if factor == 1 else Converted(Mul(), (x, number(factor)), ("factor",))


def _elu_of(x: Operand, alpha: float) -> Converted:
    # ``x`` where it is positive, elsewhere ``alpha * (e**x - 1)``.
    if alpha == 1:
        return Converted(Elu(), (x,))
    below = Converted(Minimum(), (Converted(Elu(), (x,)), number(0)), ("zero",))
    return Converted(Add(), (Converted(Relu(), (x,)), _scaled(below, alpha)))


def _elu(layer: OnnxLayer) -> Converted:
    return _elu_of(layer.x, layer.real("alpha", 1.0))


def _selu(layer: OnnxLayer) -> Converted:
    alpha, gamma = (
        layer.real("alpha", 1.67326319217681884765625),
        layer.real("gamma", 1.05070102214813232421875),
    )
    return Converted(Mul(), (_elu_of(layer.x, alpha), number(gamma)), ("gamma",))


def _celu(layer: OnnxLayer) -> Converted:
    # ``max(x, 0) + min(alpha * (e**(x / alpha) - 1), 0)``.
    alpha = layer.real("alpha", 1.0)
    inner = Converted(Elu(), (_scaled(layer.x, 1 / alpha),))
    below = _scaled(Converted(Minimum(), (inner, number(0)), ("zero",)), alpha)
    return Converted(Add(), (Converted(Relu(), (layer.x,)), below))


def _leaky_relu(layer: OnnxLayer) -> Converted:
    return Converted(LeakyRelu(layer.real("alpha", 0.01)), (layer.x,))


def _prelu(layer: OnnxLayer) -> Converted:
    # The slope is repeated to the shape of the input, and never the other way.
    return Converted(Prelu(), (layer.x, layer.tensor(1)), ("slope",))


def _thresholded_relu(layer: OnnxLayer) -> Converted:
    above = Converted(Greater(), (layer.x, number(layer.real("alpha", 1.0))), ("alpha",))
    return Converted(Select(), (above, layer.x, number(0)), ("x", "zero"))


def _hard_sigmoid(layer: OnnxLayer) -> Converted:
    # ``max(0, min(1, alpha * x + beta))``.
    line = Converted(Add(), (_scaled(layer.x, layer.real("alpha", 0.2)), number(layer.real("beta", 0.5))))
    low = Converted(Maximum(), (line, number(0)), ("zero",))
    return Converted(Minimum(), (low, number(1)), ("one",))


def _softplus_of(x: Operand) -> Converted:
    # ``log(1 + e**x)`` as ``max(x, 0) + log(1 + e**-|x|)``, which does not overflow.
    power = Converted(Exp(), (Converted(Neg(), (Converted(Abs(), (x,)),)),))
    logarithm = Converted(Log(), (Converted(Add(), (power, number(1)), ("one",)),))
    return Converted(Add(), (Converted(Relu(), (x,)), logarithm))


def _softplus(layer: OnnxLayer) -> Converted:
    return _softplus_of(layer.x)


def _mish(layer: OnnxLayer) -> Converted:
    return Converted(Mul(), (layer.x, Converted(Tanh(), (_softplus_of(layer.x),))))


def _softsign(layer: OnnxLayer) -> Converted:
    below = Converted(Add(), (Converted(Abs(), (layer.x,)), number(1)), ("one",))
    return Converted(Div(), (layer.x, below))


def _swish(layer: OnnxLayer) -> Converted:
    return Converted(Mul(), (layer.x, Converted(Logistic(), (_scaled(layer.x, layer.real("alpha", 1.0)),))))


def _reciprocal(layer: OnnxLayer) -> Converted:
    return Converted(Div(), (number(1), layer.x), ("x",))


def _shrink(layer: OnnxLayer) -> Converted:
    # ``x + bias`` below ``-lambd``, ``x - bias`` above ``lambd``, zero between.
    bias, edge = layer.real("bias", 0.0), layer.real("lambd", 0.5)
    above = Converted(Greater(), (layer.x, number(edge)), ("edge",))
    below = Converted(Less(), (layer.x, number(-edge)), ("edge",))
    lifted = Converted(Add(), (layer.x, number(bias)), ("bias",))
    lowered = Converted(Sub(), (layer.x, number(bias)), ("bias",))
    other = Converted(Select(), (below, lifted, number(0)))
    return Converted(Select(), (above, lowered, other))


def _sign(layer: OnnxLayer) -> Converted:
    # 1, -1, or the number itself, which is zero or none.
    above, below = (Converted(op, (layer.x, number(0)), ("zero",)) for op in (Greater(), Less()))
    other = Converted(Select(), (below, number(-1), layer.x))
    return Converted(Select(), (above, number(1), other))


def _pow(layer: OnnxLayer) -> Converted:
    # A constant exponent takes products and roots where these are few.
    x, exponent = layer.x, layer.tensor(1)
    if x.dtype is not DType.FLOAT32:
        return whole_pow(layer)
    if exponent.data is None or exponent.data.size != 1:
        real = exponent if exponent.dtype is DType.FLOAT32 else cast(exponent, DType.FLOAT32)
        return Converted(Pow(), (x, real), ("exponents",))
    made = power(x, float(exponent.data.reshape(-1)[0].item()))
    return like(layer, made if isinstance(made, Converted) else same(x), exponent.shape)


def _neg(layer: OnnxLayer) -> Converted:
    if layer.x.dtype is DType.FLOAT32:
        return Converted(Neg(), (layer.x,))
    assert layer.x.dtype is not None
    return Converted(Sub(), (number(0, layer.x.dtype), layer.x), ("x",))


def _is_nan(layer: OnnxLayer) -> Converted:
    # x != x.
    return Converted(NotEqual(), (layer.x, layer.x), ("again",))


def _is_inf(layer: OnnxLayer) -> Converted:
    signs = (("detect_positive", np.inf), ("detect_negative", -np.inf))
    bounds = [bound for name, bound in signs if layer.whole(name, 1)]
    if not bounds:
        return Converted(NotEqual(), (same(layer.x), layer.x))
    first, *others = (Converted(Equal(), (layer.x, number(b)), ("bound",)) for b in bounds)
    return reduce(lambda a, b: Converted(LogicalOr(), (a, b)), others, first)


def _identity(layer: OnnxLayer) -> Converted:
    return same(layer.x)


def _dropout(layer: OnnxLayer) -> tuple[Converted, ...]:
    if layer.has(2) and bool(layer.constant(2, "training modes").reshape(-1)[0].item()):
        ratio = layer.constant(1, "ratios").reshape(-1)[0].item() if layer.has(1) else 0.5
        if ratio:
            raise RefusedOperator("training; supported: inference")
    ask_for_room(layer.x.shape)
    return _identity(layer), reshaped(np.ones(layer.x.shape, np.bool_), layer.x.shape)


_INTEGERS = frozenset(d for d in DType if d.is_integer)
_NUMBERS = _INTEGERS | {DType.FLOAT32}

CONVERTERS: Mapping[str, OnnxConverter] = {
    "Abs": OnnxConverter(unary(Abs()), ("abs",)),
    "Add": OnnxConverter(pair(Add()), ("add",), _NUMBERS),
    "And": OnnxConverter(pair(LogicalAnd()), ("and",), frozenset({DType.BOOL})),
    "Ceil": OnnxConverter(unary(Ceil()), ("ceil",)),
    "Celu": OnnxConverter(_celu, ("celu",)),
    "Clip": OnnxConverter(_clip, ("clip",), _NUMBERS),
    "Cos": OnnxConverter(unary(Cos()), ("cos",)),
    "Div": OnnxConverter(pair(Div()), ("div",), _NUMBERS),
    "Dropout": OnnxConverter(_dropout, ("dropout",), ANY),
    "Elu": OnnxConverter(_elu, ("elu",)),
    "Equal": OnnxConverter(pair(Equal()), ("equal",), _NUMBERS | {DType.BOOL}),
    "Exp": OnnxConverter(unary(Exp()), ("exp",)),
    "Floor": OnnxConverter(unary(Floor()), ("floor",)),
    "Greater": OnnxConverter(pair(Greater()), ("greater",), _NUMBERS),
    "GreaterOrEqual": OnnxConverter(pair(GreaterEqual()), ("greater_equal",), _NUMBERS),
    "HardSigmoid": OnnxConverter(_hard_sigmoid, ("hard_sigmoid",)),
    "HardSwish": OnnxConverter(unary(HardSwish()), ("hard_swish",)),
    "Identity": OnnxConverter(_identity, ("identity",), ANY),
    "IsInf": OnnxConverter(_is_inf, ("is_inf",)),
    "IsNaN": OnnxConverter(_is_nan, ("is_nan",)),
    "LeakyRelu": OnnxConverter(_leaky_relu, ("leaky_relu",)),
    "Less": OnnxConverter(pair(Less()), ("less",), _NUMBERS),
    "LessOrEqual": OnnxConverter(pair(LessEqual()), ("less_equal",), _NUMBERS),
    "Log": OnnxConverter(unary(Log()), ("log",)),
    "Max": OnnxConverter(_many(Maximum()), ("max",), _NUMBERS),
    "Mean": OnnxConverter(_mean, ("mean",)),
    "Min": OnnxConverter(_many(Minimum()), ("min",), _NUMBERS),
    "Mish": OnnxConverter(_mish, ("mish",)),
    "Mul": OnnxConverter(pair(Mul()), ("mul",), _NUMBERS),
    "Neg": OnnxConverter(_neg, ("neg",), _NUMBERS),
    "Not": OnnxConverter(unary(LogicalNot()), ("not",), frozenset({DType.BOOL})),
    "Or": OnnxConverter(pair(LogicalOr()), ("or",), frozenset({DType.BOOL})),
    "PRelu": OnnxConverter(_prelu, ("prelu",)),
    "Pow": OnnxConverter(_pow, ("pow",), _NUMBERS),
    "Reciprocal": OnnxConverter(_reciprocal, ("reciprocal",)),
    "Relu": OnnxConverter(_relu, ("relu",), _NUMBERS),
    "Round": OnnxConverter(unary(Round()), ("round",)),
    "Selu": OnnxConverter(_selu, ("selu",)),
    "Shrink": OnnxConverter(_shrink, ("shrink",)),
    "Sigmoid": OnnxConverter(unary(Logistic()), ("sigmoid",)),
    "Sign": OnnxConverter(_sign, ("sign",)),
    "Sin": OnnxConverter(unary(Sin()), ("sin",)),
    "Softplus": OnnxConverter(_softplus, ("softplus",)),
    "Softsign": OnnxConverter(_softsign, ("softsign",)),
    "Sqrt": OnnxConverter(unary(Sqrt()), ("sqrt",)),
    "Sub": OnnxConverter(pair(Sub()), ("sub",), _NUMBERS),
    "Sum": OnnxConverter(_many(Add()), ("sum",)),
    "Swish": OnnxConverter(_swish, ("swish",)),
    "Tanh": OnnxConverter(unary(Tanh()), ("tanh",)),
    "ThresholdedRelu": OnnxConverter(_thresholded_relu, ("thresholded_relu",)),
    "Where": OnnxConverter(_where, ("where",), frozenset({DType.BOOL})),
    "Xor": OnnxConverter(_xor, ("xor",), frozenset({DType.BOOL})),
}
