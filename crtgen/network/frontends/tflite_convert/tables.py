"""Functions that TFLite computes by a table for int8 and int16, but TFLite Micro only for floats."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from crtgen.network.frontends.builder import Converted
from crtgen.network.frontends.tflite_convert.layer import TfliteConverter, TfliteLayer, same
from crtgen.network.ir import Array, DType, Op, Quant, Signature, Value
from crtgen.network.ops.activation import Logistic, Tanh
from crtgen.network.ops.function import Exp, Gelu, GeluTanh, Log, Sqrt
from crtgen.network.ops.interpolation import Interpolation, Reals, table_of
from crtgen.network.ops.lookup import Lookup
from crtgen.network.ops.scheme import INT8, INT16

__all__ = ["CONVERTERS"]


@dataclass(frozen=True, slots=True)
class _Function:
    """An operator on floats, and its ``function`` of the quantisations of input and output."""

    op: Op
    function: Callable[[Reals, Quant, DType], Reals]
    tables: tuple[DType, ...] = (DType.INT8, DType.INT16)

    def convert(self, layer: TfliteLayer) -> Converted:
        dtype = layer.x.dtype
        if dtype not in self.tables or dtype is None:
            return Converted(self.op, (layer.x,))
        x, y = _quants(layer)

        def function(numbers: Reals) -> Reals:
            return self.function(numbers, y, dtype)

        if dtype is DType.INT8:
            return Converted(Lookup.of(_bytes(function, x, y), self.op.name), (layer.x,))
        if x.zero_point or y.zero_point:
            raise ValueError("numbers of int16 with zero points")
        table = table_of(function, x.scale, 0, y.scale)
        return Converted(Interpolation(tuple(table.tolist()), self.op.name), (layer.x,))


def _quants(layer: TfliteLayer) -> tuple[Quant, Quant]:
    x, y = layer.x.quant, layer.y.quant
    if x is None or y is None or x.axis is not None or y.axis is not None:
        raise ValueError("the tensors of the operator are not quantised per tensor")
    return x, y


def _bytes(function: Callable[[Reals], Reals], x: Quant, y: Quant) -> Array:
    # The results of all numbers of int8, in float32 as TFLite's ``LUTPopulate``.
    numbers = np.float32(x.scale) * (INT8.every_number().astype(np.float32) - np.float32(x.zero_point))
    steps = function(numbers) * (np.float32(1) / np.float32(y.scale))
    away = np.copysign(np.floor(np.abs(steps) + np.float32(0.5)), steps)
    return INT8.saturated(np.clip(away, -1e6, 1e6).astype(np.int64) + y.zero_point)


def _sqrt(layer: TfliteLayer) -> Converted:
    # TFLite divides in float32 and drops what is behind the point. It refuses negative inputs in each run.
    if layer.x.dtype is DType.FLOAT32:
        return Converted(Sqrt(), (layer.x,))
    x, y = _quants(layer)
    steps = np.maximum(INT8.every_number().astype(np.float32) - np.float32(x.zero_point), 0)
    results = np.floor(np.sqrt(np.float32(x.scale) * steps) / np.float32(y.scale)).astype(np.int64)
    return Converted(Lookup.of(INT8.saturated(results + y.zero_point), Sqrt.name), (layer.x,))


def _exp(x: Reals, y: Quant, dtype: DType) -> Reals:
    with np.errstate(over="ignore"):
        return np.exp(x.astype(np.float64)).astype(np.float32)


def _log(x: Reals, y: Quant, dtype: DType) -> Reals:
    # Logarithm; for values that are not positive, the least value of the output.
    low = {DType.INT8: INT8, DType.INT16: INT16}[dtype].low
    least = np.float32(low - y.zero_point) * np.float32(y.scale)
    return np.where(x <= 0, least, np.log(np.where(x <= 0, 1, x).astype(np.float64)).astype(np.float32))


def _of_reals(op: Op) -> Callable[[Reals, Quant, DType], Reals]:
    # The function of an operator of real numbers, rounded to float32.
    def function(x: Reals, y: Quant, dtype: DType) -> Reals:
        value = Value("x", x.shape, DType.FLOAT32)
        (made,) = op.reference(Signature((value,), (value,)), [x])
        return made.astype(np.float32)

    return function


def _gelu(layer: TfliteLayer) -> Converted:
    op = GeluTanh() if layer.option("Approximate") else Gelu()
    return _Function(op, _of_reals(op)).convert(layer)


def _sigmoid(op: Logistic | Tanh) -> Callable[[TfliteLayer], Converted]:
    # TFLite Micro assumes that the output has the scale of ``op``. litert-torch writes others for int8.
    def convert(layer: TfliteLayer) -> Converted:
        if layer.x.dtype is not DType.INT8 or layer.y.quant in (op.output, None):
            return Converted(op, (layer.x,))
        return _Function(op, _of_reals(op)).convert(layer)

    return convert


_TYPES = same(DType.FLOAT32, DType.INT8, DType.INT16)

CONVERTERS: Mapping[str, TfliteConverter] = {
    "EXP": TfliteConverter(_Function(Exp(), _exp).convert, ("exp",), types=_TYPES),
    "GELU": TfliteConverter(_gelu, ("gelu",), "GeluOptions", ("Approximate",), _TYPES),
    "LOG": TfliteConverter(_Function(Log(), _log).convert, ("log",), types=_TYPES),
    "LOGISTIC": TfliteConverter(_sigmoid(Logistic()), ("logistic", "sigmoid"), types=_TYPES),
    "SQRT": TfliteConverter(_sqrt, ("sqrt",), types=same(DType.FLOAT32, DType.INT8)),
    "TANH": TfliteConverter(_sigmoid(Tanh()), ("tanh",), types=_TYPES),
}
