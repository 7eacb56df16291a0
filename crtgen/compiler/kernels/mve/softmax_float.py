"""Softmax of float32 with Helium: the greatest of a row, powers and their sum, and products with its
reciprocal.

Each of four lanes sums every fourth power. The result differs from the quotients of the portable kernel by
the order of these sums and by one more rounding.
"""

from functools import lru_cache

from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import bits_of
from crtgen.compiler.kernels.mve.exponential import PowerSteps
from crtgen.compiler.kernels.shared.powers import FEWEST, reciprocal_of_sum
from crtgen.compiler.kernels.shared.single_routine import single_routine
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Softmax

__all__ = ["float_softmax"]

_LANES, _VECTOR = 4, 16
_LONGEST = 1000  # elements of a row that one instruction steps back over


@design(Softmax, types=(DType.FLOAT32,), needs="mve")
def float_softmax(op: Softmax, sig: Signature, target: Target) -> Kernel | None:
    depth = sig.x.shape[-1]
    if sig.x.elements < FEWEST or depth > _LONGEST or op.beta != 1:
        return None
    return single_routine("mve softmax float", _rows(sig.x.elements // depth, depth), inplace=True)


@lru_cache(maxsize=256)
def _rows(rows: int, depth: int) -> Routine:
    f = Function("softmax", "const float *x", "float *y", purpose=f"Softmax of {rows} rows of {depth}.")
    x, y = f.arguments
    total = f.vector("the greatest, then sums", ("q0",))
    lanes = f.singles("sums, one by one", _LANES)  # s0 to s3, which are q0
    powers, elements = PowerSteps(f), f.vector("elements")
    number = f.core("the greatest, then the reciprocal of the sum")
    counter = f.core("rows left") if rows > 1 else ""
    whole = _VECTOR * -(-depth // _LANES)
    beyond = whole - 4 * depth

    def row() -> None:
        f.number(number, bits_of(float("-inf")))
        f("vdup.32", total, number)
        with f.predicated_loop("greatest", 32, depth):
            f("vldrw.u32", elements, f"[{x}], #{_VECTOR}")
            f("vmaxnm.f32", total, total, elements)
        f("vmaxnmv.f32", number, total)
        f.advance(x, -whole)
        f("vmov.i32", total, "#0")
        with f.predicated_loop("powers", 32, depth):
            f("vldrw.u32", elements, f"[{x}], #{_VECTOR}")
            f("vsub.f32", elements, elements, number)
            power = powers(elements)
            f("vstrw.32", power, f"[{y}], #{_VECTOR}")
            f("vadd.f32", total, total, power)
        f.advance(x, -beyond)
        f.advance(y, -whole)
        reciprocal_of_sum(f, lanes, number)
        f("vmov", number, lanes[0])
        with f.predicated_loop("shares", 32, depth):
            f("vldrw.u32", elements, f"[{y}]")
            f("vmul.f32", elements, elements, number)
            f("vstrw.32", elements, f"[{y}], #{_VECTOR}")
        f.advance(y, -beyond)

    if counter:
        with f.counted_loop("rows", counter, rows):
            row()
    else:
        row()
    return f.done()
