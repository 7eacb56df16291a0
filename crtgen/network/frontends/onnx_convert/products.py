"""Matrix products."""

from collections.abc import Mapping

import numpy as np

from crtgen.network.frontends.builder import Converted, RefusedOperator
from crtgen.network.frontends.onnx_convert.layer import (
    OnnxConverter,
    OnnxLayer,
    Operand,
    number,
    reshaped,
    transposed,
)
from crtgen.network.ir import Array, Op, shape_text
from crtgen.network.ops import Add, FullyConnected, Mul, StridedSlice, Sub
from crtgen.network.ops.matmul import BatchMatMul

__all__ = ["CONVERTERS", "multiplied"]

_MOST_ROWS = 3


def _matmul(layer: OnnxLayer) -> Converted:
    # numpy's ``matmul``; with constant weights a fully connected layer.
    a, b = layer.tensor(0), layer.tensor(1)
    if not a.shape or not b.shape:
        raise ValueError("a scalar is no matrix")
    if b.data is not None and b.data.ndim == 2 and len(a.shape) > 1:
        weights, zeros = np.ascontiguousarray(b.data.T), np.zeros(b.shape[1], np.float32)
        return Converted(FullyConnected(keep_dims=True), (a, weights, zeros), ("weights", "bias"))
    return multiplied(a, b, a.shape, b.shape, BatchMatMul())


def multiplied(
    a: Operand, b: Operand, a_shape: tuple[int, ...], b_shape: tuple[int, ...], op: Op
) -> Converted:
    left: Operand = a if len(a_shape) > 1 else reshaped(a, (1, *a_shape))
    right: Operand = b if len(b_shape) > 1 else reshaped(b, (*b_shape, 1))
    made = Converted(op, (left, right), ("operand",))
    if len(a_shape) > 1 and len(b_shape) > 1:
        return made
    batch = np.broadcast_shapes(a_shape[:-2], b_shape[:-2])
    rows = a_shape[-2:-1] if len(a_shape) > 1 else ()
    columns = b_shape[-1:] if len(b_shape) > 1 else ()
    return reshaped(made, (*batch, *rows, *columns))


def _gemm(layer: OnnxLayer) -> Converted:
    # ``alpha * a * b + beta * c``.
    a, b = layer.tensor(0), layer.tensor(1)
    alpha, beta = layer.real("alpha", 1.0), layer.real("beta", 1.0)
    turned = bool(layer.whole("transA")), bool(layer.whole("transB"))
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise ValueError(f"{shape_text(a.shape)} times {shape_text(b.shape)}")
    if b.data is not None:
        weights = np.ascontiguousarray(b.data if turned[1] else b.data.T).astype(np.float32)
        if alpha != 1:
            weights = weights * np.float32(alpha)
        x = transposed(a, (1, 0)) if turned[0] else a
        return _dense(layer, x, weights, beta)
    made = Converted(BatchMatMul(*turned), (a, b), ("operand",))
    if alpha != 1:
        made = Converted(Mul(), (made, number(alpha)), ("alpha",))
    return _plus(layer, made, beta)


def _dense(layer: OnnxLayer, x: Operand, weights: Array, beta: float) -> Converted:
    # A fully connected layer, whose bias is the third operand where that has one number per output.
    outputs = weights.shape[0]
    bias = np.zeros(outputs, np.float32)
    third = layer.tensor(2).data if layer.has(2) else None
    own = third is not None and third.size in (1, outputs) and third.shape[-1:] in ((), (1,), (outputs,))
    if third is not None and own and (third.ndim < 2 or third.shape[0] == 1):
        bias = np.broadcast_to(third.reshape(-1).astype(np.float32) * np.float32(beta), (outputs,)).astype(
            np.float32
        )
        return Converted(FullyConnected(), (x, weights, bias), ("weights", "bias"))
    made = Converted(FullyConnected(), (x, weights, bias), ("weights", "bias"))
    return _plus(layer, made, beta)


def _plus(layer: OnnxLayer, made: Converted, beta: float) -> Converted:
    if not layer.has(2) or beta == 0:
        return made
    third: Operand = layer.tensor(2)
    if beta != 1:
        third = Converted(Mul(), (third, number(beta)), ("beta",))
    return Converted(Add(), (made, third), ("bias",))


def _det(layer: OnnxLayer) -> Converted:
    # Determinants of the last two axes, by the first row.
    shape = layer.x.shape
    if layer.rank < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"the determinant of {shape_text(shape)}")
    if shape[-1] > _MOST_ROWS:
        raise RefusedOperator(f"determinants of {shape[-1]} rows; supported: up to {_MOST_ROWS}")
    outer = shape[:-2]

    def at(row: int, column: int) -> Converted:
        begin, end = (*(0,) * len(outer), row, column), (*outer, row + 1, column + 1)
        return reshaped(Converted(StridedSlice(begin, end, (1,) * layer.rank), (layer.x,)), outer)

    def below(row: int, columns: tuple[int, ...]) -> Converted:
        first, *others = columns
        if not others:
            return at(row, first)
        made: Converted | None = None
        for n, column in enumerate(columns):
            rest = below(row + 1, (*columns[:n], *columns[n + 1 :]))
            term = Converted(Mul(), (at(row, column), rest), ("minor",))
            made = term if made is None else Converted(Sub() if n % 2 else Add(), (made, term), ("term",))
        assert made is not None
        return made

    return below(0, tuple(range(shape[-1])))


CONVERTERS: Mapping[str, OnnxConverter] = {
    "Det": OnnxConverter(_det, ("det",)),
    "Gemm": OnnxConverter(_gemm, ("gemm", "dense")),
    "MatMul": OnnxConverter(_matmul, ("matmul",)),
}
