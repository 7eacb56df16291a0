"""Convolutions with the DSP extension: windows are packed three at a time for the matrix micro-kernel."""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import rescale_of
from crtgen.compiler.kernels.asm import Routine
from crtgen.compiler.kernels.dsp.copy import copy
from crtgen.compiler.kernels.dsp.form import BYTES, HALFWORDS, NIBBLES, Form
from crtgen.compiler.kernels.dsp.layer import DspLayer
from crtgen.compiler.kernels.dsp.matrix import Unrolling, WeightStream, micro, weight_stream
from crtgen.compiler.kernels.dsp.packing import Packing, PackingWriter
from crtgen.compiler.kernels.dsp.shared import shared_kernel
from crtgen.compiler.kernels.dsp.shared_asm import UNROLL
from crtgen.compiler.kernels.dsp.tile import Micro, Tile
from crtgen.compiler.kernels.dsp.walk import PIXELS, Walk, sees_image, window_of
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape
from crtgen.compiler.kernels.engine.words import by_output
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import INT16
from crtgen.network.ops.conv import Conv2d, ConvParams, DepthwiseConv2d
from crtgen.network.ops.fixedpoint import Int8, Int64

__all__ = ["DspConvView", "conv2d", "conv_kernel", "matrix_kernel", "single_channel"]

_STEPS_WRITTEN_OUT = Unrolling(36, 18)
# Limits of loops that may be better for a cache that cannot hold a long one.
_SHORTER = (Unrolling(18, 18), Unrolling(8, 8))


