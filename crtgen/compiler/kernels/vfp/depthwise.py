"""Depthwise convolutions in float32 in the registers of an FPU, from a ring of padded rows."""

from crtgen.compiler.kernels.arithmetic.epilogue import float_epilogue
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.layout import biased
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.shared.ring import float_lines, ring_view
from crtgen.compiler.kernels.vfp.copy import copied, copy, fill, filled
from crtgen.compiler.kernels.vfp.depthwise_asm import (
    CHANNELS,
    NEIGHBOURS,
    FloatDepthwiseRow,
    VfpDepthwiseLine,
)
from crtgen.compiler.kernels.vfp.unit import FloatLimits, FloatUnit
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import DepthwiseConv2d

__all__ = ["depthwise"]

_WRITTEN_OUT = {"speed": 4, "size": 1}  # taps


@design(DepthwiseConv2d, types=(DType.FLOAT32,), needs="vfp", weights=(1, 2))
def depthwise(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """Depthwise convolutions of float32; None if an input channel has several outputs."""
    if op.multiplier != 1:
        return None
    view = ring_view(op, sig, float_epilogue(op.activation))
    g = view.window
    line = FloatDepthwiseRow(
        width=g.out_width,
        channels=g.channels,
        taps_y=g.taps_y,
        taps_x=g.taps_x,
        stride=g.stride_x,
        dilation=g.dilation_x,
        unroll=g.taps_x <= target.steps(_WRITTEN_OUT[target.optimize]),
        limits=FloatLimits.of(op.activation),
        unit=FloatUnit.of(target),
    )
    weights, bias = (value.array() for value in sig.inputs[1:])
    return float_lines(
        f"vfp depthwise {min(NEIGHBOURS, g.out_width)}x{min(CHANNELS, g.channels)}",
        view,
        biased(weights.reshape(-1, g.channels).T, bias, CHANNELS, ("channel", "tap")),
        (VfpDepthwiseLine.routine(line), copy(), fill()),
        copied,
        filled,
    )
