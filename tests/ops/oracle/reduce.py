"""Reductions."""

from collections.abc import Mapping
from typing import Any

from crtgen.ir import Node, Op, Signature
from crtgen.ops import Mean
from tests.ops.oracle.writer import Write, Writer, Written
from tests.tflite_builder import Options


def _mean(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    return (
        "MEAN",
        Options("ReducerOptions", KeepDims=op.keep_dims),
        [writer.constant(f"{node.name}_axes", op.axes)],
    )


WRITERS: Mapping[type[Op], Write] = {
    Mean: _mean,
}
