"""Depthwise convolutions with larger windows, with the DSP extension: four products in one multiplication."""

import numpy as np

from crtgen.compiler.kernels.arithmetic.requant import Rescale
from crtgen.compiler.kernels.dsp.epilogue import epilogue_lanes
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.shared.fields import FieldForm, in_fields
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.conv import DepthwiseConv2d
from crtgen.network.ops.fixedpoint import Int64

__all__ = ["depthwise_fields"]


@design(DepthwiseConv2d, types=(DType.INT8,), needs="dsp", weights=(1, 2), narrow_weights=True)
def depthwise_fields(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """Depthwise convolution with windows of three to seven columns whose sums fit into bit fields of a
    product.

    None for other layers, or without an exact requantisation.
    """
    return in_fields("dsp_depthwise_fields", op, sig, target, _form)


def _form(rescale: Rescale, start: Int64) -> FieldForm | None:
    lanes = epilogue_lanes(rescale, ((1, np.arange(len(start))),))
    return None if lanes is None else (lanes.epilogue, start + lanes.offsets[0], lanes.constants[0])
