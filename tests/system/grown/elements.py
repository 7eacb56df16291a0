"""Functions of elements, comparisons, conversions, reductions and products of matrices."""

import math
from collections.abc import Sequence

from crtgen.network.ir import DType, Op, Quant
from crtgen.network.ops import Activation, Add, Logistic, Mul, Quantize, Relu, Softmax, Sub, Tanh
from crtgen.network.ops.activation import LeakyRelu
from crtgen.network.ops.arithmetic import Prelu, SquaredDifference
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
    LogicalNot,
    Neg,
    Round,
    Sin,
    Square,
)
from crtgen.network.ops.logsoftmax import LogSoftmax
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.normalize import CumSum, L2Normalization
from crtgen.network.ops.quant import Dequantize
from crtgen.network.ops.reduce import All, ArgMax, ArgMin, ReduceMax, ReduceMin, Sum
from tests.network.ops.oracle.writer import ACTIVATIONS
from tests.system.grown.network import NUMBERS, SPREAD, Network, Step
from tests.tflite_builder import Options, Tensor

__all__ = ["STEPS"]

_REAL = ("int8", "float32")
_LONGEST = 512
"""TFLite Micro gives up on a softmax of as many."""


def _binary(net: Network) -> None:
    """A sum, difference or product of two tensors, of one with itself, or with a constant that broadcasts."""
    a = net.source()
    if a is None:
        return
    b = net.partner(a)
    if net.chance(0.25):
        shape = [net.pick([1, d]) for d in a.shape][net.integer(0, len(a.shape)) :]
        like = net.tensor(a.dtype, shape, net.rng.uniform(0.01, 0.1), 0)
        b = net.values(like, shape)
    kind = net.pick(["Add", "Add", "Sub", "Mul"])
    if kind == "Sub" and {a.name, b.name} & net.rough and b.data is None:
        kind = "Add"  # the difference of two that are almost equal is an error's
    x, y = net.unit(a), net.unit(b)
    unit = x * y * SPREAD if kind == "Mul" else math.hypot(x, y)
    operands = [a, b] if net.chance(0.7) else [b, a]
    options = Options(f"{kind}Options", FusedActivationFunction=net.activation())
    net.add(kind.upper(), operands, net.tensor(a.dtype, a.shape, unit * net.rng.uniform(0.7, 2)), options)


def _pairs(net: Network) -> None:
    """Other functions of two tensors of one shape."""
    op = net.pick([Maximum(), Minimum(), SquaredDifference(), Prelu()])
    a = net.source(types=NUMBERS if not isinstance(op, Prelu) else _REAL)
    if a is None or len(a.shape) > 4:
        return
    unit = net.unit(a)
    if isinstance(op, Prelu):
        b = net.values(net.tensor(a.dtype, a.shape, 0.01, 0), a.shape[-1:])
    else:
        b = net.partner(a) if net.chance(0.8) else net.values(a, a.shape)
    if isinstance(op, SquaredDifference):
        unit *= net.unit(b) * SPREAD
        net.apply(op, [a, b], net.quant(a.dtype, unit))
    elif isinstance(op, Prelu):
        net.apply(op, [a, b], net.quant(a.dtype, unit))
    else:
        net.apply(op, [net.alike(a, b), b], exact=True)


def _unary(net: Network) -> None:
    """An activation of its own, or a change of the quantisation."""
    x = net.source()
    if x is None or not x.shape:
        return
    short = [LeakyRelu(0.3), Relu(Activation.RELU), Relu(Activation.RELU6), Logistic(), Tanh(), Softmax()]
    ops: list[Op] = [*short, Abs()]
    if x.dtype != "int16":
        ops += [Elu(), HardSwish(), LogSoftmax(), L2Normalization(), LeakyRelu(-0.2), Softmax(0.5)]
    if x.dtype == "float32":
        ops += [Neg()]
    op = net.pick(ops)
    if isinstance(op, Softmax) and x.shape[-1] >= _LONGEST:
        return
    if isinstance(op, Relu) and net.chance(0.5):
        net.apply(op, [x], exact=True)
    elif x.dtype == "float32":
        net.apply(op, [x], exact=isinstance(op, Relu | Abs | Neg))
    else:
        net.apply(op, [x], _output(net, op, x))


def _output(net: Network, op: Op, x: Tensor) -> Quant | None:
    """The quantisation of a function's output: for some there is only one."""
    if x.dtype == "int16" and isinstance(op, Softmax | Logistic | Tanh):
        return Quant.tensor(1 / 32768)
    if isinstance(op, Softmax | Logistic):
        return Quant.tensor(1 / 256, -128)
    if isinstance(op, Tanh | L2Normalization):
        return Quant.tensor(1 / 128)
    if isinstance(op, LogSoftmax):
        return Quant.tensor(1 / 16, 127)
    return net.quant(x.dtype, net.unit(x) * net.rng.uniform(0.5, 2))


def _sensitive(net: Network) -> None:
    """Functions of floats that jump, or that make errors larger."""
    x = net.source(types=["float32"], exact=True)
    if x is None:
        return
    near = x.name in net.inputs and not net.depth  # from -1 to 1
    op = net.pick([Ceil(), Floor(), Round(), *([Sin(), Cos(), Exp(), Square()] if near else [])])
    net.apply(op, [x], exact=isinstance(op, Ceil | Floor | Round))


