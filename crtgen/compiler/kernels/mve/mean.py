"""Means with Helium over adjacent axes other than the last: sixteen columns of a matrix at a time.

Sums of up to 255 values fit into 16 bits; with more values, partial sums are added in 32 bits.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from crtgen.compiler.kernels.arithmetic.average import MOST
from crtgen.compiler.kernels.arithmetic.requant import Rescale
from crtgen.compiler.kernels.asm import Routine
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.mve.columns import Columns, sums
from crtgen.compiler.kernels.mve.epilogue import requantisation
from crtgen.compiler.kernels.mve.stream import LANES
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Mean, MeanParams

__all__ = ["MeanView", "mean"]

_LONGEST = 1 << 24  # of which it fits into 32


@dataclass(frozen=True, slots=True)
class MeanView:
    """A mean over the middle axis of ``[matrices, chunks * blocks * unroll, columns]``.

    With ``rounding`` a mean is ``sat8(((sum + start) * multiplier >> 32) + constant >> rounding)``, with a
    rounding shift; otherwise it uses TFLite's two roundings with ``left`` and ``right`` bits, and then adds
    ``constant``.
    """

    matrices: int
    chunks: int
    blocks: int
    unroll: int
    columns: int
    start: int
    multiplier: int
    constant: int
    rounding: int | None
    left: int
    right: int

    @property
    def whole(self) -> int:
        return self.columns // LANES * LANES

    @property
    def rest(self) -> int:
        return self.columns % LANES

    @property
    def matrix_bytes(self) -> int:
        return self.chunks * self.blocks * self.unroll * self.columns

    @property
    def routines(self) -> tuple[Routine, ...]:
        parts = [n for n, there in ((0, self.whole), (self.rest, self.rest)) if there]
        return tuple(sums(Columns(n, 1, self.blocks, self.unroll, self.columns)) for n in parts)

    @property
    def work(self) -> Work:
        form = "floor" if self.rounding is not None else f"{bool(self.left):d}{bool(self.right):d}"
        calls = [self.matrices * (self.whole // LANES)] if self.whole else []
        calls += [self.matrices] if self.rest else []
        halves = [2] if self.whole else []
        halves += [1 + (self.rest > LANES // 2)] if self.rest else []
        work = Work().block("matrix", self.matrices)
        for routine, runs, parts in zip(self.routines, calls, halves, strict=True):
            work.assembly += runs * self.chunks * routine.runs()
            work.block("vector", runs).block(f"{form} half", runs * parts, parts)
            if self.chunks > 1:
                work.block("chunk", runs * self.chunks).block("chunk half", runs * self.chunks * parts, parts)
        return work


@design(Mean, types=(DType.INT8,), needs="mve")
def mean(op: Mean, sig: Signature, target: Target) -> Kernel | None:
    """Means of int8; None if the last axis is included, or if the axes are not adjacent."""
    first, end = min(op.axes, default=0), max(op.axes, default=-1) + 1
    columns = prod(sig.x.shape[end:])
    count = prod(sig.x.shape[first:end])
    together = count == prod(sig.x.shape[a] for a in op.axes)
    if not together or columns == 1:
        return None
    if count > _LONGEST:
        return None
    view = _view(op.parameters(sig), prod(sig.x.shape[:first]), columns)
    if view is None:
        return None
    return Kernel(
        design="mve mean",
        template="mve/mean.c.j2",
        view=view,
        inplace=(InPlace(),),
        work=view.work,
        routines=view.routines,
        includes=("arm_mve.h",),
    )


def _view(p: MeanParams, matrices: int, columns: int) -> MeanView | None:
    # None for a float32 factor that no other form has.
    start = p.count * p.input_offset
    low, high = p.count * -128 + start, p.count * 127 + start
    rescale = Rescale.one((p.multiplier, p.shift), p.factor, (p.output_offset, -128, 127), (low, high))
    requant = requantisation(rescale, np.array([start], np.int64))
    rounding, multiplier, constant = None, p.multiplier, p.output_offset
    if requant is not None and requant.epilogue.shift is not None:
        rounding = requant.epilogue.shift
        start, multiplier, constant = (int(c[0]) for c in requant.constants)
    elif p.factor is not None:
        return None
    chunk = max(n for n in range(1, MOST + 1) if p.count % n == 0)
    unroll = max(n for n in range(1, 9) if chunk % n == 0)
    return MeanView(
        matrices=matrices,
        chunks=p.count // chunk,
        blocks=chunk // unroll,
        unroll=unroll,
        columns=columns,
        start=start,
        multiplier=multiplier,
        constant=constant,
        rounding=rounding,
        left=max(p.shift, 0),
        right=max(-p.shift, 0),
    )
