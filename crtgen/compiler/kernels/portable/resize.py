"""Resizing of images by four pixels each."""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import Array, DType, Signature
from crtgen.network.ops import scheme_of
from crtgen.network.ops.resize import Lines, ResizeBilinear, ResizeBytes, ResizeLinear

__all__ = ["BilinearView", "bilinear_consts", "bilinear_view", "lines_of", "row_consts", "spare_bits"]

_ONE, _SHIFT = 1024, 20  # of a share, of a sum of four pixels

_ROWS_NOTE = "of the upper and lower row: first element"


@dataclass(frozen=True, slots=True)
class BilinearView:
    """Images of ``elements`` each; ``number`` is the C type of sums over two rows, ``wide`` of sums over four
    pixels. The shares of two columns add up to ``one``, and a sum is divided by 2 to the ``shift``.
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
    one: int = 1024
    shift: int = 20


@design(ResizeBilinear, types=(DType.INT8, DType.INT16, DType.FLOAT32))
def bilinear(op: ResizeBilinear, sig: Signature, target: Target) -> Kernel:
    """Blend two rows, then two columns, with positions and weights from tables."""
    view, channels = bilinear_view(op, sig), sig.x.shape[3]
    kind = "wide" if view.wide else sig.x.dtype.value
    work = Work().block(f"{kind} element", sig.y.elements)
    work.block(f"{kind} pixel", sig.y.elements // channels)
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
    batch, real, less = sig.x.shape[0], scheme_of(sig.x).is_real, spare_bits(op, sig)
    return BilinearView(
        batch=batch,
        elements=sig.x.elements // batch,
        channels=sig.x.shape[3],
        out_height=op.size[0],
        out_width=op.size[1],
        type=sig.x.dtype.c_name,
        number="float" if real else "int32_t",
        wide="int64_t" if sig.x.dtype is DType.INT16 and not less else "",
        real=real,
        one=_ONE >> less,
        shift=_SHIFT - less,
    )


def spare_bits(op: ResizeBilinear | ResizeBytes, sig: Signature) -> int:
    """Return the number of low bits that are 0 in all columns' shares of int16, if 32 bits hold a sum without
    them; otherwise 0.

    TFLite's sums of int16 take 36 bits. But when an image becomes twice as large, all shares are multiples of
    a quarter: 256 of 1024. Divided by that, the same sum has 28 bits, and dividing it by a smaller power of
    two rounds alike. Only columns are asked, so that kernels of some rows have the code of all.
    """
    if sig.x.dtype is not DType.INT16:
        return 0
    shares = lines_of(op, sig)[1].part
    both = np.abs(np.concatenate([shares, _ONE - shares])).astype(np.int64)
    less = int(np.bitwise_or.reduce(both) | _ONE >> 1)
    less = (less & -less).bit_length() - 1
    # Pixels that are mixed with a share outside of 0 to 1 are the same one: between rows, 2^25 is the most.
    most = (int(both.max()) >> less << 25) + (1 << _SHIFT - less - 1)
    return less if most < 1 << 31 else 0


def lines_of(op: ResizeBilinear | ResizeBytes, sig: Signature) -> tuple[Lines, Lines]:
    return op.parameters(sig) if isinstance(op, ResizeBilinear) else op.lines(sig)


def bilinear_consts(op: ResizeBilinear | ResizeBytes, sig: Signature) -> tuple[Const, ...]:
    _, columns = lines_of(op, sig)
    less, channels = spare_bits(op, sig), sig.x.shape[3]
    shares = columns.part.astype(np.int32) >> less if less else columns.part
    return (
        *row_consts(op, sig),
        Const.of("columns", _places(columns, channels), 4, "of the left and right pixel: first element"),
        Const.of("across", shares, 4, "share of the right pixel"),
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
