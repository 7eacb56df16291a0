"""How the channels of a node's inputs and outputs hang together, along the last axis of each."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtgen.ir import DType, Graph, Node, Signature, Value
from crtgen.ops import (
    Add,
    AveragePool2d,
    Concat,
    Conv2d,
    DepthwiseConv2d,
    FullyConnected,
    Logistic,
    MaxPool2d,
    Mean,
    Mul,
    Pad,
    Quantize,
    Relu,
    Reshape,
    ResizeNearest,
    StridedSlice,
    Sub,
    Tanh,
    Transpose,
)
from crtgen.ops.attrs import NO_PADDING
from crtgen.passes.ranges import Interval, Mask, Real

__all__ = ["Index", "Mixing", "bundles", "channels", "mixing"]

Index = npt.NDArray[np.int64]

_CHANNELWISE = (AveragePool2d, MaxPool2d, Relu, Quantize, Logistic, Tanh, ResizeNearest)
_BINARY = (Add, Sub, Mul)


def channels(value: Value) -> int:
    """Length of the last axis; 1 of a scalar."""
    return value.shape[-1] if value.shape else 1


def bundles(graph: Graph, node: Node) -> Mapping[str, Index] | None:
    """For an operator that keeps channels apart: the bundle of each channel of each value it touches.

    The channels of a bundle can only be removed together. None for an operator that mixes channels.
    """
    sig = graph.signature(node)
    if isinstance(node.op, DepthwiseConv2d):
        ids = np.arange(channels(sig.x))
        return {node.inputs[0]: ids, node.outputs[0]: np.repeat(ids, node.op.multiplier)}
    if isinstance(node.op, Reshape):
        return _reshaped(node, sig)
    if isinstance(node.op, Concat) and node.op.axis == len(sig.y.shape) - 1:
        return _joined(node, sig)
    if _keeps_last_axis(node, sig):
        names = zip((*node.inputs, *node.outputs), (*sig.inputs, *sig.outputs), strict=True)
        count = channels(sig.y)
        return {name: np.arange(count) for name, value in names if channels(value) == count}
    return None


def _keeps_last_axis(node: Node, sig: Signature) -> bool:
    """Whether channel i of the output depends on channel i of the inputs alone, or on a broadcast one."""
    op, last = node.op, len(sig.x.shape) - 1
    match op:
        case Mean():
            return last not in op.axes
        case Pad():
            return op.before[last] == op.after[last] == 0
        case Transpose():
            return op.perm[last] == last
        case StridedSlice():
            whole = (op.begin[last], op.end[last], op.stride[last]) == (0, sig.x.shape[last], 1)
            return whole and last not in op.shrink
        case Concat():
            return True
    return isinstance(op, _CHANNELWISE + _BINARY)


def _reshaped(node: Node, sig: Signature) -> Mapping[str, Index] | None:
    """The finer of the two last axes counts, if the other is a multiple of it."""
    before, after = channels(sig.x), channels(sig.y)
    few, many = sorted((before, after))
    if many % few:
        return None
    return {node.inputs[0]: np.arange(before) % few, node.outputs[0]: np.arange(after) % few}


def _joined(node: Node, sig: Signature) -> Mapping[str, Index] | None:
    if len(set(node.inputs)) < len(node.inputs):
        return None
    table = {node.outputs[0]: np.arange(channels(sig.y))}
    start = 0
    for name, value in zip(node.inputs, sig.inputs, strict=True):
        table[name] = np.arange(start, start + channels(value))
        start += channels(value)
    return table


@dataclass(frozen=True, slots=True, eq=False)
class Mixing:
    """What a convolution or fully connected layer makes of constant input channels: arrays ``[O, C]``.

    Where ``needed``, the share of output o that comes from input channel c varies, with the input or from
    pixel to pixel. Elsewhere it is ``share``, a whole number, at every pixel: it can go into the bias.
    """

    needed: Mask
    share: Real


def mixing(graph: Graph, node: Node, known: Mapping[str, Interval]) -> Mixing | None:
    """The mixing of an int8 layer with constant weights; None for any other node."""
    sig, op = graph.signature(node), node.op
    if not isinstance(op, Conv2d | FullyConnected) or sig.x.dtype is not DType.INT8:
        return None
    depth, weights = channels(sig.x), sig.inputs[1]
    if not all(v.is_constant for v in sig.inputs[1:]) or weights.shape[-1] % depth:
        return None
    x, w = known[node.inputs[0]], weights.array().astype(np.float64)
    w = w.reshape(w.shape[0], -1, depth)  # [O, taps, C]
    rows = (-1, 1, depth) if isinstance(op, Conv2d) else (-1, w.shape[1], depth)
    least, greatest = x.low.reshape(rows).min(axis=0), x.high.reshape(rows).max(axis=0)  # [taps or 1, C]
    value = least.astype(np.float64) + op.parameters(sig).input_offset
    seen = _windows(op, sig) if isinstance(op, Conv2d) else np.ones((1, w.shape[1]))
    shares = np.einsum("pt,otc->poc", seen, w * value)
    varies = ((least != greatest) & (w != 0)).any(axis=1)
    return Mixing(varies | (shares != shares[0]).any(axis=0), shares[0])


def _windows(op: Conv2d, sig: Signature) -> Real:
    """The different windows there are, as ``[windows, taps]``: 1 for a tap on the image, 0 on padding."""
    taps = sig.inputs[1].shape[1:3]
    if op.padding == NO_PADDING:
        return np.ones((1, taps[0] * taps[1]))
    starts = (op.padding.top, op.padding.left)
    rows, columns = (
        np.unique(_inside(sig.y.shape[1 + a], taps[a], op.stride[a], op.dilation[a], starts[a], size), axis=0)
        for a, size in enumerate(sig.x.shape[1:3])
    )
    both: Real = rows[:, None, :, None] * columns[None, :, None, :]
    return both.reshape(len(rows) * len(columns), -1)


def _inside(outputs: int, taps: int, step: int, spread: int, start: int, size: int) -> Real:
    """Along one axis: ``[outputs, taps]``, 1 where the tap is on the image."""
    at = np.arange(outputs)[:, None] * step - start + np.arange(taps) * spread
    return ((at >= 0) & (at < size)).astype(np.float64)
