"""Products of two computed int8 matrices without the DSP extension, row by row as fully connected layers.

A row of the output is a fully connected layer of a row of the first operand, whose weights are the second
one. Each run packs these as ``dense.py`` packs constant weights: for a block of up to eight columns the start
values, then term by term a byte of each column. A sum is, with ``p`` and ``q`` for the negated zero points of
the operands,

    sum((a + p) * (b + q)) = sum(a * (b + q)) + p * sum(b + q)

The second part depends on the column and is its start value; the routine adds ``q * sum(a)`` once for a row,
so that bytes are packed as they are. On M0+ one multiplication takes 3.3 instructions, of halfwords 5.6.

ONNX Runtime's rescaling has no form with 32-bit products on M0+: there the routine stores sums, and C
rescales them.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import Rescale
from crtgen.compiler.kernels.base.dense import BaseDenseView, block_of
from crtgen.compiler.kernels.base.dense_asm import Sums
from crtgen.compiler.kernels.base.epilogue import exact_form
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import operands
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.loops import Loop
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.portable.matmul import batch_matmul, batches
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import INT8
from crtgen.network.ops.matmul import BatchMatMul

__all__ = ["BaseHeadsView", "heads"]

_NO_CONSTANTS = np.zeros((1, 0), np.uint32)


@dataclass(frozen=True, slots=True)
class BaseHeadsView:
    """Products of matrices, one for each of ``loops``; they begin at the C expressions ``starts``.

    ``steps`` are the elements from column to column and from term to term of the second one. A column starts
    at ``start + factor * sum(b + offset)``. ``constants`` are the words of the requantisation; without any,
    ``result`` is C for an output of the ``sum``.
    """

    names: tuple[str, str]
    loops: tuple[Loop, ...]
    starts: tuple[str, str]
    rows: int
    steps: tuple[int, int]
    dense: BaseDenseView
    start: int
    factor: int
    constants: tuple[int, ...]
    result: str

    @property
    def moved(self) -> int:
        # What is added to a byte when it is packed: LDRB loads unsigned ones.
        return 128 if self.dense.block.narrow else 0

    @property
    def firsts(self) -> tuple[int, ...]:
        """The first column of each block; the last block may overlap the previous one."""
        channels = self.dense.block.channels
        return tuple(min(n * channels, self.dense.last) for n in range(self.dense.blocks))

    @property
    def ends(self) -> tuple[int, ...]:
        """Indices of the words at which constants are, behind the blocks that they serve."""
        whole, shared = self.dense.whole_words, self.dense.shared_words
        last = (self.dense.words - shared,) if self.dense.ragged else ()
        return (*((whole,) if whole else ()), *last)

    def place(self, block: int) -> int:
        shared = self.dense.shared_words if self.dense.ragged and block == self.dense.blocks - 1 else 0
        return block * self.dense.block.block_words + (shared if self.dense.whole_words else 0)


@design(BatchMatMul, types=(DType.INT8,), needs="base", weights=None)
def heads(op: BatchMatMul, sig: Signature, target: Target) -> Kernel | None:
    """Product of matrices whose first one has its rows one after the other."""
    rows, depth, _, columns = op.lengths(*sig.inputs)
    p = op.parameters(sig)
    if op.adj_x:
        return None
    most = depth * INT8.magnitude(-p.input1_offset) * INT8.magnitude(-p.input2_offset)
    limits = p.output_offset, *INT8.limits
    rescale = Rescale.one((p.multiplier, p.shift), p.factor, limits, (-most, most))
    found = exact_form(rescale, np.zeros(1, np.int64), target.core.narrow)
    form, start, constants = found or (Sums(target.core.narrow), np.zeros(1, np.int64), _NO_CONSTANTS)
    result = "" if found else batch_matmul(op, sig, target).view.result
    dense = BaseDenseView(block_of(depth, columns, form, True, target, p.input2_offset), columns)
    names, consts = operands(sig)
    loops, starts = batches(sig)
    view = BaseHeadsView(
        names=(names[0], names[1]),
        loops=loops,
        starts=starts,
        rows=rows,
        steps=(depth, 1) if op.adj_y else (1, columns),
        dense=dense,
        start=int(start[0]),
        factor=p.input1_offset,
        constants=tuple(int(word) for word in constants[0]),
        result=result,
    )
    matrices = sig.y.elements // (rows * columns)
    work = Work(matrices * rows * dense.work.assembly)
    packed = matrices * dense.blocks * dense.block.channels
    work.block("row", matrices * rows).block("matrix", matrices)
    if result:
        work.words("output", sig.y.elements, result)
    return Kernel(
        design="base heads",
        template="base/heads.c.j2",
        view=view,
        consts=consts,
        scratch=4 * (dense.words + (columns if result else 0)),
        work=work.block("packed column", packed).block("packed term", packed * depth),
        routines=(dense.routine,),
    )
