"""Depthwise convolutions on an M3, with four products in one multiplication."""

from crtgen.compiler.kernels.arithmetic.requant import Rescale
from crtgen.compiler.kernels.base.epilogue import long_products_of
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.shared.fields import FieldForm, in_fields
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.conv import DepthwiseConv2d
from crtgen.network.ops.fixedpoint import Int64

__all__ = ["depthwise_fields"]


@design(DepthwiseConv2d, types=(DType.INT8,), needs="base", weights=(1, 2), narrow_weights=True)
def depthwise_fields(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """Depthwise convolution with windows of three to seven columns whose sums fit into bit fields of a
    product.

    None for other layers, on an M0+, or without an exact requantisation.
    """
    return None if target.core.narrow else in_fields("base_depthwise_fields", op, sig, target, _form)


def _form(rescale: Rescale, start: Int64) -> FieldForm | None:
    found = long_products_of(rescale)
    return found and (found[0], start + found[1], found[2])
