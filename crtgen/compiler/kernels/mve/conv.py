"""Convolutions with Helium: the matrix micro-kernel over pairs of pixels.

The inputs of a window are read in place, from the image or, with padding, from a ring of padded rows in
scratch; windows with many rows or few channels are gathered into scratch first.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import rescale_of
from crtgen.compiler.kernels.asm import Routine, Runs
from crtgen.compiler.kernels.engine.cost import Work, estimate
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape, as_row, ring_lead, tiles_lead
from crtgen.compiler.kernels.engine.words import by_output
from crtgen.compiler.kernels.mve.bytes import copy, fill
from crtgen.compiler.kernels.mve.epilogue import Requantisation, requantisation
from crtgen.compiler.kernels.mve.gather import GatheredWindows
from crtgen.compiler.kernels.mve.matrix import MicroRow, Run, contiguous, micro
from crtgen.compiler.kernels.mve.ring import Ring, pairs_lead
from crtgen.compiler.kernels.mve.shared import shared_matrix
from crtgen.compiler.kernels.mve.stationary_asm import Stationary
from crtgen.compiler.kernels.mve.stream import LANES, StreamCut, stream_const, sums_fit
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Conv2d, ConvParams
from crtgen.network.ops.fixedpoint import Int8, Int64

__all__ = [
    "MveConvView",
    "PairsOfPixels",
    "PixelsView",
    "conv2d",
    "conv_kernel",
    "gathering",
    "matrix_of_pixels",
    "requantise",
    "windows_kernel",
]

_WRITTEN_OUT = {"speed": 40, "size": 8}
_FAMILY = "mve/conv"
_NOTE = "per four channels: weights by vectors of inputs, requantisation"


class PairsOfPixels(Protocol):
    """A micro-kernel ``row(weights, y, x, end)`` for the pixels of a row, two at a time."""

    @property
    def pixel_bytes(self) -> int: ...

    @property
    def routine(self) -> Routine: ...

    def runs(self, calls: int, pairs: int) -> Runs: ...


@dataclass(frozen=True, slots=True)
class PixelsView:
    micro: MicroRow
    pixels: int

    @property
    def work(self) -> Work:
        runs = self.micro.runs(1 + self.odd, self.even // 2 + self.odd)
        return Work(runs).block("odd", self.odd, self.odd)

    @property
    def routines(self) -> tuple[Routine, ...]:
        return (self.micro.routine,)

    @property
    def even(self) -> int:
        return self.pixels // 2 * 2

    @property
    def odd(self) -> bool:
        return self.pixels % 2 != 0


@dataclass(frozen=True, slots=True)
class MveConvView:
    """A convolution, two pixels at a time; the last two of a row of outputs may overlap the previous ones.

    The ``window``'s channels are bytes. ``row_offsets`` locate the window rows whose addresses are passed to
    the micro-kernel or to the gathering.
    """

    micro: PairsOfPixels | Stationary
    window: WindowShape
    ring: Ring | None
    gather: GatheredWindows | None
    row_offsets: tuple[int, ...]

    @property
    def step(self) -> int:
        return self.window.stride_x * self.window.channels

    @property
    def even(self) -> int:
        return self.window.out_width // 2 * 2

    @property
    def odd(self) -> bool:
        return self.window.out_width % 2 != 0

    @property
    def last(self) -> int:
        return self.window.out_width - 2

    @property
    def columns(self) -> int:
        return self.gather.bytes if self.gather else 0

    @property
    def scratch(self) -> int:
        return self.columns + (self.ring.bytes if self.ring else 0)

    @property
    def lines(self) -> int:
        return self.window.batch * self.window.out_height

    @property
    def work(self) -> Work:
        work, pointers = self._gathered if self.gather else self._direct, len(self.row_offsets)
        ring = " in a ring" if self.ring else ""
        work.block("line", self.lines).block(f"pointer{ring}", self.lines * pointers, pointers)
        if self.ring:
            self.ring.fill_work(work)
            self.ring.load_work(work, self.window)
        return work

    @property
    def _direct(self) -> Work:
        # Pixels whose inputs are read in place; the last one of an odd row takes a call of its own.
        pointers = len(self.row_offsets)
        calls = self.lines * (1 + self.odd)
        assert not isinstance(self.micro, Stationary)
        work = Work(self.micro.runs(calls, self.lines * (self.even // 2 + self.odd))).block("call", calls)
        return work.block("moved pointer", self.lines * pointers, pointers) if self.odd else work

    @property
    def _gathered(self) -> Work:
        # Pixels whose windows are gathered: those of two rows together, or of parts of a row.
        gather, micro, batch = self.gather, self.micro, self.window.batch
        assert gather is not None
        counts = [(count, batch * times) for count, times in gather.counts(self.window.out_height)]
        calls = sum(times * len(self.calls(count)) for count, times in counts)
        if isinstance(micro, Stationary):
            runs = micro.runs(calls, sum(times * count for count, times in counts))
        else:
            runs = micro.runs(calls, sum(times * -(-count // 2) for count, times in counts))
        gathered = gather.routine.runs(pixels=gather.width / gather.calls) * (self.lines * gather.calls)
        return Work(runs + gathered).block("call", calls).block("gather", self.lines * gather.calls)

    def calls(self, count: int) -> tuple[tuple[int, str], ...]:
        """Return the calls of the micro-kernel for ``count`` gathered windows: each with the first window,
        and the last argument in C.
        """
        if isinstance(self.micro, Stationary):
            return ((0, str(count // self.micro.unroll)),)
        ends = ((0, count // 2 * 2), (count - 2, count))[: 1 + count % 2]
        return tuple((first, f"y + {end * self.micro.pixel_bytes}") for first, end in ends)

    def kernel(self, design: str, const: Const, outputs: int) -> Kernel:
        window, ring = self.window, self.ring
        lead = ring_lead(window, outputs) if ring else pairs_lead(window, outputs, overlapping=True)
        return Kernel(
            design=design,
            template="mve/conv.c.j2",
            view=self,
            consts=(const,),
            scratch=self.scratch,
            inplace=(InPlace(lead=lead),),
            work=self.work,
            routines=self.routines,
        )

    @property
    def routines(self) -> tuple[Routine, ...]:
        ring = (copy(), fill()) if self.ring else ()
        return (self.micro.routine, *ring, *((self.gather.routine,) if self.gather else ()))


@design(Conv2d, types=(DType.INT8, DType.INT16), needs="mve", weights=(1, 2), narrow_weights=True)
def conv2d(op: Conv2d, sig: Signature, target: Target) -> Kernel | None:
    """Convolution of int8 and int16.

    None if no two outputs of a row or a column are adjacent, or without an exact requantisation.
    """
    return conv_kernel(op, op.parameters(sig), sig, target)


@design(Conv2d, types=(DType.INT8, DType.INT16), needs="mve", weights=(1, 2))
def two_groups(op: Conv2d, sig: Signature, target: Target) -> Kernel | None:
    """Convolution with two groups of channels per iteration: faster, but with more code."""
    return conv_kernel(op, op.parameters(sig), sig, target, at_once=2)


def conv_kernel(
    op: Conv2d, params: ConvParams, sig: Signature, target: Target, at_once: int = 1
) -> Kernel | None:
    """Return the kernel of a convolution with this requantisation, with ``at_once`` groups of channels per
    iteration.
    """
    _, w, b = sig.inputs
    weights, bias = by_output(w), b.array().astype(np.int64)
    window = WindowShape.of(op, sig)
    return windows_kernel(window, weights, bias, params, target, w.dtype is DType.INT4, at_once)


def windows_kernel(
    window: WindowShape,
    weights: Int8,
    bias: Int64,
    params: ConvParams,
    target: Target,
    int4: bool = False,
    at_once: int = 1,
) -> Kernel | None:
    """Return the kernel for ``weights[O, inputs of a window]``; None if no two outputs are adjacent, or
    without an exact requantisation.

    ``int4``: weights have four bits.
    """
    if window.is_pointwise:
        return matrix_of_pixels(window.pixels, weights, bias, params, target, int4, at_once)
    size = params.scheme.activations.itemsize
    window = replace(as_row(window), channels=window.channels * size)
    shares = target.optimize == "size" and size == 1 and not (int4 or params.is_sum)
    shared = shared_matrix(window, weights, bias, params) if shares else None
    if shared is not None:
        return shared if at_once == 1 else None
    requant = requantise(params, weights, bias, int4)
    if window.out_width < 2 or requant is None:
        return None
    most = target.steps(_WRITTEN_OUT[target.optimize])
    fast = target.optimize == "speed"
    views = list(_views(window, -params.input_offset, requant, len(weights), most, fast))
    if not views:
        return None
    figures = [estimate(_FAMILY, v.work, target.core, target.flag) for v, _ in views]
    view, cuts = views[min(range(len(views)), key=lambda i: figures[i].instructions)]
    if at_once > 1:
        if not isinstance(view.micro, MicroRow) or not view.micro.pairs:
            return None
        view = replace(view, micro=replace(view.micro, at_once=at_once))
    outputs = len(weights) * size
    const = stream_const(weights, cuts, requant, 4, _NOTE, size=size, at_once=at_once)
    kernel = view.kernel("mve gathered" if view.gather else "mve rows", const, outputs)
    return replace(kernel, inplace=()) if params.is_sum else kernel


def requantise(
    params: ConvParams, weights: Int8 | Int64, bias: Int64, int4: bool = False
) -> Requantisation | None:
    """Return the requantisation of ``weights[O, K]``, whose sums use raw inputs; None if no form is exact."""
    start = bias + params.input_offset * weights.sum(axis=1)
    found = requantisation(rescale_of(params, weights, bias), start)
    if found is None or not int4:
        return found
    return replace(found, int4=True) if sums_fit(weights) else None


def matrix_of_pixels(
    pixels: int,
    weights: Int8,
    bias: Int64,
    params: ConvParams,
    target: Target,
    int4: bool = False,
    at_once: int = 1,
) -> Kernel | None:
    """Return the kernel of ``pixels`` rows of inputs times ``weights[O, K]``; None for a single row, for very
    long ones, or without an exact requantisation.

    ``int4``: weights have four bits.
    """
    if pixels < 2:
        return None
    size = params.scheme.activations.itemsize
    outputs, depth = len(weights), weights.shape[1] * size
    if target.optimize == "size" and size == 1 and not (int4 or params.is_sum):
        shared = shared_matrix(WindowShape.line(pixels, depth), weights, bias, params)
        if shared is not None:
            return shared if at_once == 1 else None
    requant = requantise(params, weights, bias, int4)
    if requant is None:
        return None
    most = target.steps(_WRITTEN_OUT[target.optimize])
    kernel = micro([Run(0, 0, depth)], depth, outputs, requant, depth % 4 == 0, most, True)
    if kernel is None or (at_once > 1 and not kernel.pairs):
        return None
    view = PixelsView(replace(kernel, at_once=at_once), pixels)
    lead = tiles_lead(np.arange(pixels) * depth, 2, outputs * size, whole=False)
    return Kernel(
        design="mve pixels",
        template="mve/pixels.c.j2",
        view=view,
        consts=(stream_const(weights, contiguous(depth), requant, 4, _NOTE, size=size, at_once=at_once),),
        inplace=() if params.is_sum else (InPlace(lead=lead),),
        work=view.work,
        routines=view.routines,
    )


def _views(
    window: WindowShape, fill: int, requant: Requantisation, outputs: int, most: int, fast: bool
) -> Iterator[tuple[MveConvView, list[StreamCut]]]:
    # The ways to do it, each with the stretches of weights that its vectors hold; ``fast`` is Gather's.
    gather, ring, rows = gathering(window, fill, fast)
    length, offsets, step = gather.length, gather.offsets, gather.step
    aligned = step % 4 == 0 and (ring is not None or window.pitch % 4 == 0)
    runs = [Run(r, at, length) for r in range(window.taps_y) for at in offsets]
    direct = micro(runs, step, outputs, requant, aligned, most, False)
    if direct is not None and direct.rounds == 0:
        parts = Run(0, 0, length).cuts()
        cuts = [StreamCut(n * length + c.start, c.length) for n in range(len(runs)) for c in parts]
        yield MveConvView(direct, window, ring, None, rows), cuts
    gathered = micro([Run(0, 0, gather.pitch)], gather.pitch, outputs, requant, True, most, False)
    if gathered is not None:
        yield MveConvView(gathered, window, ring, gather, rows), Run(0, 0, gather.depth).cuts()


def gathering(
    window: WindowShape, fill: int, fast: bool
) -> tuple[GatheredWindows, Ring | None, tuple[int, ...]]:
    """Return how windows are gathered, the ring buffer that pads their rows (None if not needed), and the
    number of its rows.
    """
    joined = window.dilation_x == 1 or window.taps_x == 1
    length = window.channels * (window.taps_x if joined else 1)
    offsets = tuple(i * window.dilation_x * window.channels for i in range(1 if joined else window.taps_x))
    ring = Ring.of(window, fill) if window.padded or length % LANES else None
    rows = tuple(i * window.dilation_y for i in range(window.taps_y))
    step = window.stride_x * window.channels
    return GatheredWindows.of(window.taps_y, offsets, length, step, window.out_width, fast), ring, rows
