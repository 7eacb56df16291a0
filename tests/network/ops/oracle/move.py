"""Operators that move elements."""

from collections.abc import Mapping
from typing import Any

from crtgen.network.ir import Node, Op, Signature
from crtgen.network.ops import Concat, Identity, Pad, Reshape, ResizeNearest, StridedSlice, Transpose
from crtgen.network.ops.gather import DynamicSlice, DynamicUpdateSlice, Gather, GatherNd
from crtgen.network.ops.resize import ResizeBilinear
from crtgen.network.ops.spread import BroadcastTo, MirrorPad
from tests.network.ops.oracle.writer import Write, Writer, Written, plain
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


def _bilinear(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    fields = {"AlignCorners": op.align_corners, "HalfPixelCenters": op.half_pixel_centers}
    size = writer.constant(f"{node.name}_size", op.size)
    return "RESIZE_BILINEAR", Options("ResizeBilinearOptions", **fields), [size]


def _broadcast_to(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    return "BROADCAST_TO", Options("BroadcastToOptions"), [writer.constant(f"{node.name}_shape", op.shape)]


def _mirror_pad(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    amounts = writer.constant(f"{node.name}_by", list(zip(op.before, op.after, strict=True)))
    return "MIRROR_PAD", Options("MirrorPadOptions", Mode=int(op.repeats)), [amounts]


def _gather(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    return "GATHER", Options("GatherOptions", Axis=op.axis, BatchDims=op.batch), []


def _dynamic_slice(writer: Writer, node: Node, sig: Signature) -> Written:
    op: Any = node.op
    dtype = sig.inputs[1].dtype.value
    return "SLICE", Options("SliceOptions"), [writer.constant(f"{node.name}_size", op.size, dtype)]


WRITERS: Mapping[type[Op], Write] = {
    Reshape: _reshape,
    Pad: _pad,
    Transpose: _transpose,
    StridedSlice: _strided_slice,
    Concat: _concat,
    Identity: _identity,
    ResizeNearest: _resize,
    ResizeBilinear: _bilinear,
    BroadcastTo: _broadcast_to,
    MirrorPad: _mirror_pad,
    Gather: _gather,
    GatherNd: plain("GATHER_ND"),
    DynamicSlice: _dynamic_slice,
    DynamicUpdateSlice: plain("DYNAMIC_UPDATE_SLICE"),
}
