"""Softmax of int8 with Helium: exponentials from a table, since a difference of two int8 values has 256
values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from crtgen.compiler.kernels.asm import LISTED, Function, Routine, Runs
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.portable.softmax import powers_const
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import INT8, INT16, Softmax

__all__ = ["MveSoftmaxView", "greatest", "softmax"]

_MOST = 255  # the greatest difference of two int8 values
_ELEMENTS = 8  # from so many on a table pays; for size never


@dataclass(frozen=True, slots=True)
class MveSoftmaxView:
    """``rows`` of ``depth`` elements; differences beyond ``last`` count as ``last``, unless that is 255."""

    rows: int
    depth: int
    last: int

    @property
    def routines(self) -> tuple[Routine, ...]:
        return (
            greatest(self.depth, DType.INT8),
            sum_of_powers(self.depth, self.last),
            shares(self.depth, self.last),
        )

    @property
    def work(self) -> Work:
        counted = Runs.sum(routine.runs() for routine in self.routines)
        return Work(self.rows * counted).block("row", self.rows)


@cache
def greatest(depth: int, dtype: DType) -> Routine:
    """Write ``greatest(x)``, which returns the maximum of ``depth`` int8 or int16 values."""
    scheme, bits, letter = (INT8, 8, "b") if dtype is DType.INT8 else (INT16, 16, "h")
    f = Function("greatest", f"const int{bits}_t *x", purpose="The greatest element.", returns="int32_t")
    x = f.moved(f.arguments[0], "inputs")
    most, vector = f.core("the greatest", ("r0",)), f.vector("inputs")
    f.number(most, scheme.low)
    with f.predicated_loop("elements", bits, depth):
        f(f"vldr{letter}.{bits}", vector, f"[{x}], #16")
        f(f"vmaxv.s{bits}", most, vector)
    return f.done()


@cache
def sum_of_powers(depth: int, last: int) -> Routine:
    """Write ``sum(x, greatest, powers)``, which adds up the exponentials of all elements with 12 integer
    bits.
    """
    f = Function(
        "sum",
        "const int8_t *x",
        "int32_t greatest",
        "const int32_t *powers",
        purpose="The sum of the powers of all elements.",
        returns="uint32_t",
    )
    x, most, table = f.arguments
    x = f.moved(x, "inputs")
    total = f.core("sum", ("r0",))
    power = _powers(f, last, x, most, table)
    f.number(total, 0)
    with f.predicated_loop("elements", 32, depth):
        vector = power()
        f("vrshr.s32", vector, vector, "#12")
        f("vaddva.s32", total, vector)
    return f.done()


@cache
def shares(depth: int, last: int) -> Routine:
    """Write ``shares(x, y, powers, numbers)``, which multiplies each exponential by a reciprocal.

    ``numbers`` are the maximum of the inputs, the reciprocal, and the shift to units of 1/256.
    """
    f = Function(
        "shares",
        "const int8_t *x",
        "int8_t *y",
        "const int32_t *powers",
        "const int32_t *numbers",
        purpose="Each power times a reciprocal.",
    )
    x, y, table, numbers = f.arguments
    most, reciprocal, left = f.cores("greatest, reciprocal, shift", 3, LISTED)
    f("ldm", numbers, f"{{{most}, {reciprocal}, {left}}}")
    zero = f.constant("zero point", INT8.low)
    power = _powers(f, last, x, most, table)
    with f.predicated_loop("elements", 32, depth):
        vector = power()
        f("vqrdmulh.s32", vector, vector, reciprocal)
        f("vrshl.s32", vector, left)
        f("vadd.i32", vector, vector, zero)
        f("vqmovnb.s16", vector, vector)
        f("vstrb.32", vector, f"[{y}], #4")
    return f.done()


def _powers(f: Function, last: int, x: str, most: str, table: str) -> Callable[[], str]:
    # Appends the table lookup of four differences from the greatest element; returns a function that yields
    # the register of the powers.
    vector, differences, greatest = f.vector("powers"), f.vector("differences"), f.vector("the greatest")
    f("vdup.32", greatest, most)
    limit = f.vector("greatest difference") if last < _MOST else ""
    if limit:
        f.number(most, last)
        f("vdup.32", limit, most)

    def power() -> str:
        f("vldrb.s32", differences, f"[{x}], #4")
        f("vsub.i32", differences, greatest, differences)
        if limit:
            f("vmin.u32", differences, differences, limit)
        f("vldrw.u32", vector, f"[{table}, {differences}, uxtw #2]")
        return vector

    return power


@design(Softmax, types=(DType.INT8,), needs="mve")
def softmax(op: Softmax, sig: Signature, target: Target) -> Kernel | None:
    """Softmax of int8; None if there are too few elements for a table of up to 1 KB to pay off."""
    if target.optimize == "size" or sig.x.elements < _ELEMENTS:
        return None
    powers = powers_const(op, sig)
    depth = sig.x.shape[-1]
    view = MveSoftmaxView(sig.x.elements // depth, depth, powers.shape[0] - 1)
    return Kernel(
        design="mve softmax",
        template="mve/softmax.c.j2",
        view=view,
        consts=(powers,),
        inplace=(InPlace(),),
        work=view.work,
        routines=view.routines,
    )
