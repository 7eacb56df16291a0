"""Convolutions and fully connected layers without the DSP extension: one multiplication serves two pixels.

The pixels of a tile are packed into words, each with one input of two pixels; windows of several pixels are
gathered first. All channels are computed from these words.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import rescale_of
from crtgen.compiler.kernels.asm import FAR, Routine
from crtgen.compiler.kernels.base.epilogue import Limbs, exact_form
from crtgen.compiler.kernels.base.pairs_asm import MIX, Narrow, NarrowPairs, Wide, WidePairs
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.layout import grouped, records, stream
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape, gathered_window, tiles_lead
from crtgen.compiler.kernels.engine.words import Words, by_output, some_at_a_time, words
from crtgen.compiler.kernels.portable.gemm import gather
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Conv2d, FullyConnected
from crtgen.network.ops.fixedpoint import Int8, Int64

__all__ = ["BasePairsView", "product"]

_UNROLL = {"speed": 4, "size": 1}
_FAR_NARROW = 1 << 16
_MOST_NARROW = 4  # pairs within reach of its loads


@dataclass(frozen=True, slots=True)
class BasePairsView:
    """``pixels`` pixels of ``depth`` inputs, packed by tiles; ``window`` describes how a pixel's window is
    gathered, if necessary.

    With an ``odd`` number of channels, the last pair repeats a channel that was already computed.
    """

    group: Wide | Narrow
    pixels: int
    depth: int
    outputs: int
    odd: bool
    window: WindowShape | None
    fill: int

    @property
    def narrow(self) -> bool:
        return isinstance(self.group, Narrow)

    @property
    def tile(self) -> int:
        return self.group.pixels

    @property
    def packed_bytes(self) -> int:
        return 4 * self.group.step_words * self.group.steps

    @property
    def scratch(self) -> int:
        return self.packed_bytes + (self.tile * self.depth if self.window else 0)

    @property
    def block_words(self) -> int:
        """Number of constant words for the channels of a block: initial values, weights, requantisation."""
        each = 2 if self.narrow else 1
        return each * (1 + self.group.epilogue.constants) + self.group.weight_bytes // 4

    @property
    def blocks(self) -> int:
        return -(-self.outputs // 2) if self.narrow else self.outputs

    @property
    def even_words(self) -> int:
        return (self.blocks - self.odd) * self.block_words

    @property
    def routine(self) -> Routine:
        return (WidePairs if isinstance(self.group, Wide) else NarrowPairs).routine(self.group)

    @property
    def work(self) -> Work:
        tiles, form = -(-self.pixels // self.tile), f"{self.tile}{' narrow' if self.narrow else ''}"
        runs = self.routine.runs(channels=self.blocks - self.odd) + self.odd * self.routine.runs(channels=1)
        work = Work(tiles * runs).block(
            f"tile{' gathered' if self.window else ''}{' odd' if self.odd else ''}", tiles
        )
        work.block(f"pack {form}", tiles * self.group.steps)
        if self.window:
            gather(work, self.window, tiles * self.tile, 1)
        return work

    @property
    def lead(self) -> int:
        """Distance by which outputs must precede the inputs that they overwrite: a tile is packed before its
        outputs are written.
        """
        reads = self.window.first_reads() if self.window else np.arange(self.pixels) * self.depth
        return tiles_lead(reads, self.tile, self.outputs, whole=True)


@design(Conv2d, FullyConnected, types=(DType.INT8,), needs="base", weights=(1, 2))
def product(op: Conv2d | FullyConnected, sig: Signature, target: Target) -> Kernel | None:
    """Layer of two or more pixels or rows; None for a single one, or without an exact requantisation."""
    window = gathered_window(op, sig)
    _, w, b = sig.inputs
    weights, bias = by_output(w), b.array().astype(np.int64)
    pixels = sig.y.elements // len(weights)
    steps = -(-weights.shape[1] // 2)
    if pixels < 2 or not all(_fits(weights[some]) for some in some_at_a_time(*weights.shape)):
        return None
    params = op.parameters(sig)
    start = bias + params.input_offset * weights.sum(axis=1)
    found = exact_form(rescale_of(params, weights, bias), start, target.core.narrow)
    if found is None:
        return None
    form, start, constants = found
    unroll = target.steps(_UNROLL[target.optimize])
    if isinstance(form, Limbs):
        unroll = min(unroll, _MOST_NARROW)
        if len(weights) < 2 or len(weights) >= _FAR_NARROW:
            return None
        group: Wide | Narrow = Narrow(steps, len(weights), unroll, form)
    else:
        tile = 4 if pixels >= 4 else 2
        if (tile - 1) * len(weights) > FAR:
            return None
        group = Wide(tile, steps, len(weights), unroll, form)
    view = BasePairsView(
        group=group,
        pixels=pixels,
        depth=weights.shape[1],
        outputs=len(weights),
        odd=target.core.narrow and len(weights) % 2 > 0,
        window=window,
        fill=-params.input_offset % 256,
    )
    return Kernel(
        design=f"pairs {view.tile}" + (" gathered" if window else ""),
        template="base/pairs.c.j2",
        view=view,
        consts=(_stream(view, weights, start, constants),),
        scratch=view.scratch,
        inplace=(InPlace(lead=view.lead),),
        work=view.work,
        routines=(view.routine,),
    )


def _fits(weights: Int8) -> bool:
    # True if halfwords hold the sums of two products.
    pairs = np.pad(weights, ((0, 0), (0, weights.shape[1] % 2))).reshape(len(weights), -1, 2)
    positive, negative = np.maximum(pairs, 0).sum(axis=2), np.minimum(pairs, 0).sum(axis=2)
    highest, lowest = 127 * positive - 128 * negative, 127 * negative - 128 * positive
    return int(highest.max()) < MIX and int(lowest.min()) >= -MIX


def _stream(view: BasePairsView, weights: Int8, start: Int64, constants: Words) -> Const:
    # Per block of channels: start values, weights, requantisation.
    def channels(some: slice) -> Words:
        return records(words(start[some]), weights[some], constants[some])

    def twos(some: slice) -> Words:
        firsts = np.minimum(2 * np.arange(some.start, some.stop), view.outputs - 2)
        both = firsts[:, None] + np.arange(2)
        taps = grouped(weights[both.ravel()], 2, 2) ^ np.int8(-128)
        return records(words(start[both]), taps, constants[both])

    note = "per channel, or two of them: start, weights, requantisation"
    each = 2 if view.narrow else 1
    at = 4 * each, 4 * (view.block_words - each * constants.shape[1])
    return stream(view.blocks, view.block_words, twos if view.narrow else channels, note, weights=at)
