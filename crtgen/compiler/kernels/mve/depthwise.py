"""Depthwise convolutions with Helium.

Four rows of the image are interleaved in scratch, one word per element, so that one gather load of four words
is a patch of 4x4 inputs of a channel. With stride 1 and a window of at most 3x3, a patch serves a square of
four outputs, with the weights moved by a column, a row, or both; otherwise one output needs up to four
patches. Eight outputs of a channel are requantised together and scattered.
"""

import numpy as np

from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape, rows_lead
from crtgen.compiler.kernels.mve.bytes import fill
from crtgen.compiler.kernels.mve.conv import requantise, windows_kernel
from crtgen.compiler.kernels.mve.epilogue import MveEpilogue
from crtgen.compiler.kernels.mve.patch_weights import int4_patches, patches, requant_const
from crtgen.compiler.kernels.mve.patches import (
    FAR_ADD,
    SIDE,
    Batch,
    batches_of,
    patches_of,
    plane_bytes,
    stretches,
    strips_of,
)
from crtgen.compiler.kernels.mve.patches_asm import PatchDepthwiseView, PatchesWriter
from crtgen.compiler.kernels.mve.shared_depthwise import shared_depthwise
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import DepthwiseConv2d
from crtgen.network.ops.fixedpoint import Int64

__all__ = ["depthwise", "patches_kernel", "steps_on"]

_FAR_VECTOR = 508  # the greatest step of a gathering load
_MOST_PATCHES = 4  # of an output: their weights stay in vectors
_MOST_BATCHES = 40
_MOST_OFFSET = 65535


@design(DepthwiseConv2d, types=(DType.INT8,), needs="mve", weights=(1, 2), narrow_weights=True)
def depthwise(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """Depthwise convolution of int8; None for windows of more than four patches.

    An image with a single channel is computed as an ordinary convolution.
    """
    _, w, b = sig.inputs
    window = WindowShape.of(op, sig)
    weights, bias = w.array().astype(np.int64)[0], b.array().astype(np.int64)
    params = op.parameters(sig)
    by_channel = weights.reshape(-1, window.channels * op.multiplier).T
    if window.channels == 1:
        return windows_kernel(window, by_channel.astype(np.int8), bias, params, target, w.dtype is DType.INT4)
    int4 = w.dtype is DType.INT4
    if target.optimize == "size" and op.multiplier == 1 and not int4:
        shared = shared_depthwise(window, by_channel, bias, params)
        if shared is not None:
            return shared
    requant = requantise(params, by_channel, bias)
    if requant is None or requant.epilogue.left or requant.epilogue.some_whole:
        return None
    view = _view(window, op.multiplier, -params.input_offset, requant.epilogue, int4)
    return patches_kernel("mve patches", view, weights, requant.constants) if view else None


def patches_kernel(name: str, view: PatchDepthwiseView, weights: Int64, constants: Int64) -> Kernel:
    """Return the kernel for ``weights[rows, columns, O]`` of a patch."""
    order = np.arange(view.outputs).reshape(-1, view.multiplier).T.ravel()
    return Kernel(
        design=name,
        template="mve/depthwise.c.j2",
        view=view,
        consts=(
            int4_patches(weights, order) if view.int4 else patches(weights, order),
            requant_const(constants[:, order]),
        ),
        scratch=view.scratch,
        inplace=(InPlace(lead=_lead(view)),),
        work=view.work,
        includes=("arm_mve.h",),
        routines=(PatchesWriter.routine(view), *((fill(),) if view.fills else ())),
    )


def _view(
    window: WindowShape, multiplier: int, fill: int, epilogue: MveEpilogue, int4: bool
) -> PatchDepthwiseView | None:
    unit = window.stride_y == window.stride_x == window.dilation_y == window.dilation_x == 1
    small = max(window.taps_y, window.taps_x) < SIDE
    squares = unit and small and min(window.out_height, window.out_width) > 1
    groups = patches_of(window)
    parts, width = _parts(window.out_width, _MOST_BATCHES // len(groups) * (4 if squares else 8))
    starts = stretches(width, 2 if squares else 1)
    across = max(column for _, column in groups) + SIDE
    columns = (parts[-1] + starts[-1]) * window.stride_x + (across - 1) * window.dilation_x + 1
    batches = tuple(batches_of(window, multiplier, starts, squares, plane_bytes(window, columns)))
    furthest = max(max(batch.offsets) for batch in batches)
    if furthest > _MOST_OFFSET or len(groups) > _MOST_PATCHES:
        return None
    if window.channels * multiplier > FAR_ADD:
        return None
    strips = strips_of(window, 2 if squares else 1)
    return PatchDepthwiseView(
        window=window,
        fill=fill,
        strips=strips,
        parts=parts,
        batches=batches,
        planes=len(strips[0].planes),
        columns=columns,
        seen=max(0, min(window.width, columns - window.left)),
        apart=window.dilation_x * window.channels * SIDE,
        moves=(0, SIDE, 1, SIDE + 1) if squares else (),
        groups=len(groups),
        stepping=steps_on(batches),
        multiplier=multiplier,
        epilogue=epilogue,
        int4=int4,
    )


def _parts(width: int, most: int) -> tuple[tuple[int, ...], int]:
    # Start and width of equal parts of a row of outputs, no wider than ``most``.
    if width <= most:
        return (0,), width
    each = -(-width // -(-width // most))
    each += each % 2
    return tuple(stretches(width, each)), each


def steps_on(batches: tuple[Batch, ...]) -> bool:
    """Return True if the offsets of loads reach all steps from patch to patch."""
    return all(abs(patch.advance) <= _FAR_VECTOR for batch in batches for patch in batch.patches)


def _lead(view: PatchDepthwiseView) -> int:
    # All rows of a strip's patches are in scratch when its outputs are written.
    w = view.window
    firsts = np.array([s.first + i * s.step for s in view.strips for i in range(s.count)])
    kept = np.array([s.planes[0].kept for s in view.strips for _ in range(s.count)])
    fresh = firsts * w.stride_y - w.top + kept
    return rows_lead(w, firsts + view.strips[0].step, np.append(fresh[1:], w.height), view.outputs)
