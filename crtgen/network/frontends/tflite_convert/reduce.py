"""Reductions, running sums, norms and matrix products."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from crtgen.network.frontends.builder import Converted, NamedTensor, RefusedOperator
from crtgen.network.frontends.tflite_convert.layer import Convert, TfliteConverter, TfliteLayer, pairs, same
from crtgen.network.frontends.tflite_file import FileTensor
from crtgen.network.ir import Array, DType, Quant, Value
from crtgen.network.ops import Activation, Concat, FullyConnected, Mean, Reshape, StridedSlice
from crtgen.network.ops.function import Cast, LogicalNot
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.normalize import CumSum, L2Normalization
from crtgen.network.ops.reduce import All, ArgMax, ArgMin, ReduceMax, ReduceMin, Sum

__all__ = ["CONVERTERS"]


def _reduction(
    kind: type[Mean] | type[Sum] | type[ReduceMax] | type[ReduceMin] | type[All],
) -> Callable[[TfliteLayer], Converted]:
    def convert(layer: TfliteLayer) -> Converted:
        rank = len(layer.x.shape)
        axes = sorted({layer.axis(a, rank) for a in layer.integers(1, "axes")})
        if kind.unscaled:
            layer.require_alike([layer.x])
        return Converted(kind(tuple(axes), bool(layer.option("KeepDims"))), (layer.x,))

    return convert


def _product(layer: TfliteLayer) -> Converted:
    # The last running product along each axis in turn.
    axes = sorted({layer.axis(a, len(layer.x.shape)) for a in layer.integers(1, "axes")})
    made: NamedTensor | Converted = layer.x
    shape = list(layer.x.shape)
    for axis in axes:
        begin = tuple(d - 1 if a == axis else 0 for a, d in enumerate(shape))
        running = Converted(CumSum(axis, product=True), (made,))
        made = Converted(StridedSlice(begin, tuple(shape), (1,) * len(shape)), (running,))
        shape[axis] = 1
    keep = bool(layer.option("KeepDims"))
    return Converted(Reshape(tuple(d for a, d in enumerate(shape) if keep or a not in axes)), (made,))


def _any(layer: TfliteLayer) -> Converted:
    # Not all are false.
    all_false = _reduction(All)(layer)
    none = replace(all_false, operands=(Converted(LogicalNot(), (layer.x,)),))
    return Converted(LogicalNot(), (none,))


def _arg(kind: type[ArgMax] | type[ArgMin]) -> Convert:
    def convert(layer: TfliteLayer) -> Converted:
        (number,) = layer.integers(1, "axes")
        place = Converted(kind(layer.axis(number, len(layer.x.shape))), (layer.x,))
        return place if layer.y.dtype is DType.INT32 else Converted(Cast(DType.INT64), (place,))

    return convert


def _cumsum(layer: TfliteLayer) -> Converted:
    (number,) = layer.integers(1, "axes")
    axis = layer.axis(number, len(layer.x.shape))
    return Converted(CumSum(axis, bool(layer.option("Exclusive")), bool(layer.option("Reverse"))), (layer.x,))


def _l2_normalization(layer: TfliteLayer) -> Converted:
    if layer.activation() is not Activation.NONE:
        raise RefusedOperator("a fused activation in a normalisation; supported: NONE")
    return Converted(L2Normalization(), (layer.x,))


def _batch_matmul(layer: TfliteLayer) -> Converted:
    x, other = layer.tensor(0), layer.tensor(1)
    quant = other.quant if other.data is not None else None
    if quant is not None and (other.dtype is not x.dtype or quant.axis is not None):
        return _by_weights(layer, x, other)
    op = BatchMatMul(bool(layer.option("AdjX")), bool(layer.option("AdjY")))
    return Converted(op, (x, other), ("operand",))


def _by_weights(layer: TfliteLayer, x: FileTensor, other: FileTensor) -> Converted:
    # Constants with a scale per column, or of int8 on another type, as ai-edge-quantizer writes them: a fully
    # connected layer for each matrix. TensorFlow Lite's kernel takes them for something else.
    rank, quant, turned = len(other.shape), other.quant, bool(layer.option("AdjY"))
    assert quant is not None
    column = rank - 2 if turned else rank - 1
    if other.dtype is not DType.INT8 or quant.axis not in (None, column) or any(quant.zero_points):
        raise RefusedOperator(
            f"{x.type_name} times a constant of {other.type_name}; supported: symmetric int8"
        )
    if layer.option("AdjX"):
        raise RefusedOperator("a transposed first operand and a constant; supported: the other way round")
    matrices = np.asarray(other.data).reshape(-1, *other.shape[-2:])
    matrices = matrices if turned else matrices.swapaxes(1, 2)
    scaled = Quant(quant.scales, quant.zero_points, None if quant.axis is None else 0)
    if len(matrices) == 1:
        return _dense(layer, x, matrices[0], scaled)
    if len(matrices) > _MOST_MATRICES or x.shape[:-2] != other.shape[:-2]:
        raise RefusedOperator(
            f"{len(matrices)} matrices of constants; supported: {_MOST_MATRICES}, no more axes"
        )
    flat, parts = Converted(Reshape((len(matrices), *x.shape[-2:])), (x,)), []
    for place, matrix in enumerate(matrices):
        cut = StridedSlice((place, 0, 0), (place + 1, *x.shape[-2:]), (1, 1, 1))
        parts.append(_dense(layer, Converted(cut, (flat,)), matrix, scaled))
    joined = Converted(Concat(0), tuple(parts), quant=layer.y.quant)
    return Converted(Reshape(layer.y.shape), (joined,))


def _dense(layer: TfliteLayer, x: NamedTensor | Converted, matrix: Array, scaled: Quant) -> Converted:
    weights = Value.constant("weights", np.ascontiguousarray(matrix), scaled)
    dtype = layer.x.dtype
    assert dtype is not None
    bias = np.zeros(len(matrix), _BIASES[dtype])
    op = FullyConnected(keep_dims=True)
    return Converted(op, (x, weights, bias), ("weights", "bias"), quant=layer.y.quant)


_MOST_MATRICES = 64
_BIASES = {DType.FLOAT32: np.float32, DType.INT8: np.int32, DType.INT16: np.int64}

_REDUCER = ("ReducerOptions", ("KeepDims",))
_NUMBERS = (DType.FLOAT32, DType.INT8)
_SHORT = same(DType.FLOAT32, DType.INT8, DType.INT16)
_WHOLE = (DType.INT32, DType.INT64)
_EVERY = _SHORT | same(*_WHOLE)
_PLACES = pairs((*_NUMBERS, DType.INT32), _WHOLE)

CONVERTERS: Mapping[str, TfliteConverter] = {
    "ARG_MAX": TfliteConverter(_arg(ArgMax), ("arg_max",), types=_PLACES),
    "ARG_MIN": TfliteConverter(_arg(ArgMin), ("arg_min",), types=_PLACES),
    "BATCH_MATMUL": TfliteConverter(
        _batch_matmul, ("batch_matmul", "matmul"), "BatchMatMulOptions", ("AdjX", "AdjY"), _SHORT
    ),
    "CUMSUM": TfliteConverter(
        _cumsum, ("cumsum",), "CumsumOptions", ("Exclusive", "Reverse"), same(*_NUMBERS, *_WHOLE)
    ),
    "L2_NORMALIZATION": TfliteConverter(
        _l2_normalization, ("l2_normalization",), "L2NormOptions", ("FusedActivationFunction",)
    ),
    "MEAN": TfliteConverter(_reduction(Mean), ("mean", "global_average_pooling2d"), *_REDUCER, _SHORT),
    "REDUCE_ALL": TfliteConverter(_reduction(All), ("reduce_all",), *_REDUCER, same(DType.BOOL)),
    "REDUCE_ANY": TfliteConverter(_any, ("reduce_any",), *_REDUCER, same(DType.BOOL)),
    "REDUCE_MAX": TfliteConverter(_reduction(ReduceMax), ("reduce_max",), *_REDUCER, _EVERY),
    "REDUCE_MIN": TfliteConverter(_reduction(ReduceMin), ("reduce_min",), *_REDUCER, _EVERY),
    "REDUCE_PROD": TfliteConverter(_product, ("reduce_prod",), *_REDUCER, same(DType.FLOAT32, *_WHOLE)),
    "SUM": TfliteConverter(_reduction(Sum), ("sum",), *_REDUCER, _EVERY),
}
