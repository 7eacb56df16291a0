"""Products of two matrices that are both computed at run time."""

from dataclasses import dataclass, replace

import numpy as np

from crtgen.compiler.kernels.arithmetic.epilogue import even, two_roundings
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import clamped, operands
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.literal import plus
from crtgen.compiler.kernels.engine.loops import Loop, index_of, merge, strides_of
from crtgen.compiler.kernels.engine.registry import applicable, design
from crtgen.network.ir import DType, Signature, Value
from crtgen.network.ops import INT16, ConvParams, FullyConnected, scheme_of
from crtgen.network.ops.accumulate import Accumulate
from crtgen.network.ops.fixedpoint import reduced_multiplier
from crtgen.network.ops.matmul import BatchMatMul, MatMulParams

__all__ = ["MatMulView", "PairsView", "batches", "fits"]


@dataclass(frozen=True, slots=True)
class MatMulView:
    """Products of two matrices, one for each of ``loops``; they begin at the C expressions ``starts``.

    ``steps`` are the elements from row to row, and from one term of a sum to the next, of both operands. The
    operands have the C types ``types``, their values the type ``number``, and the sum the type ``type``;
    ``term`` is C in terms of the values ``p`` and ``q``, and ``result`` in terms of the ``sum``.
    """

    names: tuple[str, str]
    loops: tuple[Loop, ...]
    starts: tuple[str, str]
    rows: int
    columns: int
    depth: int
    steps: tuple[tuple[int, int], tuple[int, int]]
    types: str
    number: str
    type: str
    term: str
    result: str


@design(BatchMatMul, types=(DType.INT8, DType.INT16, DType.FLOAT32), weights=None)
def batch_matmul(op: BatchMatMul, sig: Signature, target: Target) -> Kernel:
    return _kernel(op, sig, _arithmetic(op, sig))


@design(Accumulate, types=(DType.INT8, DType.INT16), to=DType.INT32, weights=None)
def accumulate(op: Accumulate, sig: Signature, target: Target) -> Kernel | None:
    if not isinstance(op.layer, BatchMatMul):
        return None
    first, second = (plus(-zero) for zero in op.zero_points(sig))
    return _kernel(op.layer, sig, ("int32_t", f"(p {first}) * (q {second})", "sum"))


