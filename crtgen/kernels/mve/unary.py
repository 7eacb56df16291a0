"""Functions of one int8 element with Helium: tables, requantisation, clamps."""

from crtgen.ir import DType, Signature
from crtgen.kernels.kernel import Kernel, Target
from crtgen.kernels.mve.elements import BYTES, Body, elementwise, requantised, walk, word
from crtgen.kernels.pointwise import every_output
from crtgen.kernels.registry import design
from crtgen.ops import Logistic, Quantize, Relu, ReluParams, RequantizeParams, Tanh

__all__ = ["clamp", "requantize", "table"]

_STORE = "vstrb.8 q0, [r2], #16"


@design(Logistic, Tanh, Relu, Quantize, types=(DType.INT8,), needs="mve")
def table(op: Logistic | Tanh | Relu | Quantize, sig: Signature, target: Target) -> Kernel | None:
    """int8 to int8 by a table of 256 bytes; None for others, and for size where arithmetic is shorter."""
    if isinstance(op, Relu | Quantize) and target.optimize == "size":
        return None
    body = Body((), ("vldrb.u8 q1, [r0], #16", "vldrb.u8 q0, [r1, q1]"), lanes=BYTES, store=_STORE)
    return elementwise("mve table", sig, target, walk(sig), body, [every_output(op, sig)])


@design(Quantize, types=(DType.INT8,), needs="mve")
def requantize(op: Quantize, sig: Signature, target: Target) -> Kernel | None:
    """int8 to int8; None for others."""
    params = op.parameters(sig)
    if not isinstance(params, RequantizeParams):
        return None
    return _rescaled("mve requantise", sig, target, params, (-128, 127))


@design(Relu, types=(DType.INT8,), needs="mve")
def clamp(op: Relu, sig: Signature, target: Target) -> Kernel | None:
    """For int8; None for others."""
    params = op.parameters(sig)
    limits = (params.act_min, params.act_max)
    if sig.x.quant == sig.y.quant:
        body = Body((), ("vldrb.8 q0, [r0], #16",), (), limits, BYTES, _STORE)
        return elementwise("mve clamp", sig, target, walk(sig), body)
    return _rescaled("mve clamp", sig, target, params, limits)


def _rescaled(
    name: str, sig: Signature, target: Target, params: RequantizeParams | ReluParams, limits: tuple[int, int]
) -> Kernel | None:
    offset = params.input_offset
    scale, span = (params.multiplier, params.shift), (-128 + offset, 127 + offset)
    start, constants, finish = requantised(scale, params.output_offset, limits, span, offset)
    load = ("vldrb.s32 q0, [r0], #4", "vadd.i32 q0, q0, r12")
    body = Body((*constants, *word("r12", start)), (*load, *finish), (), limits)
    return elementwise(name, sig, target, walk(sig), body)
