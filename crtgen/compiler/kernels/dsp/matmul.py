"""Products of two computed matrices with the DSP extension: two rows at a time.

Both operands are copied to scratch as 16-bit integers minus their zero points, padded with zeros to whole
words: two rows of the first operand, and all columns of the second. One call copies both rows, or all
columns, if they are contiguous and need no padding; int8 columns of which four are side by side, too. For
int8, two columns are computed at a time; for int16, whose sums have 64 bits, one. Either way a call computes
all columns of two rows: heads of attention have about 8 terms per sum, and a call for every four sums would
take as long as their products.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import Rescale
from crtgen.compiler.kernels.asm import NEAR, Function, Routine, scale_wide
from crtgen.compiler.kernels.dsp.epilogue import Lanes, epilogue_lanes
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import operands
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.loops import Loop
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.portable.matmul import batches, fits
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import INT8
from crtgen.network.ops.fixedpoint import reduced_multiplier
from crtgen.network.ops.matmul import BatchMatMul, MatMulParams

__all__ = ["DspProductView", "product"]

_AT_ONCE = 4  # numbers of a row or a column
_UNROLL = {"speed": 4, "size": 1}
_FARTHEST = 1016  # bytes from row to row: an offset of LDRD
_DEEPEST = 1 << 15  # terms whose sum 32 bits hold


@dataclass(frozen=True, slots=True)
class DspProductView:
    """Products of two matrices of the C type ``type``, one for each of ``loops``; they begin at the C
    expressions ``starts``.

    ``steps`` are the elements from row to row of the first matrix, and from column to column of the second.
    In scratch, a row or a column has ``length`` halfwords. ``joined``: a call copies both rows, or all
    columns.
    """

    type: str
    names: tuple[str, str]
    loops: tuple[Loop, ...]
    starts: tuple[str, str]
    rows: int
    columns: int
    steps: tuple[int, int]
    length: int
    joined: tuple[bool, bool]


@design(BatchMatMul, types=(DType.INT8, DType.INT16), needs="dsp", weights=None)
def product(op: BatchMatMul, sig: Signature, target: Target) -> Kernel | None:
    """Product of at least two rows and two columns that are not too long; None without an exact
    requantisation.
    """
    rows, depth, _, columns = op.lengths(*sig.inputs)
    p, wide = op.parameters(sig), sig.x.dtype is DType.INT16
    length = -(-depth // _AT_ONCE) * _AT_ONCE
    if min(rows, columns) < 2 or max(2 * length, columns + 1) > _FARTHEST or (wide and not fits(p, depth)):
        return None
    lanes = None if wide else _lanes(p, depth)
    if lanes is None and not wide:
        return None
    names, consts = operands(sig)
    loops, starts = batches(sig)
    most = target.steps(_UNROLL[target.optimize])
    unroll = max(n for n in range(1, most + 1) if length // _AT_ONCE % n == 0)
    both = _narrow_rows(length, columns, unroll, lanes) if lanes else _wide_rows(length, columns, unroll, p)
    turned = not wide and not op.adj_y and columns % _AT_ONCE == 0
    joined = depth == length and not op.adj_x, depth == length and (op.adj_y or turned)
    first_count, second_count = (2 if joined[0] else 1), (columns if joined[1] else 1)
    first = _copy(sig.x.dtype, depth * first_count, rows if op.adj_x else 1, p.input1_offset)
    if joined[1] and turned:
        second = _turned(depth, columns, p.input2_offset)
    else:
        second = _copy(sig.x.dtype, depth * second_count, 1 if op.adj_y else columns, p.input2_offset)
    view = DspProductView(
        type=sig.x.dtype.c_name,
        names=(names[0], names[1]),
        loops=loops,
        starts=starts,
        rows=rows,
        columns=columns,
        steps=(1 if op.adj_x else depth, depth if op.adj_y else 1),
        length=length,
        joined=joined,
    )
    matrices, pairs = sig.y.elements // (rows * columns), -(-rows // 2)
    counted = columns // second_count * second.runs() + 2 // first_count * pairs * first.runs()
    work = Work(matrices * (counted + pairs * both.runs())).block("matrix", matrices)
    work.block("column", matrices * columns // second_count)
    return Kernel(
        design="dsp matrix product",
        template="dsp/matmul.c.j2",
        view=view,
        consts=consts,
        scratch=2 * length * (columns + 2),
        work=work.block("row", matrices * pairs * 2 // first_count),
        routines=(second, first, both),
    )


def _lanes(p: MatMulParams, depth: int) -> Lanes | None:
    # The requantisation of int8; None if there is none, or sums need more than 32 bits.
    if depth >= _DEEPEST:
        return None
    most = depth * INT8.magnitude(-p.input1_offset) * INT8.magnitude(-p.input2_offset)
    limits = p.output_offset, *INT8.limits
    rescale = Rescale.one((p.multiplier, p.shift), p.factor, limits, (-most, most))
    return epilogue_lanes(rescale, [(1, np.zeros(1, np.int64))])


def _copy(dtype: DType, depth: int, step: int, offset: int) -> Routine:
    # ``copy(from, to)``: numbers that are ``step`` elements apart, plus ``offset``.
    f = Function("copy", "const void *from", "int16_t *to", purpose=f"{depth} numbers as halfwords.")
    source, to = f.arguments
    alike, fours = step == 1, depth // _AT_ONCE
    if alike and fours:
        _fours(f, dtype, fours, offset)
    number = f.core("a number")
    load, stride = {DType.INT8: "ldrsb", DType.INT16: "ldrsh"}[dtype], step * dtype.itemsize
    rest = depth % _AT_ONCE if alike else depth
    if rest:
        unroll = max(n for n in (1, 2, 3, 4) if rest % n == 0)
        with f.repeated("numbers", rest // unroll):
            for _ in range(unroll):
                f(load, number, f"[{source}], #{stride}" if stride <= NEAR else f"[{source}]")
                if stride > NEAR:
                    f.advance(source, stride)
                if offset:
                    f("add", number, number, f"#{offset}")
                f("strh", number, f"[{to}], #2")
    if depth % _AT_ONCE:
        f("movs", number, "#0")
    for _ in range(-depth % _AT_ONCE):
        f("strh", number, f"[{to}], #2")
    return f.done()


def _fours(f: Function, dtype: DType, count: int, offset: int) -> None:
    # ``count`` groups of four neighbours.
    source, to = f.arguments
    low, high = f.cores("numbers", 2)
    if dtype is DType.INT16:
        with f.repeated("fours", count):
            f("ldr", low, f"[{source}], #4")
            f("ldr", high, f"[{source}], #4")
            f("strd", low, high, f"[{to}], #8")
        f.free(low, high)
        return
    odd, added = f.core("numbers 1 and 3"), f.constant("offset", (offset & 0xFFFF) * 0x10001)
    with f.repeated("fours", count):
        f("ldr", low, f"[{source}], #4")
        f("sxtab16", odd, added, low, "ror #8")
        f("sxtab16", low, added, low)
        f("pkhtb", high, odd, low, "asr #16")
        f("pkhbt", low, low, odd, "lsl #16")
        f("strd", low, high, f"[{to}], #8")
    f.free(low, high, odd, added)


def _turned(depth: int, columns: int, offset: int) -> Routine:
    # ``copy(from, to)``: all columns as halfwords plus ``offset``, four at a time from two words.
    f = Function("copy", "const void *from", "int16_t *to", purpose=f"{columns} columns as halfwords.")
    source, to = f.arguments
    words, added = f.cores("numbers of two rows", 2), f.constant("offset", (offset & 0xFFFF) * 0x10001)
    even, odd = (f.cores(f"{which} numbers of both", 2) for which in ("even", "odd"))
    column = f.core("of a column")
    with f.repeated("columns", columns // _AT_ONCE):
        with f.repeated("pairs of rows", depth // 2):
            f("ldr", words[1], f"[{source}, #{columns}]")
            f("ldr", words[0], f"[{source}]")
            f.advance(source, 2 * columns)
            for word, low, high in zip(words, even, odd, strict=True):
                f("sxtab16", high, added, word, "ror #8")
                f("sxtab16", low, added, word)
            for number, (first, second) in enumerate((even, odd)):
                f("pkhtb", column, second, first, "asr #16")
                f("str", column, f"[{to}, #{2 * depth * (number + 2)}]")
            f("pkhbt", column, odd[0], odd[1], "lsl #16")
            f("str", column, f"[{to}, #{2 * depth}]")
            f("pkhbt", column, even[0], even[1], "lsl #16")
            f("str", column, f"[{to}], #4")
        if columns > _AT_ONCE:
            f.advance(source, _AT_ONCE - depth * columns, spare=column)
            f.advance(to, 6 * depth)
    return f.done()


def _narrow_rows(length: int, columns: int, unroll: int, lanes: Lanes) -> Routine:
    # ``rows(first, second, y)``: two rows of outputs, two columns at a time. An odd last column is computed
    # together with the one before, once more.
    f = Function(
        "rows",
        "const int16_t *first",
        "const int16_t *second",
        "int8_t *y",
        purpose=f"Two rows of {columns} outputs.",
        keep=(0, 2),
        local=1,
    )
    first, second, y = f.arguments
    f.free(y)
    sums = f.cores("sums", 4)
    f.number(sums[0], -(-columns // 2))
    f("str", sums[0], "[sp]", note="pairs of columns left")
    with f.loop("columns", -(-columns // 2)) as again:
        f("ldr", first, f.kept[0])
        f.number(sums[0], int(lanes.offsets[0][0]))
        for total in sums[1:]:
            f("mov", total, sums[0])
        _narrow_sums(f, (first, second), sums, length, unroll)
        f.free(first)
        _requantised(f, sums, lanes)
        place = f.core("outputs")
        f("ldr", place, f.kept[2])
        for number in (1, 2, 3, 0):
            at = number % 2 + number // 2 * columns
            f("strb", sums[number], f"[{place}, #{at}]" if number else f"[{place}], #2")
        f("ldr", sums[0], "[sp]")
        f("add", second, second, f"#{2 * length}")
        f("subs", sums[0], sums[0], "#1")
        if columns % 2:
            f("cmp", sums[0], "#1")
            f("itt", "eq")
            f("subeq", place, place, "#1")
            f("subeq", second, second, f"#{2 * length}")
            f("cmp", sums[0], "#0")
        f("str", place, f.kept[2])
        f("str", sums[0], "[sp]")
        f("bne", again)
        f.free(place)
    return f.done()


def _narrow_sums(
    f: Function, operands: tuple[str, str], sums: Sequence[str], length: int, unroll: int
) -> None:
    # Both pointers move over a row and a column.
    first, second = operands
    top, bottom, column = (f.cores(role, 2) for role in ("of a row", "of the other", "of a column"))
    with f.repeated("terms", length // (_AT_ONCE * unroll)):
        for _ in range(unroll):
            f("ldrd", *bottom, f"[{first}, #{2 * length}]")
            f("ldrd", *top, f"[{first}], #8")
            for number in range(2):
                if number:
                    f("ldrd", *column, f"[{second}, #{2 * length - 8}]")
                else:
                    f("ldrd", *column, f"[{second}], #8")
                for half in range(2):
                    f("smlad", sums[number], top[half], column[half], sums[number])
                    f("smlad", sums[2 + number], bottom[half], column[half], sums[2 + number])
    f.free(*top, *bottom, *column)


def _requantised(f: Function, sums: Sequence[str], lanes: Lanes) -> None:
    constants = [int(word) for word in lanes.constants[0][0]]
    multiplier, constant = f.constant("multiplier", constants[0]), f.constant("constant", constants[1])
    spare = () if lanes.epilogue.floor else (f.core("spare"),)
    lanes.epilogue.append_all(f, sums, (multiplier, constant), spare)
    f.free(multiplier, constant, *spare)


def _wide_rows(length: int, columns: int, unroll: int, p: MatMulParams) -> Routine:
    # ``rows(first, second, y)``: two rows of outputs of int16.
    f = Function(
        "rows",
        "const int16_t *first",
        "const int16_t *second",
        "int16_t *y",
        purpose=f"Two rows of {columns} outputs.",
        keep=(0, 2),
        local=1,
    )
    first, second, y = f.arguments
    f.free(y)
    upper, lower = (
        (f.core(f"{role}, low"), f.core(f"{role}, high")) for role in ("sum of a row", "sum of the other")
    )
    top, bottom, column = (f.cores(role, 2) for role in ("of a row", "of the other", "of a column"))
    f.number(top[0], columns)
    f("str", top[0], "[sp]", note="columns left")
    with f.loop("columns", columns) as again:
        f("ldr", first, f.kept[0])
        for register in (*upper, *lower):
            f("mov", register, "#0")
        with f.repeated("terms", length // (_AT_ONCE * unroll)):
            for _ in range(unroll):
                f("ldrd", *bottom, f"[{first}, #{2 * length}]")
                f("ldrd", *top, f"[{first}], #8")
                f("ldrd", *column, f"[{second}], #8")
                for half in range(2):
                    f("smlald", *upper, top[half], column[half])
                    f("smlald", *lower, bottom[half], column[half])
        multiplier, place = column
        f("movw", multiplier, f"#{reduced_multiplier(p.multiplier)}")
        for acc, (low, high) in ((upper, top), (lower, bottom)):
            scale_wide(f, acc, multiplier, 15 - p.shift, (low, high))
        f("ldr", place, f.kept[2])
        f("strh", bottom[0], f"[{place}, #{2 * columns}]")
        f("strh", top[0], f"[{place}], #2")
        f("str", place, f.kept[2])
        f("ldr", top[0], "[sp]")
        f("subs", top[0], top[0], "#1")
        f("str", top[0], "[sp]")
        f("bne", again)
    return f.done()
