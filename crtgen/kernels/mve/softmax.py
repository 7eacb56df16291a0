"""Softmax of int8 with Helium: powers from a table, since a difference of two int8 values has 256 values."""

from dataclasses import dataclass

from crtgen.ir import DType, Signature
from crtgen.kernels.kernel import InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.kernels.softmax import powers_const
from crtgen.ops import Softmax

__all__ = ["SoftmaxView", "softmax"]

_ELEMENTS = 8  # from so many on a table pays; for size never


@dataclass(frozen=True, slots=True)
class SoftmaxView:
    """``rows`` of ``depth`` elements; differences beyond ``last``, if that is not 255, count as this one."""

    rows: int
    depth: int
    last: int

    @property
    def cost(self) -> float:
        vectors = -(-self.depth // 4)
        return self.rows * (115 + 3 * -(-self.depth // 16) + (15 + 2 * (self.last < 255)) * vectors)


@design(Softmax, types=(DType.INT8,), needs="mve")
def softmax(op: Softmax, sig: Signature, target: Target) -> Kernel | None:
    """int8; None for others, and for so few elements that a table of up to 1 KB is not worth it."""
    if target.optimize == "size" or sig.x.elements < _ELEMENTS:
        return None
    powers = powers_const(op, sig)
    depth = sig.x.shape[-1]
    view = SoftmaxView(sig.x.elements // depth, depth, powers.shape[0] - 1)
    return Kernel(
        design="mve softmax",
        template="mve/softmax.c.j2",
        view=view,
        consts=(powers,),
        inplace=(InPlace(),),
        cost=view.cost,
    )
