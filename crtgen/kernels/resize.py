"""Resizing of images by four pixels each."""

from dataclasses import dataclass

import numpy as np

from crtgen.ir import Array, DType, Signature
from crtgen.kernels.cost import Work
from crtgen.kernels.kernel import Const, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.ops import scheme_of
from crtgen.ops.resize import Lines, ResizeBilinear

__all__ = ["BilinearView"]


@dataclass(frozen=True, slots=True)
class BilinearView:
    """Images of ``height`` times ``width`` elements; ``number`` is the C type in which is computed."""

    batch: int
    elements: int
    channels: int
    out_height: int
    out_width: int
    type: str
    number: str
    real: bool


@design(ResizeBilinear, types=(DType.INT8, DType.FLOAT32))
def bilinear(op: ResizeBilinear, sig: Signature, target: Target) -> Kernel:
    """Two rows, two columns, and the shares of the latter ones, from tables."""
    rows, columns = op.parameters(sig)
    batch, _, width, channels = sig.x.shape
    real = scheme_of(sig.x).is_real
    view = BilinearView(
        batch=batch,
        elements=sig.x.elements // batch,
        channels=channels,
        out_height=op.size[0],
        out_width=op.size[1],
        type=sig.x.dtype.c_name,
        number="float" if real else "int32_t",
        real=real,
    )
    consts = (
        Const.of("rows", _places(rows, width * channels), 4, "of the upper and lower row: first element"),
        Const.of("down", rows.part, 4, "share of the lower row"),
        Const.of("columns", _places(columns, channels), 4, "of the left and right pixel: first element"),
        Const.of("across", columns.part, 4, "share of the right pixel"),
    )
    return Kernel(
        "bilinear",
        "resize_bilinear.c.j2",
        view,
        consts,
        work=Work()
        .block(f"{sig.x.dtype.value} element", sig.y.elements)
        .block(f"{sig.x.dtype.value} pixel", sig.y.elements // channels),
    )


def _places(lines: Lines, stride: int) -> Array:
    return (np.stack([lines.lower, lines.upper], axis=1) * stride).astype(np.int32)
