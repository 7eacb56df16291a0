"""Products of matrices in float32 that are both computed: tiles of rows and columns."""

from dataclasses import dataclass

from crtgen.compiler.kernels.asm import Routine
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import operands
from crtgen.compiler.kernels.engine.kernel import Kernel
from crtgen.compiler.kernels.engine.loops import Loop
from crtgen.network.ir import Signature
from crtgen.network.ops.matmul import BatchMatMul

__all__ = ["FloatMatrices", "TiledMatrixView", "matrices", "tiled", "unrolled"]


@dataclass(frozen=True, slots=True)
class FloatMatrices:
    """``depth`` terms of ``rows`` times ``columns`` sums, of which ``unroll`` terms are written out.

    ``first`` and ``second`` are the bytes from one lane of an operand to the next and from one term to the
    next: either of them is 4. ``pitch`` is bytes from row to row of the output.
    """

    rows: int
    columns: int
    depth: int
    unroll: int
    first: tuple[int, int]
    second: tuple[int, int]
    pitch: int


@dataclass(frozen=True, slots=True)
class TiledMatrixView:
    """In each of ``loops`` the product of two matrices, which begin at ``starts``, C.

    ``tile`` are rows and columns that the routine computes; ``steps`` are elements from row to row of the
    first operand, and from column to column of the second.
    """

    names: tuple[str, str]
    loops: tuple[Loop, ...]
    starts: tuple[str, str]
    rows: int
    columns: int
    tile: tuple[int, int]
    steps: tuple[int, int]


def unrolled(depth: int, most: int) -> int:
    """Return how many inputs to write out: all of them, or ``most``, or fewer that leave no rest."""
    if depth <= most:
        return depth
    return max((n for n in range(most // 2 + 1, most + 1) if n % 2 == 0 and depth % n == 0), default=most)


def matrices(op: BatchMatMul, sig: Signature, tile: tuple[int, int], unroll: int) -> FloatMatrices:
    """Return what a routine for a tile of rows and columns reads and writes."""
    rows, depth, _, columns = op.lengths(*sig.inputs)
    first = (4, 4 * rows) if op.adj_x else (4 * depth, 4)
    second = (4 * depth, 4) if op.adj_y else (4, 4 * columns)
    return FloatMatrices(*tile, depth, unroll, first, second, 4 * columns)


def tiled(
    op: BatchMatMul,
    sig: Signature,
    name: str,
    tile: tuple[int, int],
    routine: Routine,
    batches: tuple[tuple[Loop, ...], tuple[str, str]],
) -> Kernel:
    """Return the kernel whose ``routine(a, b, y)`` computes a tile of rows and columns.

    ``batches`` are the loops over matrices, and C for the start of both operands' ones.
    """
    rows, depth, _, columns = op.lengths(*sig.inputs)
    names, consts = operands(sig)
    loops, starts = batches
    view = TiledMatrixView(
        names=(names[0], names[1]),
        loops=loops,
        starts=starts,
        rows=rows,
        columns=columns,
        tile=tile,
        steps=(1 if op.adj_x else depth, depth if op.adj_y else 1),
    )
    count = sig.y.elements // (rows * columns)
    lines = count * -(-rows // tile[0])
    tiles = lines * -(-columns // tile[1])
    work = Work(tiles * routine.runs()).block("matrix", count).block("row", lines).block("tile", tiles)
    return Kernel(name, "tiled_matrix.c.j2", view, consts, work=work, routines=(routine,))
