"""Functions of one element: tables for int8, expressions otherwise."""

import numpy as np

from crtgen.ir import DType, Op, Signature, Value
from crtgen.kernels.elements import clamped, elements
from crtgen.kernels.epilogue import float_epilogue, two_roundings
from crtgen.kernels.kernel import Const, Kernel, Target
from crtgen.kernels.literal import c_float, plus
from crtgen.kernels.registry import design
from crtgen.ops import (
    INT16,
    AffineParams,
    Dequantize,
    Logistic,
    Quantize,
    Relu,
    RequantizeParams,
    Tanh,
    scheme_of,
)
from crtgen.ops.activation import LeakyRelu
from crtgen.ops.rescaling import by_float
from crtgen.ops.sigmoid16 import Sigmoid16Params, sigmoid_table
from crtgen.ops.traits import Tabulated

__all__ = ["every_output"]


@design(Tabulated, Relu, Quantize, types=(DType.INT8,))
@design(Quantize, types=(DType.INT8,), to=DType.UINT8)
@design(Quantize, types=(DType.UINT8,), to=DType.INT8)
@design(Quantize, types=(DType.UINT8,))
def table(op: Tabulated | Relu | Quantize, sig: Signature, target: Target) -> Kernel:
    """Of a byte to a byte all 256 outputs are known."""
    return elements(sig, "table", ["table[(uint8_t)a]"], [every_output(op, sig)])


def every_output(op: Op, sig: Signature) -> Const:
    """The outputs of a function of an element of int8 or uint8: ``[256]``."""
    bytes_ = np.arange(256, dtype=np.uint8).view(sig.x.dtype.numpy)
    x, y = (Value(v.name, (256,), v.dtype, v.quant) for v in (sig.x, sig.y))
    (outputs,) = op.reference(Signature((x,), (y,)), [bytes_])
    return Const.of("table", outputs, 1, "by the input's bits as an unsigned number")


@design(Relu, types=(DType.INT8, DType.FLOAT32))
def clamp(op: Relu, sig: Signature, target: Target) -> Kernel | None:
    """A clamp without requantisation."""
    if scheme_of(sig.x).is_real:
        epilogue = float_epilogue(op.kind)
        result = f"crt_maxf(a, {epilogue.low})" if epilogue.low else "a"
        return elements(sig, "clamp", [f"crt_minf({result}, {epilogue.high})" if epilogue.high else result])
    if sig.x.quant != sig.y.quant:
        return None
    params = op.parameters(sig)
    return elements(sig, "clamp", [clamped(sig.y, "a", params.act_min, params.act_max)])


@design(Logistic, Tanh, types=(DType.FLOAT32,))
def transcendental(op: Logistic | Tanh, sig: Signature, target: Target) -> Kernel:
    """float32, by functions of the runtime."""
    return elements(sig, op.name, [f"crt_{op.name}f(a)"])


@design(LeakyRelu, types=(DType.FLOAT32,))
def leaky_relu(op: LeakyRelu, sig: Signature, target: Target) -> Kernel:
    """float32: the greater of two numbers, or the less, since one is a multiple of the other."""
    greater = "crt_maxf" if op.alpha <= 1 else "crt_minf"
    return elements(sig, "leaky relu", [f"{greater}(a, a * {c_float(op.alpha)})"])


@design(Relu, types=(DType.INT16,))
def relu16(op: Relu, sig: Signature, target: Target) -> Kernel:
    """int16 with TFLite's roundings."""
    p = op.parameters(sig)
    scaled = two_roundings("a", p.multiplier, p.shift, INT16.magnitude(0))
    return elements(sig, "relu", [clamped(sig.y, scaled, p.act_min, p.act_max)])


@design(LeakyRelu, types=(DType.INT16,))
def leaky_relu16(op: LeakyRelu, sig: Signature, target: Target) -> Kernel:
    """int16 with TFLite's roundings: one factor below zero, another one above."""
    p = op.parameters(sig)
    above, below = (two_roundings("a", *factor, INT16.magnitude(0)) for factor in (p.above, p.below))
    return elements(sig, "leaky relu", [clamped(sig.y, f"(a >= 0) ? {above} : {below}", *INT16.limits)])


@design(Logistic, Tanh, types=(DType.INT16,))
def sigmoid16(op: Logistic | Tanh, sig: Signature, target: Target) -> Kernel:
    """int16: a table of 256 places, interpolated."""
    p = op.parameters(sig)
    table = Const.of("table", sigmoid_table(), 2, "65536 / (1 + exp(-i / 24))")
    assert isinstance(p, Sigmoid16Params)
    return elements(sig, op.name, [f"crt_{op.name}16(a, {p.multiplier}, {p.shift}, table)"], [table])


_REAL = (DType.FLOAT32,)


@design(Quantize, types=_REAL, to=DType.INT8)
@design(Quantize, types=_REAL, to=DType.INT16)
def quantize(op: Quantize, sig: Signature, target: Target) -> Kernel:
    """float32 to int8 or int16: clamped before it is rounded, far enough outside of what these hold."""
    params = op.parameters(sig)
    assert isinstance(params, AffineParams)
    if by_float(sig.y):
        rounded = f"crt_evenf(crt_minf(crt_maxf(a / {c_float(params.scale)}, -131072.0f), 131072.0f))"
    elif sig.y.dtype is DType.INT16:
        rounded = f"crt_nearest(crt_minf(crt_maxf(a / {c_float(params.scale)}, -131072.0f), 131072.0f))"
    else:
        rounded = f"crt_roundf(crt_minf(crt_maxf(a / {c_float(params.scale)}, -512.0f), 512.0f))"
    result = clamped(sig.y, f"{rounded} {plus(params.zero_point)}", *scheme_of(sig.y).limits)
    return elements(sig, "quantize", [result])


_WHOLE = (DType.INT8, DType.UINT8, DType.INT16, DType.INT32)


@design(Quantize, types=_WHOLE, to=DType.INT8)
@design(Quantize, types=_WHOLE, to=DType.UINT8)
@design(Quantize, types=_WHOLE, to=DType.INT16)
@design(Quantize, types=_WHOLE, to=DType.INT32)
def requantize(op: Quantize, sig: Signature, target: Target) -> Kernel:
    """Integers to integers, with TFLite's roundings."""
    p = op.parameters(sig)
    assert isinstance(p, RequantizeParams)
    extent = 1 << 31 if sig.x.dtype is DType.INT32 else 1 << 17
    scaled = two_roundings(f"crt_add32(a, {p.input_offset})", p.multiplier, p.shift, extent)
    if sig.y.dtype is DType.INT32:
        result = f"crt_add32({scaled}, {p.output_offset})"
    else:
        result = clamped(sig.y, f"crt_add32({scaled}, {p.output_offset})", *scheme_of(sig.y).limits)
    return elements(sig, "requantise", [result])


@design(Dequantize, types=(DType.INT8, DType.UINT8, DType.INT16), to=DType.FLOAT32)
def dequantize(op: Dequantize, sig: Signature, target: Target) -> Kernel:
    """Quantised numbers to float32."""
    params = op.parameters(sig)
    result = f"(float)(a {plus(-params.zero_point)}) * {c_float(params.scale)}"
    return elements(sig, "dequantize", [result])
