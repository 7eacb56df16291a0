"""How much work an operator is."""

from math import prod

from crtgen.ir import Op, Signature
from crtgen.ops.conv import Conv2d, DepthwiseConv2d
from crtgen.ops.dense import FullyConnected
from crtgen.ops.stream import AddProjection, RowStream

__all__ = ["count_macs"]


def count_macs(op: Op, sig: Signature) -> int:
    """Multiplications of an input with a weight; 0 for an operator without weights."""
    if isinstance(op, RowStream | AddProjection):
        return sum(map(count_macs, op.stages, op.signatures(sig)))
    if isinstance(op, DepthwiseConv2d):
        return sig.y.elements * prod(sig.inputs[1].shape[1:3])
    if isinstance(op, Conv2d | FullyConnected):
        return sig.y.elements * prod(sig.inputs[1].shape[1:])
    return 0
