"""Clamps of int8 with the DSP extension, four elements in a word: SSUB8 compares, SEL takes."""

from dataclasses import dataclass

from crtgen.ir import DType, Signature
from crtgen.kernels.kernel import InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.kernels.requant import clamp_limits
from crtgen.ops.activation import Relu

__all__ = ["ClampView", "clamp"]

_BLOCK = 16  # elements at a time


@dataclass(frozen=True, slots=True)
class ClampView:
    """``elements`` between ``low`` and ``high``, which are None where int8 ends."""

    elements: int
    low: int | None
    high: int | None

    @property
    def blocks(self) -> int:
        return self.elements // _BLOCK

    @property
    def rest(self) -> int:
        return self.elements % _BLOCK


@design(Relu, types=(DType.INT8,), needs="dsp")
def clamp(op: Relu, sig: Signature, target: Target) -> Kernel | None:
    """Without requantisation; None for others."""
    if sig.x.quant != sig.y.quant:
        return None
    params = op.parameters(sig)
    low, high = clamp_limits(params.act_min, params.act_max)
    view = ClampView(sig.x.elements, low, high)
    limits = (low is not None) + (high is not None)
    return Kernel(
        design="dsp_clamp",
        template="dsp/clamp.c.j2",
        view=view,
        inplace=(InPlace(),),
        cost=20 + view.blocks * (8 * limits + 12) + view.rest * (4 * limits + 4),
    )
