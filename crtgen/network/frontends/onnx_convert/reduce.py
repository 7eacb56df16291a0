"""Reductions, norms, running sums, softmax, and ArgMax."""

from collections.abc import Callable, Mapping
from functools import reduce
from math import prod

import numpy as np

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    Convert,
    OnnxConverter,
    OnnxLayer,
    Operand,
    Results,
    cast,
    number,
    reshaped,
    same,
    transposed,
)
from crtgen.network.ir import DType, Op
from crtgen.network.ops import Add, Mean, Mul, Softmax, StridedSlice, Sub
from crtgen.network.ops.arithmetic import Div
from crtgen.network.ops.compare import Equal, Select
from crtgen.network.ops.function import Abs, Exp, Log, Sqrt, Square
from crtgen.network.ops.logsoftmax import LogSoftmax
from crtgen.network.ops.normalize import CumSum
from crtgen.network.ops.reduce import ArgMax, ArgMin, ReduceMax, ReduceMin, Sum

__all__ = ["CONVERTERS"]

_MOST_FACTORS = 64

Kind = type[Mean] | type[Sum] | type[ReduceMax] | type[ReduceMin]


def _axes(layer: OnnxLayer) -> tuple[int, ...] | None:
    # Those that are reduced; None where nothing is.
    listed = layer.listed("axes", 1)
    if listed:
        return tuple(sorted({layer.axis(a, layer.rank) for a in listed}))
    if layer.whole("noop_with_empty_axes"):
        return None
    return tuple(range(layer.rank))


def _reduction(
    kind: Kind,
    before: Callable[[Operand], Operand] = lambda x: x,
    after: Callable[[Converted], Converted] = lambda y: y,
) -> Convert:
    # A reduction of what ``before`` makes of the input, and what ``after`` makes of that.
    def convert(layer: OnnxLayer) -> Converted:
        axes = _axes(layer)
        x = before(layer.x)
        if axes is None:
            whole = x if isinstance(x, Converted) else same(layer.x)
            return after(whole)
        return after(Converted(kind(axes, bool(layer.whole("keepdims", 1))), (x,)))

    return convert


def _root(y: Converted) -> Converted:
    return Converted(Sqrt(), (y,))


def _logarithm(y: Converted) -> Converted:
    return Converted(Log(), (y,))


def _log_sum_exp(layer: OnnxLayer) -> Converted:
    # ``m + log(sum(e**(x - m)))`` with the greatest number m, so that nothing overflows.
    axes = _axes(layer)
    if axes is None:
        return same(layer.x)
    most = Converted(ReduceMax(axes, True), (layer.x,))
    powers = Converted(Exp(), (Converted(Sub(), (layer.x, most)),))
    total = Converted(Add(), (_logarithm(Converted(Sum(axes, True), (powers,))), most))
    if layer.whole("keepdims", 1):
        return total
    return reshaped(total, tuple(d for a, d in enumerate(layer.x.shape) if a not in axes))


def _product(layer: OnnxLayer) -> Converted:
    # The product of slices, one after another.
    axes = _axes(layer)
    if axes is None:
        return same(layer.x)
    made: Operand = layer.x
    shape = list(layer.x.shape)
    for axis in axes:
        parts = [_at(made, shape, axis, place) for place in range(shape[axis])]
        made = reduce(lambda a, b: Converted(Mul(), (a, b)), parts)
        shape[axis] = 1
    if layer.whole("keepdims", 1) and isinstance(made, Converted):
        return made
    return reshaped(
        made, tuple(d for a, d in enumerate(shape) if a not in axes or layer.whole("keepdims", 1))
    )


def _at(x: Operand, shape: list[int], axis: int, place: int) -> Converted:
    # One place of an axis, of which there are at most ``_MOST_FACTORS``.
    if shape[axis] > _MOST_FACTORS:
        raise RefusedOperator(f"a product of {shape[axis]} numbers; supported: {_MOST_FACTORS}")
    begin = tuple(place if a == axis else 0 for a in range(len(shape)))
    end = tuple(place + 1 if a == axis else d for a, d in enumerate(shape))
    return Converted(StridedSlice(begin, end, (1,) * len(shape)), (x,))


def _hardmax(layer: OnnxLayer) -> Converted:
    # 1 where the first of the greatest numbers is, elsewhere 0.
    axis, shape = layer.own_axis(-1 if layer.opset >= 13 else 1), layer.x.shape
    x: Operand = layer.x
    if layer.opset < 13:
        shape = (prod(shape[:axis]), prod(shape[axis:]))
        x, axis = reshaped(x, shape), 1
    found = reshaped(Converted(ArgMax(axis), (x,)), tuple(1 if a == axis else d for a, d in enumerate(shape)))
    places = np.arange(shape[axis], dtype=np.int32).reshape(
        [-1 if a == axis else 1 for a in range(len(shape))]
    )
    return reshaped(cast(Converted(Equal(), (found, places), ("places",)), DType.FLOAT32), layer.x.shape)


