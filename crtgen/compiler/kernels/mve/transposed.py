"""Depthwise convolutions over time with Helium: in memory, an image one pixel wide equals an image with one
row.

The design for images processes four rows at a time and many columns, so it gets such an image with rows and
columns exchanged.
"""

from dataclasses import replace

from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.mve.depthwise import depthwise
from crtgen.network.ir import DType, Signature, Value
from crtgen.network.ops import DepthwiseConv2d, Padding

__all__ = ["transposed"]


@design(DepthwiseConv2d, types=(DType.INT8,), needs="mve", weights=(1, 2))
def transposed(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    x, weights, bias = sig.inputs
    if any(n != 1 for n in (x.shape[2], weights.shape[2], sig.y.shape[2])) or op.padding.left > 0:
        return None
    image = replace(
        op,
        stride=op.stride[::-1],
        padding=Padding(0, 0, op.padding.top, op.padding.bottom),
        dilation=op.dilation[::-1],
    )
    turned = Signature((_lying(x), _lying(weights), bias), (_lying(sig.y),))
    return depthwise(image, turned, target)


def _lying(value: Value) -> Value:
    n, height, width, channels = value.shape
    data = None if value.data is None else value.array().reshape(n, width, height, channels)
    return replace(value, shape=(n, width, height, channels), data=data)
