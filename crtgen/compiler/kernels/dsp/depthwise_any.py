"""Depthwise convolutions with any window, with the DSP extension: one pixel, four channels at a time.

With a depth multiplier, inputs are repeated when they are copied into the rows in scratch, so that each
output has its own.
"""

from dataclasses import replace

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import rescale_of
from crtgen.compiler.kernels.asm import FAR, Runs
from crtgen.compiler.kernels.dsp.copy import copy
from crtgen.compiler.kernels.dsp.depthwise_any_asm import (
    CHANNELS,
    GAIN_BITS,
    Expansion,
    WindowedView,
    one_pixel,
)
from crtgen.compiler.kernels.dsp.epilogue import DspEpilogue, epilogue_lanes
from crtgen.compiler.kernels.dsp.walk import Walk, sees_image, window_of
from crtgen.compiler.kernels.dsp.words import fours, words16
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape
from crtgen.compiler.kernels.engine.words import Words, words
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.conv import DepthwiseConv2d
from crtgen.network.ops.fixedpoint import Int64

__all__ = ["depthwise_any"]

_UNROLL = {"speed": 16, "size": 8}  # taps of several rows written out
_GAIN = 1 << GAIN_BITS


@design(DepthwiseConv2d, types=(DType.INT8, DType.INT16), needs="dsp", weights=(1, 2), narrow_weights=True)
def depthwise_any(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """Depthwise convolution with any window that contains a part of the image, and at least four outputs.

    None for other layers, or without an exact requantisation.
    """
    x, w, b = sig.inputs
    if sig.y.shape[3] < CHANNELS:
        return None
    window = window_of(op, sig)
    window = replace(window, channels=window.channels * op.multiplier)
    reach = (window.taps_x - 1) * window.dilation_x * window.channels
    if not sees_image(window) or reach > FAR:
        return None
    params = op.parameters(sig)
    weights = w.array().astype(np.int64).reshape(-1, w.shape[3]).T  # [channel, tap]
    bias = b.array().astype(np.int64)
    gain = _GAIN if w.dtype is DType.INT4 else 1
    lanes = epilogue_lanes(rescale_of(params, weights, bias), ((gain, np.arange(len(bias))),))
    if lanes is None:
        return None
    expansion = None
    if op.multiplier > 1:
        seen = min(window.width, window.columns - window.left) * x.shape[3]
        expansion = Expansion(seen, op.multiplier, x.dtype.c_name)
    unroll = target.steps(_UNROLL[target.optimize])
    view = _view(window, expansion, -params.input_offset, lanes.epilogue, gain > 1, unroll)
    groups, words_each = fours(len(bias)), view.group_words

    def pack() -> Words:
        start = words(gain * (bias + params.input_offset * weights.sum(axis=1) + lanes.offsets[0]))
        constants = lanes.constants[0][groups].reshape(len(groups), -1)
        if view.int4:
            taps = _pack_nibbles(weights[groups].reshape(len(groups), CHANNELS, view.rows, -1))
        elif view.paired:
            rows = view.rows * len(view.taps)
            four = weights[groups]  # [group, 4, tap]
            parts = (_pack_pairs(four[..., :rows], view.rows), _pack_pairs(four[..., rows:], 1))
            taps = np.concatenate(parts, axis=1)
        else:
            taps = _pack_taps(weights[groups])
        packed = np.concatenate([start[groups], taps, constants], axis=1)
        return packed.reshape(-1)

    note = "per four channels: start, weights, requantisation"
    return Kernel(
        design="dsp_depthwise_any",
        template="dsp/depthwise_any.c.j2",
        view=view,
        consts=(Const("weights", "uint32", (len(groups) * words_each,), pack, 4, note),),
        scratch=view.walk.scratch,
        inplace=_inplace(view),
        work=_work(view),
        routines=(one_pixel(view), *((copy(),) if view.copies else ())),
    )


def _pack_taps(weights: Int64) -> Words:
    # ``[group, word]`` from ``weights[group, 4, tap]``, for inputs of int16.
    a, b, c, d = weights.transpose(1, 0, 2)
    return np.stack([words16(a, b), words16(c, d)], axis=2).reshape(len(weights), -1)


def _pack_pairs(weights: Int64, rows: int) -> Words:
    # ``[group, word]`` from ``weights[group, 4, tap]``: in each row two taps of each channel, then one.
    groups, channels, taps = weights.shape
    taps //= rows
    weights = weights.reshape(groups, channels, rows, taps)
    even = weights[..., : taps // 2 * 2].reshape(groups, channels, rows, taps // 2, 2)
    twos = words16(even[..., 0], even[..., 1]).transpose(0, 2, 3, 1).reshape(groups, rows, -1)
    a, b, c, d = weights[..., taps // 2 * 2 :].transpose(1, 0, 2, 3)
    one = np.concatenate([words16(a, c), words16(b, d)], axis=2)
    return np.concatenate([twos, one], axis=2).reshape(groups, -1)


def _pack_nibbles(weights: Int64) -> Words:
    # ``[group, word]`` from ``weights[group, 4, row, tap]``: from the highest bits on, channels 2, 3, 2, 3.
    # The first two are of one tap, the next ones of the second; 0, 1, 0 and 1 are in the lower half.
    odd = weights.shape[3] % 2
    taps = np.pad(weights, ((0, 0), (0, 0), (0, 0), (0, odd))) & 15
    a, b, c, d = taps.transpose(1, 0, 2, 3).reshape(4, len(weights), -1, 2)
    upper, lower = (16 * first + second for first, second in ((c, d), (a, b)))
    return words16(256 * lower[..., 0] + lower[..., 1], 256 * upper[..., 0] + upper[..., 1])


def _view(
    window: WindowShape,
    expansion: Expansion | None,
    zero_point: int,
    epilogue: DspEpilogue,
    int4: bool,
    most: int,
) -> WindowedView:
    # At most ``most`` taps of several rows are written out.
    walk = Walk.of(window, zero_point, at_once=1, repeats=expansion.repeats if expansion else 1)
    pitch = walk.rows.pitch if walk.rows else window.pitch
    row_step, step = window.dilation_y * pitch, window.dilation_x * window.channels
    rows, columns = window.taps_y, window.taps_x
    reach = (columns - 1) * step
    fits = [n for n in range(1, rows + 1) if (n - 1) * row_step + reach <= FAR]
    whole = [n for n in fits if rows % n == 0]
    unroll = max(n for n in whole if n == 1 or n * columns <= most)
    if epilogue.bits == 8 and not int4:
        some = (n for n in fits if rows >= 2 * n and (n + rows % n) * columns <= most)
        all_of_them = (n for n in fits if n == rows and n * columns <= most + most // 2)
        unroll = min((unroll, *some, *all_of_them), key=lambda n: _taken(rows, columns, n))

    def offsets(rows: int) -> tuple[int, ...]:
        return tuple(row * row_step + tap * step for row in range(rows) for tap in range(columns))

    return WindowedView(
        channels=window.channels // (epilogue.bits // 8),
        size=epilogue.bits // 8,
        rows=rows // unroll,
        taps=offsets(unroll),
        row_step=unroll * row_step,
        walk=walk,
        expansion=expansion,
        epilogue=epilogue,
        int4=int4,
        last=offsets(rows % unroll),
    )


def _taken(rows: int, columns: int, unroll: int) -> int:
    # Instructions of four channels if ``unroll`` rows are written out: two taps are 13, one alone 8.
    def some(rows: int) -> int:
        pairs, alone = divmod(rows * columns, 2)
        return 13 * pairs + 8 * alone

    rounds = rows // unroll
    return rounds * (some(unroll) + 3 * (rounds > 1)) + some(rows % unroll)


def _inplace(view: WindowedView) -> tuple[InPlace, ...]:
    # Without a window, a last group that overlaps the one before would read what that one wrote.
    return () if view.rest and not view.walk.rows else (InPlace(lead=view.walk.lead(view.pixel_bytes)),)


def _work(view: WindowedView) -> Work:
    routine, e, walk = one_pixel(view), view.expansion, view.walk
    pixels = walk.images * walk.pixels
    calls = [view.whole, *([1] if view.rest else [])]
    work = Work(pixels * Runs.sum(routine.runs(groups=n) for n in calls))
    work.block("pixel", pixels * len(calls), len(calls)).block("line", walk.images * walk.height)
    if walk.rows:
        walk.work(work.fill(walk.scratch), Runs() if e else None)
    if walk.rows and e:
        rows = work.blocks["row"].runs
        work.block("expanded", rows * e.count).block("expanded byte", rows * e.count * e.repeats, e.repeats)
    return work.block("image", walk.images, walk.images > 1)
