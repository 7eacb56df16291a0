"""Samples of the signal library in pairs, with the DSP extension."""

from crtgen.ir import Signature
from crtgen.kernels.cost import Work
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.kernels.signal import SignalView
from crtgen.ops.signal import FftAutoScale, Window

__all__ = ["auto_scale", "window"]


@design(Window, needs="dsp", weights=(1,))
def window(op: Window, sig: Signature, target: Target) -> Kernel | None:
    """Two products at a time; None for an odd number of weights."""
    period = sig.inputs[1].elements
    if period % 2:
        return None
    return Kernel(
        design="dsp pairs",
        template="dsp/window.c.j2",
        view=SignalView(op, sig.x.elements, sig.y.elements, period),
        consts=(Const.of("weights", sig.inputs[1].array(), 4),),
        inplace=(InPlace(),),
        work=Work().block("pair", sig.x.elements // 2).block("row", sig.x.elements // period),
    )


@design(FftAutoScale, needs="dsp")
def auto_scale(op: FftAutoScale, sig: Signature, target: Target) -> Kernel | None:
    """Two samples at a time; None for an odd number."""
    if sig.x.elements % 2:
        return None
    return Kernel(
        design="dsp pairs",
        template="dsp/auto_scale.c.j2",
        view=SignalView(op, sig.x.elements, sig.y.elements),
        inplace=(InPlace(),),
        work=Work().block("pair", sig.x.elements // 2),
    )
