"""Depthwise convolutions with byte weights in flash, which are widened into scratch before the layer runs.

``depthwise_any`` multiplies halfwords. For a large window, halfword weights would be most of the layer's
flash.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.dsp.depthwise_any import depthwise_any
from crtgen.compiler.kernels.dsp.depthwise_any_asm import CHANNELS, WindowedView
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Part, Target
from crtgen.compiler.kernels.engine.parts import aligned
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import Words
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.conv import DepthwiseConv2d

__all__ = ["WidenedView", "widened"]

# Taps of a window: with fewer, others than weights are most.
_LEAST = 16


@dataclass(frozen=True, slots=True)
class WidenedView:
    """``groups`` of words: ``starts``, weights of which ``bytes`` words have four each, and ``ends``.

    The part's scratch begins at ``work``, if it has any.
    """

    groups: int
    starts: int
    bytes: int
    ends: int
    work: int


@design(DepthwiseConv2d, types=(DType.INT8, DType.INT16), needs="dsp", weights=(1, 2))
def widened(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """``depthwise_any`` for windows of at least 16 taps; None if that has no kernel."""
    w = sig.inputs[1]
    inner = depthwise_any(op, sig, target) if w.shape[1] * w.shape[2] >= _LEAST else None
    if inner is None:
        return None
    inner = inner.priced(target)
    (const,), each = inner.consts, inner.view
    assert isinstance(each, WindowedView)
    groups, work = const.nbytes // (4 * each.group_words), aligned(const.nbytes)
    ends = each.group_words - CHANNELS - each.tap_words
    view = WidenedView(groups, CHANNELS, each.tap_words // 2, ends, work if inner.scratch else 0)

    def pack() -> Words:
        rows = const.data.reshape(groups, -1)
        starts, taps, others = np.split(rows, [CHANNELS, CHANNELS + each.tap_words], axis=1)
        halves = taps.copy().view(np.uint8).reshape(groups, -1, 2, 2, 2)  # [group, word, of two, half, byte]
        narrow = np.ascontiguousarray(halves[..., 0].transpose(0, 1, 3, 2)).reshape(groups, -1)
        return np.concatenate([starts, narrow.view(np.uint32), others], axis=1).reshape(-1)

    length = groups * (view.starts + view.bytes + view.ends)
    note = f"{const.note}; weights 0 and 1 of four are bytes 0 and 2"
    return Kernel(
        design="dsp_depthwise_any, widened",
        template="dsp/widened.c.j2",
        view=view,
        consts=(Const("weights", "uint32", (length,), pack, 4, note),),
        scratch=work + inner.scratch,
        inplace=inner.inplace,
        work=_work(view),
        parts=(Part(op.name, sig, inner),),
    )


def _work(view: WidenedView) -> Work:
    work = Work().block("group", view.groups).block("four weights", view.groups * view.bytes)
    work.block("other word", view.groups * (view.starts + view.ends), 2)
    work.constants = 4.0 * view.groups * (view.starts + view.bytes + view.ends)
    return work
