"""Functions of one element: tables for int8, expressions otherwise."""

import numpy as np

from crtgen.compiler.kernels.arithmetic.epilogue import float_epilogue
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import clamped, elements
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_float, plus
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import DType, Op, Signature, Value
from crtgen.network.ops import AffineParams, Dequantize, Logistic, Quantize, Relu, Tanh, scheme_of
from crtgen.network.ops.activation import LeakyRelu
from crtgen.network.ops.rescaling import by_float
from crtgen.network.ops.sigmoid16 import Sigmoid16Params, sigmoid_table
from crtgen.network.ops.traits import Tabulated

__all__ = ["every_output"]


@design(Tabulated, Relu, Quantize, types=(DType.INT8,))
@design(Quantize, types=(DType.INT8,), to=DType.UINT8)
@design(Quantize, types=(DType.UINT8,), to=DType.INT8)
@design(Quantize, types=(DType.UINT8,))
def table(op: Tabulated | Relu | Quantize, sig: Signature, target: Target) -> Kernel:
    return elements(sig, "table", ["table[(uint8_t)a]"], [every_output(op, sig)])


@design(Dequantize, types=(DType.INT8, DType.UINT8), to=DType.FLOAT32)
def floats(op: Dequantize, sig: Signature, target: Target) -> Kernel | None:
    """Use a table of 256 floats on cores where the compiler's library would convert and multiply."""
    if target.core.fpu != "none":
        return None
    work = Work().block("float", sig.y.elements)
    return Kernel("table of floats", "float_table.c.j2", sig.y.elements, (every_output(op, sig),), work=work)


def every_output(op: Op, sig: Signature) -> Const:
    """Return ``[256]``: the outputs of a function for all int8 or uint8 inputs, in the output's type."""
    bytes_ = np.arange(256, dtype=np.uint8).view(sig.x.dtype.numpy)
    x, y = (Value(v.name, (256,), v.dtype, v.quant) for v in (sig.x, sig.y))
    (outputs,) = op.reference(Signature((x,), (y,)), [bytes_])
    return Const.of("table", outputs, outputs.itemsize, "by the input's bits as an unsigned number")


@design(Relu, types=(DType.FLOAT32,))
def clamp(op: Relu, sig: Signature, target: Target) -> Kernel:
    epilogue = float_epilogue(op.kind)
    result = f"crt_maxf(a, {epilogue.low})" if epilogue.low else "a"
    return elements(sig, "clamp", [f"crt_minf({result}, {epilogue.high})" if epilogue.high else result])


@design(Logistic, Tanh, types=(DType.FLOAT32,))
def transcendental(op: Logistic | Tanh, sig: Signature, target: Target) -> Kernel:
    return elements(sig, op.name, [f"crt_{op.name}f(a)"])


@design(LeakyRelu, types=(DType.FLOAT32,))
def leaky_relu(op: LeakyRelu, sig: Signature, target: Target) -> Kernel:
    """Compute ``max(a, a * alpha)`` in float32, or the minimum if alpha is above 1."""
    greater = "crt_maxf" if op.alpha <= 1 else "crt_minf"
    return elements(sig, "leaky relu", [f"{greater}(a, a * {c_float(op.alpha)})"])


@design(Logistic, Tanh, types=(DType.INT16,))
def sigmoid16(op: Logistic | Tanh, sig: Signature, target: Target) -> Kernel:
    p = op.parameters(sig)
    table = Const.of("table", sigmoid_table(), 2, "65536 / (1 + exp(-i / 24))")
    assert isinstance(p, Sigmoid16Params)
    return elements(sig, op.name, [f"crt_{op.name}16(a, {p.multiplier}, {p.shift}, table)"], [table])


_REAL = (DType.FLOAT32,)


@design(Quantize, types=_REAL, to=DType.INT8)
@design(Quantize, types=_REAL, to=DType.INT16)
def quantize(op: Quantize, sig: Signature, target: Target) -> Kernel:
    """Convert float32 to int8 or int16, clamped before rounding to limits well outside of the type."""
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


@design(Dequantize, types=(DType.INT8, DType.UINT8, DType.INT16), to=DType.FLOAT32)
def dequantize(op: Dequantize, sig: Signature, target: Target) -> Kernel:
    params = op.parameters(sig)
    result = f"(float)(a {plus(-params.zero_point)}) * {c_float(params.scale)}"
    return elements(sig, "dequantize", [result])