def _global(kind: Kind) -> Convert:
    # Over the image, whatever its dimensions.
    return lambda layer: Converted(kind(tuple(range(2, layer.rank)), True), (layer.x,))


def _arg(kind: type[ArgMax] | type[ArgMin]) -> Convert:
    # The first of several equal ones, or the last: that is the first of the reversed axis.
    def convert(layer: OnnxLayer) -> Converted:
        axis, shape = layer.own_axis(0), layer.x.shape
        x: Operand = layer.x
        last = bool(layer.whole("select_last_index"))
        if last:
            begin = tuple(d - 1 if a == axis else 0 for a, d in enumerate(shape))
            end = tuple(-1 if a == axis else d for a, d in enumerate(shape))
            stride = tuple(-1 if a == axis else 1 for a in range(layer.rank))
            x = Converted(StridedSlice(begin, end, stride), (x,))
        found = Converted(kind(axis), (x,))
        if last:
            found = Converted(Sub(), (number(shape[axis] - 1, DType.INT32), found), ("place",))
        if layer.whole("keepdims", 1):
            found = reshaped(found, tuple(1 if a == axis else d for a, d in enumerate(shape)))
        return cast(found, DType.INT64)

    return convert


def _along(layer: OnnxLayer, op: Op, axis: int) -> Converted:
    # An operator of the last axis, along another one.
    if axis == layer.rank - 1:
        return Converted(op, (layer.x,))
    perm = [a for a in range(layer.rank) if a != axis] + [axis]
    back = np.argsort(perm).tolist()
    return transposed(Converted(op, (transposed(layer.x, perm),)), back)


def _softmax(op: Op) -> Convert:
    # Along one axis; before opset 13, along all from one on.
    def convert(layer: OnnxLayer) -> Converted:
        if layer.opset >= 13:
            return _along(layer, op, layer.own_axis(-1))
        axis, shape = layer.own_axis(1), layer.x.shape
        rows = reshaped(layer.x, (prod(shape[:axis]), prod(shape[axis:])))
        return reshaped(Converted(op, (rows,)), shape)

    return convert


def _cumsum(layer: OnnxLayer) -> Converted:
    axis = layer.axis(int(layer.constant(1, "axes").reshape(-1)[0].item()), layer.rank)
    product = layer.node.code == "CumProd"
    op = CumSum(axis, bool(layer.whole("exclusive")), bool(layer.whole("reverse")), product)
    return Converted(op, (layer.x,))


def _lp_normalization(layer: OnnxLayer) -> Converted:
    # Divided by the sum of the absolute values, or by the length.
    axis = layer.own_axis(-1)
    layer.refuse("p", 2, 1)
    if layer.whole("p", 2) == 1:
        norm = Converted(Sum((axis,), True), (Converted(Abs(), (layer.x,)),))
    else:
        norm = _root(Converted(Sum((axis,), True), (Converted(Square(), (layer.x,)),)))
    return Converted(Div(), (layer.x, _not_zero(norm)))


def _not_zero(x: Converted) -> Converted:
    return Converted(Select(), (Converted(Equal(), (x, number(0)), ("zero",)), number(1), x))


def _variance(centred: Operand, axes: tuple[int, ...]) -> Converted:
    return Converted(Mean(axes, True), (Converted(Square(), (centred,)),))


def _standard(x: Operand, axes: tuple[int, ...], epsilon: float) -> Converted:
    # Less its mean, divided by the root of its variance.
    centred = Converted(Sub(), (x, Converted(Mean(axes, True), (x,))))
    spread = Converted(Add(), (_variance(centred, axes), number(epsilon)), ("epsilon",))
    return Converted(Div(), (centred, _root(spread)))


def _per_channel(layer: OnnxLayer, position: int) -> Operand:
    # A number for each channel, beside an image of the first input's dimensions.
    tensor = layer.tensor(position)
    shape = (-1, *(1,) * (layer.rank - 2))
    if tensor.data is not None:
        return tensor.data.reshape(shape)
    return reshaped(tensor, (prod(tensor.shape), *shape[1:]))


def _instance_normalization(layer: OnnxLayer) -> Converted:
    made = _standard(layer.x, tuple(range(2, layer.rank)), layer.real("epsilon", 1e-5))
    scaled = Converted(Mul(), (made, _per_channel(layer, 1)), ("scale",))
    return Converted(Add(), (scaled, _per_channel(layer, 2)), ("shift",))


def _mean_variance(layer: OnnxLayer) -> Converted:
    axes = tuple(layer.axis(int(a), layer.rank) for a in layer.attribute("axes", [0, 2, 3]))
    return _standard(layer.x, axes, 1e-9)