def _compare(net: Network) -> None:
    """Comparisons, what follows from them, and a choice by them."""
    a = net.source(types=("int8", "float32", "int32"), exact=True)
    if a is None or len(a.shape) > 4:
        return
    b = net.partner(a) if net.chance(0.6) else net.values(a, a.shape)
    if b.name in net.rough:
        return
    op = net.pick([Equal(), Greater(), GreaterEqual(), Less(), LessEqual(), NotEqual()])
    found = net.apply(op, [a, b])
    if found is not None and a.dtype != "int32" and net.chance(0.6):
        other = net.partner(a)
        quant = net.value(other).quant
        net.apply(Select(), [found, net.alike(a, other), other], quant, exact=True)


def _logical(net: Network) -> None:
    x = net.source(types=["bool"])
    if x is None:
        return
    kind = net.pick(["and", "or", "not", "all", "number"])
    if kind == "not":
        net.apply(LogicalNot(), [x])
    elif kind == "number":
        net.apply(Cast(DType(net.pick(["float32", "int32"]))), [x], exact=True)
    elif kind != "all":
        net.apply(LogicalAnd() if kind == "and" else LogicalOr(), [x, net.partner(x)])
    elif x.shape:
        net.apply(All((net.integer(0, len(x.shape) - 1),), net.chance(0.5)), [x])


def _whole(net: Network) -> None:
    """Sums and products of plain integers, which stay small."""
    x = net.source(types=["int32"])
    if x is None or len(x.shape) > 4:
        return
    kind = net.pick([Add, Sub, Mul, Maximum, Minimum])
    small = net.constant(net.rng.integers(-9, 10, x.shape))
    options = (net.pick(list(ACTIVATIONS)),) if kind in (Add, Sub, Mul) else ()
    net.apply(kind(*options), [x, small if kind is Mul else net.pick([small, net.partner(x)])])


def _convert(net: Network) -> None:
    """Between the types that layers compute with, and to plain integers."""
    x = net.source(types=(*NUMBERS, "int32"), exact=True)
    if x is None:
        return
    if x.dtype == "int32":
        least, most = (net.constant(net.rng.integers(*ends, x.shape)) for ends in ((-99, 0), (0, 99)))
        bounded = net.apply(Minimum(), [x, most])
        bounded = bounded and net.apply(Maximum(), [bounded, least])
        if bounded is not None:
            net.apply(Cast(DType.FLOAT32), [bounded], exact=True)
    elif x.dtype == "float32":
        if net.chance(0.3):
            net.apply(Cast(DType.INT32), [x])
        else:
            dtype = net.pick(["int8", "int16"])
            net.apply(Quantize(DType(dtype)), [x], net.quant(dtype, 1 / SPREAD))
    elif net.chance(0.3):
        net.apply(Dequantize(), [x], exact=True)
    else:
        dtype = net.pick(["int8", "int16"])
        net.apply(Quantize(DType(dtype)), [x], net.quant(dtype, net.unit(x) * net.rng.uniform(0.5, 2)))


def _mean(net: Network) -> None:
    x = net.source(4)
    if x is None:
        return
    axes = net.pick([[1, 2], [1, 2], [2, 1], [3], [-1], [1], [1, 2, 3]])
    keep = net.chance(0.5)
    dropped = {a % 4 for a in axes}
    shape = [1 if a in dropped else d for a, d in enumerate(x.shape) if keep or a not in dropped]
    unit = net.unit(x) * net.rng.uniform(0.3, 1.2)
    y = net.like(x, shape) if net.chance(0.3) else net.tensor(x.dtype, shape, unit)
    net.add("MEAN", [x, net.constant(axes)], y, Options("ReducerOptions", KeepDims=keep))


def _reduce(net: Network) -> None:
    """Along any axes; the places of extremes are plain integers."""
    x = net.source(types=_REAL, exact=True)
    if x is None or not x.shape:
        return
    rank, keep = len(x.shape), net.chance(0.5)
    axes = tuple(sorted({net.integer(0, rank - 1) for _ in range(net.integer(1, 2))}))
    kind = net.pick([Sum, ReduceMax, ReduceMin, ArgMax, ArgMin, CumSum])
    if kind in (ArgMax, ArgMin):
        found = net.apply(kind(axes[0]), [x])
        if found is not None:
            net.places[found.name] = x.shape[axes[0]]
    elif kind is CumSum:
        op = CumSum(axes[0], net.chance(0.5), net.chance(0.5))
        net.apply(op, [x], net.quant(x.dtype, net.unit(x) * x.shape[axes[0]] ** 0.5))
    else:
        count = math.prod(x.shape[a] for a in axes)
        quant = net.quant(x.dtype, net.unit(x) * count**0.5) if kind is Sum else None
        net.apply(kind(axes, keep), [x], quant, exact=kind is not Sum)


def _product(net: Network) -> None:
    """A product with a matrix, or of a tensor with itself."""
    x = net.source()
    if x is None or not 2 <= len(x.shape) <= 4:
        return
    depth, other = x.shape[-1], net.integer(1, 8)
    turned = net.chance(0.5)
    if net.chance(0.4):
        b, turned = x, True
    else:
        shape: Sequence[int] = (other, depth) if turned else (depth, other)
        b = net.values(net.tensor(x.dtype, shape, 0.02, 0), (*x.shape[:-2], *shape))
    unit = net.unit(x) * net.unit(b) * SPREAD * depth**0.5
    net.apply(BatchMatMul(False, turned), [x, b], net.quant(x.dtype, unit))


STEPS: list[Step] = [
    *(_binary, _binary, _binary, _pairs, _pairs, _unary, _unary, _unary, _sensitive, _compare, _logical),
    *(_whole, _convert, _convert, _mean, _reduce, _reduce, _product),
]
