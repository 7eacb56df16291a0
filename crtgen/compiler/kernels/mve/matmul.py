"""Products of two computed matrices with Helium: one row by four columns at a time, or by two for int16.

Both operands are copied to scratch minus their zero points: 16-bit integers in vectors of eight, the last one
padded with zeros. Scratch holds one row of the first operand and all columns of the second. Columns that are
multiplied together are interleaved: a vector of each, then the next vector of each.
"""

from dataclasses import dataclass

from crtgen.compiler.kernels.asm import EVEN, ODD, Function, Routine, scale_wide
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import operands
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.loops import Loop
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.mve.elements import requantised, spread
from crtgen.compiler.kernels.mve.matrix import gather_sums
from crtgen.compiler.kernels.portable.matmul import batches, fits
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import INT8
from crtgen.network.ops.fixedpoint import reduced_multiplier
from crtgen.network.ops.matmul import BatchMatMul, MatMulParams

__all__ = ["MveProductView", "lane_places", "product"]

_LANES = 8
_COLUMNS = {DType.INT8: 4, DType.INT16: 2}  # at a time: sums of int16 need 64 bits
_FARTHEST = 1 << 16  # beyond an offset in 16 bits
_DEEPEST = 1 << 15  # terms whose sum 32 bits hold


@dataclass(frozen=True, slots=True)
class MveProductView:
    """Products of two matrices, one for each of ``loops``; they begin at the C expressions ``starts``.

    ``steps`` are the elements from row to row of the first matrix, and from column to column of the second;
    both have the C type ``type``. ``group`` is the number of halfwords in ``at_once`` columns; ``first`` is
    the index of the halfword in scratch where a row of the first operand begins.
    """

    type: str
    at_once: int
    names: tuple[str, str]
    loops: tuple[Loop, ...]
    starts: tuple[str, str]
    rows: int
    columns: int
    steps: tuple[int, int]
    group: int
    first: int


@design(BatchMatMul, types=(DType.INT8, DType.INT16), needs="mve", weights=None)
def product(op: BatchMatMul, sig: Signature, target: Target) -> Kernel | None:
    """Product of any matrices except very large ones, and for int16 except results that exceed 32 bits."""
    rows, depth, _, columns = op.lengths(*sig.inputs)
    p, vectors, dtype = op.parameters(sig), -(-depth // _LANES), sig.x.dtype
    across = (rows if op.adj_x else 1, 1 if op.adj_y else columns)
    wide = dtype is DType.INT16
    if depth >= _DEEPEST or max(across) * _LANES >= _FARTHEST or (wide and not fits(p, depth)):
        return None
    at_once = _COLUMNS[dtype]
    names, consts = operands(sig)
    loops, starts = batches(sig)
    group = at_once * _LANES * vectors
    first = -(-columns // at_once) * group
    routines = (
        _copy(dtype, depth, across[1], p.input2_offset, 2 * _LANES * at_once),
        _copy(dtype, depth, across[0], p.input1_offset, 2 * _LANES),
        (_wide_row if wide else _row)(depth, columns, p),
    )
    view = MveProductView(
        type=dtype.c_name,
        at_once=at_once,
        names=(names[0], names[1]),
        loops=loops,
        starts=starts,
        rows=rows,
        columns=columns,
        steps=(1 if op.adj_x else depth, depth if op.adj_y else 1),
        group=group,
        first=first,
    )
    instructions = [routine.runs() for routine in routines]
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


def _copy(dtype: DType, count: int, step: int, offset: int, stride: int) -> Routine:
    # ``count`` numbers that are ``step`` apart, plus ``offset``; vectors go ``stride`` bytes apart.
    f = Function("copy", "const void *from", "int16_t *to", purpose=f"{count} numbers as halfwords.")
    source, to = f.arguments
    elements, added = f.vector("numbers"), f.vector("offset") if offset else ""
    if added:
        spread(f, added, offset, 16)
    size, load = dtype.itemsize, "vldrb{}.s16" if dtype is DType.INT8 else "vldrh{}.u16"
    scaled = "" if size == 1 else ", uxtw #1"
    places = lane_places(f, step) if step > 1 else ""

    def vector(masked: bool) -> None:
        suffix = "t" if masked else ""
        if masked:
            f("vpst")
        place = f"[{source}, {places}{scaled}]" if places else f"[{source}], #{_LANES * size}"
        f(load.format(suffix), elements, place)
        if masked and added:
            f("vpst")
        if added:
            f(f"vadd{suffix}.i16", elements, elements, added)
        f("vstrh.16", elements, f"[{to}], #{stride}")
        if places and not masked:
            f.advance(source, step * _LANES * size)

    if count // _LANES:
        with f.repeated("numbers", count // _LANES):
            vector(False)
    if count % _LANES:
        rest = f.constant("numbers left", count % _LANES)
        f("vctp.16", rest)
        vector(True)
    return f.done()


def lane_places(f: Function, step: int) -> str:
    """Take a vector of the offsets of elements that are ``step`` bytes apart."""
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
    at_once = _COLUMNS[DType.INT8]
    sums = f.cores("sums", at_once, EVEN)
    vector, others = f.vectors("numbers of the row, then outputs; of a column", 2)
    most = depth * INT8.magnitude(-p.input1_offset) * INT8.magnitude(-p.input2_offset)
    scale = (p.multiplier, p.shift)
    start, finish = requantised(f, scale, p.output_offset, INT8.limits, (-most, most), 0, p.factor)
    begin = f.constant("start", start) if start else ""
    f.number(left, columns)
    with f.loop("outputs", -(-columns // at_once)) as again:
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
        if columns % at_once:
            f("vctp.32", left)
            f("vpst")
        f("vstrbt.32" if columns % at_once else "vstrb.32", vector, f"[{y}], #{at_once}")
        f("subs", left, left, f"#{at_once}")
        f("bgt", again)
    return f.done()


def _wide_row(depth: int, columns: int, p: MatMulParams) -> Routine:
    # One row of outputs of int16, by two sums of 64 bits.
    f = Function(
        "row",
        "const int16_t *first",
        "const int16_t *second",
        "int16_t *y",
        purpose=f"A row of {columns} outputs.",
    )
    first, second, y = (
        f.moved(a, role) for a, role in zip(f.arguments, ("row", "columns", "outputs"), strict=True)
    )
    vector, others = f.vectors("numbers of the row; of a column", 2)
    pairs = [(f.core("sum, low", EVEN), f.core("sum, high", ODD)) for _ in range(_COLUMNS[DType.INT16])]
    numbers, high, multiplier = (
        f.core("numbers of the row, then a result"),
        f.core("result"),
        f.core("multiplier"),
    )
    left = f.core("outputs left")
    f.number(multiplier, reduced_multiplier(p.multiplier))

    def output(low: str, upper: str) -> None:
        scale_wide(f, (low, upper), multiplier, 15 - p.shift, (numbers, high))
        f("strh", numbers, f"[{y}], #2")

    def sums(count: int) -> None:
        f("mov", numbers, first)
        for register in (r for pair in pairs for r in pair):
            f("mov", register, "#0")
        with f.low_overhead_loop("terms", -(-depth // _LANES)):
            f("vldrh.u16", vector, f"[{numbers}], #16")
            for pair in pairs:
                f("vldrh.u16", others, f"[{second}], #16")
                f("vmlaldava.s16", *pair, vector, others)
        for pair in pairs[:count]:
            output(*pair)

    whole, rest = divmod(columns, len(pairs))
    if whole:
        with f.counted_loop("outputs", left, whole):
            sums(len(pairs))
    if rest:
        sums(rest)
    return f.done()
