"""Pointwise convolutions of up to 16 inputs: the weights of four channels stay in registers for many pixels.

The inputs of a chunk of pixels are copied to scratch first, so that outputs may lie over inputs.
"""

from dataclasses import dataclass
from math import gcd

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.kernel import InPlace, Kernel, Target
from crtgen.kernels.mve.conv import requantise
from crtgen.kernels.mve.matrix import LANES, Cut, stream_const
from crtgen.kernels.registry import design
from crtgen.kernels.window import Window, least_lead
from crtgen.ops import Conv2d

__all__ = ["StationaryView", "pointwise"]

_CHUNK = 64
_UNROLL = 4
_FAR = 127  # the greatest step of VSTRB


@dataclass(frozen=True, slots=True)
class StationaryView:
    """``chunks`` chunks of ``chunk`` pixels and one of ``rest``, each a multiple of ``unroll``."""

    chunks: int
    chunk: int
    rest: int
    unroll: int
    depth: int
    outputs: int
    shift: int

    @property
    def ragged(self) -> bool:
        return self.outputs % 4 != 0

    @property
    def near(self) -> bool:
        """Whether a store can step to the next pixel."""
        return self.outputs <= _FAR

    @property
    def store(self) -> str:
        """An instruction without its operand, under a predicate where a group may not be full."""
        return "vpst\\n vstrbt.32" if self.ragged else "vstrb.32"

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """How often, and how many pixels."""
        return tuple((n, size) for n, size in ((self.chunks, self.chunk), (1, self.rest)) if n and size)

    @property
    def scratch(self) -> int:
        """A load may reach behind the last pixel."""
        return -(-self.chunk * self.depth // LANES) * LANES + LANES

    @property
    def cost(self) -> float:
        pixel = 13 + self.ragged + (not self.near) + 1 / self.unroll
        groups = -(-self.outputs // 4)
        each = [
            n * (groups * (size * pixel + 14) + size * self.depth / LANES * 3 + 45) for n, size in self.sizes
        ]
        return sum(each) + 10


@design(Conv2d, types=(DType.INT8,), needs="mve", weights=(1, 2))
def pointwise(op: Conv2d, sig: Signature, target: Target) -> Kernel | None:
    """For int8; None for others, more than 16 inputs, or outputs that are clamped or not re-encoded."""
    x, w, b = sig.inputs
    if x.shape[3] > LANES:
        return None
    if target.optimize == "size":  # its code is of one layer
        return None
    window = Window.of(sig, (w.shape[1], w.shape[2]), op.stride, op.padding, op.dilation)
    if not window.is_pointwise:
        return None
    weights = w.array().astype(np.int64).reshape(w.shape[0], -1)
    requant = requantise(op.parameters(sig), weights, b.array().astype(np.int64))
    finish = requant.finish
    if finish.shift is None or finish.low is not None or finish.high is not None:
        return None
    outputs, depth = weights.shape
    chunk = min(_CHUNK, window.pixels)
    chunks, rest = divmod(window.pixels, chunk)
    unroll = gcd(gcd(chunk, rest), _UNROLL)
    view = StationaryView(chunks, chunk, rest, unroll, depth, outputs, finish.shift)
    ends = np.minimum(np.arange(chunk, window.pixels + chunk, chunk), window.pixels)
    return Kernel(
        design="mve stationary",
        template="mve/stationary.c.j2",
        view=view,
        consts=(stream_const(weights, [Cut(0, depth)], requant, 4, "per four channels"),),
        scratch=view.scratch,
        inplace=(InPlace(lead=least_lead(ends[:-1] * outputs, ends[:-1] * depth)),),
        cost=view.cost,
    )
