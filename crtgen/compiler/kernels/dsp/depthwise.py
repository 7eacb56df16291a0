"""Depthwise 3x3 convolutions with the DSP extension, on columns of int16.

For four channels at a time, a strip of int8 or int16 rows is rearranged into vertical pairs: word j of column
x holds rows 2j and 2j + 1, counted from the top of the strip's first window. A window of three rows is then
one and a half words: with a vertical stride of 1, words i and i + 1 serve the outputs of rows 2i and 2i + 1;
with a stride of 2, those of row i.
"""

from dataclasses import dataclass
from math import gcd

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import rescale_of
from crtgen.compiler.kernels.asm import FAR, NEAR, Routine, Runs
from crtgen.compiler.kernels.dsp.depthwise_asm import (
    Channel,
    DspDepthwiseWriter,
    PackedColumns,
    widen,
    widen_padding,
)
from crtgen.compiler.kernels.dsp.epilogue import DspEpilogue, epilogue_lanes
from crtgen.compiler.kernels.dsp.rows import OutputRow, RowBuilder
from crtgen.compiler.kernels.dsp.words import fours
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import Words, words
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.conv import DepthwiseConv2d
from crtgen.network.ops.fixedpoint import Int64

__all__ = ["DspDepthwiseView", "depthwise_3x3"]

_CHANNELS = 4
_GAIN = 16  # of sums with weights of four bits
_STRIP_BYTES = {"speed": 4096, "size": 2048}
_WRITTEN_OUT = {"speed": 6, "size": 0}  # columns up to which a row is written out
_CALL = 14  # of what widens rows
_WIDENED = {"speed": 4, "size": 1}  # columns widened per round, a power of two that divides
_REPEATED = {"speed": (1, 3, 2), "size": (1,)}  # rounds written out, the last that divides


