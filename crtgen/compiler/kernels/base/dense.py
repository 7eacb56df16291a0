"""Fully connected layers of one row without the DSP extension: each loaded input is used for several
outputs.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import rescale_of
from crtgen.compiler.kernels.asm import Routine
from crtgen.compiler.kernels.base.dense_asm import BaseDense, Sums, some_outputs
from crtgen.compiler.kernels.base.epilogue import Limbs, LongProducts, exact_form
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target, WeightRows
from crtgen.compiler.kernels.engine.layout import records, stream
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import is_row
from crtgen.compiler.kernels.engine.words import Words, by_output, words
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Conv2d, FullyConnected
from crtgen.network.ops.fixedpoint import Int8, Int64

__all__ = ["BaseDenseView", "block_of", "dense", "row_of_sums"]

_CHANNELS = (8, 7, 6, 5)
_REACH = 32  # bytes that LDRB reaches
_NEAR = 118  # narrow instructions, about, that a branch with a condition reaches
_ROUND = {"speed": 32, "size": 1}  # products that are written out, about


@dataclass(frozen=True, slots=True)
class BaseDenseView:
    """A layer of ``outputs`` outputs in blocks; the last block may overlap the previous one."""

    block: BaseDense
    outputs: int

    @property
    def blocks(self) -> int:
        return -(-self.outputs // self.block.channels)

    @property
    def ragged(self) -> bool:
        return self.outputs % self.block.channels != 0

    @property
    def whole_words(self) -> int:
        return (self.blocks - self.ragged) * self.block.block_words

    @property
    def shared_words(self) -> int:
        """Words of shared requantisation constants after these blocks, and after the overlapping one."""
        return self.block.constants if self.block.uniform else 0

    @property
    def words(self) -> int:
        shared = self.shared_words * (1 + (self.ragged and self.blocks > 1))
        return self.blocks * self.block.block_words + shared

    @property
    def last(self) -> int:
        return self.outputs - self.block.channels

    @property
    def routine(self) -> Routine:
        return some_outputs(self.block)

    @property
    def work(self) -> Work:
        whole = self.routine.runs(blocks=self.blocks - self.ragged)
        return Work(whole + self.ragged * self.routine.runs(blocks=1))


@design(FullyConnected, Conv2d, types=(DType.INT8,), needs="base", weights=(1, 2))
def dense(op: FullyConnected | Conv2d, sig: Signature, target: Target) -> Kernel | None:
    """Fully connected layer of a single input row; None for several rows, or without an exact
    requantisation.
    """
    if not is_row(op, sig):
        return None
    params = op.parameters(sig)
    _, w, b = sig.inputs
    weights, bias = by_output(w), b.array().astype(np.int64)
    rescale = rescale_of(params, weights, bias)
    rescale = rescale.united() if rescale.uniform else rescale
    start = bias + params.input_offset * weights.sum(axis=1)
    found = exact_form(rescale, start, target.core.narrow)
    if found is None:
        return None
    form, start, constants = found
    return _kernel(
        block_of(weights.shape[1], len(weights), form, rescale.uniform, target), weights, start, constants
    )


def row_of_sums(weights: Int8, start: Int64, target: Target) -> Kernel:
    """Return the kernel of an int8 row times ``weights[O, K]``, with 32-bit sums that start at
    ``start[O]``.
    """
    none = np.zeros((len(weights), 0), np.uint32)
    return _kernel(
        block_of(weights.shape[1], len(weights), Sums(target.core.narrow), True, target), weights, start, none
    )


def block_of(
    depth: int,
    outputs: int,
    form: LongProducts | Limbs | Sums,
    uniform: bool,
    target: Target,
    offset: int = 0,
) -> BaseDense:
    """Return the block of outputs to compute at a time; ``offset`` is added to all weights."""
    channels = _channels(outputs)
    unroll = max(1, target.steps(_ROUND[target.optimize]) // channels)
    if target.core.narrow:
        unroll = min(unroll, _REACH // channels, _NEAR // (2 + 3 * channels))
    return BaseDense(depth, channels, unroll, form, uniform, offset)


def _kernel(block: BaseDense, weights: Int8, start: Int64, constants: Words) -> Kernel:
    view, channels = BaseDenseView(block, len(weights)), block.channels

    def some_blocks(some: slice) -> Words:
        firsts = np.minimum(np.arange(some.start, some.stop) * channels, len(weights) - channels)
        order = firsts[:, None] + np.arange(channels)
        taps = weights[order].transpose(0, 2, 1)
        taps = taps ^ np.int8(-128) if block.narrow else taps
        return records(words(start)[order], taps, *(() if block.uniform else (constants[order],)))

    note = "per block of outputs: start, weights input by input, requantisation"
    blocks = stream(view.blocks, block.block_words, some_blocks, note)

    def pack() -> Words:
        packed, shared = blocks.pack(), constants[0, : view.shared_words]
        whole, last = packed[: view.whole_words], packed[view.whole_words :]
        return np.concatenate([whole, shared, last, shared] if len(whole) * len(last) else [packed, shared])

    return Kernel(
        design=f"dense {channels}",
        template="base/dense.c.j2",
        view=view,
        consts=(Const("weights", "uint32", (view.words,), pack, 4, note, _rows(view)),),
        work=view.work,
        routines=(view.routine,),
    )


def _rows(view: BaseDenseView) -> WeightRows | None:
    # Position of the weights, if all blocks are contiguous.
    block = view.block
    if view.ragged and view.blocks > 1 and view.shared_words:
        return None
    first = 4 * block.channels
    return WeightRows(view.blocks, 4 * block.block_words, first, first + block.weight_bytes)


def _channels(outputs: int) -> int:
    # Outputs at a time: as many as registers hold, but few that are computed twice.
    return min(_CHANNELS, key=lambda n: -(-outputs // n) * (n + 1)) if outputs > _CHANNELS[0] else outputs
