"""Depthwise convolutions in bit fields: four products in one multiplication of 32 by 32 bits.

A channel of an image is packed into words of two neighbours, 21 bits apart, and so are its taps; an SMLAL
then adds to the sums of two outputs (``fields_asm``). With a stride of 2, even columns are separate rows, and
so are odd ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import Rescale, rescale_of
from crtgen.compiler.kernels.asm import FAR, Routine, Runs
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.layout import nibbles, records, stream
from crtgen.compiler.kernels.engine.window import WindowShape
from crtgen.compiler.kernels.engine.words import Words, words
from crtgen.compiler.kernels.shared.fields_asm import (
    BEGIN,
    FIELD,
    HALF,
    FieldEpilogue,
    FieldOutputs,
    FieldRows,
    outputs,
    pack_rows,
)
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.conv import DepthwiseConv2d
from crtgen.network.ops.fixedpoint import Int64
from crtgen.network.ops.scheme import INT8

__all__ = ["FieldForm", "FieldsView", "in_fields"]

FieldForm: TypeAlias = tuple[FieldEpilogue, Int64, Words]
"""The epilogue, start values of sums ``[channel]``, and constants ``[channel, word]``."""

_TAPS = range(2, 5)  # words of taps in a row: more do not fit into registers
_LARGEST = -INT8.low  # an input
_WRITTEN_OUT = {"speed": 16, "size": 1}  # rows of a window up to which they are


@dataclass(frozen=True, slots=True)
class FieldsView:
    """``window`` slides over images; one channel of an image is in scratch as rows of ``channel.pitch``
    words.

    ``int4``: taps have four bits, and the two taps of a word are in one byte.
    """

    window: WindowShape
    zero_point: int
    channel: FieldOutputs
    int4: bool

    @property
    def plane(self) -> int:
        g = self.window
        return ((g.out_height - 1) * g.stride_y + g.taps_y) * g.stride_x * self.channel.pitch

    @property
    def scratch(self) -> int:
        return self.plane + self.channel.stream_words

    @property
    def fill(self) -> int:
        return (self.zero_point * (1 + (1 << FIELD))) & 0xFFFFFFFF

    @property
    def begin(self) -> tuple[int, int]:
        return BEGIN

    @property
    def field(self) -> int:
        return FIELD

    @property
    def record(self) -> int:
        """Words of a channel in flash: taps, then the other constants."""
        taps = self.channel.tap_words
        return -(-taps // (4 if self.int4 else 2)) + self.channel.constants

    @property
    def rows_seen(self) -> int:
        g = self.window
        return min(g.height, (g.out_height - 1) * g.stride_y + g.taps_y - g.top)

    def columns(self, phase: int) -> tuple[int, int, int]:
        """Return the padding among columns ``phase``, ``phase + stride``, ... of the padded image.

        Also return the index of the next such column in the image, and the number of columns in it.
        """
        g = self.window
        before = max(0, -(-(g.left - phase) // g.stride_x))
        first = before * g.stride_x + phase - g.left
        inside = max(0, -(-(g.width - first) // g.stride_x))
        return before, first, min(inside, 2 * self.channel.pitch - before)

    @property
    def phases(self) -> tuple[tuple[int, int, Routine], ...]:
        """Triples, one per phase: words of the plane and bytes of the image up to its first input, and its
        packing routine.
        """
        g, found = self.window, []
        for phase in range(g.stride_x):
            before, first, inside = self.columns(phase)
            half = min(before % 2, inside)
            rows = FieldRows(
                rows=self.rows_seen,
                pairs=(inside - half) // 2,
                step=g.stride_x * g.channels,
                row_bytes=g.width * g.channels,
                pitch=g.stride_x * self.channel.pitch,
                first=half > 0,
                last=(inside - half) % 2 > 0,
                padding=self.zero_point,
            )
            at = (g.top * g.stride_x + phase) * self.channel.pitch + before // 2
            found.append((at, first * g.channels, pack_rows(rows)))
        return tuple(found)

    @property
    def routines(self) -> tuple[Routine, ...]:
        """Routines that compute a channel, pack its inputs by phase and, unless they are int4, its taps."""
        taps = pack_rows(FieldRows(rows=1, pairs=self.channel.tap_words, step=1))
        phases = (routine for _, _, routine in self.phases)
        return (outputs(self.channel), *phases, *(() if self.int4 else (taps,)))

    @property
    def work(self) -> Work:
        g = self.window
        times = g.batch * g.channels
        work = Work(times * Runs.sum(routine.runs() for routine in self.routines))
        work.block("channel", times).block("phase", times * g.stride_x, g.stride_x)
        work.block("packed taps", times * self.channel.tap_words * self.int4, self.int4)
        return work.block("constant", times * self.channel.constants).block("fill", self.plane)


def in_fields(
    design: str,
    op: DepthwiseConv2d,
    sig: Signature,
    target: Target,
    solve: Callable[[Rescale, Int64], FieldForm | None],
) -> Kernel | None:
    """Depthwise convolution with windows of three to seven columns whose sums fit into bit fields of a
    product.

    None for other layers, or without an exact requantisation.
    """
    _, w, b = sig.inputs
    window = WindowShape.of(op, sig)
    words_of_taps = (-(-window.taps_x // window.stride_x) + 2) // 2
    if op.multiplier > 1 or words_of_taps not in _TAPS or not _fits(window):
        return None
    params = op.parameters(sig)
    weights = w.array().astype(np.int64)[0].transpose(2, 0, 1)  # [channel, row, column]
    each = weights.reshape(window.channels, -1)
    bias = b.array().astype(np.int64)
    found = solve(rescale_of(params, each, bias), bias + params.input_offset * each.sum(axis=1) - HALF)
    if found is None:
        return None
    epilogue, start, constants = found
    taps = _taps(weights, window.stride_x, words_of_taps)
    int4 = w.dtype is DType.INT4
    view = FieldsView(window, -params.input_offset, _channel(window, words_of_taps, epilogue, target), int4)
    reach = 4 * view.channel.pitch * view.channel.rows
    if not _holds(taps) or reach > FAR or any(view.columns(p)[2] < 1 for p in range(window.stride_x)):
        return None

    def channels(some: slice) -> Words:
        numbers = taps[some].astype(np.int8)
        return records(nibbles(numbers) if int4 else numbers, words(start[some]), constants[some])

    note = "per channel: taps, start, requantisation"
    return Kernel(
        design=design,
        template="depthwise_fields.c.j2",
        view=view,
        consts=(stream(window.channels, view.record, channels, note),),
        scratch=4 * view.scratch,
        inplace=_inplace(window),
        work=view.work,
        routines=view.routines,
    )


def _fits(window: WindowShape) -> bool:
    # True if offsets reach from an input to those that are packed with it.
    near = 8 * window.stride_x * window.channels <= FAR
    undilated = window.dilation_x == 1 and window.dilation_y == 1
    return near and undilated and window.stride_x <= 2 and window.out_width > 1


def _taps(weights: Int64, stride: int, of_words: int) -> Int64:
    # ``[channel, row * phase, tap]``: those of each phase backwards, and a zero behind them.
    length = 2 * of_words - 1
    channels, rows, _ = weights.shape
    phases: Int64 = np.zeros((channels, rows, stride, length + 1), np.int64)
    for phase in range(stride):
        own = weights[..., phase::stride]
        phases[:, :, phase, length - own.shape[2] : length] = own[..., ::-1]
    return phases.reshape(channels, rows * stride, length + 1)


def _holds(taps: Int64) -> bool:
    # True if no field of a sum overflows, whatever the inputs.
    sums = _LARGEST * np.abs(taps).sum(axis=1)  # [channel, tap]
    outer = max(int(sums[:, 0::2].sum(axis=1).max()), int(sums[:, 1::2].sum(axis=1).max()))
    return int(sums.sum(axis=1).max()) < HALF and outer < HALF // 2


def _channel(window: WindowShape, taps: int, epilogue: FieldEpilogue, target: Target) -> FieldOutputs:
    pitch, rows = taps - 1 + -(-window.out_width // 2), window.taps_y * window.stride_x
    return FieldOutputs(
        width=window.out_width,
        height=window.out_height,
        rows=rows,
        taps=taps,
        pitch=pitch,
        row_step=window.stride_y * window.stride_x * pitch,
        step=window.channels,
        epilogue=epilogue,
        written_out=rows <= target.steps(_WRITTEN_OUT[target.optimize]),
    )


def _inplace(window: WindowShape) -> tuple[InPlace, ...]:
    # A channel of an image is read whole before any of it is written, and no other one is.
    alike = (window.height, window.width) == (window.out_height, window.out_width)
    return (InPlace(exact=True),) if alike else ()
