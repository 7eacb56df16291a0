"""Fully connected layers with the DSP extension: four outputs at a time for a single input row.

The weights are those of the matrix micro-kernel, two words per step: channels 0 and 1, channels 2 and 3.
Several rows, or fewer than four outputs, are computed as a pointwise convolution.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import Rescale, rescale_of
from crtgen.compiler.kernels.dsp.conv import matrix_kernel
from crtgen.compiler.kernels.dsp.epilogue import DspEpilogue, epilogue_lanes, rounded_lanes
from crtgen.compiler.kernels.dsp.form import fits
from crtgen.compiler.kernels.dsp.packing import Packing, PackingWriter, order_weights
from crtgen.compiler.kernels.dsp.row import ROW_HALFWORDS, ROW_NIBBLES, ROW_WIDE, Outputs, PackedRow, RowForm
from crtgen.compiler.kernels.dsp.words import fours, words16
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.layout import records, stream
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape, is_row
from crtgen.compiler.kernels.engine.words import NO_WORDS, Words, by_output
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.conv import Conv2d, ConvParams
from crtgen.network.ops.dense import FullyConnected
from crtgen.network.ops.fixedpoint import Int8, Int64

__all__ = ["DspDenseView", "dense", "dense_kernel"]

_LANES = 4
_STEPS_WRITTEN_OUT = {"speed": 16, "size": 2}
_MOST = 1 << 23
_OFFSETS = 1 << 17  # offsets of requantisation are below


@dataclass(frozen=True, slots=True)
class DspDenseView:
    """``whole`` groups of four outputs of a row; with ``rest``, another group that ends at the last
    output.
    """

    outputs: int
    whole: int
    rest: bool
    packing: Packing
    group_words: int
    row: PackedRow

    @property
    def header(self) -> int:
        return self.row.header

    @property
    def short(self) -> bool:
        return self.packing.size == 2

    @property
    def whole_words(self) -> int:
        return self.whole * self.group_words


@design(
    FullyConnected, Conv2d, types=(DType.INT8, DType.INT16), needs="dsp", weights=(1, 2), narrow_weights=True
)
def dense(op: FullyConnected | Conv2d, sig: Signature, target: Target) -> Kernel | None:
    """Compute four outputs at a time for a single row, otherwise use the matrix design; None if inexact or
    for one output.

    A convolution counts as fully connected if its only window is the whole image; for other convolutions,
    None.
    """
    fits = isinstance(op, FullyConnected) or is_row(op, sig)
    return dense_kernel(op.parameters(sig), sig, target) if fits else None


def dense_kernel(params: ConvParams, sig: Signature, target: Target) -> Kernel | None:
    """Return the kernel of a fully connected layer with the requantisation of ``params``; None as for
    ``dense``.
    """
    x, w, b = sig.inputs
    weights, bias = by_output(w), b.array().astype(np.int64)
    outputs, depth = weights.shape
    rows = x.elements // depth
    size, int4 = x.dtype.itemsize, w.dtype is DType.INT4
    rescale = rescale_of(params, weights, bias)
    if rows > 1 or outputs < _LANES or (int4 and not _sums_fit(rescale, depth)):
        line = WindowShape.line(rows, depth * size)
        return matrix_kernel(line, params, weights, bias, target, int4)
    folded = bias + params.input_offset * weights.sum(axis=1)
    return row_of_sums(weights, folded, rescale, size, target, int4)


def row_of_sums(
    weights: Int8, start: Int64, rescale: Rescale, size: int, target: Target, int4: bool = False
) -> Kernel | None:
    """Return the kernel of a row of inputs, ``size`` bytes each, times ``weights[O, K]``; sums start at
    ``start``.

    ``int4``: weights have four bits. None if inexact, or for fewer than four outputs.
    """
    outputs, depth = weights.shape
    if outputs < _LANES:
        return None
    packing = Packing.of(WindowShape.line(1, depth * size), depth * size, size)
    steps, unroll = _unrolling(packing.steps, target.steps(_STEPS_WRITTEN_OUT[target.optimize]))
    forms = _forms(int4, size, rescale)
    streams = (_stream(form, weights, packing, steps, start, rescale) for form in forms)
    stream = next((stream for stream in streams if stream is not None), None)
    if stream is None:
        return None
    view = DspDenseView(
        outputs=outputs,
        whole=outputs // _LANES,
        rest=outputs % _LANES != 0,
        packing=packing,
        group_words=stream.group_words,
        row=PackedRow(
            steps, unroll, packing.steps, len(stream.header), stream.epilogue, stream.form, stream.swapped
        ),
    )
    return Kernel(
        design="dsp_dense",
        template="dsp/dense.c.j2",
        view=view,
        consts=(stream.const,),
        scratch=4 * (steps + view.header),
        inplace=() if stream.epilogue.form == "sum" else (InPlace(),),
        work=_work(view),
        routines=(Outputs.routine(view.row), PackingWriter.routine(packing, 1)),
    )


def _forms(int4: bool, size: int, rescale: Rescale) -> tuple[RowForm, ...]:
    # Those that there may be, the best first.
    if int4:
        return (ROW_NIBBLES,)
    if size > 1:
        return (ROW_WIDE,)
    return (ROW_HALFWORDS,) if rescale.is_sum else (ROW_HALFWORDS, ROW_WIDE)


def _sums_fit(rescale: Rescale, depth: int) -> bool:
    # True if 256 times a sum of 4-bit weights, with 8 added to each, has 32 bits.
    extent = max(int(np.abs(rescale.low).max()), int(np.abs(rescale.high).max()))
    return extent + _OFFSETS + 8 * rescale.scheme.magnitude(0) * depth < _MOST


@dataclass(frozen=True, slots=True, eq=False)
class _DenseWeights:
    form: RowForm
    header: Words
    group_words: int
    epilogue: DspEpilogue
    const: Const
    swapped: bool


def _stream(
    form: RowForm, weights: Int8, packing: Packing, steps: int, start: Int64, rescale: Rescale
) -> _DenseWeights | None:
    # The int4 ``weights[O, K]``; None if inexact, or for weights of -128 in wrong places.
    channels, shared = fours(len(weights)), rescale.uniform
    swapped = form is ROW_HALFWORDS and not _fits(weights, channels)
    if swapped:
        channels = channels[:, [1, 0, 3, 2]]
    united = rescale.united() if shared else rescale
    lanes = epilogue_lanes(united, [(gain, channels[:, lane]) for lane, gain in enumerate(form.gains)])
    if lanes is None and shared and form is ROW_HALFWORDS:
        lanes = rounded_lanes(united.take(channels[:, 0]), _LANES)
    if lanes is None or not rescale.narrow or not (form is ROW_NIBBLES or _fits(weights, channels)):
        return None
    ends = () if shared else lanes.constants
    shares = [lanes.constants[lane][0] for lane in range(len(set(form.gains)))] if shared else []
    header = np.concatenate([NO_WORDS, *shares])

    group_words = form.head_words + form.parts * steps + sum(end.shape[1] for end in ends)

    def groups(some: slice) -> Words:
        mixed = form.halfwords(weights[channels[some]].astype(np.int64))
        flat = order_weights(mixed.reshape(-1, mixed.shape[2]), packing, steps)
        halves = flat.reshape(*mixed.shape[:2], steps, 2)
        mixes = words16(halves[..., 0], halves[..., 1]).transpose(0, 2, 1)
        heads = form.heads((start[channels] + np.stack(lanes.offsets, axis=1))[some])
        return records(heads, mixes, *(end[some] for end in ends))

    note = "requantisation; per four outputs: start, weights"
    taps = 4 * form.head_words, 4 * (form.head_words + form.parts * steps)
    at = None if form is ROW_NIBBLES else taps
    const = stream(len(channels), group_words, groups, note, header, weights=at, halves=True)
    return _DenseWeights(form, header, group_words, lanes.epilogue, const, swapped)


def _fits(weights: Int8, channels: Int64) -> bool:
    # True if halfwords hold the weights of two outputs of each group.
    return fits(weights[channels[:, 0::2]], weights[channels[:, 1::2]])


def _unrolling(steps: int, most: int) -> tuple[int, int]:
    # The steps, made even or more for a good unrolling, and how many are written out.
    even = steps + steps % 2
    if even <= most:
        return even, even
    counts = {u: -(-even // u) * u for u in range(2, most + 1, 2)}
    unroll = min(counts, key=lambda u: counts[u] * (7 + 2 / u))
    return counts[unroll], unroll


def _work(view: DspDenseView) -> Work:
    groups = Outputs.routine(view.row)
    counted = groups.runs(groups=view.whole) + bool(view.rest) * groups.runs(groups=1)
    work = Work(counted + PackingWriter.routine(view.packing, 1).runs())
    return work.block("rest", view.rest, view.rest).block("header", view.header, view.header > 0)
