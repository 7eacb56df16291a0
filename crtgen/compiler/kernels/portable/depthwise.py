"""Depthwise convolutions from a ring of padded rows.

Each input row is copied once into a ring in scratch that holds the rows of one window, including padding. So
the sums need no special case for the border, and the output may overwrite the input. The sums are computed
channel by channel: a tile of adjacent outputs shares the channel's weights, and overlapping inputs.
"""

from dataclasses import replace

import numpy as np

from crtgen.compiler.kernels.arithmetic.epilogue import (
    Epilogue,
    float_epilogue,
    folded_bias,
    integer_epilogue,
    sums,
)
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.layout import nibbles
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.shared.ring import DepthwiseView, ring_view, ring_work
from crtgen.network.ir import Array, DType, Signature
from crtgen.network.ops import DepthwiseConv2d, scheme_of
from crtgen.network.ops.accumulate import Accumulate

__all__ = ["depthwise"]


@design(DepthwiseConv2d, types=(DType.FLOAT32,), weights=(1, 2))
@design(DepthwiseConv2d, types=(DType.INT8, DType.INT16), weights=(1, 2), narrow_weights=True)
def depthwise(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel:
    return _kernel(op, sig, *_constants(op, sig))


@design(Accumulate, types=(DType.INT8,), to=DType.INT32, weights=(1, 2))
def accumulate(op: Accumulate, sig: Signature, target: Target) -> Kernel | None:
    if not isinstance(op.layer, DepthwiseConv2d):
        return None
    epilogue, bias = sums(sig, op.zero_points(sig)[0], (0, 1, 2))
    kernel = _kernel(op.layer, sig, epilogue, (_ordered(sig), bias))
    return replace(kernel, inplace=())


def _kernel(op: DepthwiseConv2d, sig: Signature, epilogue: Epilogue, consts: tuple[Const, ...]) -> Kernel:
    view, size = ring_view(op, sig, epilogue), sig.x.dtype.itemsize
    return Kernel(
        design=f"depthwise ring {view.tile}x1",
        template="depthwise.c.j2",
        view=view,
        consts=consts,
        scratch=view.ring_elements * size,
        inplace=(InPlace(lead=size * view.lead),),
        work=_work(view, sig),
    )


def _work(view: DepthwiseView, sig: Signature) -> Work:
    g, tile = view.window, view.tile
    lines, taps = g.batch * g.out_height, g.taps_y * g.taps_x
    tiles = lines * -(-g.out_width // tile)
    outputs = tiles * g.channels * view.multiplier
    form = f"{'int4' if view.int4 else sig.x.dtype.value} {tile}"
    work = ring_work(Work(), view, sig.x.dtype.itemsize)
    work.block(f"{form} tile", tiles).block(f"{form} channel", tiles * g.channels, view.multiplier > 1)
    if view.unrolled:
        work.block(f"{form} tap", outputs * taps, taps)
        work.block(f"{form} row", outputs * g.taps_y, g.taps_y)
    else:
        work.block(f"{form} tap in a loop", outputs * taps).block(f"{form} row in a loop", outputs * g.taps_y)
    view.epilogue.work(work, outputs, tile, 1)
    return work


def _ordered(sig: Signature) -> Const:
    weights, int4 = sig.inputs[1].array(), sig.inputs[1].dtype is DType.INT4
    taps = weights.reshape(-1, weights.shape[3])

    def pack() -> Array:
        return nibbles(taps.T) if int4 else np.ascontiguousarray(taps.T)

    shape = (taps.shape[1], -(-len(taps) // 2) if int4 else len(taps))
    note = f"[output][tap]{', two in a byte' if int4 else ''}"
    return Const("weights", taps.dtype.name, shape, pack, 4, note)


def _constants(op: DepthwiseConv2d, sig: Signature) -> tuple[Epilogue, tuple[Const, ...]]:
    ordered = _ordered(sig)
    if scheme_of(sig.x).is_real:
        return float_epilogue(op.activation), (ordered, Const.of("bias", sig.inputs[2].array()))
    params = op.parameters(sig)
    bias = folded_bias(sig, params, (0, 1, 2))
    epilogue, scales = integer_epilogue(sig, params, bias)
    return epilogue, (
        ordered,
        Const.of("bias", bias, bias.dtype.itemsize, "less zero point times weights"),
        *scales,
    )
