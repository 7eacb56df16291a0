"""Operators that move elements."""

from collections.abc import Mapping
from typing import Any

from crtgen.ir import Node, Op, Signature
from crtgen.ops import Concat, Identity, Pad, Reshape, ResizeNearest, StridedSlice, Transpose
from tests.ops.oracle.writer import Write, Writer, Written
from tests.tflite_builder import Options


def _reshape(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    shape = writer.constant(f"{node.name}_shape", op.shape)
    return "RESHAPE", Options("ReshapeOptions", NewShape=op.shape), [shape]


def _pad(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    amounts = writer.constant(f"{node.name}_by", list(zip(op.before, op.after, strict=True)))
    if op.value is None:
        return "PAD", Options("PadOptions"), [amounts]
    value = writer.constant(f"{node.name}_value", [op.value], sig.x.dtype.value, sig.x)
    return "PADV2", Options("PadV2Options"), [amounts, value]


def _transpose(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    return "TRANSPOSE", Options("TransposeOptions"), [writer.constant(f"{node.name}_perm", op.perm)]


def _strided_slice(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    open_ends = sum(1 << a for a, e in enumerate(op.end) if e == -1)
    shrink = sum(1 << a for a in op.shrink)
    parts = [writer.constant(f"{node.name}_{k}", getattr(op, k)) for k in ("begin", "end", "stride")]
    return "STRIDED_SLICE", Options("StridedSliceOptions", EndMask=open_ends, ShrinkAxisMask=shrink), parts


def _identity(writer: Writer, node: Node, sig: Signature) -> Written:
    return "CONCATENATION", Options("ConcatenationOptions"), []


def _concat(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    return "CONCATENATION", Options("ConcatenationOptions", Axis=op.axis), []


def _resize(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    fields = {"AlignCorners": op.align_corners, "HalfPixelCenters": op.half_pixel_centers}
    size = writer.constant(f"{node.name}_size", op.size)
    return "RESIZE_NEAREST_NEIGHBOR", Options("ResizeNearestNeighborOptions", **fields), [size]


WRITERS: Mapping[type[Op], Write] = {
    Reshape: _reshape,
    Pad: _pad,
    Transpose: _transpose,
    StridedSlice: _strided_slice,
    Concat: _concat,
    Identity: _identity,
    ResizeNearest: _resize,
}
