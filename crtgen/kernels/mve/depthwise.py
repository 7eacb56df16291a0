"""Depthwise convolutions with Helium.

Four rows of the image are interleaved in scratch, a word for each of their elements, so that one gathering
load of four words is a patch of 4x4 inputs of a channel. Where the stride is 1 and the window at most 3x3, a
patch serves a square of four outputs, with the weights moved by a column, a row, or both; else one output
needs up to four patches. Eight outputs of a channel are requantised together and scattered.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.mve.conv import windows_kernel
from crtgen.kernels.mve.finish import Finish, requantisation
from crtgen.kernels.mve.matrix import LANES, Words
from crtgen.kernels.mve.patches import (
    FAR_ADD,
    SIDE,
    Batch,
    Rows,
    Strip,
    batches_of,
    patches_of,
    plane_bytes,
    stretches,
    strips_of,
)
from crtgen.kernels.mve.shared_depthwise import shared_depthwise
from crtgen.kernels.registry import design
from crtgen.kernels.requant import rescale_of
from crtgen.kernels.window import Window, least_lead
from crtgen.ops import DepthwiseConv2d
from crtgen.ops.fixedpoint import Int64

__all__ = ["DepthwiseView", "depthwise"]

_FAR_VECTOR = 508  # the greatest step of a gathering load
_MOST_PATCHES = 4  # of an output: their weights stay in vectors
_MOST_BATCHES = 40
_MOST_OFFSET = 65535


@dataclass(frozen=True, slots=True)
class DepthwiseView:
    """A depthwise convolution, strip by strip, all channels of a strip at once.

    In scratch there are ``columns`` columns of ``channels`` words for each of the planes, the image from
    column ``window.left`` on; ``groups`` patches make an output. ``stepping``: the address of a patch is a
    vector that steps on, else a core register and a vector.
    """

    window: Window
    fill: int
    strips: tuple[Strip, ...]
    batches: tuple[Batch, ...]
    columns: int
    seen: int
    squares: bool
    groups: int
    stepping: bool
    multiplier: int
    finish: Finish

    @property
    def weights(self) -> tuple[tuple[str, str], ...]:
        """Vectors of weights and their addresses: in a square moved by a column and a row."""
        if self.squares:
            return (("q3", "[r11, #-5]"), ("q2", "[r11, #-1]"), ("q1", "[r11, #-4]"), ("q0", "[r11], #16"))
        return tuple((f"q{i}", "[r11], #16") for i in range(self.groups))

    @property
    def far(self) -> bool:
        """Whether a core register has to make long steps."""
        return not self.stepping and any(len(p.moves) > 1 for batch in self.batches for p in batch.patches)

    @property
    def outputs(self) -> int:
        return self.channels * self.multiplier

    @property
    def plane(self) -> int:
        return plane_bytes(self.window, self.columns)

    @property
    def channel_words(self) -> int:
        return self.groups * LANES // 4

    @property
    def channels(self) -> int:
        return self.window.channels

    @property
    def whole(self) -> int:
        """Blocks of 16 elements in a row."""
        return self.seen * self.channels // LANES

    @property
    def rest(self) -> int:
        return self.seen * self.channels % LANES

    @property
    def image(self) -> int:
        """Where the image begins in scratch."""
        return self.window.left * self.channels * SIDE

    @property
    def scratch(self) -> int:
        """The last block of a row may reach behind its end."""
        return self.plane * len(self.strips[0].planes) + 4 * LANES

    @property
    def lanes(self) -> tuple[int, ...]:
        """Before the first step, which the first load takes."""
        start = self.batches[0].patches[0].advance if self.stepping else 0
        apart = self.window.dilation_x * self.channels * SIDE
        return tuple((i * apart - start) % (1 << 32) for i in range(SIDE))

    @property
    def kinds(self) -> tuple[Rows, ...]:
        """The ways to interleave."""
        return tuple(dict.fromkeys(rows for strip in self.strips for rows in strip.planes))

    @property
    def frame(self) -> int:
        """Bytes of stack: registers, vectors and six words."""
        return 36 + 64 + 24

    @property
    def cost(self) -> float:
        channel = 10 + len(self.weights) + 2 * self.stepping + 2 * self.far
        channel += sum(self._batch(b) for b in self.batches)
        blocks = (self.whole + (2 if self.rest else 0)) * len(self.strips[0].planes)
        strip = self.outputs * channel + blocks * 10 + 60
        strips = self.window.batch * sum(s.count for s in self.strips)
        return strips * strip + self.scratch / 8 + 40

    def _batch(self, batch: Batch) -> int:
        loads = len(batch.patches)
        loads += 0 if self.stepping else sum(len(patch.moves) for patch in batch.patches)
        vectors = 2 if batch.full else 1
        clamps = (self.finish.low is not None) + (self.finish.high is not None)
        requant = 3 * vectors + vectors if self.finish.shift is not None else 6 * vectors + vectors + 2
        return loads + sum(len(p.sums) for p in batch.patches) + 2 * vectors + requant + 3 + 3 * clamps


@design(DepthwiseConv2d, types=(DType.INT8,), needs="mve", weights=(1, 2))
def depthwise(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """For int8; None for others, or windows of more than four patches. One channel is a convolution."""
    _, w, b = sig.inputs
    window = Window.of(sig, (w.shape[1], w.shape[2]), op.stride, op.padding, op.dilation)
    weights, bias = w.array().astype(np.int64)[0], b.array().astype(np.int64)
    params = op.parameters(sig)
    by_channel = weights.reshape(-1, window.channels * op.multiplier).T
    if window.channels == 1:
        return windows_kernel(window, by_channel, bias, params, target)
    if target.optimize == "size" and op.multiplier == 1:
        shared = shared_depthwise(window, by_channel, bias, params)
        if shared is not None:
            return shared
    start = bias + params.input_offset * by_channel.sum(axis=1)
    requant = requantisation(rescale_of(params, by_channel, bias), start)
    if requant.finish.left or requant.finish.some_whole:
        return None
    view = _view(window, op.multiplier, -params.input_offset, requant.finish)
    if view is None:
        return None
    order = np.arange(view.outputs).reshape(-1, op.multiplier).T.ravel()
    return Kernel(
        design="mve patches",
        template="mve/depthwise.c.j2",
        view=view,
        consts=(
            _patches(weights, order),
            Const.of(
                "requant", _constants(requant.constants[:, order]), 4, "per channel: multiplier, start, last"
            ),
        ),
        scratch=view.scratch,
        inplace=(InPlace(lead=_lead(view)),),
        cost=view.cost,
        includes=("arm_mve.h",),
    )


def _patches(weights: Int64, order: Int64) -> Const:
    """``weights[rows, columns, C]`` as patches: what lies before one is zeros for a row and a column."""
    rows, columns, channels = weights.shape
    down, across = -(-rows // SIDE), -(-columns // SIDE)

    def pack() -> Words:
        packed = np.zeros((channels, down * SIDE, across * SIDE), np.int8)
        packed[:, :rows, :columns] = weights[..., order].transpose(2, 0, 1)
        patches = packed.reshape(channels, down, SIDE, across, SIDE).transpose(0, 1, 3, 4, 2)
        return np.concatenate([np.zeros(LANES, np.int8), patches.reshape(-1)]).view(np.uint32)

    words = (LANES + channels * down * across * SIDE * SIDE) // 4
    return Const("weights", "uint32", (words,), pack, 8, "16 zeros; per channel: columns of four rows")


def _constants(constants: Int64) -> Words:
    """Start, multiplier and the last one as the registers want them, ``[C * 3]``."""
    return np.ascontiguousarray(constants[[1, 0, 2]].T.astype(np.int32)).reshape(-1).view(np.uint32)


def _view(window: Window, multiplier: int, fill: int, finish: Finish) -> DepthwiseView | None:
    unit = window.stride_y == window.stride_x == window.dilation_y == window.dilation_x == 1
    small = max(window.taps_y, window.taps_x) < SIDE
    squares = unit and small and min(window.out_height, window.out_width) > 1
    groups = patches_of(window)
    starts = stretches(window.out_width, 2 if squares else 1)
    across = max(column for _, column in groups) + SIDE
    columns = starts[-1] * window.stride_x + (across - 1) * window.dilation_x + 1
    batches = tuple(batches_of(window, multiplier, starts, squares, plane_bytes(window, columns)))
    furthest = max(max(batch.offsets) for batch in batches)
    if len(batches) * len(groups) > _MOST_BATCHES or furthest > _MOST_OFFSET or len(groups) > _MOST_PATCHES:
        return None
    if window.channels * multiplier > FAR_ADD:
        return None
    return DepthwiseView(
        window=window,
        fill=fill,
        strips=strips_of(window, 2 if squares else 1),
        batches=batches,
        columns=columns,
        seen=max(0, min(window.width, columns - window.left)),
        squares=squares,
        groups=len(groups),
        stepping=all(abs(p.advance) <= _FAR_VECTOR for batch in batches for p in batch.patches),
        multiplier=multiplier,
        finish=finish,
    )


def _lead(view: DepthwiseView) -> int:
    """All rows of a strip's patches are in scratch when its outputs are written."""
    w = view.window
    firsts = np.array([s.first + i * s.step for s in view.strips for i in range(s.count)])
    kept = np.array([s.planes[0].kept for s in view.strips for _ in range(s.count)])
    images = np.arange(w.batch)[:, None]
    rows = firsts + (2 if view.squares else 1)
    written = ((images * w.out_height + rows) * w.out_width * view.outputs).ravel()
    read = np.clip(firsts * w.stride_y - w.top + kept, 0, w.height)
    unread = ((images * w.height + read) * w.pitch).ravel()
    return least_lead(written[:-1], unread[1:])
