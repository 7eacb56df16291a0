"""Functions of one element: tables for int8, expressions otherwise."""

from dataclasses import dataclass

import numpy as np

from crtgen.ir import DType, Op, Signature, Value
from crtgen.kernels.epilogue import float_epilogue
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.literal import c_float, plus
from crtgen.kernels.registry import design
from crtgen.ops import INT8, AffineParams, Dequantize, Logistic, Quantize, Relu, Tanh, scheme_of
from crtgen.ops.activation import LeakyRelu
from crtgen.ops.traits import Tabulated

__all__ = ["MapView", "every_output"]


@dataclass(frozen=True, slots=True)
class MapView:
    """``count`` elements through the C expression ``result`` of ``v``."""

    x_type: str
    count: int
    result: str


@design(Tabulated, Relu, Quantize, types=(DType.INT8,))
def table(op: Tabulated | Relu | Quantize, sig: Signature, target: Target) -> Kernel:
    """int8 to int8: all 256 outputs are known."""
    return _map(sig, "table", "table[(uint8_t)v]", 5, (every_output(op, sig),))


def every_output(op: Op, sig: Signature) -> Const:
    """The outputs of a function of one int8 element, ``int8[256]``."""
    bytes_ = np.arange(256, dtype=np.uint8).view(np.int8)
    x, y = (Value(v.name, (256,), v.dtype, v.quant) for v in (sig.x, sig.y))
    (outputs,) = op.reference(Signature((x,), (y,)), [bytes_])
    return Const.of("table", outputs, 1, "by the input's bits as an unsigned number")


@design(Relu, types=(DType.INT8, DType.FLOAT32))
def clamp(op: Relu, sig: Signature, target: Target) -> Kernel | None:
    """A clamp without requantisation."""
    if scheme_of(sig.x).is_real:
        epilogue = float_epilogue(op.kind)
        result = f"crt_maxf(v, {epilogue.low})" if epilogue.low else "v"
        return _map(sig, "clamp", f"crt_minf({result}, {epilogue.high})" if epilogue.high else result, 6)
    if sig.x.quant != sig.y.quant:
        return None
    params = op.parameters(sig)
    return _map(sig, "clamp", f"crt_int8(v, {params.act_min}, {params.act_max})", 4)


@design(Logistic, Tanh, types=(DType.FLOAT32,))
def transcendental(op: Logistic | Tanh, sig: Signature, target: Target) -> Kernel:
    """float32, by functions of the runtime."""
    return _map(sig, op.name, f"crt_{op.name}f(v)", 60)


@design(LeakyRelu, types=(DType.FLOAT32,))
def leaky_relu(op: LeakyRelu, sig: Signature, target: Target) -> Kernel:
    """float32: the greater of two numbers, or the less, since one is a multiple of the other."""
    greater = "crt_maxf" if op.alpha <= 1 else "crt_minf"
    return _map(sig, "leaky relu", f"{greater}(v, v * {c_float(op.alpha)})", 6)


@design(Quantize, types=(DType.FLOAT32,))
def quantize(op: Quantize, sig: Signature, target: Target) -> Kernel | None:
    """float32 to int8: clamped before it is rounded, far enough outside of what int8 holds."""
    params = op.parameters(sig)
    if not isinstance(params, AffineParams):
        return None
    ratio = f"crt_minf(crt_maxf(v / {c_float(params.scale)}, -512.0f), 512.0f)"
    result = f"crt_int8(crt_roundf({ratio}) {plus(params.zero_point)}, {INT8.low}, {INT8.high})"
    return _map(sig, "quantize", result, 30)


@design(Dequantize, types=(DType.INT8,))
def dequantize(op: Dequantize, sig: Signature, target: Target) -> Kernel:
    """int8 to float32."""
    params = op.parameters(sig)
    result = f"(float)(v {plus(-params.zero_point)}) * {c_float(params.scale)}"
    return _map(sig, "dequantize", result, 8)


def _map(
    sig: Signature, name: str, result: str, per_element: float, consts: tuple[Const, ...] = ()
) -> Kernel:
    """An output element as wide as the input's may take its place; wider ones run ahead of what is read."""
    growth = sig.y.dtype.itemsize - sig.x.dtype.itemsize
    return Kernel(
        design=name,
        template="map.c.j2",
        view=MapView(sig.x.dtype.c_name, sig.x.elements, result),
        consts=consts,
        inplace=(InPlace(lead=max(0, growth * (sig.x.elements - 1))),),
        cost=sig.x.elements * per_element,
    )
