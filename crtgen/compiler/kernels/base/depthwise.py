"""Depthwise convolutions without the DSP extension, reading from a ring buffer of padded rows."""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.epilogue import Epilogue
from crtgen.compiler.kernels.arithmetic.requant import rescale_of
from crtgen.compiler.kernels.asm import FAR
from crtgen.compiler.kernels.base.depthwise_asm import DepthwiseRow, row_of_outputs
from crtgen.compiler.kernels.base.epilogue import exact_form
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.layout import records, stream
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import Words, words
from crtgen.compiler.kernels.shared.ring import DepthwiseView, ring_view, ring_work
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import DepthwiseConv2d

__all__ = ["RingView", "depthwise"]

_INTEGERS = Epilogue("int8_t", "int8_t", "int32_t", "int32_t")
_MOST_TAPS = {False: 9, True: 32}  # in registers; on the stack, where a byte's offset is below 32


@dataclass(frozen=True, slots=True)
class RingView:
    ring: DepthwiseView
    row: DepthwiseRow

    @property
    def words(self) -> int:
        return self.row.channels * self.row.stream_words


@design(DepthwiseConv2d, types=(DType.INT8,), needs="base", weights=(1, 2))
def depthwise(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """Depthwise convolution with one output per channel; None for windows of more than 9 taps (32 on an
    M0+).
    """
    _, w, b = sig.inputs
    ring = ring_view(op, sig, _INTEGERS, lies=True)
    g, narrow = ring.window, target.core.narrow
    reach = (g.stride_x + (g.taps_x - 1) * g.dilation_x) * g.channels
    if op.multiplier > 1 or g.taps_y * g.taps_x > _MOST_TAPS[narrow] or reach > FAR:
        return None
    params = op.parameters(sig)
    weights, bias = w.array().astype(np.int64).reshape(-1, g.channels).T, b.array().astype(np.int64)
    rescale = rescale_of(params, weights, bias)
    found = exact_form(rescale, bias + params.input_offset * weights.sum(axis=1), narrow)
    if found is None:
        return None
    form, start, constants = found
    row = DepthwiseRow(g.out_width, g.channels, g.taps_y, g.taps_x, g.stride_x, g.dilation_x, form)
    view = RingView(ring, row)

    def channels(some: slice) -> Words:
        return records(weights[some].astype(np.int8), words(start[some]), constants[some])

    note = "per channel: weights, start, requantisation"
    lines = g.batch * g.out_height
    return Kernel(
        design="depthwise rows",
        template="base/depthwise.c.j2",
        view=view,
        consts=(stream(g.channels, row.stream_words, channels, note),),
        scratch=ring.ring_elements,
        inplace=(InPlace(lead=ring.lead),),
        work=ring_work(Work(lines * row_of_outputs(row).runs()), ring, 1),
        routines=(row_of_outputs(row),),
    )
