"""Depthwise convolutions of any window with the DSP extension: one pixel, four channels at a time.

With a depth multiplier, inputs are repeated on their way into the rows in scratch: each output has its own.
"""

from dataclasses import replace

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.asm import Runs
from crtgen.kernels.cost import Work
from crtgen.kernels.dsp.copy import copy
from crtgen.kernels.dsp.depthwise_any_asm import CHANNELS, GAIN_BITS, Expansion, WindowedView, one_pixel
from crtgen.kernels.dsp.epilogue import DspEpilogue, epilogue_lanes
from crtgen.kernels.dsp.walk import Geometry, groups_lead
from crtgen.kernels.dsp.words import FAR, fours, words16
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.kernels.requant import rescale_of
from crtgen.kernels.words import Words, words
from crtgen.ops.conv import DepthwiseConv2d
from crtgen.ops.fixedpoint import Int64

__all__ = ["depthwise_any"]

_UNROLL = {"speed": 16, "size": 8}  # taps of several rows written out
_GAIN = 1 << GAIN_BITS


@design(DepthwiseConv2d, types=(DType.INT8, DType.INT16), needs="dsp", weights=(1, 2), packed=True)
def depthwise_any(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """Any window with four outputs or more that sees the image; None for others, or if inexact."""
    x, w, b = sig.inputs
    if sig.y.shape[3] < CHANNELS:
        return None
    geometry, expansion = _geometry(op, sig)
    reach = (geometry.window[1] - 1) * geometry.dilation[1] * geometry.pixel_bytes
    if not geometry.sees_image or reach > FAR:
        return None
    params = op.parameters(sig)
    weights = w.array().astype(np.int64).reshape(-1, w.shape[3]).T  # [channel, tap]
    bias = b.array().astype(np.int64)
    gain = _GAIN if w.dtype is DType.INT4 else 1
    lanes = epilogue_lanes(rescale_of(params, weights, bias), ((gain, np.arange(len(bias))),))
    if lanes is None:
        return None
    zero_point, image = -params.input_offset, x.nbytes // x.shape[0]
    unroll = target.steps(_UNROLL[target.optimize])
    view = _view(geometry, expansion, (zero_point, image, len(bias)), lanes.epilogue, gain > 1, unroll)
    groups, words_each = fours(len(bias)), view.group_words

    def pack() -> Words:
        start = words(gain * (bias + params.input_offset * weights.sum(axis=1) + lanes.offsets[0]))
        constants = lanes.constants[0][groups].reshape(len(groups), -1)
        if view.packed:
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
        scratch=view.window.bytes if view.window else 0,
        inplace=_inplace(view),
        work=_work(view),
        routines=(one_pixel(view), *((copy(),) if view.copies else ())),
    )


def _geometry(op: DepthwiseConv2d, sig: Signature) -> tuple[Geometry, Expansion | None]:
    """The layer with as many inputs as outputs, and how its rows get them."""
    if op.multiplier == 1:
        return Geometry.of(op, sig), None
    images, height, width, inputs = sig.x.shape
    output = (sig.y.shape[1], sig.y.shape[2])
    taps, corner = (sig.inputs[1].shape[1], sig.inputs[1].shape[2]), (op.padding.top, op.padding.left)
    columns = (output[1] - 1) * op.stride[1] + (taps[1] - 1) * op.dilation[1] + 1
    pixel, seen = inputs * op.multiplier * sig.x.dtype.itemsize, min(width, columns - corner[1])
    geometry = Geometry(images, (height, width), output, taps, op.stride, op.dilation, corner, True, pixel)
    return geometry, Expansion(seen * inputs, op.multiplier, sig.x.dtype.c_name)


def _pack_taps(weights: Int64) -> Words:
    """``[group, word]`` from ``weights[group, 4, tap]``, for inputs of int16."""
    a, b, c, d = weights.transpose(1, 0, 2)
    return np.stack([words16(a, b), words16(c, d)], axis=2).reshape(len(weights), -1)


