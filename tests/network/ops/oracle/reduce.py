"""Reductions."""

from collections.abc import Mapping
from typing import Any

from crtgen.network.ir import Node, Op, Signature
from crtgen.network.ops import Mean
from crtgen.network.ops.matmul import BatchMatMul
from crtgen.network.ops.normalize import CumSum, L2Normalization
from crtgen.network.ops.reduce import All, ArgMax, ArgMin, ReduceMax, ReduceMin, Sum
from tests.network.ops.oracle.writer import Write, Writer, Written
from tests.tflite_builder import Options


def _reducer(code: str) -> Write:
    def write(writer: Writer, node: Node, sig: Signature) -> Written:
        op: Any = node.op
        axes = writer.constant(f"{node.name}_axes", op.axes)
        return code, Options("ReducerOptions", KeepDims=op.keep_dims), [axes]

    return write


def _arg(code: str, table: str) -> Write:
    def write(writer: Writer, node: Node, sig: Signature) -> Written:
        op: Any = node.op
        return code, Options(table, OutputType=2), [writer.constant(f"{node.name}_axis", op.axis)]

    return write


def _cumsum(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    axis = writer.constant(f"{node.name}_axis", op.axis)
    return "CUMSUM", Options("CumsumOptions", Exclusive=op.exclusive, Reverse=op.reverse), [axis]


def _l2_normalization(writer: Writer, node: Node, sig: Signature) -> Written:
    return "L2_NORMALIZATION", Options("L2NormOptions", FusedActivationFunction=0), []


def _matmul(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    return "BATCH_MATMUL", Options("BatchMatMulOptions", AdjX=op.adj_x, AdjY=op.adj_y), []


WRITERS: Mapping[type[Op], Write] = {
    Mean: _reducer("MEAN"),
    Sum: _reducer("SUM"),
    ReduceMax: _reducer("REDUCE_MAX"),
    ReduceMin: _reducer("REDUCE_MIN"),
    All: _reducer("REDUCE_ALL"),
    ArgMax: _arg("ARG_MAX", "ArgMaxOptions"),
    ArgMin: _arg("ARG_MIN", "ArgMinOptions"),
    BatchMatMul: _matmul,
    CumSum: _cumsum,
    L2Normalization: _l2_normalization,
}
