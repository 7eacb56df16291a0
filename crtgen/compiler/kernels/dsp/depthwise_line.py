"""Depthwise convolutions along one axis with the DSP extension: windows of one row or one column.

For four channels at a time, a line of int8 or int16 is rearranged into words of two neighbours, which SMLAD
multiplies by two taps.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import rescale_of
from crtgen.compiler.kernels.asm import FAR, Routine, Runs
from crtgen.compiler.kernels.dsp.depthwise_asm import PackedColumns, widen, widen_padding
from crtgen.compiler.kernels.dsp.epilogue import epilogue_lanes
from crtgen.compiler.kernels.dsp.line_asm import LineOutputs, one_line
from crtgen.compiler.kernels.dsp.words import fours, words16
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape, as_column, rows_lead
from crtgen.compiler.kernels.engine.words import Words, words
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.conv import DepthwiseConv2d

__all__ = ["LineView", "depthwise_line"]

_CHANNELS = 4
_AT_ONCE = (4, 2, 1)  # words of a channel that are made in a round


@dataclass(frozen=True, slots=True)
class LineView:
    """A ``window`` over an image that is one column wide; ``seen`` of its inputs are read.

    A channel's inputs begin with ``lead`` words of padding.
    """

    window: WindowShape
    seen: int
    lead: int
    zero_point: int
    line: LineOutputs

    @property
    def size(self) -> int:
        return self.line.size

    @property
    def pixel_bytes(self) -> int:
        return self.window.channels * self.size

    @property
    def groups(self) -> int:
        """Groups of four channels; the last one may overlap the previous one."""
        return -(-self.window.channels // _CHANNELS)

    @property
    def last_group(self) -> int:
        return self.window.channels - _CHANNELS

    @property
    def overlaps(self) -> bool:
        return self.window.channels % _CHANNELS != 0

    @property
    def group_words(self) -> int:
        return _CHANNELS * self.line.stream_words

    @property
    def column_words(self) -> int:
        return _CHANNELS * self.line.pairs

    @property
    def padded(self) -> bool:
        return self.lead > 0 or self.lead + -(-self.seen // 2) < self.line.pairs

    @property
    def fill(self) -> int:
        return (self.zero_point & 0xFFFF) * 0x10001

    @property
    def fill_bytes(self) -> int:
        """The zero point in every byte of a word, or in both of its halves."""
        return self.fill if self.size > 1 else (self.zero_point & 0xFF) * 0x1010101

    @property
    def routines(self) -> tuple[Routine, ...]:
        """Routines: all outputs of four channels, and widening of their inputs, for whole words and for one
        that is half padding.
        """
        at_once = next(n for n in _AT_ONCE if self.seen // 2 % n == 0)
        whole = PackedColumns(self.seen // 2, 2 * self.pixel_bytes, 1, self.line.pairs, self.size)
        half = PackedColumns(1, 0, 1, self.line.pairs, self.size)
        return (
            one_line(self.line),
            *((widen(whole, at_once),) if self.seen > 1 else ()),
            *((widen_padding(half),) if self.seen % 2 else ()),
        )

    @property
    def work(self) -> Work:
        g = self.window
        outputs, *inputs = self.routines
        times = g.batch * self.groups
        runs = outputs.runs(channels=_CHANNELS) + Runs.sum(routine.runs() for routine in inputs)
        work = Work(times * runs).block("group", times).block("line", g.batch)
        work.block("half", times * (self.seen % 2), self.seen % 2)
        return work.block("fill", self.column_words * self.padded, self.padded)


@design(DepthwiseConv2d, types=(DType.INT8, DType.INT16), needs="dsp", weights=(1, 2))
def depthwise_line(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """Depthwise convolution of lines of at least two outputs and four channels, with strides of 1 or 2.

    None for other layers, or without an exact requantisation.
    """
    _, w, b = sig.inputs
    window = as_column(WindowShape.of(op, sig))
    if window is None or op.multiplier > 1 or not _fits(window, sig.x.dtype.itemsize):
        return None
    params = op.parameters(sig)
    weights = w.array().astype(np.int64).reshape(window.taps_y, -1).T  # [channel, tap]
    bias = b.array().astype(np.int64)
    lanes = epilogue_lanes(rescale_of(params, weights, bias), ((1, np.arange(len(bias))),))
    if lanes is None:
        return None
    first = window.top % 2
    lead, columns = window.top + first, first + (window.out_height - 1) * window.stride_y + window.taps_y
    line = LineOutputs(
        width=window.out_height,
        taps=window.taps_y,
        first=first,
        stride=window.stride_y,
        pairs=-(-columns // 2),
        step=window.channels * sig.x.dtype.itemsize,
        epilogue=lanes.epilogue,
    )
    seen = min(window.height, columns - lead)
    if seen < 1:
        return None
    view = LineView(window, seen, lead // 2, -params.input_offset, line)
    gain = 1 << lanes.epilogue.doubled
    start = words(gain * (bias + params.input_offset * weights.sum(axis=1) + lanes.offsets[0]))
    constants, padded = lanes.constants[0], gain * np.pad(weights, ((0, 0), (0, 1)))

    def pack() -> Words:
        taps = words16(padded[:, : line.taps : 2], padded[:, 1::2][:, : line.tap_words])
        packed = np.concatenate([start[:, None], taps, constants], axis=1)
        return packed[fours(len(bias))].reshape(-1)

    note = "per channel: start, weights, requantisation"
    return Kernel(
        design="dsp_depthwise_line",
        template="dsp/depthwise_line.c.j2",
        view=view,
        consts=(Const("weights", "uint32", (view.groups * view.group_words,), pack, 4, note),),
        scratch=4 * view.column_words,
        inplace=_inplace(view),
        work=view.work,
        routines=view.routines,
    )


def _fits(window: WindowShape, size: int) -> bool:
    steps = window.stride_y in (1, 2) and window.dilation_y == 1 and window.out_height > 1
    return steps and _CHANNELS <= window.channels <= FAR // (_CHANNELS * size)


def _inplace(view: LineView) -> tuple[InPlace, ...]:
    # Four channels of a line are read whole before they are written, and no others are.
    g = view.window
    lead = rows_lead(g, np.array([g.out_height]), np.array([0]), g.channels)
    apart = InPlace(lead=lead * view.size)
    alike = g.height == g.out_height and not view.overlaps
    return (InPlace(exact=True), apart) if alike else (apart,)
