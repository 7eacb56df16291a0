"""Softmax of int16 with Helium: exponentials interpolated from a table, four at a time by gather loads."""

from functools import cache

from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.mve.elements import rescaled, spread
from crtgen.compiler.kernels.mve.softmax import greatest
from crtgen.compiler.kernels.portable.softmax import by_routines, powers16_const, shares_const
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import INT16, Softmax
from crtgen.network.ops.softmax16 import Softmax16Params

__all__ = ["softmax16"]

_MIDDLE = 512  # bytes of a table before the place of 0
_BITS = 7  # between two places


@design(Softmax, types=(DType.INT16,), needs="mve")
def softmax16(op: Softmax, sig: Signature, target: Target) -> Kernel:
    p, depth = op.parameters(sig), sig.x.shape[-1]
    assert isinstance(p, Softmax16Params)
    routines = greatest(depth, DType.INT16), sum_of_powers16(depth, p), shares16(depth)
    return by_routines("mve softmax", sig, (powers16_const(), shares_const()), routines)


@cache
def sum_of_powers16(depth: int, p: Softmax16Params) -> Routine:
    """Write ``sum(x, y, greatest, powers)``, which stores the exponentials of all elements and returns their
    sum.
    """
    f = Function(
        "sum",
        "const int16_t *x",
        "int16_t *y",
        "int32_t greatest",
        "const int16_t *powers",
        purpose="The powers of all elements, and their sum.",
        returns="int32_t",
    )
    x, y, most, places = f.arguments
    x = f.moved(x, "inputs")
    total, following = f.core("sum", ("r0",)), f.core("places that follow")
    f("add", places, places, f"#{_MIDDLE}")
    f("add", following, places, "#2")
    index, part = f.vectors("differences, then places; parts", 2)
    power, other = f.vectors("powers; what follows them", 2)
    least, mask = f.vectors("least place; part of a number", 2)
    spread(f, least, INT16.low)
    spread(f, mask, (1 << _BITS) - 1)
    factor, last = f.constant("multiplier", p.multiplier), f.constant("last place", INT16.high)
    f.number(total, 0)
    with f.predicated_loop("elements", 32, depth):
        f("vldrh.s32", index, f"[{x}], #8")
        f("vsub.i32", index, index, most)
        rescaled(f, index, part, factor, p.shift)
        f("vadd.i32", index, index, last)
        f("vmax.s32", index, index, least)
        f("vand", part, index, mask)
        f("vshr.s32", index, index, f"#{_BITS}")
        f("vldrh.s32", other, f"[{following}, {index}, uxtw #1]")
        f("vldrh.s32", power, f"[{places}, {index}, uxtw #1]")
        f("vsub.i32", other, other, power)
        f("vmul.i32", part, part, other)
        f("vrshr.s32", part, part, f"#{_BITS}")
        f("vadd.i32", power, power, part)
        f("vstrh.32", power, f"[{y}], #8")
        f("vaddva.s32", total, power)
    return f.done()


@cache
def shares16(depth: int) -> Routine:
    """Write ``shares(y, share, shift)``, which multiplies each exponential by ``share``, shifts it right by
    ``shift`` bits and rounds.
    """
    f = Function(
        "shares", "int16_t *y", "int32_t share", "int32_t shift", purpose="Each power times a share."
    )
    (y, share, shift), vector = f.arguments, f.vector("powers")
    f("rsb", shift, shift, "#0", note="to the left")
    with f.predicated_loop("elements", 32, depth):
        f("vldrh.s32", vector, f"[{y}]")
        f("vmul.i32", vector, vector, share)
        f("vrshl.s32", vector, shift)
        f("vqmovnb.s32", vector, vector)
        f("vstrh.32", vector, f"[{y}], #8")
    return f.done()
