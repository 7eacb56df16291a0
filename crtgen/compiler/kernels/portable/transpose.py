"""Matrices transposed in place: images of planes to images of pixels, and back.

With a copy, such an image would need its memory twice. Here ``R`` rows consist of ``B`` blocks of ``P``
elements each. Blocks move in cycles, which are known when the code is generated. What remains is to transpose
each ``R`` by ``P`` elements, in scratch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import Signature
from crtgen.network.ops import Transpose

__all__ = ["TransposeView"]

_SCRATCH = 2048  # bytes
_MOST_ROWS = 64
_LEAST_BLOCKS = 2


@dataclass(frozen=True, slots=True)
class TransposeView:
    """``rows`` by ``blocks * block`` elements, which is the input or, with ``back``, the output.

    ``moves`` are positions of blocks: each takes the content of the next one. The last position is in
    scratch.
    """

    dtype: str
    rows: int
    blocks: int
    block: int
    back: bool
    moves: int
    words: bool


@design(Transpose)
def in_place(op: Transpose, sig: Signature, target: Target) -> Kernel | None:
    """Transpose a matrix in place if it has few rows or few columns and the other dimension can be divided;
    None otherwise.
    """
    found = _matrix(op, sig)
    if found is None:
        return None
    rows, columns = found
    back = rows > columns
    short, long = min(found), max(found)
    size = sig.x.dtype.itemsize
    block = _block(short, long, size)
    if not block:
        return None
    blocks = long // block
    shape = (blocks, short) if back else (short, blocks)
    moves = np.array(list(_moves(*shape)), np.uint16)
    view = TransposeView(
        sig.x.dtype.c_name, short, blocks, block, back, len(moves) - 1, words=block * size % 4 == 0
    )
    work = Work().block("move", view.moves).block("block", blocks).block("element", short * long, short)
    work.copy(block * size, view.moves, words=view.words).copy(short * block * size, blocks, words=view.words)
    return Kernel(
        design="transpose in place",
        template="transpose.c.j2",
        view=view,
        consts=(Const.of("moves", moves, 2, "each block takes what is in the next one; the last is spare"),),
        scratch=-(-short * block * size // 4) * 4,
        inplace=(InPlace(exact=True),),
        work=work,
    )


def _matrix(op: Transpose, sig: Signature) -> tuple[int, int] | None:
    # Rows and columns of the input, if two groups of axes change places; None if more is longer than 1.
    order = [axis for axis in op.perm if sig.x.shape[axis] > 1]
    cut = next((i for i in range(1, len(order)) if order[i] < order[i - 1]), 0)
    if not cut or order[cut:] + order[:cut] != sorted(order):
        return None
    columns = int(np.prod([sig.x.shape[axis] for axis in order[:cut]]))
    return sig.x.elements // columns, columns


def _block(short: int, long: int, size: int) -> int:
    # Elements of a block: a divisor whose rows fit into scratch; 0 if there is none that is worth it.
    if short > _MOST_ROWS:
        return 0
    most = min(_SCRATCH // (short * size), long // _LEAST_BLOCKS)
    fit = [n for n in range(1, most + 1) if long % n == 0 and short * (long // n) < 1 << 16]
    best = max(fit, default=0)
    return best if best * size >= 16 else 0


def _moves(rows: int, columns: int) -> Iterator[int]:
    # The cycles of ``rows x columns`` blocks to ``columns x rows``, with the spare place around each.
    spare = rows * columns
    seen = np.zeros(spare, bool)
    yield spare
    for start in range(spare):
        place, length = start, 0
        while not seen[place]:
            if place % rows * columns + place // rows == place:
                seen[place] = True
                break
            seen[place], length = True, length + 1
            yield place
            place = place % rows * columns + place // rows
        if length:
            yield spare
