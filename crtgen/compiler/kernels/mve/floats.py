"""Convolutions and fully connected layers in float32 with Helium: four output channels in a vector."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from crtgen.compiler.kernels.arithmetic.epilogue import float_epilogue
from crtgen.compiler.kernels.asm import Routine, Runs
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.layout import ChannelGroup, in_groups
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape, gathered_window
from crtgen.compiler.kernels.mve.bytes import copy, copy_window
from crtgen.compiler.kernels.mve.floats_asm import FloatBlock, FloatsWriter
from crtgen.compiler.kernels.portable.gemm import GemmView, gather, gemm_lead
from crtgen.network.ir import Array, DType, Signature
from crtgen.network.ops import Conv2d, FullyConnected

__all__ = ["product"]

_LANES = 4
_TILE = 4  # pixels at a time
_ALONE = 4  # vectors of outputs for a pixel that comes alone
_UNROLL = 4


@design(Conv2d, FullyConnected, types=(DType.FLOAT32,), needs="mve", weights=(1, 2))
def product(op: Conv2d | FullyConnected, sig: Signature, target: Target) -> Kernel:
    window = gathered_window(op, sig)
    weights, bias = sig.inputs[1].array(), sig.inputs[2].array()
    outputs = weights.shape[0]
    pixels, depth = sig.y.elements // outputs, weights.size // outputs
    tile = _TILE if pixels >= _TILE else 1
    blocks = _blocks(outputs, 1 if tile > 1 else _ALONE)
    view = GemmView(
        epilogue=float_epilogue(op.activation),
        pixels=pixels,
        depth=depth,
        outputs=outputs,
        tile=tile,
        unroll=min(_UNROLL, depth),
        fused=True,
        blocks=blocks,
        window=window,
    )

    low, high = op.activation.float_range()
    whole = FloatBlock(tile, 1, depth, view.unroll, outputs, 0, low, high)
    partial = outputs % _LANES
    routines = []
    for block in blocks:
        form = replace(whole, vectors=block.channels // _LANES)
        routines += [FloatsWriter.routine(form)]
        routines += (
            [FloatsWriter.routine(replace(form, some=partial))] if partial and form.vectors == 1 else []
        )

    def pack() -> Array:
        return in_groups(_padded(weights.reshape(outputs, depth)), blocks)

    count = sum(b.channels * b.times for b in blocks) * depth
    consts = (
        Const("weights", "float32", (count,), pack, 4, "[block][input][output of the block]"),
        Const.of("bias", _padded(bias)),
    )
    return Kernel(
        design=f"mve float {tile}x{blocks[0].channels}" + (" gathered" if window else ""),
        template="mve/floats.c.j2",
        view=view,
        consts=consts,
        scratch=tile * depth * 4 if window else 0,
        inplace=(InPlace(lead=gemm_lead(view, 4)),),
        work=_work(view, routines),
        routines=(*_gathering(window), *routines),
    )


def _gathering(window: WindowShape | None) -> tuple[Routine, ...]:
    # Routines that copy bytes, and windows within the image if there are any.
    if window is None:
        return ()
    row, pitch = window.taps_x * window.channels, 4 * window.dilation_y * window.pitch
    return copy(), *((copy_window(window.taps_y, row, pitch),) if window.within else ())


def _blocks(outputs: int, vectors: int) -> tuple[ChannelGroup, ...]:
    # The last one of a vector that may have too many outputs.
    wide = outputs // (_LANES * vectors) if vectors > 1 else 0
    rest = -(-outputs // _LANES) - wide * vectors
    counts = ((_LANES * vectors, wide), (_LANES, rest))
    return tuple(ChannelGroup(channels, count) for channels, count in counts if count)


def _padded(array: Array) -> Array:
    # With zeros up to whole vectors of outputs.
    more = -len(array) % _LANES
    return np.pad(array, [(0, more), *[(0, 0)] * (array.ndim - 1)])


def _work(view: GemmView, routines: Sequence[Routine]) -> Work:
    tiles = -(-view.pixels // view.tile)
    last = view.outputs % _LANES != 0
    work = (
        Work()
        .block("tile", tiles)
        .block("block", tiles * sum(b.times for b in view.blocks), len(view.blocks))
    )
    work.block("last", tiles * last, last)
    for block, routine in zip(view.blocks, routines, strict=False):
        work.assembly += tiles * block.times * routine.runs()
    if view.window:
        windows, within = tiles * view.tile, view.window.within
        gather(work, view.window, windows, 4, copy_vectors, within)
        moved = Runs.sum(routine.runs() for routine in _gathering(view.window)[1:])
        work.block("whole window", windows * within).assembly += windows * within * moved
    return work


def copy_vectors(work: Work, nbytes: int, runs: float) -> None:
    work.block("copy", runs).assembly += runs * copy().runs(vectors=-(-nbytes // 16))