@dataclass(frozen=True, slots=True)
class DspConvView:
    """A convolution in groups of three pixels, then the remaining ones. Outputs have ``size`` bytes."""

    size: int
    channels: int
    micros: tuple[Micro, ...]
    packing: Packing
    walk: Walk
    even_words: int
    odd_words: int
    in_ram: int
    """Bytes of weights that are first copied to scratch memory, where reads do not wait; 0 for none."""

    @property
    def ram_at(self) -> int:
        return -(-(self.column_bytes + self.walk.scratch) // 4) * 4

    @property
    def scratch(self) -> int:
        return self.ram_at + self.in_ram

    @property
    def column_bytes(self) -> int:
        return self.micros[0].activation_bytes

    @property
    def routines(self) -> tuple[Routine, ...]:
        """Routines: for each size of a pixel group the micro-kernel and the packing; then the row copy."""
        pairs = ((Tile.routine(m), PackingWriter.routine(self.packing, m.pixels)) for m in self.micros)
        return (*(routine for pair in pairs for routine in pair), *((copy(),) if self.walk.rows else ()))

    @property
    def pixel_bytes(self) -> int:
        return self.channels * self.size

    @property
    def last_pair(self) -> int:
        return self.pixel_bytes - 2 * self.size


@design(Conv2d, types=(DType.INT8, DType.INT16), needs="dsp", weights=(1, 2), narrow_weights=True)
def conv2d(op: Conv2d, sig: Signature, target: Target) -> Kernel | None:
    return conv_kernel(op, op.parameters(sig), sig, target)


@design(Conv2d, types=(DType.INT8, DType.INT16), needs="dsp", weights=(1, 2), narrow_weights=True)
def with_near_weights(op: Conv2d, sig: Signature, target: Target) -> Kernel | None:
    """Convolution whose weights are copied to RAM first; None if flash reads never wait."""
    if target.constants is None or target.optimize == "size":
        return None
    return conv_kernel(op, op.parameters(sig), sig, target, in_ram=True)


def conv_kernel(
    op: Conv2d, params: ConvParams, sig: Signature, target: Target, in_ram: bool = False
) -> Kernel | None:
    _, w, b = sig.inputs
    weights, bias = by_output(w), b.array().astype(np.int64)
    int4 = w.dtype is DType.INT4
    return matrix_kernel(window_of(op, sig), params, weights, bias, target, int4, in_ram)


@design(DepthwiseConv2d, types=(DType.INT8, DType.INT16), needs="dsp", weights=(1, 2), narrow_weights=True)
def single_channel(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    x, w, b = sig.inputs
    if x.shape[3] > 1:
        return None
    weights, bias = w.array().astype(np.int8).reshape(-1, w.shape[3]).T, b.array().astype(np.int64)
    int4 = w.dtype is DType.INT4
    return matrix_kernel(window_of(op, sig), op.parameters(sig), weights, bias, target, int4)


def matrix_kernel(
    window: WindowShape,
    params: ConvParams,
    weights: Int8,
    bias: Int64,
    target: Target,
    int4: bool,
    in_ram: bool = False,
) -> Kernel | None:
    """Return the kernel for ``weights[O, inputs of a window]``, of four bits with ``int4``.

    ``in_ram``: the weights were copied to RAM before. None if inexact, and if some window only reads padding;
    when optimising for size, also for a single output channel.

    None if inexact, and where nothing but padding is read; for size, also for one output channel.
    """
    if not sees_image(window):
        return None
    shared = target.optimize == "size" and not params.is_sum
    usual = _STEPS_WRITTEN_OUT
    written_out = Unrolling(*map(target.steps, (usual.whole, usual.looped, usual.last)))
    forms: tuple[Unrolling | None, ...] = (written_out,)
    if shared:
        forms = (None,)
    elif target.code is not None:
        forms += _SHORTER
    made = [_kernel_of(window, params, weights, bias, int4, form, in_ram) for form in forms]
    found = [kernel for kernel in made if kernel is not None]
    if len(found) < 2:
        return found[0] if found else None
    return min(found, key=lambda kernel: kernel.priced(target).cost.time)


def _kernel_of(
    window: WindowShape,
    params: ConvParams,
    weights: Int8,
    bias: Int64,
    int4: bool,
    unrolling: Unrolling | None,
    in_ram: bool,
) -> Kernel | None:
    # ``unrolling`` is None for the kernel that layers share.
    shared = unrolling is None
    walk = Walk.of(window, -params.input_offset)
    size = params.scheme.activations.itemsize
    packing = Packing.of(window, walk.rows.pitch if walk.rows else window.pitch, size)
    first, *others = _forms(params, int4, shared)
    if unrolling is None:
        steps = -(-packing.steps // UNROLL) * UNROLL
    else:
        steps = unrolling.padded(packing.steps, first.steps_of_a_word)
    folded = bias + params.input_offset * weights.sum(axis=1)
    given = weights, packing, steps, folded, rescale_of(params, weights, bias)
    streams = (weight_stream(form, *given, each=shared) for form in (first, *others))
    stream = next((stream for stream in streams if stream is not None), None)
    if stream is None:
        return None
    layer = DspLayer(walk, packing, stream, steps)
    return _kernel(layer, unrolling, in_ram) if unrolling else shared_kernel(layer)


def _forms(params: ConvParams, int4: bool, shared: bool) -> tuple[Form, ...]:
    # Those that there may be, the best first; a form that layers share holds what it can.
    if int4:
        return (NIBBLES,)
    if params.scheme is INT16:
        return (BYTES,)
    return (HALFWORDS,) if shared else (HALFWORDS, BYTES)


def _kernel(layer: DspLayer, unrolling: Unrolling, in_ram: bool) -> Kernel:
    view = _view(layer, unrolling, in_ram)
    return Kernel(
        design="dsp_matrix, weights in RAM" if in_ram else "dsp_matrix",
        template="dsp/conv.c.j2",
        view=view,
        consts=(layer.weights,),
        scratch=view.scratch,
        inplace=() if layer.stream.epilogue.form == "sum" else (InPlace(lead=layer.lead),),
        work=_work(view, layer.stream),
        routines=view.routines,
    )


def _view(layer: DspLayer, unrolling: Unrolling, in_ram: bool) -> DspConvView:
    stream, walk = layer.stream, layer.walk
    micros = tuple(
        micro(pixels, layer.steps, stream, unrolling if pixels == PIXELS else unrolling.of_the_last)
        for pixels in walk.counts
    )
    return DspConvView(
        size=stream.epilogue.bits // 8,
        channels=stream.channels,
        micros=micros,
        packing=layer.packing,
        walk=walk,
        even_words=stream.even_words,
        odd_words=stream.odd_words,
        in_ram=layer.weights.nbytes if in_ram else 0,
    )


def _work(view: DspConvView, stream: WeightStream) -> Work:
    work, walk, odd = Work(), view.walk, " odd" if stream.odd else ""
    wraps = " wraps" if walk.wraps else ""
    for m in view.micros:
        micro, packing = Tile.routine(m), PackingWriter.routine(view.packing, m.pixels)
        group = micro.runs(pairs=stream.even) + stream.odd * micro.runs(pairs=1)
        runs = walk.images * (walk.groups if m.pixels == PIXELS else 1)
        work.assembly += runs * ((group.in_ram if view.in_ram else group) + packing.runs())
        name = f"group{odd}" if m.pixels == PIXELS else "last group"
        work.block(f"{name}{wraps}", runs).block(f"pixel{wraps}", runs * m.pixels, m.pixels)
        work.block("window", runs * bool(walk.rows), bool(walk.rows))
    if walk.rows:
        walk.work(work.fill(walk.scratch))
    if view.in_ram:
        work.copy(view.in_ram, 1, words=True).constants += view.in_ram
    return work.block("image", walk.images, walk.images > 1)
