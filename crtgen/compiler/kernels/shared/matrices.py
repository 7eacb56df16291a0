"""Products of two computed float32 matrices in tiles: the common parts of the FPU and Helium versions."""

from dataclasses import dataclass
from itertools import pairwise

from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import operands
from crtgen.compiler.kernels.engine.kernel import Kernel
from crtgen.compiler.kernels.engine.loops import Loop
from crtgen.network.ir import Signature
from crtgen.network.ops.matmul import BatchMatMul

__all__ = ["FloatMatrices", "TiledMatrixView", "lane_pointers", "matrices", "tiled", "unrolled"]


@dataclass(frozen=True, slots=True)
class FloatMatrices:
    """A tile of ``rows`` by ``columns`` sums with ``depth`` terms each; a loop's body has ``unroll`` terms.

    ``first`` and ``second`` describe the operands: the bytes from one row (or column) to the next, and from
    one term to the next. One of the two is 4. ``pitch`` is the bytes from row to row of the output.
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
    """Products of matrices: ``loops`` iterate over the pairs of matrices, each computed tile by tile.

    ``starts`` are C expressions for the first elements of both matrices. ``tile`` are the rows and columns
    that the routine computes; ``steps`` are the elements from row to row of the first operand, and from
    column to column of the second.
    """

    names: tuple[str, str]
    loops: tuple[Loop, ...]
    starts: tuple[str, str]
    rows: int
    columns: int
    tile: tuple[int, int]
    steps: tuple[int, int]


def unrolled(depth: int, most: int) -> int:
    """Return the number of terms in a loop's body: at most ``most``, if possible a divisor of ``depth``."""
    if depth <= most:
        return depth
    return max((n for n in range(most // 2 + 1, most + 1) if n % 2 == 0 and depth % n == 0), default=most)


def matrices(op: BatchMatMul, sig: Signature, tile: tuple[int, int], unroll: int) -> FloatMatrices:
    """Describe a tile of the product for the routine that computes it."""
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

    ``batches`` has the loops over the pairs of matrices, and C for the start of each matrix.
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


def lane_pointers(f: Function, first: str, role: str, lanes: int, steps: tuple[int, int]) -> tuple[str, ...]:
    # A pointer for each lane if its terms follow each other, otherwise one for all lanes.
    if steps[1] != 4:
        return (first,)
    pointers = (first, *f.cores(f"terms of {role}", lanes - 1))
    for before, pointer in pairwise(pointers):
        f.number(pointer, steps[0])
        f("add", pointer, pointer, before)
    return pointers
