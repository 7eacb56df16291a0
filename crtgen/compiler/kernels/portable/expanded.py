"""Float32 layers with 8-bit weights, by the kernels for float32 weights."""

import numpy as np

from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import applicable, design
from crtgen.compiler.kernels.portable.gemm import holds_bias
from crtgen.network.ir import DType, Signature, Value
from crtgen.network.ops import Conv2d, DepthwiseConv2d, FullyConnected
from crtgen.network.ops.conv import real_weights

__all__ = ["expanded"]


@design(Conv2d, DepthwiseConv2d, FullyConnected, types=(DType.FLOAT32,), weights=(1, 2), narrow_weights=True)
def expanded(op: Conv2d | DepthwiseConv2d | FullyConnected, sig: Signature, target: Target) -> Kernel | None:
    """Return the fastest kernel on float32 weights, which take four times the flash but need no conversion at
    run time.

    When optimising for size, only if no kernel reads the 8-bit weights directly.
    """
    x, weights, bias = sig.inputs
    if weights.dtype is DType.FLOAT32:
        return None
    if target.optimize == "size" and not isinstance(op, DepthwiseConv2d) and holds_bias(sig):
        return None
    real = Value.constant(weights.name, real_weights(weights).astype(np.float32))
    return next(iter(applicable(op, Signature((x, real, bias), sig.outputs), target)), None)
