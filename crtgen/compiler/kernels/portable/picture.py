"""Pictures: from a camera's formats to colours or grey, and to other sizes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_float
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import least_lead
from crtgen.network.ir import Array, DType, Op, Signature
from crtgen.network.ops.camera import YUV_SHIFT, Demosaic, Grey, Unpack565, YuvFactors, YuvToRgb
from crtgen.network.ops.resample import Blend, ByteTable, Resample

__all__ = ["BlendView", "PixelView", "ResampleView", "TableView"]

# Products of a sum that are written out, at most.
_UNROLLED = 8

_Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PixelView:
    op: Op
    rows: int
    columns: int
    yuv: type[YuvFactors] = YuvFactors
    yuv_shift: int = YUV_SHIFT

    @property
    def pixels(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True, slots=True)
class ResampleView:
    """Sums along an axis of ``inputs`` elements, with ``outer`` elements before it and ``inner`` after it.

    ``type``, ``weight`` and ``result`` are C types; ``scale`` is a literal, or empty for none. All sums have
    ``taps`` products, if that is not 0. ``clips``: sums may exceed the range of a byte.
    """

    op: Resample
    outer: int
    inputs: int
    inner: int
    outputs: int
    type: str
    weight: str
    result: str
    scale: str
    taps: int
    clips: bool


@dataclass(frozen=True, slots=True)
class BlendView:
    """A resized picture: rows have ``width * channels`` inputs; the output has ``rows * columns`` pixels."""

    op: Blend
    width: int
    channels: int
    rows: int
    columns: int
    is_real: bool


@dataclass(frozen=True, slots=True)
class TableView:
    op: ByteTable
    pixels: int
    channels: int
    tables: int
    result: str


def _pixels(name: str, op: Op, sig: Signature, inplace: tuple[InPlace, ...] = ()) -> Kernel:
    rows, columns = sig.y.shape[0], sig.y.elements // sig.y.shape[0] // sig.y.shape[-1]
    work = Work().block("pixel", rows * columns)
    view = PixelView(op, rows, columns)
    return Kernel(name, f"picture/{name}.c.j2", view, inplace=inplace, work=work)


def _over(sig: Signature, begins: _Longs) -> tuple[InPlace, ...]:
    # Output over input, where output number i needs nothing of the input before number ``begins[i]``.
    written = np.arange(1, len(begins) + 1) * sig.y.dtype.itemsize
    unread = np.append(begins[1:], sig.x.elements) * sig.x.dtype.itemsize
    return (InPlace(lead=least_lead(written, unread)),)


@design(Unpack565)
def unpack565(op: Unpack565, sig: Signature, target: Target) -> Kernel:
    return _pixels("unpack565", op, sig, _over(sig, np.arange(sig.y.elements) // 3))


@design(YuvToRgb)
def yuv_to_rgb(op: YuvToRgb, sig: Signature, target: Target) -> Kernel:
    """Convert two pixels at a time, which share their colour."""
    return _pixels("yuv_to_rgb", op, sig, _over(sig, np.arange(sig.y.elements) // 3 * 2))


@design(Demosaic)
def demosaic(op: Demosaic, sig: Signature, target: Target) -> Kernel:
    """Compute all pixels except the outermost, then copy these from their neighbours."""
    return _pixels("demosaic", op, sig)


@design(Grey)
def grey(op: Grey, sig: Signature, target: Target) -> Kernel:
    return _pixels("grey", op, sig, (InPlace(),))


@design(Resample, weights=(1, 2, 3))
def resample(op: Resample, sig: Signature, target: Target) -> Kernel:
    """Compute sum by sum; sums of few products are padded with zeros to equal length, and unrolled."""
    outer, inputs, inner = op.sizes(sig)
    weights, first, widths = (v.array() for v in sig.inputs[1:])
    dtype, outputs = sig.inputs[1].dtype, sig.y.shape[op.axis]
    taps = int(widths.max(initial=0))
    even = taps if 0 < taps <= min(_UNROLLED, inputs) and sig.x.dtype is not DType.FLOAT32 else 0
    begins = first.astype(np.int64)
    if even:
        weights, begins = _made_even(weights, begins, widths.astype(np.int64), taps, inputs)
    consts = [Const.of("weights", weights, 4), Const.of("first", begins.astype(np.int16), 2)]
    consts += [] if even else [Const.of("widths", widths, 2)]
    kind = f"{dtype.value} to {sig.y.dtype.value}{' even' if even else ''}"
    work = Work().block(f"{kind} place", outer * outputs).block(f"{kind} sum", sig.y.elements)
    work = work.block(f"{kind} product", outer * inner * len(weights))
    work = work.block(f"{kind} weight", outer * len(weights)) if even else work
    view = ResampleView(
        op=op,
        outer=outer,
        inputs=inputs,
        inner=inner,
        outputs=outputs,
        type=sig.x.dtype.c_name,
        weight=dtype.c_name,
        result=sig.y.dtype.c_name,
        scale="" if op.scale == 1 else c_float(op.scale),
        taps=even,
        clips=_clips(op, weights, widths.astype(np.int64) if not even else np.full(outputs, taps)),
    )
    places = (np.arange(outer)[:, None] * inputs + begins) * inner
    inplace = _over(sig, (places[:, :, None] + np.arange(inner)).ravel())
    return Kernel("resample", "picture/resample.c.j2", view, tuple(consts), inplace=inplace, work=work)


def _made_even(weights: Array, first: _Longs, widths: _Longs, taps: int, length: int) -> tuple[Array, _Longs]:
    # Weights ``taps`` for each sum, with zeros before or behind them, and where the sums begin now.
    begins = np.minimum(first, length - taps)
    made = np.zeros((len(first), taps), weights.dtype)
    at = 0
    for row, shift, width in zip(made, first - begins, widths, strict=True):
        row[shift : shift + width] = weights[at : at + width]
        at += width
    return made.ravel(), begins


def _clips(op: Resample, weights: Array, widths: _Longs) -> bool:
    # True if a sum of bytes may be below 0 or above 255; float32 sums are clamped anyway.
    if weights.dtype != np.int32:
        return True
    totals = np.concatenate([[0], np.cumsum(weights.astype(np.int64))])
    ends = np.concatenate([[0], np.cumsum(widths)])
    most = 255 * int(np.diff(totals[ends]).max(initial=0)) + (1 << (op.shift - 1))
    return int(weights.astype(np.int64).min(initial=0)) < 0 or most >= 256 << op.shift


@design(Blend, weights=(1, 2, 3, 4))
def blend(op: Blend, sig: Signature, target: Target) -> Kernel:
    names = ("rows", "row_weights", "columns", "column_weights")
    pairs = zip(names, sig.inputs[1:], strict=True)
    consts = tuple(Const.of(name, value.array(), value.dtype.itemsize) for name, value in pairs)
    rows, columns, channels = sig.y.shape
    is_real = sig.y.dtype is DType.FLOAT32
    view = BlendView(op, sig.x.shape[1], channels, rows, columns, is_real)
    kind = sig.y.dtype.value
    work = Work().block(f"{kind} pixel", rows * columns).block(f"{kind} number", sig.y.elements)
    lines, places = (sig.inputs[i].array().astype(np.int64).min(axis=0) for i in (1, 3))
    begins = (lines[:, None] * sig.x.shape[1] + places)[:, :, None] * channels + np.arange(channels)
    inplace = _over(sig, begins.ravel())
    return Kernel("blend", "picture/blend.c.j2", view, consts, inplace=inplace, work=work)


@design(ByteTable, weights=(1,))
def byte_table(op: ByteTable, sig: Signature, target: Target) -> Kernel:
    table = sig.inputs[1]
    channels = sig.x.shape[-1] if table.shape[0] > 1 else 1
    view = TableView(op, sig.x.elements // channels, channels, table.shape[0], sig.y.dtype.c_name)
    work = Work().block(f"{table.dtype.value} number", sig.y.elements)
    if channels > 1:
        work = work.block("pixel", sig.x.elements // channels)
    consts = (Const.of("table", table.array(), table.dtype.itemsize),)
    inplace = _over(sig, np.arange(sig.x.elements))
    return Kernel("byte_table", "picture/byte_table.c.j2", view, consts, inplace=inplace, work=work)
