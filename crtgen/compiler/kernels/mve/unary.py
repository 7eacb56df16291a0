"""Functions of one element of int8 or uint8 with Helium: tables, requantisation, clamps."""

from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.mve.elements import (
    BYTES,
    ElementSteps,
    Operands,
    StoreForm,
    elementwise,
    requantised,
    spread,
    walk,
)
from crtgen.compiler.kernels.portable.flip import flips
from crtgen.compiler.kernels.portable.pointwise import every_output
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Quantize, Relu, ReluParams, RequantizeParams
from crtgen.network.ops.traits import Tabulated

__all__ = ["clamp", "flip", "looked_up", "requantize", "table"]

_CLAMPED = (-128, 127)


@design(Quantize, types=(DType.UINT8,), needs="mve", to=DType.INT8)
@design(Quantize, types=(DType.INT8,), needs="mve", to=DType.UINT8)
def flip(op: Quantize, sig: Signature, target: Target) -> Kernel | None:
    """Convert between int8 and uint8 by inverting the highest bit; None if the scales or zero points do not
    permit it.
    """
    if not flips(op, sig):
        return None

    def steps(o: Operands) -> ElementSteps:
        f, (x,) = o.f, o.inputs
        elements, bits = f.vectors("elements, highest bits", 2)
        spread(f, bits, 0x80, BYTES // 2)

        def vector() -> str:
            f("vldrb.8", elements, f"[{x}], #{BYTES}")
            f("veor", elements, elements, bits)
            return elements

        return ElementSteps(vector)

    return elementwise("mve flip", sig, target, walk(sig), steps, _bytes(_CLAMPED))


@design(Tabulated, Relu, Quantize, types=(DType.INT8,), needs="mve")
@design(Quantize, types=(DType.INT8,), needs="mve", to=DType.UINT8)
@design(Quantize, types=(DType.UINT8,), needs="mve", to=DType.INT8)
@design(Quantize, types=(DType.UINT8,), needs="mve")
def table(op: Tabulated | Relu | Quantize, sig: Signature, target: Target) -> Kernel | None:
    """Map bytes by a table of 256 bytes; None when optimising for size if arithmetic is shorter."""
    if isinstance(op, Relu | Quantize) and target.optimize == "size":
        return None
    return elementwise(
        "mve table", sig, target, walk(sig), looked_up, _bytes(_CLAMPED), [every_output(op, sig)]
    )


def looked_up(o: Operands) -> ElementSteps:
    f, (x,), (table,) = o.f, o.inputs, o.tables
    index, found = f.vectors("elements", 2)

    def vector() -> str:
        f("vldrb.u8", index, f"[{x}], #{BYTES}")
        f("vldrb.u8", found, f"[{table}, {index}]")
        return found

    return ElementSteps(vector)


def _bytes(clamp: tuple[int, int]) -> StoreForm:
    return StoreForm(clamp, BYTES, "vstrb.8", BYTES)


@design(Quantize, types=(DType.INT8,), needs="mve")
def requantize(op: Quantize, sig: Signature, target: Target) -> Kernel | None:
    params = op.parameters(sig)
    if not isinstance(params, RequantizeParams):
        return None
    return _rescaled("mve requantise", sig, target, params, _CLAMPED)


@design(Relu, types=(DType.INT8,), needs="mve")
def clamp(op: Relu, sig: Signature, target: Target) -> Kernel | None:
    params = op.parameters(sig)
    limits = (params.act_min, params.act_max)
    if sig.x.quant == sig.y.quant:
        return elementwise("mve clamp", sig, target, walk(sig), _taken, _bytes(limits))
    return _rescaled("mve clamp", sig, target, params, limits)


def _taken(o: Operands) -> ElementSteps:
    f, (x,) = o.f, o.inputs
    elements = f.vector("elements")

    def vector() -> str:
        f("vldrb.8", elements, f"[{x}], #{BYTES}")
        return elements

    return ElementSteps(vector)


def _rescaled(
    name: str, sig: Signature, target: Target, params: RequantizeParams | ReluParams, limits: tuple[int, int]
) -> Kernel | None:
    offset = params.input_offset
    scale, span = (params.multiplier, params.shift), (-128 + offset, 127 + offset)

    def steps(o: Operands) -> ElementSteps:
        f, (x,) = o.f, o.inputs
        elements = f.vector("elements")
        start, finish = requantised(f, scale, params.output_offset, limits, span, offset)
        first = f.constant("start", start)

        def vector() -> str:
            f("vldrb.s32", elements, f"[{x}], #4")
            f("vadd.i32", elements, elements, first)
            finish(elements)
            return elements

        return ElementSteps(vector)

    return elementwise(name, sig, target, walk(sig), steps, StoreForm(limits))