def _batch_normalization(layer: OnnxLayer) -> Converted:
    # ``x * factor + shift``, with the factor ``scale / sqrt(variance + epsilon)``.
    if layer.whole("training_mode") or len(layer.outputs) > 1:
        layer.refuse("training_mode", 0)
    if layer.rank < 2:
        raise ValueError("the input has no channels")
    epsilon = layer.real("epsilon", 1e-5)
    tensors = [layer.tensor(i) for i in range(1, 5)]
    if all(t.data is not None for t in tensors):
        shape = (-1, *(1,) * (layer.rank - 2))
        scale, bias, mean, variance = (
            layer.constant(i, "numbers").astype(np.float64).reshape(shape) for i in range(1, 5)
        )
        factor = scale / np.sqrt(variance + epsilon)
        operands = factor.astype(np.float32), (bias - mean * factor).astype(np.float32)
        scaled = Converted(Mul(), (layer.x, operands[0]), ("scale",))
        return Converted(Add(), (scaled, operands[1]), ("shift",))
    columns = [_per_channel(layer, i) for i in range(1, 5)]
    spread = _root(Converted(Add(), (columns[3], number(epsilon)), ("epsilon",)))
    centred = Converted(Sub(), (layer.x, columns[2]), ("mean",))
    scaled = Converted(Mul(), (Converted(Div(), (centred, spread)), columns[0]), ("scale",))
    return Converted(Add(), (scaled, columns[1]), ("shift",))


def _truth(kind: Kind) -> Convert:
    # A reduction, of truth values as numbers.
    plain = _reduction(kind)

    def convert(layer: OnnxLayer) -> Results:
        if layer.x.dtype is not DType.BOOL:
            return plain(layer)
        axes = _axes(layer)
        if axes is None:
            return same(layer.x)
        made = Converted(kind(axes, bool(layer.whole("keepdims", 1))), (cast(layer.x, DType.UINT8),))
        return cast(made, DType.BOOL)

    return convert


_NUMBERS = frozenset(d for d in DType if d.is_integer) | {DType.FLOAT32}

CONVERTERS: Mapping[str, OnnxConverter] = {
    "ArgMax": OnnxConverter(_arg(ArgMax), ("arg_max",), _NUMBERS),
    "ArgMin": OnnxConverter(_arg(ArgMin), ("arg_min",), _NUMBERS),
    "BatchNormalization": OnnxConverter(_batch_normalization, ("batch_normalization",)),
    "CumProd": OnnxConverter(_cumsum, ("cumprod",), _NUMBERS),
    "CumSum": OnnxConverter(_cumsum, ("cumsum",), _NUMBERS),
    "GlobalAveragePool": OnnxConverter(_global(Mean), ("global_average_pool",)),
    "GlobalMaxPool": OnnxConverter(_global(ReduceMax), ("global_max_pool",), _NUMBERS),
    "Hardmax": OnnxConverter(_hardmax, ("hardmax",)),
    "InstanceNormalization": OnnxConverter(_instance_normalization, ("instance_normalization",)),
    "LogSoftmax": OnnxConverter(_softmax(LogSoftmax()), ("log_softmax",)),
    "LpNormalization": OnnxConverter(_lp_normalization, ("lp_normalization",)),
    "MeanVarianceNormalization": OnnxConverter(_mean_variance, ("mean_variance_normalization",)),
    "ReduceL1": OnnxConverter(_reduction(Sum, lambda x: Converted(Abs(), (x,))), ("reduce_l1",)),
    "ReduceL2": OnnxConverter(_reduction(Sum, lambda x: Converted(Square(), (x,)), _root), ("reduce_l2",)),
    "ReduceLogSum": OnnxConverter(_reduction(Sum, after=_logarithm), ("reduce_log_sum",)),
    "ReduceLogSumExp": OnnxConverter(_log_sum_exp, ("reduce_log_sum_exp",)),
    "ReduceMax": OnnxConverter(_truth(ReduceMax), ("reduce_max",), _NUMBERS | {DType.BOOL}),
    "ReduceMean": OnnxConverter(_reduction(Mean), ("reduce_mean",)),
    "ReduceMin": OnnxConverter(_truth(ReduceMin), ("reduce_min",), _NUMBERS | {DType.BOOL}),
    "ReduceProd": OnnxConverter(_product, ("reduce_prod",)),
    "ReduceSum": OnnxConverter(_reduction(Sum), ("reduce_sum",), _NUMBERS),
    "ReduceSumSquare": OnnxConverter(
        _reduction(Sum, lambda x: Converted(Square(), (x,))), ("reduce_sum_square",)
    ),
    "Softmax": OnnxConverter(_softmax(Softmax()), ("softmax",)),
}
