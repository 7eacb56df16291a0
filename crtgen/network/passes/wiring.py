"""Channel groups of a node's inputs and outputs, along the last axis of each."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from crtgen.network.ir import Graph, Index, Node
from crtgen.network.ops import INT8, Weighted, channels
from crtgen.network.ops.traits import Real
from crtgen.network.passes.ranges import Interval, Mask

__all__ = ["Mixing", "channel_groups", "mixing"]


def channel_groups(graph: Graph, node: Node) -> Mapping[str, Index] | None:
    """Return the group of each channel of each value that the node touches.

    Channels of a group can only be removed together. Returns None for an operator that mixes channels.
    """
    found = node.op.channel_groups(graph.signature(node))
    if found is None:
        return None
    names = zip((*node.inputs, *node.outputs), found, strict=True)
    return {name: numbers for name, numbers in names if numbers is not None}


@dataclass(frozen=True, slots=True, eq=False)
class Mixing:
    """Effect of constant input channels on a convolution or fully connected layer.

    If ``needed[o, c]``, the contribution of input channel c to output o varies with the input or between
    pixels. Otherwise it is the same integer at every pixel and can move into the bias: ``share[o, position in
    constant]`` for the channels that are ``constant``, and 0 for the others, whose weights are 0.
    """

    needed: Mask
    constant: Index
    share: Real


def mixing(graph: Graph, node: Node, known: Mapping[str, Interval]) -> Mixing | None:
    """Return the mixing of a quantised layer with constant weights; None for any other node."""
    sig, op = graph.signature(node), node.op
    if not isinstance(op, Weighted) or not op.mixes or sig.x.dtype is not INT8.activations:
        return None
    depth, weights = channels(sig.x), sig.inputs[1]
    if not all(v.is_constant for v in sig.inputs[1:]) or weights.shape[-1] % depth:
        return None
    x, w = known[node.inputs[0]], weights.array()
    w = w.reshape(w.shape[0], -1, depth)  # [O, taps, C]
    rows = (-1, 1, depth) if op.slides else (-1, w.shape[1], depth)
    least, greatest = x.low.reshape(rows).min(axis=0), x.high.reshape(rows).max(axis=0)  # [taps or 1, C]
    needed: Mask = ((least != greatest) & (w != 0)).any(axis=1)
    constant = np.flatnonzero((least == greatest).any(axis=0))
    if not len(constant):
        return Mixing(needed, constant, np.zeros((len(w), 0)))
    value = least[:, constant].astype(np.float64) + op.parameters(sig).input_offset
    shares = np.einsum("pt,otc->poc", op.taps_seen(sig), w[:, :, constant] * value)
    needed[:, constant] |= (shares != shares[0]).any(axis=0)
    return Mixing(needed, constant, shares[0])
