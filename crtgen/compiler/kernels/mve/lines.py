"""Depthwise convolutions along one axis with Helium: windows of one row or one column.

Four neighbours are a word, so one gather load of four words brings 16 neighbours of a channel. They serve up
to four outputs, with the weights moved by zero to three bytes.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape, as_column
from crtgen.compiler.kernels.mve.conv import requantise
from crtgen.compiler.kernels.mve.depthwise import patches_kernel, steps_on
from crtgen.compiler.kernels.mve.epilogue import MveEpilogue
from crtgen.compiler.kernels.mve.patches import FAR_ADD, SIDE, Batch, Patch, in_lanes, plane_bytes, strips_of
from crtgen.compiler.kernels.mve.patches_asm import PatchDepthwiseView
from crtgen.compiler.kernels.mve.stream import LANES
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import DepthwiseConv2d
from crtgen.network.ops.fixedpoint import Int64

__all__ = ["lines"]

_FULL = 2 * SIDE  # outputs of a batch
_MOST_BATCHES = 8
_SCRATCH = 8192
_MOST_OFFSET = 65535


@design(DepthwiseConv2d, types=(DType.INT8,), needs="mve", weights=(1, 2), narrow_weights=True)
def lines(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """Depthwise convolution of lines with several outputs and windows of at most 13 inputs.

    With a stride of 2, windows may have 14 inputs; with strides of whole words, 16. None for other layers.
    """
    _, w, b = sig.inputs
    window = as_column(WindowShape.of(op, sig))
    if window is None or window.channels == 1 or window.dilation_y > 1 or window.out_height == 1:
        return None
    weights, bias = w.array().astype(np.int64).reshape(window.taps_y, -1), b.array().astype(np.int64)
    params = op.parameters(sig)
    requant = requantise(params, weights.T, bias)
    if requant is None or requant.epilogue.left or requant.epilogue.some_whole:
        return None
    view = _view(window, op.multiplier, -params.input_offset, requant.epilogue, w.dtype is DType.INT4)
    return patches_kernel("mve lines", view, _patch(weights), requant.constants) if view else None


def _patch(weights: Int64) -> Int64:
    # ``[row, column, O]`` of a patch of ``weights[tap, O]``: its columns are words of four neighbours.
    taps, outputs = weights.shape
    padded = np.zeros((LANES, outputs), np.int64)
    padded[:taps] = weights
    return padded.reshape(SIDE, SIDE, outputs).transpose(1, 0, 2)


def _view(
    window: WindowShape, multiplier: int, fill: int, epilogue: MveEpilogue, int4: bool
) -> PatchDepthwiseView | None:
    plane = plane_bytes(window, 1)
    step = _step(window, plane)
    firsts = [i * window.stride_y for i in range(step)]
    moves = tuple(range(max(first % SIDE for first in firsts) + 1))
    if moves[-1] + window.taps_y > LANES:
        return None
    batches = tuple(_batches(window, multiplier, firsts, plane))
    if max(batches[-1].offsets) > _MOST_OFFSET or window.channels * multiplier > FAR_ADD:
        return None
    return PatchDepthwiseView(
        window=window,
        fill=fill,
        strips=strips_of(window, step),
        parts=(0,),
        batches=batches,
        planes=_planes(firsts),
        columns=1,
        seen=1,
        apart=plane,
        moves=moves,
        groups=1,
        stepping=steps_on(batches),
        multiplier=multiplier,
        epilogue=epilogue,
        int4=int4,
    )


def _planes(firsts: Sequence[int]) -> int:
    # Words that the outputs read whose windows begin at these inputs.
    return firsts[-1] // SIDE + SIDE


def _step(window: WindowShape, plane: int) -> int:
    # Outputs of a strip: all, or as many batches as scratch has room for.
    steps = range(_FULL, _FULL * _MOST_BATCHES + 1, _FULL)
    fitting = [n for n in steps if _planes([(n - 1) * window.stride_y]) * plane <= _SCRATCH]
    return min(max(fitting, default=_FULL), window.out_height)


def _batches(window: WindowShape, multiplier: int, firsts: Sequence[int], plane: int) -> Iterator[Batch]:
    # The outputs whose windows begin at these inputs by eight, and four more if that is enough.
    at, outputs = 0, window.channels * multiplier
    for begin in range(0, len(firsts), _FULL):
        numbers = list(range(begin, min(begin + _FULL, len(firsts))))
        numbers += numbers[-1:] * ((SIDE if len(numbers) <= SIDE else _FULL) - len(numbers))
        patches: list[Patch] = []
        for word in sorted({firsts[number] // SIDE for number in numbers}):
            met = [(i, firsts[n] % SIDE) for i, n in enumerate(numbers) if firsts[n] // SIDE == word]
            patches.append(Patch(len(patches) % 2 > 0, word * plane - at, tuple(met), True))
            at = word * plane
        yield Batch(tuple(patches), in_lanes([number * outputs for number in numbers]))
