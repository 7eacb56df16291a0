"""Products of two matrices that are both computed at run time: ``batch_matmul``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crtgen.network.ir import Array, DType, Op, Quant, Signature, Value, shape_text
from crtgen.network.ops.attrs import magnitude, require, require_inputs, tensor_quant
from crtgen.network.ops.case import Case, by_float32, floats, int8s, int16s, make
from crtgen.network.ops.fixedpoint import multiply_by_quantized_multiplier, multiply_wide, quantize_multiplier
from crtgen.network.ops.rescaling import by_float, product_factors, rounded_product
from crtgen.network.ops.scheme import INT16, scheme_of

__all__ = ["BatchMatMul", "MatMulParams", "cases"]


@dataclass(frozen=True, slots=True)
class MatMulParams:
    """Integers of a quantised product of matrices.

    ``y = clamp(output_offset + sum((a + offset1) * (b + offset2)) * multiplier * 2**(shift - 31))``. If there
    is a ``factor``, a float32 product with it takes the place of multiplier and shift, which then only
    approximate it.
    """

    input1_offset: int
    input2_offset: int
    output_offset: int
    multiplier: int
    shift: int
    factor: float | None = None


@dataclass(frozen=True, slots=True)
class BatchMatMul(Op):
    """``a[..., M, K], b[..., K, N] -> [..., M, N]``; the leading axes are broadcast.

    With ``adj_x`` or ``adj_y``, the last two axes of that operand are exchanged.
    """

    name: ClassVar[str] = "batch_matmul"

    adj_x: bool = False
    adj_y: bool = False

    def infer(self, inputs: Sequence[Value]) -> tuple[tuple[tuple[int, ...], DType], ...]:
        require_inputs(inputs, 2)
        a, b = inputs
        scheme_of(a)
        require(a.dtype is b.dtype, f"operands of {a.dtype.value} and {b.dtype.value}")
        require(min(len(a.shape), len(b.shape)) >= 2, "an operand has fewer than two dimensions")
        rows, depth, other, columns = self.lengths(a, b)
        require(depth == other, f"{shape_text(a.shape)} times {shape_text(b.shape)}")
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return (((*batch, rows, columns), a.dtype),)

    def lengths(self, a: Value, b: Value) -> tuple[int, int, int, int]:
        (rows, depth), (other, columns) = a.shape[-2:], b.shape[-2:]
        if self.adj_x:
            rows, depth = depth, rows
        if self.adj_y:
            other, columns = columns, other
        return rows, depth, other, columns

    def macs(self, sig: Signature) -> int:
        return sig.y.elements * self.lengths(*sig.inputs)[1]

    def parameters(self, sig: Signature) -> MatMulParams:
        """Compute the factor ``in1 * in2 / out`` in double."""
        a, b, y = (tensor_quant(v) for v in (*sig.inputs, sig.y))
        depth = self.lengths(*sig.inputs)[1]
        wide = scheme_of(sig.x) is INT16
        bound = 0 if wide else depth * magnitude(sig.inputs[0]) * magnitude(sig.inputs[1])
        exact = None
        if by_float(sig.y):
            exact = float(product_factors(a.scale, [b.scale], y.scale, [bound])[0])
            bound = 0
        factor = quantize_multiplier(a.scale * b.scale / y.scale, bound)
        require(not wide or factor[1] < 8, "the output's scale is too fine for its inputs' scales")
        return MatMulParams(-a.zero_point, -b.zero_point, y.zero_point, *factor, exact)

    def reference(self, sig: Signature, arrays: Sequence[Array]) -> tuple[Array, ...]:
        real = scheme_of(sig.x).is_real
        a, b = (x.astype(np.float64 if real else np.int64) for x in arrays)
        a = np.swapaxes(a, -1, -2) if self.adj_x else a
        b = np.swapaxes(b, -1, -2) if self.adj_y else b
        if real:
            return (np.matmul(a, b).astype(np.float32),)
        p = self.parameters(sig)
        total = np.matmul(a + p.input1_offset, b + p.input2_offset)
        if p.factor is not None:
            scaled = rounded_product(total, p.factor)
        else:
            scale = multiply_wide if scheme_of(sig.x) is INT16 else multiply_by_quantized_multiplier
            scaled = scale(total, p.multiplier, p.shift)
        return (scheme_of(sig.y).saturated(scaled + p.output_offset),)


def cases() -> Iterator[Case]:
    for number, (adj_x, adj_y) in enumerate(((False, False), (True, False), (False, True), (True, True))):
        a, b = ((3, 5, 7), (3, 7, 5))[adj_x], ((3, 7, 4), (3, 4, 7))[adj_y]
        op = BatchMatMul(adj_x, adj_y)
        eight = [int8s("a", a, 0.05, -7), int8s("b", b, 0.02, 31)]
        yield make(f"int8_{number}", op, eight, Quant.tensor(0.06, 4))
        short = [int16s("a", a), int16s("b", b, 0.0002)]
        yield make(f"int16_{number}", op, short, Quant.tensor(0.004))
        yield make(f"f32_{number}", op, [floats("a", a), floats("b", b)])
    outer = [int8s("a", (2, 1, 3, 8), 0.05, 2), int8s("b", (5, 8, 6), 0.02, -128)]
    yield make("int8_outer", BatchMatMul(), outer, Quant.tensor(0.07, -9))
    plane = [floats("a", (2, 3, 4, 5)), floats("b", (5, 6))]
    yield make("f32_outer", BatchMatMul(), plane)
    constant = Value.constant("b", np.arange(-60, 60).reshape(2, 12, 5).astype(np.int8), Quant.tensor(0.02))
    yield make("constant", BatchMatMul(), [int8s("a", (2, 9, 12), 0.03, 5), constant], Quant.tensor(0.2, 1))
    weights = np.arange(-120, 120).reshape(24, 10).astype(np.int8)
    one = Value.constant("b", weights, Quant.tensor(0.02))
    yield make("weights", BatchMatMul(), [int8s("a", (2, 9, 24), 0.03, 5), one], Quant.tensor(0.2, 1))
    turned = Value.constant("b", weights.T.copy(), Quant.tensor(0.02))
    yield make("row", BatchMatMul(adj_y=True), [int8s("a", (1, 24), 0.03, 5), turned], Quant.tensor(0.2, 1))
    yield by_float32(
        make("weights", BatchMatMul(), [int8s("a", (2, 9, 24), 0.03, 5), one], Quant.tensor(0.2, 1))
    )
    eight = [int8s("a", (3, 5, 7), 0.05, -7), int8s("b", (3, 7, 4), 0.02, 31)]
    yield by_float32(make("int8", BatchMatMul(), eight, Quant.tensor(0.06, 4)))
    real = Value.constant("b", np.linspace(-1, 1, 240, dtype=np.float32).reshape(24, 10))
    yield make("f32_weights", BatchMatMul(), [floats("a", (3, 5, 24)), real])
