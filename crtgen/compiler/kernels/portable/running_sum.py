"""Sums of channels over rows, as the rows arrive."""

from dataclasses import dataclass

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import Signature
from crtgen.network.ops.running_sum import RunningSum

__all__ = ["RunningSumView"]


@dataclass(frozen=True, slots=True)
class RunningSumView:
    pixels: int
    channels: int


@design(RunningSum)
def running_sum(op: RunningSum, sig: Signature, target: Target) -> Kernel:
    channels = sig.x.shape[3]
    view = RunningSumView(sig.x.elements // channels, channels)
    work = Work().block("channel", channels).block("added", sig.x.elements)
    return Kernel("running sum", "running_sum.c.j2", view, inplace=(InPlace(1),), work=work)
