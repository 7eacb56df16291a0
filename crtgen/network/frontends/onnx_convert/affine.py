"""Quantisation at run time: with computed scales, with several scales, or to types for which no layer
exists.
"""

from collections.abc import Mapping

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.casts import clamped
from crtgen.network.frontends.onnx_convert.layer import (
    OnnxConverter,
    OnnxLayer,
    Operand,
    cast,
    number,
    reshaped,
)
from crtgen.network.frontends.onnx_edges import check_finite
from crtgen.network.frontends.onnx_types import KINDS, OnnxType, type_name
from crtgen.network.ir import DType, Op, shape_text
from crtgen.network.ops import Mul, Sub
from crtgen.network.ops.affine import WIDTHS, DequantizeBy, QuantizeBy
from crtgen.network.ops.arithmetic import Div
from crtgen.network.ops.compare import Equal, Maximum, Minimum, Select
from crtgen.network.ops.narrow import RoundTo
from crtgen.network.ops.reduce import ReduceMax, ReduceMin

__all__ = ["CONVERTERS", "dequantized", "quantized"]

_MOST = 255


def quantized(layer: OnnxLayer) -> Converted:
    """Return ``clamp(rint(x / scale) + zero)`` as plain integers."""
    kind = _quantized_kind(layer)
    x: Operand = layer.x if layer.x.dtype is DType.FLOAT32 else cast(layer.x, DType.FLOAT32)
    if kind.format:
        steps = _scaled(layer, Div(), x)
        return Converted(RoundTo(kind.format, bool(layer.whole("saturate", 1))), (steps,))
    zero = None if layer.has(2) else number(0, kind.dtype)
    made = _by(layer, QuantizeBy(), x, zero)
    return clamped(made, kind) if kind.bits else made


def _quantized_kind(layer: OnnxLayer) -> OnnxType:
    number_of = layer.whole("output_dtype")
    name = layer.tensor(2).type_name if layer.has(2) else type_name(number_of) or "UINT8"
    kind = KINDS.get(name)
    if kind is None or not _is_quantised(kind):
        raise RefusedOperator(
            f"to {name}; supported: {', '.join(n for n, k in KINDS.items() if _is_quantised(k))}"
        )
    return kind


def _is_quantised(kind: OnnxType) -> bool:
    # True for the types that ONNX quantises to.
    return kind.dtype in WIDTHS or kind.format.startswith(("float8", "float4"))


def _scaled(layer: OnnxLayer, op: Mul | Div, x: Operand) -> Converted:
    # Real numbers of few digits, by their scales alone: their zero points are zero.
    zero = layer.tensor(2).data if layer.has(2) else None
    if zero is not None and zero.any():
        raise ValueError("zero points of real numbers other than zero")
    return _by(layer, op, x, None, (1,))


def dequantized(layer: OnnxLayer) -> Converted:
    dtype = layer.x.dtype
    if layer.x.type_name in KINDS and KINDS[layer.x.type_name].format:
        return _scaled(layer, Mul(), layer.x)
    if dtype not in (*WIDTHS, DType.INT32):
        raise RefusedOperator(f"{layer.x.type_name}")
    return _by(layer, DequantizeBy(), layer.x, None if layer.has(2) else number(0, dtype))


def _by(
    layer: OnnxLayer, op: Op, x: Operand, zero: Operand | None, read: tuple[int, ...] = (1, 2)
) -> Converted:
    # The operator with its scales and zero points, the inputs ``read``, under shapes that are broadcast.
    shape, scale = layer.x.shape, layer.tensor(1)
    if scale.dtype is not DType.FLOAT32:
        raise RefusedOperator(f"scales of {scale.type_name}; supported: FLOAT32")
    if scale.data is not None:
        check_finite(scale.data)
    size = layer.whole("block_size")
    if not size or scale.shape in ((), (1,)):
        places = [_along(layer, place) for place in read if layer.has(place)]
        return Converted(op, (x, *places, *([zero] if zero is not None else [])), ("scale", "zero"))
    axis = layer.own_axis(1)
    count = -(-shape[axis] // size)
    if scale.shape != (*shape[:axis], count, *shape[axis + 1 :]):
        raise ValueError(f"scales of {shape_text(scale.shape)} for blocks of {size} of {shape_text(shape)}")
    if shape[axis] % size:
        raise RefusedOperator(f"blocks of {size} of {shape[axis]} elements; supported: whole blocks")
    blocks = (*shape[:axis], count, size, *shape[axis + 1 :])
    each = (*shape[:axis], count, 1, *shape[axis + 1 :])
    places = [reshaped(layer.tensor(place), each) for place in read if layer.has(place)]
    made = Converted(op, (reshaped(x, blocks), *places, *([zero] if zero is not None else [])))
    return reshaped(made, shape)


def _along(layer: OnnxLayer, place: int) -> Operand:
    # One number, or one for each place along the axis.
    tensor = layer.tensor(place)
    if tensor.shape in ((), (1,)):
        return reshaped(tensor, ())
    axis = layer.own_axis(1)
    if tensor.shape != (layer.x.shape[axis],):
        raise ValueError(
            f"{shape_text(tensor.shape)} scales along axis {axis} of {shape_text(layer.x.shape)}"
        )
    return reshaped(tensor, (*tensor.shape, *(1,) * (layer.rank - axis - 1)))


def _dynamic(layer: OnnxLayer) -> tuple[Converted, ...]:
    # Numbers of uint8 between the least and the greatest, with their scale and zero point. Where all are
    # zero, the scale is 1, as ONNX Runtime has it.
    axes = tuple(range(layer.rank))
    low, high = (
        Converted(bound, (Converted(extreme(axes, False), (layer.x,)), number(0)), ("zero",))
        for bound, extreme in ((Minimum(), ReduceMin), (Maximum(), ReduceMax))
    )
    width = Converted(Sub(), (high, low))
    step = Converted(Div(), (width, number(_MOST)), ("steps",))
    scale = Converted(Select(), (Converted(Equal(), (width, number(0))), number(1), step))
    below = Converted(Sub(), (number(0), low))
    zero = Converted(QuantizeBy(), (below, scale, number(0, DType.UINT8)))
    numbers = Converted(QuantizeBy(), (layer.x, scale, zero))
    return numbers, reshaped(scale, ()), reshaped(zero, ())


CONVERTERS: Mapping[str, OnnxConverter] = {
    "DynamicQuantizeLinear": OnnxConverter(_dynamic, ("quantize",), whole=3),
}
