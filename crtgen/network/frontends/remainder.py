"""Integer remainders, expressed by other operators."""

import numpy as np

from crtgen.network.frontends.builder import NamedTensor
from crtgen.network.frontends.layers import Converted
from crtgen.network.ir import Array, DType
from crtgen.network.ops import Add, Mul, Sub
from crtgen.network.ops.arithmetic import Div
from crtgen.network.ops.compare import Less, LogicalAnd, NotEqual, Select

__all__ = ["cut_remainder", "floor_remainder"]

Operand = NamedTensor | Array | Converted


def cut_remainder(a: Operand, b: Operand) -> Converted:
    """Compute ``a - a / b * b``, which has the sign of ``a``."""
    return Converted(Sub(), (a, Converted(Mul(), (Converted(Div(), (a, b), ("divisor",)), b))))


def floor_remainder(a: Operand, b: Operand, dtype: DType) -> Converted:
    rest, zero = cut_remainder(a, b), np.zeros((), dtype.numpy)
    below = [Converted(Less(), (number, zero), ("zero",)) for number in (rest, b)]
    apart = Converted(
        LogicalAnd(), (Converted(NotEqual(), (rest, zero)), Converted(NotEqual(), tuple(below)))
    )
    return Converted(Select(), (apart, Converted(Add(), (rest, b)), rest))