def _pack_pairs(weights: Int64, rows: int) -> Words:
    """``[group, word]`` from ``weights[group, 4, tap]``: in each row two taps of each channel, then one."""
    groups, channels, taps = weights.shape
    taps //= rows
    weights = weights.reshape(groups, channels, rows, taps)
    even = weights[..., : taps // 2 * 2].reshape(groups, channels, rows, taps // 2, 2)
    twos = words16(even[..., 0], even[..., 1]).transpose(0, 2, 3, 1).reshape(groups, rows, -1)
    a, b, c, d = weights[..., taps // 2 * 2 :].transpose(1, 0, 2, 3)
    one = np.concatenate([words16(a, c), words16(b, d)], axis=2)
    return np.concatenate([twos, one], axis=2).reshape(groups, -1)


def _pack_nibbles(weights: Int64) -> Words:
    """``[group, word]`` from ``weights[group, 4, row, tap]``: from the highest bits on, channels 2, 3, 2, 3.

    The first two are of one tap, the next ones of the second; 0, 1, 0 and 1 are in the lower half.
    """
    odd = weights.shape[3] % 2
    taps = np.pad(weights, ((0, 0), (0, 0), (0, 0), (0, odd))) & 15
    a, b, c, d = taps.transpose(1, 0, 2, 3).reshape(4, len(weights), -1, 2)
    upper, lower = (16 * first + second for first, second in ((c, d), (a, b)))
    return words16(256 * lower[..., 0] + lower[..., 1], 256 * upper[..., 0] + upper[..., 1])


def _view(
    geometry: Geometry,
    expansion: Expansion | None,
    numbers: tuple[int, int, int],
    epilogue: DspEpilogue,
    packed: bool,
    most: int,
) -> WindowedView:
    """``numbers`` are the zero point, the bytes of an image, and the output's channels.

    At ``most`` so many taps of several rows are written out.
    """
    zero_point, image_bytes, channels = numbers
    window = geometry.slide(zero_point, pixels=1)
    pitch = window.pitch if window else geometry.size[1] * geometry.pixel_bytes
    if window and expansion:
        window = replace(window, input_pitch=image_bytes // geometry.size[0])
    row_step, step = geometry.dilation[0] * pitch, geometry.dilation[1] * geometry.pixel_bytes
    rows, columns = geometry.window
    reach = (columns - 1) * step
    fits = [n for n in range(1, rows + 1) if (n - 1) * row_step + reach <= FAR]
    whole = [n for n in fits if rows % n == 0]
    unroll = max(n for n in whole if n == 1 or n * columns <= most)
    if epilogue.bits == 8 and not packed:
        some = (n for n in fits if rows >= 2 * n and (n + rows % n) * columns <= most)
        all_of_them = (n for n in fits if n == rows and n * columns <= most + most // 2)
        unroll = min((unroll, *some, *all_of_them), key=lambda n: _taken(rows, columns, n))

    def offsets(rows: int) -> tuple[int, ...]:
        return tuple(row * row_step + tap * step for row in range(rows) for tap in range(columns))

    return WindowedView(
        images=geometry.images,
        image_bytes=image_bytes,
        channels=channels,
        size=epilogue.bits // 8,
        rows=rows // unroll,
        taps=offsets(unroll),
        row_step=unroll * row_step,
        walk=geometry.walk(pitch),
        window=window,
        expansion=expansion,
        epilogue=epilogue,
        packed=packed,
        last=offsets(rows % unroll),
    )


def _taken(rows: int, columns: int, unroll: int) -> int:
    """Instructions of four channels where so many rows are written out: two taps are 13, one alone 8."""

    def some(rows: int) -> int:
        pairs, alone = divmod(rows * columns, 2)
        return 13 * pairs + 8 * alone

    rounds = rows // unroll
    return rounds * (some(unroll) + 3 * (rounds > 1)) + some(rows % unroll)


def _inplace(view: WindowedView) -> tuple[InPlace, ...]:
    """Without a window, a last group that overlaps the one before would read what that one wrote."""
    if view.rest and not view.window:
        return ()
    return (
        InPlace(
            lead=groups_lead(
                view.walk, view.window, view.images, view.image_bytes, view.pixel_bytes, pixels=1
            )
        ),
    )


def _work(view: WindowedView) -> Work:
    routine, e, pixels = one_pixel(view), view.expansion, view.images * view.walk.pixels
    calls = [view.whole, *([1] if view.rest else [])]
    work = Work(pixels * Runs.sum(routine.runs(groups=n) for n in calls))
    work.block("pixel", pixels * len(calls), len(calls)).block("line", view.images * view.walk.height)
    if view.window:
        work.fill(view.window.bytes)
        view.window.work(work, view.walk.height, view.images, Runs() if e else None)
    if view.window and e:
        rows = work.blocks["row"].runs
        work.block("expanded", rows * e.count).block("expanded byte", rows * e.count * e.repeats, e.repeats)
    return work.block("image", view.images, view.images > 1)
