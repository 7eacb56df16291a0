"""Plain sums of products with the DSP extension, by the kernels of the layers that contain them."""

from crtgen.compiler.kernels.dsp.conv import conv_kernel
from crtgen.compiler.kernels.dsp.dense import dense_kernel
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Conv2d, FullyConnected
from crtgen.network.ops.accumulate import Accumulate

__all__ = ["accumulate"]


@design(Accumulate, types=(DType.INT8,), needs="dsp", weights=(1, 2), to=DType.INT32)
def accumulate(op: Accumulate, sig: Signature, target: Target) -> Kernel | None:
    """Convolutions and fully connected layers that return their sums; None for a single output, or for sums
    that need more than 24 bits.
    """
    if isinstance(op.layer, Conv2d):
        return conv_kernel(op.layer, op.of_weights(sig), sig, target)
    return dense_kernel(op.of_weights(sig), sig, target) if isinstance(op.layer, FullyConnected) else None
