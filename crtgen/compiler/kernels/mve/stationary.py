"""Convolutions with windows of up to 16 inputs: the weights of four channels stay in registers for many
pixels.

The inputs of a chunk of pixels are copied to scratch first, so that outputs may overwrite inputs.
"""

from dataclasses import dataclass, replace
from math import gcd

import numpy as np

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape, as_row, least_lead
from crtgen.compiler.kernels.engine.words import by_output
from crtgen.compiler.kernels.mve.bytes import copy
from crtgen.compiler.kernels.mve.conv import MveConvView, gathering, requantise
from crtgen.compiler.kernels.mve.stationary_asm import Stationary
from crtgen.compiler.kernels.mve.stream import LANES, StreamCut, stream_const
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Conv2d

__all__ = ["StationaryView", "few_inputs"]

_CHUNK = 64
_UNROLL = 4


@dataclass(frozen=True, slots=True)
class StationaryView:
    """A row of pixels: ``chunks`` chunks of ``chunk`` pixels, and one of ``rest`` pixels."""

    micro: Stationary
    chunks: int
    chunk: int
    rest: int

    @property
    def depth(self) -> int:
        return self.micro.pitch

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        return tuple((n, size) for n, size in ((self.chunks, self.chunk), (1, self.rest)) if n and size)

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory. A load may extend beyond the last pixel."""
        return -(-self.chunk * self.depth // LANES) * LANES + LANES

    @property
    def work(self) -> Work:
        work = Work()
        for n, size in self.sizes:
            copying = copy().runs(vectors=-(-size * self.depth // LANES))
            work.assembly += n * copying + self.micro.runs(n, n * size)
            work.block("chunk" if n > 1 else "chunk alone", n)
        return work


@design(Conv2d, types=(DType.INT8,), needs="mve", weights=(1, 2), narrow_weights=True)
def few_inputs(op: Conv2d, sig: Signature, target: Target) -> Kernel | None:
    """Convolution of int8 with windows of up to 16 inputs; None if outputs are clamped or the requantisation
    is not re-encoded.
    """
    _, w, b = sig.inputs
    weights, int4 = by_output(w), w.dtype is DType.INT4
    if weights.shape[1] > LANES or target.optimize == "size":  # its code is of one layer
        return None
    params = op.parameters(sig)
    requant = requantise(params, weights, b.array().astype(np.int64), int4)
    if requant is None:
        return None
    epilogue = requant.epilogue
    if epilogue.shift is None or epilogue.low is not None or epilogue.high is not None:
        return None
    window = WindowShape.of(op, sig)
    outputs, depth = weights.shape
    micro = Stationary(depth, outputs, epilogue.shift, _UNROLL, int4)
    stream = stream_const(weights, [StreamCut(0, depth)], requant, 4, "per four channels")
    if window.is_pointwise:
        return _neighbours(window, micro, stream)
    return _windows(window, micro, stream, -params.input_offset)


def _neighbours(window: WindowShape, micro: Stationary, stream: Const) -> Kernel:
    # Windows of a pixel, which are one after the other.
    depth, outputs = micro.pitch, micro.outputs
    chunk = min(_CHUNK, window.pixels)
    chunks, rest = divmod(window.pixels, chunk)
    view = StationaryView(replace(micro, unroll=gcd(chunk, rest, _UNROLL)), chunks, chunk, rest)
    ends = np.minimum(np.arange(chunk, window.pixels + chunk, chunk), window.pixels)
    return Kernel(
        design="mve stationary",
        template="mve/stationary.c.j2",
        view=view,
        consts=(stream,),
        scratch=view.scratch,
        inplace=(InPlace(lead=least_lead(ends[:-1] * outputs, ends[:-1] * depth)),),
        work=view.work,
        routines=(view.micro.routine, copy()),
    )


def _windows(window: WindowShape, micro: Stationary, stream: Const, fill: int) -> Kernel | None:
    # Windows that are gathered; None where no two outputs are neighbours.
    window = as_row(window)
    if window.out_width < 2:
        return None
    gather, ring, rows = gathering(window, fill, fast=True)
    unroll = gcd(_UNROLL, *(count for count, _ in gather.counts(window.out_height)))
    view = MveConvView(replace(micro, pitch=gather.pitch, unroll=unroll), window, ring, gather, rows)
    return view.kernel("mve stationary gathered", stream, micro.outputs)
