"""Plain sums of products with Helium, by the kernels of the layers that contain them."""

from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.mve.conv import conv_kernel
from crtgen.compiler.kernels.mve.dense import dense_kernel
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Conv2d, FullyConnected
from crtgen.network.ops.accumulate import Accumulate

__all__ = ["accumulate"]


@design(Accumulate, types=(DType.INT8,), needs="mve", weights=(1, 2), to=DType.INT32)
def accumulate(op: Accumulate, sig: Signature, target: Target) -> Kernel | None:
    """Convolutions and fully connected layers as sums; None if no two outputs are adjacent."""
    if isinstance(op.layer, Conv2d):
        return conv_kernel(op.layer, op.of_weights(sig), sig, target)
    return dense_kernel(op.of_weights(sig), sig, target) if isinstance(op.layer, FullyConnected) else None
