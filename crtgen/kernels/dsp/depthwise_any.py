"""Depthwise convolutions of any window with the DSP extension: one pixel, four channels at a time.

A word of inputs is four channels; SXTB16 makes channels 0 and 2 of it, rotated 1 and 3. The weights lie as
int16 in the same order, two words per tap, and SMLABB and SMLATT multiply each half by its own.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.dsp.finish import Finish, Words, finish_lanes, rescale_of, words, words16
from crtgen.kernels.dsp.walk import Geometry, Walk, Window, least_lead
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.ops.conv import DepthwiseConv2d
from crtgen.ops.fixedpoint import Int64

__all__ = ["WindowedView", "depthwise_any"]

_CHANNELS = 4
_FAR = 4095  # LDR's largest offset


@dataclass(frozen=True, slots=True)
class WindowedView:
    """A depthwise layer: ``taps`` are the offsets of a row's inputs, ``row_step`` bytes to the next row's.

    ``whole`` groups of four channels, and one more that ends at the last channel if ``rest``.
    """

    images: int
    image_bytes: int
    channels: int
    rows: int
    taps: tuple[int, ...]
    row_step: int
    walk: Walk
    window: Window | None
    group_words: int
    finish: Finish

    @property
    def whole(self) -> int:
        return self.channels // _CHANNELS

    @property
    def rest(self) -> bool:
        return self.channels % _CHANNELS != 0

    @property
    def whole_words(self) -> int:
        return self.whole * self.group_words


@design(DepthwiseConv2d, weights=(1, 2))
def depthwise_any(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """Any window over four channels or more, multiplier 1; None for others, or if inexact."""
    x, w, b = sig.inputs
    if not target.core.dsp or x.dtype is not DType.INT8 or op.multiplier != 1 or x.shape[3] < _CHANNELS:
        return None
    geometry = Geometry.of(op, sig)
    if (geometry.window[1] - 1) * geometry.dilation[1] * geometry.channels > _FAR:
        return None
    params = op.parameters(sig)
    weights = w.array().astype(np.int64).reshape(-1, w.shape[3]).T  # [channel, tap]
    bias = b.array().astype(np.int64)
    lanes = finish_lanes(rescale_of(params, weights, bias), ((1, np.arange(len(bias))),))
    if lanes is None:
        return None
    start = words(bias + params.input_offset * weights.sum(axis=1) + lanes.offsets[0])
    groups = _groups(len(bias))
    constants = lanes.constants[0][groups].reshape(len(groups), -1)
    packed = np.concatenate([start[groups], _pack_taps(weights[groups]), constants], axis=1)
    view = _view(geometry, -params.input_offset, packed.shape[1], lanes.finish)
    return Kernel(
        design="dsp_depthwise_any",
        template="dsp/depthwise_any.c.j2",
        view=view,
        consts=(
            Const("weights", packed.reshape(-1), 4, "per four channels: start, weights, requantisation"),
        ),
        scratch=view.window.bytes if view.window else 0,
        inplace=_inplace(view),
        cost=_cost(view),
    )


def _groups(channels: int) -> Int64:
    """``[group, 4]``: the channels of each group; the last group may repeat some."""
    starts = np.arange(0, channels, _CHANNELS)
    starts[-1] = channels - _CHANNELS
    return starts[:, None] + np.arange(_CHANNELS)


def _pack_taps(weights: Int64) -> Words:
    """``[group, word]`` from ``weights[group, 4, tap]``."""
    pairs = [words16(weights[:, 0], weights[:, 2]), words16(weights[:, 1], weights[:, 3])]
    return np.stack(pairs, axis=2).reshape(len(weights), -1)


def _view(geometry: Geometry, zero_point: int, group_words: int, finish: Finish) -> WindowedView:
    window = geometry.slide(zero_point, pixels=1)
    pitch = window.pitch if window else geometry.size[1] * geometry.channels
    step = geometry.dilation[1] * geometry.channels
    return WindowedView(
        images=geometry.images,
        image_bytes=geometry.image_bytes,
        channels=geometry.channels,
        rows=geometry.window[0],
        taps=tuple(tap * step for tap in range(geometry.window[1])),
        row_step=geometry.dilation[0] * pitch,
        walk=geometry.walk(pitch),
        window=window,
        group_words=group_words,
        finish=finish,
    )


def _inplace(view: WindowedView) -> tuple[InPlace, ...]:
    """Without a window, a last group that overlaps the one before would read what that one wrote."""
    if view.rest and not view.window:
        return ()
    return (
        InPlace(
            lead=least_lead(view.walk, view.window, view.images, view.image_bytes, view.channels, pixels=1)
        ),
    )


def _cost(view: WindowedView) -> float:
    row = 8 * len(view.taps) + (3 if view.rows > 1 else 0)
    extra = 0 if view.finish.floor else 2
    group = 12 + view.rows * row + _CHANNELS * (view.finish.instructions + 1 + extra)
    pixel = (view.whole + view.rest) * group + 14 + 18 * view.rest
    window = view.window.instructions(view.walk.height) if view.window else 0.0
    return view.images * (view.walk.pixels * pixel + window) + 20
