"""Casts between all numeric types that a file can have."""

from collections.abc import Mapping

from crtgen.network.frontends.builder import Converted, KnownOutput, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import OnnxConverter, OnnxLayer, Operand, cast, number, same
from crtgen.network.frontends.onnx_types import KINDS, OnnxType, kind_of, type_name
from crtgen.network.ir import DType
from crtgen.network.ops.bits import BitAnd, Shift
from crtgen.network.ops.compare import Maximum, Minimum
from crtgen.network.ops.narrow import RoundTo

__all__ = ["CONVERTERS", "clamped", "converted"]


def converted(x: Operand, dtype: DType | None, to: OnnxType, saturate: bool) -> Operand:
    """Convert values of ``dtype`` to another type: floats are rounded to its precision, integers lose their
    upper bits.
    """
    made = x if dtype is to.dtype else cast(x, to.dtype)
    if to.format:
        return Converted(RoundTo(to.format, saturate and to.format.startswith("float8")), (made,))
    return _wrapped(made, to) if to.bits and dtype is not DType.BOOL else made


def _wrapped(x: Operand, to: OnnxType) -> Converted:
    # The lowest bits of numbers of eight.
    if to.dtype is DType.UINT8:
        return Converted(BitAnd(), (x, number((1 << to.bits) - 1, to.dtype)), ("mask",))
    rest = number(8 - to.bits, to.dtype)
    return Converted(Shift(False), (Converted(Shift(True), (x, rest), ("bits",)), rest), ("bits",))


def clamped(x: Operand, to: OnnxType) -> Converted:
    """Clamp 8-bit values to the range of a narrower type."""
    is_signed = to.dtype is DType.INT8
    low = -(1 << (to.bits - 1)) if is_signed else 0
    above = Converted(Maximum(), (x, number(low, to.dtype)), ("low",))
    return Converted(Minimum(), (above, number(low + (1 << to.bits) - 1, to.dtype)), ("high",))


def _cast_to(layer: OnnxLayer, to: OnnxType | None, name: str) -> Converted | KnownOutput:
    if to is None:
        raise RefusedOperator(f"to {name}; supported: {', '.join(KINDS)}")
    x = layer.x
    if x.data is not None and x.data.size == 0:
        return KnownOutput(x.data.astype(to.dtype.numpy))
    if x.type_name == to.name:
        return same(x)
    made = converted(x, x.dtype, to, bool(layer.whole("saturate", 1)))
    return made if isinstance(made, Converted) else same(x)


def _cast(layer: OnnxLayer) -> Converted | KnownOutput:
    return _cast_to(layer, kind_of(layer.whole("to")), type_name(layer.whole("to")))


def _cast_like(layer: OnnxLayer) -> Converted | KnownOutput:
    like = layer.tensor(1)
    own = (kind for kind in KINDS.values() if kind.is_own and kind.dtype is like.dtype)
    to = KINDS.get(like.type_name) if like.type_name else next(own, None)
    return _cast_to(layer, to, like.type_name)


_TYPES = frozenset(kind.dtype for kind in KINDS.values())

CONVERTERS: Mapping[str, OnnxConverter] = {
    "Cast": OnnxConverter(_cast, ("cast",), _TYPES),
    "CastLike": OnnxConverter(_cast_like, ("cast",), _TYPES),
}
