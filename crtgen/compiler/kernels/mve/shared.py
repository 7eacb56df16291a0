"""Helium for size: one function for all layers of a kind, and a table with the parameters of each.

Windows of two pixels at a time are gathered into scratch, unless they are contiguous. Outputs are requantised
in TFLite's own arithmetic: its constants have the same form for every layer, and are short.
"""

from dataclasses import astuple

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import rescale_of
from crtgen.compiler.kernels.asm import Routine
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel
from crtgen.compiler.kernels.engine.layout import grouped, records, stream
from crtgen.compiler.kernels.engine.window import WindowShape, ring_lead
from crtgen.compiler.kernels.engine.words import Words, words
from crtgen.compiler.kernels.mve.bytes import copy, fill
from crtgen.compiler.kernels.mve.ring import Ring, pairs_lead
from crtgen.compiler.kernels.mve.shared_asm import SharedPair, any_dense, runs_of_a_row
from crtgen.compiler.kernels.mve.shared_tables import DenseTable, MveSharedView, SharedDenseView
from crtgen.compiler.kernels.mve.stream import LANES
from crtgen.compiler.kernels.shared.tables import table
from crtgen.network.ops import ConvParams
from crtgen.network.ops.fixedpoint import Int8, Int64

__all__ = [
    "clamped",
    "packed_constants",
    "shared_dense",
    "shared_matrix",
]

_FOUR = 4  # channels whose sums fill a vector
_START = 1 << 23  # what a start has to be below, to leave a byte for the shift


def shared_matrix(window: WindowShape, weights: Int8, bias: Int64, params: ConvParams) -> Kernel | None:
    """Return the kernel for ``weights[O, inputs of a window]``; None if its scales are not all below 1/2."""
    constants = packed_constants(params, weights, bias)
    if constants is None:
        return None
    w, outputs = window, len(weights)
    ring = Ring.of(w, -params.input_offset) if w.padded else None
    numbers = _table(w, ring, weights.shape, params)
    fours = constants.reshape(2, -1, _FOUR).transpose(1, 0, 2)
    view = MveSharedView(clamped(params))
    return Kernel(
        design="mve matrix shared",
        template="mve/conv_shared.c.j2",
        view=view,
        consts=(
            _weights(weights, fours, 4, "per four outputs: weights, requantisation"),
            table("mve_conv", numbers),
        ),
        scratch=2 * numbers["window_bytes"] + numbers["ring_bytes"] or 1,  # the function's interface has it
        inplace=(InPlace(lead=ring_lead(w, outputs) if ring else pairs_lead(w, outputs, overlapping=False)),),
        work=_work(w, ring, numbers, SharedPair.routine(view)),
        routines=(SharedPair.routine(view), copy(), fill(), runs_of_a_row()),
        includes=("crt/mve_conv.h",),
    )


