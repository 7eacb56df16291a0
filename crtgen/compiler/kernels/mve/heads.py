"""Products of two computed int8 matrices with Helium, if a row of the first one fits into registers.

Heads of attention are small: with 8 terms per sum, a product of 8 x 8 has 512 multiplications, and calls for
each row and each column (``mve/matmul.py``) take more time than these. Here two calls compute a whole matrix:

1. ``columns`` copies the columns of the second operand to scratch as halfwords minus the zero point: vectors
   of eight, the last one padded with zeros.
2. ``rows`` keeps a row of the first operand in up to four vectors, and multiplies it by four columns at a
   time. The first product of a sum is VMLADAV, which needs no zero to start from.

Only one operand needs zeros after its last term: what the row has there is multiplied by them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from crtgen.compiler.kernels.asm import EVEN, ODD, Function, Routine
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import operands
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.loops import Loop
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.mve.elements import requantised
from crtgen.compiler.kernels.mve.matmul import lane_places
from crtgen.compiler.kernels.mve.matrix import gather_sums
from crtgen.compiler.kernels.portable.matmul import batches
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import INT8
from crtgen.network.ops.matmul import BatchMatMul, MatMulParams

__all__ = ["MveHeadsView", "heads"]

_LANES = 8
_AT_ONCE = 4  # columns
_MOST = 4  # vectors of a row: others hold a column, outputs and constants
_FARTHEST = 1 << 16  # beyond an offset in 16 bits


@dataclass(frozen=True, slots=True)
class MveHeadsView:
    """Products of matrices with ``outputs`` elements, one for each of ``loops``; they begin at the C
    expressions ``starts``.
    """

    names: tuple[str, str]
    loops: tuple[Loop, ...]
    starts: tuple[str, str]
    outputs: int


@design(BatchMatMul, types=(DType.INT8,), needs="mve", weights=None)
def heads(op: BatchMatMul, sig: Signature, target: Target) -> Kernel | None:
    """Product of matrices whose sums have at most 32 terms, if those of a row are neighbours."""
    rows, depth, _, columns = op.lengths(*sig.inputs)
    vectors = -(-depth // _LANES)
    if op.adj_x or vectors > _MOST or depth * columns >= _FARTHEST:
        return None
    p = op.parameters(sig)
    names, consts = operands(sig)
    loops, starts = batches(sig)
    view = MveHeadsView((names[0], names[1]), loops, starts, rows * columns)
    matrices = sig.y.elements // view.outputs
    routines = _columns(depth, columns, op.adj_y, p.input2_offset), _rows(rows, depth, columns, p)
    work = Work(matrices * (routines[0].runs() + routines[1].runs()))
    return Kernel(
        design="mve heads",
        template="mve/heads.c.j2",
        view=view,
        consts=consts,
        scratch=2 * _LANES * vectors * columns,
        work=work.block("matrix", matrices),
        routines=routines,
    )


def _columns(depth: int, columns: int, along: bool, offset: int) -> Routine:
    # ``columns(from, to)``; terms of a column are neighbours if ``along``.
    f = Function("columns", "const void *from", "int16_t *to", purpose=f"{columns} columns as halfwords.")
    source, to = f.arguments
    vectors, rest = -(-depth // _LANES), depth % _LANES
    elements, added = f.vector("elements"), f.constant("offset", offset & 0xFFFF) if offset else ""
    places = () if along else _places(f, vectors, columns)
    if rest:
        left = f.constant("terms of the last vector", rest)
        f("vctp.16", left)
        f.free(left)
    with f.low_overhead_loop("columns", columns):
        for number in range(vectors):
            masked = rest > 0 and number == vectors - 1
            suffix = "t" if masked else ""
            if masked:
                f("vpstt" if added else "vpst")
            step = rest if masked else _LANES
            f(
                f"vldrb{suffix}.s16",
                elements,
                f"[{source}], #{step}" if along else f"[{source}, {places[number]}]",
            )
            if added:
                f(f"vadd{suffix}.i16", elements, elements, added)
            f("vstrh.16", elements, f"[{to}], #{2 * _LANES}")
        if not along:
            f("add", source, source, "#1")
    return f.done()


def _places(f: Function, vectors: int, step: int) -> tuple[str, ...]:
    # Offsets of the terms of a column that are ``step`` bytes apart, eight in a vector.
    first = lane_places(f, step)
    others = f.vectors("offsets of further terms", vectors - 1)
    if others:
        apart = f.constant("from vector to vector", _LANES * step)
        for before, places in zip((first, *others), others, strict=False):
            f("vadd.i16", places, before, apart)
        f.free(apart)
    return (first, *others)


def _rows(rows: int, depth: int, columns: int, p: MatMulParams) -> Routine:
    f = Function(
        "rows",
        "const int8_t *first",
        "const int16_t *second",
        "int8_t *y",
        purpose=f"{rows} rows of {columns} outputs.",
    )
    first, second, y = (
        f.moved(a, role, ODD) for a, role in zip(f.arguments, ("row", "columns", "outputs"), strict=True)
    )
    column, left = f.core("column", ODD), f.core("rows left", ODD)
    sums = f.cores("sums", _AT_ONCE, EVEN)
    vectors, rest = -(-depth // _LANES), depth % _LANES
    row, others = f.vectors("a row", vectors), f.vectors("of a column, then outputs", 1)
    added = f.constant("offset", p.input1_offset & 0xFFFF) if p.input1_offset else ""
    most = depth * INT8.magnitude(-p.input1_offset) * INT8.magnitude(-p.input2_offset)
    scale = (p.multiplier, p.shift)
    start, finish = requantised(f, scale, p.output_offset, INT8.limits, (-most, most), 0, p.factor)
    begin = f.constant("start", start) if start else ""

    def finished(count: int) -> None:
        (q,) = others
        _add_products(f, row, q, column, sums[:count])
        gather_sums(f, q, sums)
        if begin:
            f("vadd.i32", q, q, begin)
        finish(q)
        if count < _AT_ONCE:
            f("movs", sums[0], f"#{count}")
            f("vctp.32", sums[0])
            f("vpst")
        f("vstrbt.32" if count < _AT_ONCE else "vstrb.32", q, f"[{y}], #{count}")

    with f.counted_loop("rows", left, rows):
        _load_row(f, row, first, rest, added, sums[0])
        f("mov", column, second)
        if columns // _AT_ONCE:
            with f.low_overhead_loop("columns", columns // _AT_ONCE):
                finished(_AT_ONCE)
                f("add", column, column, f"#{2 * _LANES * vectors * _AT_ONCE}")
        if columns % _AT_ONCE:
            finished(columns % _AT_ONCE)
    return f.done()


def _load_row(f: Function, row: Sequence[str], first: str, rest: int, added: str, spare: str) -> None:
    for terms in row:
        masked = rest > 0 and terms == row[-1]
        if masked:
            f("movs", spare, f"#{rest}")
            f("vctp.16", spare)
            f("vpst")
        f("vldrbt.s16" if masked else "vldrb.s16", terms, f"[{first}], #{rest if masked else _LANES}")
        if added:
            f("vadd.i16", terms, terms, added)


def _add_products(f: Function, row: Sequence[str], q: str, column: str, sums: Sequence[str]) -> None:
    # Sums of the products of a row and of neighbouring columns.
    for number, total in enumerate(sums):
        for place, terms in enumerate(row):
            f("vldrh.u16", q, f"[{column}, #{2 * _LANES * (number * len(row) + place)}]")
            f("vmladava.s16" if place else "vmladav.s16", total, terms, q)
