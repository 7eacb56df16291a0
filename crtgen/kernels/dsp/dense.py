"""Fully connected layers with the DSP extension: four outputs at a time for one row of inputs.

The weights are those of the matrix micro-kernel, two words per step: channels 0 and 1, channels 2 and 3.
Several rows, or less than four outputs, are a pointwise convolution.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.dsp.conv import matrix_kernel
from crtgen.kernels.dsp.finish import Finish, Lanes, finish_lanes
from crtgen.kernels.dsp.packing import Packing, order_weights
from crtgen.kernels.dsp.walk import Geometry
from crtgen.kernels.dsp.words import Words, fours, words, words16
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.kernels.requant import Rescale, rescale_of
from crtgen.ops.dense import FullyConnected
from crtgen.ops.fixedpoint import Int64

__all__ = ["DenseView", "fully_connected"]

_GAIN = 256
_LANES = 4
_STEPS_WRITTEN_OUT = {"speed": 16, "size": 2}


@dataclass(frozen=True, slots=True)
class DenseView:
    """A fully connected layer: ``whole`` groups of four outputs; if ``rest``, one more that ends at the last.

    ``header`` words before the groups hold the requantisation of all channels, where they are scaled alike.
    """

    outputs: int
    whole: int
    rest: bool
    packing: Packing
    steps: int
    unroll: int
    header: int
    group_words: int
    finish: Finish

    @property
    def looped(self) -> bool:
        return self.unroll < self.steps

    @property
    def pairs(self) -> range:
        """The unrolled steps two by two."""
        return range(self.unroll // 2)

    @property
    def whole_words(self) -> int:
        return self.whole * self.group_words

    @property
    def pack_unroll(self) -> int:
        return 2 if self.packing.words % 2 == 0 else 1


@design(FullyConnected, types=(DType.INT8,), needs="dsp", weights=(1, 2))
def fully_connected(op: FullyConnected, sig: Signature, target: Target) -> Kernel | None:
    """Four outputs at a time for a single row, else the matrix design; None if inexact or for one output."""
    x, w, b = sig.inputs
    params = op.parameters(sig)
    weights, bias = w.array().astype(np.int64), b.array().astype(np.int64)
    outputs, depth = weights.shape
    rows = x.elements // depth
    if rows > 1 or outputs < _LANES:
        return matrix_kernel(Geometry.rows(rows, depth), params, weights, bias, target)
    packing = Packing.of((1, 1), (1, 1), depth, depth)
    steps, unroll = _unrolling(packing.steps, _STEPS_WRITTEN_OUT[target.optimize])
    folded = bias + params.input_offset * weights.sum(axis=1)
    stream = _stream(weights, packing, steps, folded, rescale_of(params, weights, bias))
    if stream is None:
        return None
    view = DenseView(
        outputs=outputs,
        whole=outputs // _LANES,
        rest=outputs % _LANES != 0,
        packing=packing,
        steps=steps,
        unroll=unroll,
        header=len(stream.header),
        group_words=stream.group_words,
        finish=stream.finish,
    )
    return Kernel(
        design="dsp_dense",
        template="dsp/dense.c.j2",
        view=view,
        consts=(stream.const,),
        scratch=4 * (steps + view.header),
        inplace=(InPlace(),),
        cost=_cost(view),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Stream:
    header: Words
    group_words: int
    finish: Finish
    const: Const


def _stream(weights: Int64, packing: Packing, steps: int, start: Int64, rescale: Rescale) -> _Stream | None:
    """The packed ``weights[O, K]``; None if inexact, or for a weight of -128 in the wrong place."""
    channels = fours(len(weights))
    shared = rescale.uniform
    gains = [(_GAIN, 1)[lane % 2] for lane in range(_LANES)]
    lanes = finish_lanes(
        rescale.united() if shared else rescale,
        [(gain, channels[:, lane]) for lane, gain in enumerate(gains)],
    )
    if lanes is None:
        return None
    grouped = weights[channels]
    mixed = _GAIN * grouped[:, 0::2] + grouped[:, 1::2]  # [group, pair, input]
    if mixed.min() < -(1 << 15):
        return None
    ends = () if shared else lanes.constants
    shares = [lanes.constants[0][0], lanes.constants[1][0]] if shared else []
    header = np.concatenate([np.zeros(0, np.uint32), *shares])

    def pack() -> Words:
        flat = order_weights(mixed.reshape(-1, mixed.shape[2]), packing, steps)
        halves = flat.reshape(*mixed.shape[:2], steps, 2)
        mixes = words16(halves[..., 0], halves[..., 1]).transpose(0, 2, 1).reshape(len(channels), -1)
        groups = np.concatenate([_heads(start[channels], lanes), mixes, *ends], axis=1)
        return np.concatenate([header, groups.reshape(-1)])

    group_words = _LANES + 2 * steps + sum(end.shape[1] for end in ends)
    count = len(header) + len(channels) * group_words
    note = "requantisation; per four outputs: start, weights"
    return _Stream(header, group_words, lanes.finish, Const("weights", "uint32", (count,), pack, 4, note))


def _unrolling(steps: int, most: int) -> tuple[int, int]:
    """The steps, made even or more for a good unrolling, and how many are written out."""
    even = steps + steps % 2
    if even <= most:
        return even, even
    counts = {u: -(-even // u) * u for u in range(2, most + 1, 2)}
    unroll = min(counts, key=lambda u: counts[u] * (7 + 2 / u))
    return counts[unroll], unroll


def _heads(start: Int64, lanes: Lanes) -> Words:
    """``[group, 4]`` words from ``start[group, 4]``."""
    begin = start + np.stack(lanes.offsets, axis=1)
    heads = [_GAIN * begin[:, 0] + begin[:, 1], _GAIN * begin[:, 2] + begin[:, 3], begin[:, 1], begin[:, 3]]
    return words(np.stack(heads, axis=1))


def _cost(view: DenseView) -> float:
    rounds = view.steps // view.unroll
    group = 13 + 7 * view.steps + (2 * rounds if view.looped else 0)
    group += _LANES * (view.finish.instructions + (0 if view.finish.floor else 1))
    return 40 + (view.whole + view.rest) * group + view.packing.instructions(1)
