"""Products of matrices that are computed both, with Helium: a row by four columns at a time.

Numbers less their zero points are copied into scratch as halfwords, eight to a vector with zeros behind the
last: one row of the first operand, and all columns of the second, of four columns eight numbers each in turn.
"""

from dataclasses import dataclass

from crtgen.ir import DType, Signature
from crtgen.kernels.asm import EVEN, ODD, Function, Routine
from crtgen.kernels.cost import Work
from crtgen.kernels.elements import operands
from crtgen.kernels.kernel import Kernel, Target
from crtgen.kernels.loops import Loop
from crtgen.kernels.matmul import batches
from crtgen.kernels.mve.elements import requantised, spread
from crtgen.kernels.mve.matrix import gather_sums
from crtgen.kernels.registry import design
from crtgen.ops import INT8
from crtgen.ops.matmul import BatchMatMul, MatMulParams

__all__ = ["ProductView", "product"]

_LANES, _COLUMNS = 8, 4
_FARTHEST = 1 << 16  # beyond an offset in 16 bits
_DEEPEST = 1 << 15  # terms whose sum 32 bits hold


@dataclass(frozen=True, slots=True)
class ProductView:
    """In each of ``loops`` the product of two matrices, which begin at ``starts``, C.

    ``steps`` are elements from row to row of the first, and from column to column of the second. ``group``
    are halfwords of four columns; ``first`` is the halfword in scratch where a row of the first operand is.
    """

    names: tuple[str, str]
    loops: tuple[Loop, ...]
    starts: tuple[str, str]
    rows: int
    columns: int
    steps: tuple[int, int]
    group: int
    first: int


@design(BatchMatMul, types=(DType.INT8,), needs="mve", weights=None)
def product(op: BatchMatMul, sig: Signature, target: Target) -> Kernel | None:
    """Any matrices but huge ones."""
    rows, depth, _, columns = op.lengths(*sig.inputs)
    p, vectors = op.parameters(sig), -(-depth // _LANES)
    across = (rows if op.adj_x else 1, 1 if op.adj_y else columns)
    if depth >= _DEEPEST or max(across) * _LANES >= _FARTHEST:
        return None
    names, consts = operands(sig)
    loops, starts = batches(sig)
    group = _COLUMNS * _LANES * vectors
    first = -(-columns // _COLUMNS) * group
    routines = (
        _copy(depth, across[1], p.input2_offset, 2 * _LANES * _COLUMNS),
        _copy(depth, across[0], p.input1_offset, 2 * _LANES),
        _row(depth, columns, p),
    )
    view = ProductView(
        names=(names[0], names[1]),
        loops=loops,
        starts=starts,
        rows=rows,
        columns=columns,
        steps=(1 if op.adj_x else depth, depth if op.adj_y else 1),
        group=group,
        first=first,
    )
    instructions = [routine.instructions() for routine in routines]
    matrices = sig.y.elements // (rows * columns)
    work = Work(matrices * (columns * instructions[0] + rows * (instructions[1] + instructions[2])))
    work.block("matrix", matrices).block("column", matrices * columns).block("row", matrices * rows)
    return Kernel(
        design="mve matrix product",
        template="mve/matmul.c.j2",
        view=view,
        consts=consts,
        scratch=2 * (first + _LANES * vectors),
        work=work,
        routines=routines,
    )


def _copy(count: int, step: int, offset: int, stride: int) -> Routine:
    """``count`` numbers that lie ``step`` bytes apart, plus ``offset``; vectors go ``stride`` bytes apart."""
    f = Function("copy", "const int8_t *from", "int16_t *to", purpose=f"{count} numbers as halfwords.")
    source, to = f.arguments
    elements, added = f.vector("numbers"), f.vector("offset")
    spread(f, added, offset, 16)
    places = _places(f, step) if step > 1 else ""

    def vector(masked: bool) -> None:
        suffix = "t" if masked else ""
        if masked:
            f("vpst")
        f(f"vldrb{suffix}.s16", elements, f"[{source}, {places}]" if places else f"[{source}], #{_LANES}")
        if masked:
            f("vpst")
        f(f"vadd{suffix}.i16", elements, elements, added)
        f("vstrh.16", elements, f"[{to}], #{stride}")
        if places and not masked:
            f.advance(source, step * _LANES)

    if count // _LANES:
        with f.repeated("numbers", count // _LANES):
            vector(False)
    if count % _LANES:
        rest = f.constant("numbers left", count % _LANES)
        f("vctp.16", rest)
        vector(True)
    return f.done()


def _places(f: Function, step: int) -> str:
    """Offsets of numbers that lie ``step`` bytes apart."""
    places, even, apart = (
        f.vector("offsets of the lanes"),
        f.core("a lane's number", EVEN),
        f.core("bytes apart"),
    )
    f("movs", even, "#0")
    f("vidup.u16", places, even, "#1")
    f.number(apart, step)
    f("vmul.i16", places, places, apart)
    f.free(even, apart)
    return places


def _row(depth: int, columns: int, p: MatMulParams) -> Routine:
    """One row of outputs."""
    f = Function(
        "row",
        "const int16_t *first",
        "const int16_t *second",
        "int8_t *y",
        purpose=f"A row of {columns} outputs.",
    )
    first, second, y = (
        f.moved(a, role, ODD) for a, role in zip(f.arguments, ("row", "columns", "outputs"), strict=True)
    )
    numbers, left = f.core("numbers of the row", ODD), f.core("outputs left", ODD)
    sums = f.cores("sums", _COLUMNS, EVEN)
    vector, others = f.vectors("numbers of the row, then outputs; of a column", 2)
    most = depth * INT8.magnitude(-p.input1_offset) * INT8.magnitude(-p.input2_offset)
    scale = (p.multiplier, p.shift)
    start, finish = requantised(f, scale, p.output_offset, INT8.limits, (-most, most), 0)
    begin = f.constant("start", start) if start else ""
    f.number(left, columns)
    with f.loop("outputs", -(-columns // _COLUMNS)) as again:
        f("mov", numbers, first)
        for total in sums:
            f("movs" if total < "r8" and len(total) == 2 else "mov", total, "#0")
        with f.low_overhead_loop("terms", -(-depth // _LANES)):
            f("vldrh.u16", vector, f"[{numbers}], #16")
            for total in sums:
                f("vldrh.u16", others, f"[{second}], #16")
                f("vmladava.s16", total, vector, others)
        gather_sums(f, vector, sums)
        if begin:
            f("vadd.i32", vector, vector, begin)
        finish(vector)
        if columns % _COLUMNS:
            f("vctp.32", left)
            f("vpst")
        f("vstrbt.32" if columns % _COLUMNS else "vstrb.32", vector, f"[{y}], #{_COLUMNS}")
        f("subs", left, left, f"#{_COLUMNS}")
        f("bgt", again)
    return f.done()
