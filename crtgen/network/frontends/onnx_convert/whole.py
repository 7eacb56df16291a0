"""Integer operators: bits, remainders, powers."""

from collections.abc import Mapping

import numpy as np

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    OnnxConverter,
    OnnxLayer,
    Operand,
    number,
    pair,
    reshaped,
    same,
    unary,
)
from crtgen.network.frontends.onnx_types import KINDS, kind_of, type_name
from crtgen.network.frontends.remainder import cut_remainder, floor_remainder
from crtgen.network.ir import DType
from crtgen.network.ops import Mul
from crtgen.network.ops.arithmetic import FloorMod
from crtgen.network.ops.bits import BitAnd, BitCast, BitNot, BitOr, BitXor, Shift
from crtgen.network.ops.compare import Less, Select
from crtgen.network.ops.function import Abs, Neg

__all__ = ["CONVERTERS", "like", "whole_pow"]


def whole_pow(layer: OnnxLayer) -> Converted:
    x, exponent = layer.x, layer.constant(1, "exponents of integers")
    value = float(exponent.reshape(-1)[0].item()) if exponent.size == 1 else 0.0
    if value not in (1.0, 2.0, 3.0, 4.0):
        raise RefusedOperator("exponents of integers; supported: one of 1, 2, 3, 4")
    made: Operand = x
    for _ in range(int(value) - 1):
        made = Converted(Mul(), (made, x))
    return like(layer, made if isinstance(made, Converted) else same(x), exponent.shape)


def _mod(layer: OnnxLayer) -> Converted:
    # The rest has the sign of the divisor; with ``fmod``, of the number itself.
    if layer.x.dtype is DType.FLOAT32:
        return _real_mod(layer)
    a, b = layer.tensor(0), layer.tensor(1)
    assert layer.x.dtype is not None
    if layer.whole("fmod") or layer.x.dtype.numpy.kind == "u":
        return cut_remainder(a, b)
    return floor_remainder(a, b, layer.x.dtype)


def _real_mod(layer: OnnxLayer) -> Converted:
    a, b = layer.tensor(0), layer.tensor(1)
    if not layer.whole("fmod"):
        return Converted(FloorMod(), (a, b), ("divisor",))
    rest = Converted(FloorMod(), (Converted(Abs(), (a,)), Converted(Abs(), (b,))))
    below = Converted(Less(), (a, number(0)), ("zero",))
    return Converted(Select(), (below, Converted(Neg(), (rest,)), rest))


def _bit_shift(layer: OnnxLayer) -> Converted:
    left = layer.text("direction", "") == "LEFT"
    return Converted(Shift(left), (layer.tensor(0), layer.tensor(1)), ("bits",))


def like(layer: OnnxLayer, made: Converted, other: tuple[int, ...]) -> Converted:
    """Reshape to the broadcast shape of both operands, which has the same number of elements."""
    shape = np.broadcast_shapes(layer.x.shape, other)
    return made if shape == layer.x.shape else reshaped(made, shape)


def _bit_cast(layer: OnnxLayer) -> Converted:
    to, own = kind_of(layer.whole("to")), KINDS.get(layer.x.type_name)
    if to is None or own is None or not (to.is_own and own.is_own):
        names = f"{layer.x.type_name} as {type_name(layer.whole('to'))}"
        raise RefusedOperator(
            f"{names}; supported: {', '.join(n for n, kind in KINDS.items() if kind.is_own)}"
        )
    return Converted(BitCast(to.dtype), (layer.x,))


_INTEGERS = frozenset(d for d in DType if d.is_integer)
_NUMBERS = _INTEGERS | {DType.FLOAT32}

CONVERTERS: Mapping[str, OnnxConverter] = {
    "BitCast": OnnxConverter(_bit_cast, ("bit_cast",), _NUMBERS | {DType.BOOL}),
    "BitShift": OnnxConverter(_bit_shift, ("bit_shift",), _INTEGERS),
    "BitwiseNot": OnnxConverter(unary(BitNot()), ("bitwise_not",), _INTEGERS),
    "BitwiseAnd": OnnxConverter(pair(BitAnd()), ("bitwise_and",), _INTEGERS),
    "BitwiseOr": OnnxConverter(pair(BitOr()), ("bitwise_or",), _INTEGERS),
    "BitwiseXor": OnnxConverter(pair(BitXor()), ("bitwise_xor",), _INTEGERS),
    "Mod": OnnxConverter(_mod, ("mod",), _NUMBERS),
}
