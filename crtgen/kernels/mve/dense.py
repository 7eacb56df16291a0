"""Fully connected layers with Helium: eight outputs at a time for a single row of inputs, or four.

Several rows of inputs are the pixels of a pointwise convolution.
"""

from dataclasses import dataclass, replace

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.kernel import Kernel, Target
from crtgen.kernels.mve.conv import matrix_of_pixels, requantise
from crtgen.kernels.mve.finish import Finish, Requantisation, requantisation
from crtgen.kernels.mve.matrix import LANES, Words, contiguous, stream_const
from crtgen.kernels.mve.shared import shared_dense
from crtgen.kernels.registry import design
from crtgen.kernels.requant import rescale_of
from crtgen.ops import ConvParams, FullyConnected
from crtgen.ops.fixedpoint import Int64

__all__ = ["DenseView", "fully_connected"]

_WRITTEN_OUT = {"speed": 16, "size": 2}
_REGISTERS = ("r0", "r2", "r4", "r6", "r8", "r10", "r12", "r14")
_WEIGHTS = ("q1", "q2", "q3")


@dataclass(frozen=True, slots=True)
class DenseView:
    """``outputs`` sums of ``depth`` products, ``at_once`` of them (4 or 8) together.

    ``head`` vectors of inputs are written out, then a loop runs ``rounds`` times over ``unroll`` more; of the
    first vector ``tail`` bytes count, if not 0.
    """

    outputs: int
    at_once: int
    head: int
    rounds: int
    unroll: int
    tail: int
    finish: Finish

    @property
    def sums(self) -> tuple[tuple[str, str], ...]:
        """For each of the outputs the register of its sum and the vector that its weights are loaded to."""
        return tuple((r, _WEIGHTS[i % 3]) for i, r in enumerate(_REGISTERS[: self.at_once]))

    @property
    def wide(self) -> bool:
        return self.at_once == len(_REGISTERS)

    @property
    def ragged(self) -> bool:
        """Whether the last group is not full."""
        return self.outputs % self.at_once != 0

    @property
    def cost(self) -> float:
        vectors, fours = self.head + self.rounds * self.unroll, self.at_once // 4
        group = vectors * (2 * self.at_once + 1) + 2 * self.rounds + bool(self.rounds) + bool(self.tail) + 3
        group += fours * (3 + self.finish.instructions(1)) + self.ragged * (5 * fours - 1)
        return -(-self.outputs // self.at_once) * group + (14 if self.finish.uniform else 10)


@design(FullyConnected, types=(DType.INT8,), needs="mve", weights=(1, 2))
def fully_connected(op: FullyConnected, sig: Signature, target: Target) -> Kernel | None:
    """For int8, any size."""
    x, w, b = sig.inputs
    params = op.parameters(sig)
    weights, bias = w.array().astype(np.int64), b.array().astype(np.int64)
    rows = x.elements // weights.shape[1]
    if rows > 1:
        return matrix_of_pixels(rows, weights, bias, params, target)
    shared = shared_dense(weights, bias, params) if target.optimize == "size" else None
    if shared is not None:
        return shared
    header, requant = _requantised(params, weights, bias)
    return _single_row(weights, header, requant, target)


def _requantised(params: ConvParams, weights: Int64, bias: Int64) -> tuple[Words, Requantisation]:
    """The requantisation, and what of it all outputs share: multiplier and last constant, four times each."""
    rescale = rescale_of(params, weights, bias)
    if rescale.uniform:
        start = bias + params.input_offset * weights.sum(axis=1)
        shared = requantisation(rescale.united(), start)
        finish, common = shared.finish, shared.constants[1:]
        if not (finish.left or finish.some_whole) and (common == common[:, :1]).all():
            header = np.repeat(common[:, 0].astype(np.int32), 4).view(np.uint32)
            return header, Requantisation(replace(finish, uniform=True), shared.constants[:1])
    return np.zeros(0, np.uint32), requantise(params, weights, bias)


def _single_row(weights: Int64, header: Words, requant: Requantisation, target: Target) -> Kernel:
    """One row of inputs times ``weights[O, K]``."""
    outputs, depth = weights.shape
    at_once = 8 if outputs > 4 else 4
    vectors = -(-depth // LANES)
    unroll = min(vectors, _WRITTEN_OUT[target.optimize])
    head = vectors % unroll or unroll
    rounds = (vectors - head) // unroll
    view = DenseView(outputs, at_once, head, rounds, unroll, depth % LANES, requant.finish)
    note = f"per {at_once} outputs: weights by 16 inputs, requantisation"
    return Kernel(
        design=f"mve row {at_once}",
        template="mve/dense.c.j2",
        view=view,
        consts=(stream_const(weights, contiguous(depth), requant, at_once, note, header),),
        cost=view.cost,
    )