def _kernel(op: BatchMatMul, sig: Signature, arithmetic: tuple[str, str, str]) -> Kernel:
    a, b = sig.inputs
    rows, depth, _, columns = op.lengths(a, b)
    names, consts = operands(sig)
    loops, starts = batches(sig)
    number, term, result = arithmetic
    view = MatMulView(
        names=(names[0], names[1]),
        loops=loops,
        starts=starts,
        rows=rows,
        columns=columns,
        depth=depth,
        steps=(
            (1, rows) if op.adj_x else (depth, 1),
            (depth, 1) if op.adj_y else (1, columns),
        ),
        types=a.dtype.c_name,
        number="float" if scheme_of(a).is_real else "int32_t",
        type=number,
        term=term,
        result=result,
    )
    kind = sig.x.dtype.value
    ways = " by ".join("down" if step > 1 else "along" for _, step in view.steps)  # the operands
    work = Work().block(f"{kind} product {ways}", sig.y.elements * depth)
    work.words(f"{kind} output", sig.y.elements, result).block(f"{kind} output {ways}", sig.y.elements)
    work.block("row", sig.y.elements // columns)
    zeros = sum(bool(v.quant and any(v.quant.zero_points)) for v in sig.inputs)
    work.block("zero point", zeros * sig.y.elements * depth, zeros)
    return Kernel("matrix product", "matmul.c.j2", view, consts, work=work)


@dataclass(frozen=True, slots=True)
class PairsView:
    """A product of values minus their zero points, as halfwords in scratch, ``length`` per row.

    Rows of the second operand begin at 0, two rows of the first one at halfword ``first``.
    """

    whole: MatMulView
    offsets: tuple[int, int]
    length: int
    first: int


@design(BatchMatMul, types=(DType.INT8,), weights=None)
def pairs(op: BatchMatMul, sig: Signature, target: Target) -> Kernel | None:
    """Product of two rows by two columns at a time, two terms of each.

    None for few rows, for which copying the operands does not pay off.
    """
    plain = batch_matmul(op, sig, target)
    view = plain.view
    if view.rows < 2 or view.columns < 2:
        return None
    p = op.parameters(sig)
    length = view.depth + view.depth % 2
    first = view.columns * length
    matrices = sig.y.elements // (view.rows * view.columns)
    tiles = matrices * -(-view.rows // 2) * -(-view.columns // 2)
    work = Work().block("copied", matrices * (view.columns + view.rows) * length)
    work.block("line", matrices * (view.columns + view.rows)).block("rows", matrices * -(-view.rows // 2))
    work.block("product", tiles * length).block("tile", tiles)
    work.words("output", sig.y.elements, view.result, copies=4)
    return Kernel(
        "matrix product by pairs",
        "matmul_pairs.c.j2",
        PairsView(view, (p.input1_offset, p.input2_offset), length, first),
        plain.consts,
        scratch=2 * (first + 2 * length),
        work=work,
    )


@dataclass(frozen=True, slots=True)
class _MatrixProduct(FullyConnected):
    factor: tuple[int, int] = (0, 0)

    def parameters(self, sig: Signature) -> ConvParams:
        outputs = sig.inputs[1].shape[0]
        params = FullyConnected.parameters(self, sig)
        multipliers, shifts = (np.full(outputs, n, np.int32) for n in self.factor)
        return replace(params, multipliers=multipliers, shifts=shifts)


@design(BatchMatMul, types=(DType.INT8, DType.FLOAT32), weights=(1,))
def constant(op: BatchMatMul, sig: Signature, target: Target) -> Kernel | None:
    """Compute a product with a constant matrix as a fully connected layer; None if the second operand is not
    constant.
    """
    a, b = sig.inputs
    _, depth, _, columns = op.lengths(a, b)
    if op.adj_x or b.elements != depth * columns or (b.quant and b.quant.zero_points != (0,)):
        return None
    matrix = b.array().reshape(b.shape[-2:])
    weights = Value.constant("weights", matrix if op.adj_y else matrix.T, b.quant)
    real = scheme_of(a).is_real
    bias = Value.constant("bias", np.zeros(columns, np.float32 if real else np.int32))
    p = None if real else op.parameters(sig)
    layer = _MatrixProduct(factor=(p.multiplier, p.shift)) if p is not None else FullyConnected()
    total = a.elements // depth
    x, y = replace(a, shape=(total, depth)), replace(sig.y, shape=(total, columns))
    found = applicable(layer, Signature((x, weights, bias), (y,)), target)
    return replace(found[0], inplace=()) if found else None


def _arithmetic(op: BatchMatMul, sig: Signature) -> tuple[str, str, str]:
    # The type of sums, a term, and the result.
    if scheme_of(sig.x).is_real:
        return "float", "p * q", "sum"
    p, limits = op.parameters(sig), scheme_of(sig.x).limits
    if scheme_of(sig.x) is INT16:
        scaled = f"crt_scale_wide(sum, {reduced_multiplier(p.multiplier)}, {15 - p.shift})"
        return "int64_t", "(int64_t)(p * q)", clamped(sig.y, scaled, *limits)
    scaled = two_roundings("sum", p.multiplier, p.shift, 1 << 31)
    if p.factor is not None:
        scaled = even("sum", p.factor)
    scaled = f"{scaled} {plus(p.output_offset)}"
    term = f"(p {plus(p.input1_offset)}) * (q {plus(p.input2_offset)})"
    return "int32_t", term, clamped(sig.y, scaled, *limits)


def fits(p: MatMulParams, depth: int) -> bool:
    """Return True if 32 bits hold every int16 result before saturation."""
    return depth * 2.0**30 * p.multiplier * 2.0 ** (p.shift - 31) < 2**31


def batches(sig: Signature) -> tuple[tuple[Loop, ...], tuple[str, str]]:
    """Return the loops over matrices, and C for the start of each operand's matrices."""
    batch = sig.y.shape[:-2]
    strides = [_batch_strides(v, len(batch)) for v in sig.inputs]
    loops = merge([Loop(n, s) for n, s in zip(batch, zip(*strides, strict=True), strict=True)], 2)
    return loops, (index_of(loops, 0), index_of(loops, 1))


def _batch_strides(value: Value, axes: int) -> tuple[int, ...]:
    # Elements from matrix to matrix along the axes before them: 0 where these are repeated.
    own = zip(value.shape[:-2], strides_of(value.shape), strict=False)
    strides = tuple(0 if length == 1 else stride for length, stride in own)
    return (0,) * (axes - len(strides)) + strides
