"""Depthwise convolutions in float32 in the registers of an FPU, from a ring of padded rows."""

import numpy as np

from crtgen.ir import Array, DType, Signature
from crtgen.kernels.cost import Work
from crtgen.kernels.depthwise import DepthwiseView, ring_lead, ring_view, ring_work
from crtgen.kernels.epilogue import float_epilogue
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.kernels.vfp.copy import copied, copy, fill, filled
from crtgen.kernels.vfp.depthwise_asm import CHANNELS, NEIGHBOURS, FloatDepthwiseRow, line_of_outputs
from crtgen.kernels.vfp.unit import FloatLimits, FloatUnit
from crtgen.ops import DepthwiseConv2d

__all__ = ["depthwise"]

_WRITTEN_OUT = {"speed": 4, "size": 1}  # taps


@design(DepthwiseConv2d, types=(DType.FLOAT32,), needs="vfp", weights=(1, 2))
def depthwise(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """None where an input channel has several outputs."""
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
    return Kernel(
        design=f"vfp depthwise {min(NEIGHBOURS, g.out_width)}x{min(CHANNELS, g.channels)}",
        template="depthwise_lines.c.j2",
        view=view,
        consts=(_weights(sig, line),),
        scratch=4 * view.ring_elements,
        inplace=(InPlace(lead=ring_lead(view, 4)),),
        work=_work(view, line),
        routines=(line_of_outputs(line), copy(), fill()),
    )


def _weights(sig: Signature, line: FloatDepthwiseRow) -> Const:
    weights, bias = sig.inputs[1].array(), sig.inputs[2].array()

    def pack() -> Array:
        rows = np.concatenate([bias[None], weights.reshape(-1, line.channels)])
        starts = range(0, line.channels, CHANNELS)
        return np.concatenate([rows[:, start : start + CHANNELS].ravel() for start in starts])

    note = f"[channel / {CHANNELS}][bias, then tap][channel % {CHANNELS}]"
    return Const("weights", "float32", (line.weight_bytes // 4,), pack, 4, note)


def _work(view: DepthwiseView, line: FloatDepthwiseRow) -> Work:
    lines = view.window.batch * view.window.out_height
    return ring_work(Work(lines * line_of_outputs(line).runs()), view, 4, copied, filled)
