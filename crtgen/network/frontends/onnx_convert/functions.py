"""Element-wise functions that are expressed by a few other operators."""

from collections.abc import Mapping
from math import pi

from crtgen.network.frontends.builder import Converted
from crtgen.network.frontends.onnx_convert.layer import OnnxConverter, OnnxLayer, Operand, number, unary
from crtgen.network.ops import Add, Mul, Sub
from crtgen.network.ops.arithmetic import Div
from crtgen.network.ops.compare import Less, Select
from crtgen.network.ops.function import Abs, Atan, Cos, Elu, Erf, Exp, Log, Neg, Sin, Sqrt, Square

__all__ = ["CONVERTERS"]


def _plus(x: Operand, value: float) -> Converted:
    return Converted(Add(), (x, number(value)), ("number",))


def _times(x: Operand, factor: float) -> Converted:
    return Converted(Mul(), (x, number(factor)), ("factor",))


def _less_from(value: float, x: Operand) -> Converted:
    return Converted(Sub(), (number(value), x), ("x",))


def _with_sign(layer: OnnxLayer, y: Converted) -> Converted:
    # The negative of ``y`` where the input is below zero.
    below = Converted(Less(), (layer.x, number(0)), ("zero",))
    return Converted(Select(), (below, Converted(Neg(), (y,)), y))


def _tan(layer: OnnxLayer) -> Converted:
    return Converted(Div(), (Converted(Sin(), (layer.x,)), Converted(Cos(), (layer.x,))))


def _asin(layer: OnnxLayer) -> Converted:
    # ``atan(x / sqrt((1 - x) * (1 + x)))``.
    root = Converted(Sqrt(), (Converted(Mul(), (_less_from(1, layer.x), _plus(layer.x, 1))),))
    return Converted(Atan(), (Converted(Div(), (layer.x, root)),))


def _acos(layer: OnnxLayer) -> Converted:
    return _less_from(pi / 2, _asin(layer))


def _sinh(layer: OnnxLayer) -> Converted:
    # ``m * (m + 2) / (-2 * (m + 1))`` with ``m = e**-|x| - 1``, which loses nothing near zero.
    m = Converted(Elu(), (Converted(Neg(), (Converted(Abs(), (layer.x,)),)),))
    above = Converted(Mul(), (m, _plus(m, 2)))
    return _with_sign(layer, Converted(Div(), (above, _times(_plus(m, 1), -2))))


def _cosh(layer: OnnxLayer) -> Converted:
    powers = Converted(Exp(), (layer.x,)), Converted(Exp(), (Converted(Neg(), (layer.x,)),))
    return _times(Converted(Add(), powers), 0.5)


def _asinh(layer: OnnxLayer) -> Converted:
    # ``log(|x| + sqrt(x**2 + 1))``, with the sign of x.
    root = Converted(Sqrt(), (_plus(Converted(Square(), (layer.x,)), 1),))
    total = Converted(Add(), (Converted(Abs(), (layer.x,)), root))
    return _with_sign(layer, Converted(Log(), (total,)))


def _acosh(layer: OnnxLayer) -> Converted:
    root = Converted(Sqrt(), (_plus(Converted(Square(), (layer.x,)), -1),))
    return Converted(Log(), (Converted(Add(), (layer.x, root)),))


def _atanh(layer: OnnxLayer) -> Converted:
    # ``log((1 + x) / (1 - x)) / 2``.
    ratio = Converted(Div(), (_plus(layer.x, 1), _less_from(1, layer.x)))
    return _times(Converted(Log(), (ratio,)), 0.5)


CONVERTERS: Mapping[str, OnnxConverter] = {
    "Acos": OnnxConverter(_acos, ("acos",)),
    "Acosh": OnnxConverter(_acosh, ("acosh",)),
    "Asin": OnnxConverter(_asin, ("asin",)),
    "Asinh": OnnxConverter(_asinh, ("asinh",)),
    "Atan": OnnxConverter(unary(Atan()), ("atan",)),
    "Atanh": OnnxConverter(_atanh, ("atanh",)),
    "Cosh": OnnxConverter(_cosh, ("cosh",)),
    "Erf": OnnxConverter(unary(Erf()), ("erf",)),
    "Sinh": OnnxConverter(_sinh, ("sinh",)),
    "Tan": OnnxConverter(_tan, ("tan",)),
}
