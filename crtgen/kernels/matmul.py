"""Products of matrices that are computed both."""

from dataclasses import dataclass

from crtgen.ir import DType, Signature, Value
from crtgen.kernels.elements import clamped, operands
from crtgen.kernels.epilogue import two_roundings
from crtgen.kernels.kernel import Kernel, Target
from crtgen.kernels.literal import plus
from crtgen.kernels.loops import Loop, index_of, merge, strides_of
from crtgen.kernels.registry import design
from crtgen.ops import INT16, scheme_of
from crtgen.ops.fixedpoint import reduced_multiplier
from crtgen.ops.matmul import BatchMatMul

__all__ = ["MatMulView"]


@dataclass(frozen=True, slots=True)
class MatMulView:
    """In each of ``loops`` the product of two matrices, which begin at ``starts``, C.

    ``steps`` are elements from row to row, and from one term of a sum to the next, of both operands. These
    are of the C type ``types``, their numbers of ``number`` and the sum of ``type``; ``term`` is C of the
    numbers ``p`` and ``q``, and ``result`` of the ``sum``.
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
    """One sum of products after another."""
    a, b = sig.inputs
    rows, depth, _, columns = op.lengths(a, b)
    names, consts = operands(sig)
    batch = sig.y.shape[:-2]
    strides = [_batch_strides(v, len(batch)) for v in sig.inputs]
    loops = merge([Loop(n, s) for n, s in zip(batch, zip(*strides, strict=True), strict=True)], 2)
    number, term, result = _arithmetic(op, sig)
    view = MatMulView(
        names=(names[0], names[1]),
        loops=loops,
        starts=(index_of(loops, 0), index_of(loops, 1)),
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
    cost = sig.y.elements * (depth * 6 + 20)
    return Kernel("matrix product", "matmul.c.j2", view, consts, cost=cost)


def _arithmetic(op: BatchMatMul, sig: Signature) -> tuple[str, str, str]:
    """The type of sums, a term, and the result."""
    if scheme_of(sig.x).is_real:
        return "float", "p * q", "sum"
    p, limits = op.parameters(sig), scheme_of(sig.x).limits
    if scheme_of(sig.x) is INT16:
        scaled = f"crt_scale_wide(sum, {reduced_multiplier(p.multiplier)}, {15 - p.shift})"
        return "int64_t", "(int64_t)(p * q)", clamped(sig.y, scaled, *limits)
    scaled = f"{two_roundings('sum', p.multiplier, p.shift, 1 << 31)} {plus(p.output_offset)}"
    term = f"(p {plus(p.input1_offset)}) * (q {plus(p.input2_offset)})"
    return "int32_t", term, clamped(sig.y, scaled, *limits)


def _batch_strides(value: Value, axes: int) -> tuple[int, ...]:
    """Elements from matrix to matrix along the axes before them: 0 where these are repeated."""
    own = zip(value.shape[:-2], strides_of(value.shape), strict=False)
    strides = tuple(0 if length == 1 else stride for length, stride in own)
    return (0,) * (axes - len(strides)) + strides