@dataclass(frozen=True, slots=True)
class DspDepthwiseView:
    """Dimensions of a depthwise layer: ``pairs`` words per column, ``columns`` columns per channel.

    Inputs and outputs have ``size`` bytes. Of the ``seen`` columns, ``widened`` are handled in one unrolled
    block of the widening code. ``int4``: weights have four bits.
    """

    images: int
    channels: int
    size: int
    height: int
    width: int
    out_height: int
    out_width: int
    strip: int
    pairs: int
    columns: int
    seen: int
    widened: int
    top: int
    left: int
    stride: int
    zero_point: int
    weight_words: int
    epilogue: DspEpilogue
    row: OutputRow
    single: OutputRow | None
    int4: bool

    @property
    def routines(self) -> tuple[Routine, ...]:
        """Routines: one channel, widening of rows that may be padding, and widening of other rows unless
        there are too many channels.
        """
        columns = PackedColumns(self.seen, self.pixel_bytes, self.pairs, self.channel_words, self.size)
        fast = self.pixel_bytes <= NEAR
        return (
            DspDepthwiseWriter.routine(self.channel),
            widen_padding(columns),
            *((widen(columns, self.widened),) if fast else ()),
        )

    @property
    def channel(self) -> Channel:
        compact = self.weight_words < (3 if self.int4 else 4) + self.epilogue.constants
        return Channel(
            self.stride, compact, self.out_row_bytes, self.epilogue, self.row, self.single, self.int4
        )

    @property
    def channel_words(self) -> int:
        return self.columns * self.pairs

    @property
    def pixel_bytes(self) -> int:
        return self.size * self.channels

    @property
    def row_bytes(self) -> int:
        return self.width * self.pixel_bytes

    @property
    def edges(self) -> tuple[int, ...]:
        return tuple(x for x in range(self.columns) if not self.left <= x < self.left + self.seen)

    @property
    def fill(self) -> int:
        return (self.zero_point & 0xFFFF) * 0x10001

    @property
    def fill_bytes(self) -> int:
        return (self.zero_point & 0xFF) * 0x1010101

    @property
    def groups(self) -> int:
        """Groups of four channels; the last one may overlap the previous one."""
        return -(-self.channels // _CHANNELS)

    @property
    def last_group(self) -> int:
        return self.channels - _CHANNELS

    @property
    def overlaps(self) -> bool:
        return self.channels % _CHANNELS != 0

    @property
    def out_row_bytes(self) -> int:
        return self.out_width * self.pixel_bytes


@design(DepthwiseConv2d, types=(DType.INT8, DType.INT16), needs="dsp", weights=(1, 2), narrow_weights=True)
def depthwise_3x3(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """Depthwise convolution with 3x3 windows, strides of 1 or 2, and four channels or more.

    None for other layers, or without an exact requantisation.
    """
    _, w, b = sig.inputs
    if not _fits(op, sig):
        return None
    params = op.parameters(sig)
    weights = w.array().astype(np.int64)[0].reshape(9, -1).T  # [channel, tap]
    bias = b.array().astype(np.int64)
    gain = _GAIN if w.dtype is DType.INT4 else 1
    lanes = epilogue_lanes(rescale_of(params, weights, bias), ((gain, np.arange(len(bias))),))
    if lanes is None:
        return None
    start = gain * (bias + params.input_offset * weights.sum(axis=1) + lanes.offsets[0])
    constants = lanes.constants[0]
    each = (4 if gain == 1 else 3) + constants.shape[1] - _in_taps(constants)
    view = _view(op, sig, target, -params.input_offset, each, lanes.epilogue)
    if view is None:
        return None

    def pack() -> Words:
        taps, rest = (_pack if gain == 1 else _pack_nibbles)(_columns(weights, op.stride[0]), constants)
        packed = np.concatenate([taps, words(start)[:, None], rest], axis=1)
        return packed[fours(len(bias))].reshape(-1)

    note = "per channel: weights, start, requantisation"
    return Kernel(
        design="dsp_depthwise",
        template="dsp/depthwise.c.j2",
        view=view,
        consts=(Const("weights", "uint32", (view.groups * _CHANNELS * each,), pack, 4, note),),
        scratch=_CHANNELS * 4 * view.channel_words,
        inplace=_inplace(view),
        work=_work(view),
        routines=view.routines,
    )


def _fits(op: DepthwiseConv2d, sig: Signature) -> bool:
    window = sig.inputs[1].shape[1:3]
    plain = window == (3, 3) and op.dilation == (1, 1) and op.multiplier == 1
    strides = op.stride[0] in (1, 2) and op.stride[1] in (1, 2)
    pixel = sig.x.shape[3] * sig.x.dtype.itemsize
    return plain and strides and sig.x.shape[3] >= _CHANNELS and 4 * pixel <= FAR


def _columns(weights: Int64, stride: int) -> Int64:
    # ``[channel, 3, 3]``: columns of three weights, w0, w1, w2 for stride 1 and w0, w2, w1 for stride 2.
    return weights.reshape(-1, 3, 3).transpose(0, 2, 1)[:, :, [0, 1, 2] if stride == 1 else [0, 2, 1]]


def _pack(columns: Int64, constants: Words) -> tuple[Words, Words]:
    # ``[channel, 3]`` words of weights, and ``constants`` less what went into them. A word is a column. The
    # last bytes of the three words hold the second constant of the requantisation where it fits.
    taps: Int64 = ((columns & 0xFF) << np.array([0, 8, 16])).sum(axis=2)
    second = constants[:, 1].astype(np.int32).astype(np.int64)
    if not _in_taps(constants):
        return words(taps), constants
    third: Int64 = (second[:, None] >> np.array([0, 8, 16])) & 0xFF
    return words(taps | third << 24), np.delete(constants, 1, axis=1)


def _pack_nibbles(columns: Int64, constants: Words) -> tuple[Words, Words]:
    """Return ``[channel, 2]`` words of 4-bit weights, and ``constants`` minus the parts of these words that
    encode them.

    Bytes 0 to 2 of the first word hold the first column in their high halves, and the second column. The
    third column is in byte 0 of the second word, and in byte 3 of the first. The other bytes hold the second
    constant.
    """
    first, second, third = (columns & 15).transpose(1, 0, 2)
    taps = ((16 * first + second) << np.array([0, 8, 16])).sum(axis=1)
    taps |= (16 * third[:, 1] + third[:, 2]) << 24
    rest = 16 * third[:, 0]
    if not _in_taps(constants):
        return words(np.stack([taps, rest], axis=1)), constants
    rest |= constants[:, 1].astype(np.int64) << 8
    return words(np.stack([taps, rest], axis=1)), np.delete(constants, 1, axis=1)


def _in_taps(constants: Words) -> bool:
    # True if the second constants fit into three bytes.
    return int(np.abs(constants[:, 1].astype(np.int32).astype(np.int64)).max()) < 1 << 23


def _view(
    op: DepthwiseConv2d,
    sig: Signature,
    target: Target,
    zero_point: int,
    weight_words: int,
    epilogue: DspEpilogue,
) -> DspDepthwiseView | None:
    images, height, width, channels = sig.x.shape
    out_height, out_width = sig.y.shape[1:3]
    columns = (out_width - 1) * op.stride[1] + 3
    most = int(_STRIP_BYTES[target.optimize] * target.stripe)
    strip = _strip(out_height, columns, op.stride[0], most)
    pairs = _pairs(strip, op.stride[0])
    seen = min(width, columns - op.padding.left)
    written_out, usual = target.steps(_WRITTEN_OUT[target.optimize]), _REPEATED[target.optimize]
    repeated = (*(usual if target.unrolled >= 1 else (1,)), *map(target.steps, usual))
    size = sig.x.dtype.itemsize
    build = RowBuilder(op.stride, pairs * 4, out_width, channels * size, written_out, repeated)
    return DspDepthwiseView(
        images=images,
        channels=channels,
        size=size,
        height=height,
        width=width,
        out_height=out_height,
        out_width=out_width,
        strip=strip,
        pairs=pairs,
        columns=columns,
        seen=seen,
        widened=gcd(seen, 1 << (target.steps(_WIDENED[target.optimize]).bit_length() - 1)),
        top=op.padding.top,
        left=op.padding.left,
        stride=op.stride[0],
        zero_point=zero_point,
        weight_words=weight_words,
        epilogue=epilogue,
        row=build.row(both=op.stride[0] == 1),
        single=build.row(both=False) if op.stride[0] == 1 and out_height % 2 else None,
        int4=sig.inputs[1].dtype is DType.INT4,
    )


def _pairs(strip: int, stride: int) -> int:
    # Words per column for ``strip`` rows of outputs.
    return (strip + 1) // 2 + 1 if stride == 1 else strip + 1


def _strip(out_height: int, columns: int, stride: int, most: int) -> int:
    # The most rows of outputs per strip for ``most`` bytes of scratch: all of them, or an even number. A
    # column's words are no further from the next ones than a store moves its pointer.
    fitting = min(most // (16 * columns), NEAR // 4)
    if _pairs(out_height, stride) <= fitting or out_height <= 2:
        return out_height
    return max((s for s in range(2, out_height, 2) if _pairs(s, stride) <= fitting), default=2)


def _inplace(view: DspDepthwiseView) -> tuple[InPlace, ...]:
    # Outputs of a strip must not reach the inputs of any channel of this strip or a later one. At the same
    # address they do not, if all rows are one strip: each channel then lands on itself.
    if view.overlaps or view.images > 1:
        return ()
    starts = np.arange(0, view.out_height, view.strip)
    written = np.minimum(starts + view.strip, view.out_height) * view.out_row_bytes
    unread = np.maximum(starts * view.stride - view.top, 0) * view.row_bytes
    apart = InPlace(lead=max(int((written - unread).max()), 0))
    alike = (view.out_height, view.out_width) == (view.height, view.width)
    return (InPlace(exact=True), apart) if alike and view.strip == view.out_height else (apart,)


def _work(view: DspDepthwiseView) -> Work:
    channel, padding, *fast = view.routines
    strips = [min(view.strip, view.out_height - y) for y in range(0, view.out_height, view.strip)]
    passes = view.channel.rows_per_pass
    rows = Runs.sum(channel.runs(passes=n // passes, odd=n % passes) for n in strips)
    tops = np.arange(0, view.out_height, view.strip) * view.stride - view.top
    first = np.concatenate(
        [t + 2 * np.arange(_pairs(n, view.stride)) for t, n in zip(tops, strips, strict=True)]
    )
    whole = int(((first >= 0) & (first + 1 < view.height)).sum()) if fast else 0
    other = first.size - whole
    counted = _CHANNELS * rows + other * padding.runs() + Runs.sum(whole * f.runs() for f in fast)
    groups = view.images * view.groups
    work = Work(groups * counted).block("strip", groups * len(strips)).block("group", view.images)
    work.block("pair", groups * first.size).block("padded pair", groups * other, bool(fast))
    return work.block("edge", len(view.edges) * view.pairs, len(view.edges)).block(
        "image", view.images, view.images > 1
    )
