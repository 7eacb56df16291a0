"""Roots of the signal library by the FPU."""

from crtgen.ir import Signature
from crtgen.kernels.cost import Work
from crtgen.kernels.kernel import Kernel, Target
from crtgen.kernels.registry import design
from crtgen.kernels.signal import SignalView
from crtgen.ops.signal import FilterBankSquareRoot

__all__ = ["square_root"]


@design(FilterBankSquareRoot, needs="vfp")
def square_root(op: FilterBankSquareRoot, sig: Signature, target: Target) -> Kernel:
    """A root of float32, corrected in 64 bits."""
    return Kernel(
        design="vfp root",
        template="vfp/square_root.c.j2",
        view=SignalView(op, sig.x.elements, sig.y.elements),
        work=Work().block("number", sig.y.elements),
    )