def shared_dense(weights: Int8, bias: Int64, params: ConvParams) -> Kernel | None:
    """Return the kernel for a row of inputs times ``weights[O, K]``; None unless all outputs have the same
    scale, below 1/2.
    """
    multiplier, shift = int(params.multipliers[0]), int(params.shifts[0])
    if params.factors is not None:
        return None
    if (params.multipliers != multiplier).any() or (params.shifts != shift).any() or shift >= 0:
        return None
    outputs, depth = weights.shape
    first, rounds = _vectors(depth)
    numbers = DenseTable(
        outputs, params.output_offset, params.act_min, params.act_max, rounds, first, multiplier, shift
    )
    view = SharedDenseView(clamped(params))
    routine = any_dense(view)
    start = np.zeros(-(-outputs // _FOUR) * _FOUR, np.int64)
    start[:outputs] = bias + params.input_offset * weights.sum(axis=1)
    return Kernel(
        design="mve row shared",
        template="",
        view=view,
        consts=(
            _weights(weights, start.reshape(-1, 1, _FOUR), 8, "per four outputs: weights, starts"),
            Const.of("table", np.array(astuple(numbers), np.int32), 4, "the layer's numbers, see the code"),
        ),
        work=Work(routine.runs(fours=-(-outputs // _FOUR), vectors=rounds)),
        routines=(routine,),
    )


def clamped(params: ConvParams) -> bool:
    return (params.act_min, params.act_max) != (-128, 127)


def _vectors(depth: int) -> tuple[int, int]:
    # Bytes of the first vector, and how many whole ones follow.
    rounds = (depth - 1) // LANES
    return depth - rounds * LANES, rounds


def packed_constants(params: ConvParams, weights: Int8 | Int64, bias: Int64) -> Int64 | None:
    """Return initial value and shift in one word, and the multiplier: ``[2, O]``, with O rounded up to a
    multiple of four.

    A channel that is always at the zero point has a multiplier of 0. None if any other does not fit, and for
    rescaling in float32.
    """
    if params.factors is not None:
        return None
    outputs = len(weights)
    start = bias + params.input_offset * weights.sum(axis=1)
    rescale = rescale_of(params, weights, bias)
    varies = (rescale.apply(np.stack([rescale.low, rescale.high])) != params.output_offset).any(axis=0)
    start, multipliers = start * varies, rescale.multipliers * varies
    shifts = np.where(varies, rescale.shifts, -1)
    if shifts.max() >= 0 or np.abs(start).max() >= _START:
        return None
    packed = np.zeros((2, -(-outputs // _FOUR) * _FOUR), np.int64)
    packed[:, :outputs] = (start << 8 | shifts & 0xFF) & 0xFFFFFFFF, multipliers
    return packed


def _weights(weights: Int8, fours: Int64, align: int, note: str) -> Const:
    # ``weights[O, K]`` by groups of four outputs, with the words ``fours[group, n, 4]`` behind each.
    length = weights.shape[1] + fours[0].size

    first = _vectors(weights.shape[1])[0]

    def groups(some: slice) -> Words:
        # The vectors that are not full, then the others.
        part = weights[_FOUR * some.start : _FOUR * some.stop]
        vectors = (grouped(part[:, :first], _FOUR, first), grouped(part[:, first:], _FOUR, LANES))
        return records(*vectors, words(fours[some]))

    at = 0, _FOUR * weights.shape[1]
    return stream(len(fours), length, groups, note, align=align, weights=at)


def _table(w: WindowShape, ring: Ring | None, shape: tuple[int, ...], params: ConvParams) -> dict[str, int]:
    outputs, depth = shape
    first, rounds = _vectors(depth)
    row_bytes = w.width * w.channels
    joined = w.dilation_x == 1 or w.taps_x == 1
    runs = 1 if joined else w.taps_x
    run_bytes = w.channels * (w.taps_x if joined else 1)
    gathered = runs * w.taps_y > 1
    return dict(
        outputs=outputs,
        zero_point=params.output_offset,
        low=params.act_min,
        high=params.act_max,
        rounds=rounds,
        first=first,
        gathered=int(gathered),
        images=w.batch,
        image_bytes=w.height * row_bytes,
        out_height=w.out_height,
        out_width=w.out_width,
        step=w.stride_x * w.channels,
        stride=w.stride_y,
        dilation=w.dilation_y,
        taps=w.taps_y,
        runs=runs,
        run_bytes=run_bytes,
        run_step=w.dilation_x * w.channels,
        window_bytes=depth if gathered else 0,
        rows=ring.rows if ring else w.height,
        pitch=ring.pitch if ring else row_bytes,
        ring_bytes=ring.bytes if ring else 0,
        ring_left=ring.left if ring else 0,
        fill=-params.input_offset,
        copied=ring.row_bytes if ring else 0,
        span=w.rows,
        top=w.top,
        height=w.height,
        row_bytes=row_bytes,
    )


def _work(w: WindowShape, ring: Ring | None, numbers: dict[str, int], routine: Routine) -> Work:
    lines = w.batch * w.out_height
    pairs = lines * -(-w.out_width // 2)
    counted = routine.runs(groups=-(-numbers["outputs"] // _FOUR), vectors=numbers["rounds"])
    work = Work(pairs * counted).block("line", lines).block("pair", pairs).block("image", w.batch)
    if numbers["gathered"]:
        runs = runs_of_a_row().runs(runs=numbers["runs"], vectors=-(-numbers["run_bytes"] // LANES))
        work.block("gathered", pairs).block("gathered row", pairs * numbers["taps"])
        work.assembly += pairs * numbers["taps"] * runs
    if ring:
        ring.load_work(work.block("ring", w.batch), w)
        work.assembly += w.batch * ring.fill_whole
    return work
