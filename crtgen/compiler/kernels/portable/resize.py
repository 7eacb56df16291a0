"""Resizing of images by four pixels each."""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import Array, DType, Signature
from crtgen.network.ops import scheme_of
from crtgen.network.ops.resize import Lines, ResizeBilinear, ResizeBytes, ResizeLinear

__all__ = ["BilinearView", "bilinear_consts", "bilinear_view", "lines_of", "row_consts"]


_ROWS_NOTE = "of the upper and lower row: first element"


@dataclass(frozen=True, slots=True)
class BilinearView:
    """Images of ``elements`` each; ``number`` is the C type of sums over two rows, ``wide`` of sums over four
    pixels.
    """

    batch: int
    elements: int
    channels: int
    out_height: int
    out_width: int
    type: str
    number: str
    wide: str
    real: bool


@design(ResizeBilinear, types=(DType.INT8, DType.INT16, DType.FLOAT32))
def bilinear(op: ResizeBilinear, sig: Signature, target: Target) -> Kernel:
    """Blend two rows, then two columns, with positions and weights from tables."""
    kind, channels = sig.x.dtype.value, sig.x.shape[3]
    work = Work().block(f"{kind} element", sig.y.elements)
    work.block(f"{kind} pixel", sig.y.elements // channels)
    view = bilinear_view(op, sig)
    return Kernel("bilinear", "resize_bilinear.c.j2", view, bilinear_consts(op, sig), work=work)


@design(ResizeBytes, types=(DType.INT8,))
def bytes_by_floats(op: ResizeBytes, sig: Signature, target: Target) -> Kernel:
    work = Work().block("element", sig.y.elements).block("pixel", sig.y.elements // sig.x.shape[3])
    consts = bilinear_consts(op, sig)
    return Kernel("bytes by floats", "resize_bytes.c.j2", bilinear_view(op, sig), consts, work=work)


@dataclass(frozen=True, slots=True)
class InOrderView:
    batch: int
    elements: int
    channels: int
    out_height: int
    out_width: int


@design(ResizeLinear, types=(DType.FLOAT32,))
def bilinear_in_order(op: ResizeLinear, sig: Signature, target: Target) -> Kernel:
    batch, channels = sig.x.shape[0], sig.x.shape[3]
    rows, columns = op.sides(sig)
    consts = (
        Const.of("rows", rows.places * (sig.x.shape[2] * channels), 4, "of two rows: first element"),
        Const.of("down", rows.shares, 4, "shares of two rows"),
        Const.of("columns", columns.places * channels, 4, "of two pixels: first element"),
        Const.of("across", columns.shares, 4, "shares of two pixels"),
    )
    work = Work().block("element", sig.y.elements).block("pixel", sig.y.elements // channels)
    view = InOrderView(batch, sig.x.elements // batch, channels, *op.size)
    return Kernel("bilinear in order", "resize_linear.c.j2", view, consts, work=work)


def bilinear_view(op: ResizeBilinear | ResizeBytes, sig: Signature) -> BilinearView:
    batch, real = sig.x.shape[0], scheme_of(sig.x).is_real
    return BilinearView(
        batch=batch,
        elements=sig.x.elements // batch,
        channels=sig.x.shape[3],
        out_height=op.size[0],
        out_width=op.size[1],
        type=sig.x.dtype.c_name,
        number="float" if real else "int32_t",
        wide="int64_t" if sig.x.dtype is DType.INT16 else "",
        real=real,
    )


def lines_of(op: ResizeBilinear | ResizeBytes, sig: Signature) -> tuple[Lines, Lines]:
    return op.parameters(sig) if isinstance(op, ResizeBilinear) else op.lines(sig)


def bilinear_consts(op: ResizeBilinear | ResizeBytes, sig: Signature) -> tuple[Const, ...]:
    _, columns = lines_of(op, sig)
    channels = sig.x.shape[3]
    return (
        *row_consts(op, sig),
        Const.of("columns", _places(columns, channels), 4, "of the left and right pixel: first element"),
        Const.of("across", columns.part, 4, "share of the right pixel"),
    )


def row_consts(op: ResizeBilinear | ResizeBytes, sig: Signature) -> tuple[Const, ...]:
    """Return the tables with entries for each row of outputs: two for the rows of the image, one share."""
    rows, _ = lines_of(op, sig)
    return (
        Const.of("rows", _places(rows, sig.x.elements // sig.x.shape[0] // sig.x.shape[1]), 4, _ROWS_NOTE),
        Const.of("down", rows.part, 4, "share of the lower row"),
    )


def _places(lines: Lines, stride: int) -> Array:
    return (np.stack([lines.lower, lines.upper], axis=1) * stride).astype(np.int32)
