"""Bilinear resizing with Helium: four pixels are combined, four channels at a time."""

from functools import cache

from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.portable.resize import bilinear_consts, bilinear_view
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.resize import ResizeBilinear

__all__ = ["bilinear", "mixed"]

_BITS = 20  # of a share


@design(ResizeBilinear, types=(DType.INT8,), needs="mve")
def bilinear(op: ResizeBilinear, sig: Signature, target: Target) -> Kernel:
    pixels, channels = sig.y.elements // sig.y.shape[3], sig.y.shape[3]
    routine = mixed(channels)
    work = Work(pixels * routine.runs()).block("pixel", pixels)
    return Kernel(
        design="mve bilinear",
        template="mve/resize_bilinear.c.j2",
        view=bilinear_view(op, sig),
        consts=bilinear_consts(op, sig),
        work=work.block("line", sig.y.shape[0] * sig.y.shape[1]),
        routines=(routine,),
    )


@cache
def mixed(channels: int) -> Routine:
    """Write ``mixed(pixels, shares, y)``, which adds up four pixels times their 20-bit weights."""
    f = Function(
        "mixed",
        "const int8_t *const *pixels",
        "const int32_t *shares",
        "int8_t *y",
        purpose=f"Four pixels of {channels} channels times their shares.",
    )
    pixels, shares, y = f.arguments
    first, third = f.core("pixel", ("r4",)), f.core("pixel", ("r6",))
    second, fourth = f.core("pixel", ("r5",)), f.core("pixel", ("r7",))
    f("ldrd", first, second, f"[{pixels}]")
    f("ldrd", third, fourth, f"[{pixels}, #8]")
    f.free(pixels)
    parts = (f.core("share", ("r8",)), f.core("share", ("r9",)), f.core("share"), f.core("share"))
    f("ldrd", parts[0], parts[1], f"[{shares}]")
    f("ldrd", parts[2], parts[3], f"[{shares}, #8]")
    total, vector = f.vectors("sums; channels of a pixel", 2)
    with f.predicated_loop("channels", 32, channels):
        f("vldrb.s32", total, f"[{first}], #4")
        f("vmul.i32", total, total, parts[0])
        for pixel, part in zip((second, third, fourth), parts[1:], strict=True):
            f("vldrb.s32", vector, f"[{pixel}], #4")
            f("vmla.s32", total, vector, part)
        f("vshr.s32", vector, total, "#31")
        f("vadd.i32", total, total, vector, note="halves go away from zero")
        f("vrshr.s32", total, total, f"#{_BITS}")
        f("vstrb.32", total, f"[{y}], #4")
    return f.done()
