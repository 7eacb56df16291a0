"""Pictures: from a camera's formats to colours or grey, and to other sizes."""

from dataclasses import dataclass

from crtgen.ir import DType, Op, Signature
from crtgen.kernels.cost import Work
from crtgen.kernels.kernel import Const, Kernel, Target
from crtgen.kernels.literal import c_float
from crtgen.kernels.registry import design
from crtgen.ops.camera import YUV_SHIFT, Demosaic, Grey, Unpack565, YuvFactors, YuvToRgb
from crtgen.ops.resample import Blend, ByteTable, Resample

__all__ = ["BlendView", "PixelView", "ResampleView"]


@dataclass(frozen=True, slots=True)
class PixelView:
    """An operator on ``rows`` of ``columns`` pixels, or on ``pixels`` in all."""

    op: Op
    rows: int
    columns: int
    yuv: type[YuvFactors] = YuvFactors
    yuv_shift: int = YUV_SHIFT

    @property
    def pixels(self) -> int:
        """All of them."""
        return self.rows * self.columns


@dataclass(frozen=True, slots=True)
class ResampleView:
    """Sums on an axis of ``inputs`` numbers, with ``outer`` before it and ``inner`` behind it.

    ``type``, ``weight`` and ``result`` are types of C; ``scale`` is a literal, or empty for none.
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


@dataclass(frozen=True, slots=True)
class BlendView:
    """A picture of ``width`` times ``channels`` numbers a row becomes ``rows`` of ``columns`` pixels."""

    op: Blend
    width: int
    channels: int
    rows: int
    columns: int
    is_real: bool


@dataclass(frozen=True, slots=True)
class TableView:
    """``pixels`` of ``channels`` bytes, each with a table of its own if there are several ``tables``."""

    op: ByteTable
    pixels: int
    channels: int
    tables: int
    result: str


def _pixels(name: str, op: Op, sig: Signature) -> Kernel:
    rows, columns = sig.y.shape[0], sig.y.elements // sig.y.shape[0] // sig.y.shape[-1]
    work = Work().block("pixel", rows * columns)
    return Kernel(name, f"picture/{name}.c.j2", PixelView(op, rows, columns), work=work)


@design(Unpack565)
def unpack565(op: Unpack565, sig: Signature, target: Target) -> Kernel:
    """One pixel after the other."""
    return _pixels("unpack565", op, sig)


@design(YuvToRgb)
def yuv_to_rgb(op: YuvToRgb, sig: Signature, target: Target) -> Kernel:
    """Two pixels, which share their colour, at once."""
    return _pixels("yuv_to_rgb", op, sig)


@design(Demosaic)
def demosaic(op: Demosaic, sig: Signature, target: Target) -> Kernel:
    """All pixels but the outermost, then these from their neighbours."""
    return _pixels("demosaic", op, sig)


@design(Grey)
def grey(op: Grey, sig: Signature, target: Target) -> Kernel:
    """One pixel after the other."""
    return _pixels("grey", op, sig)


@design(Resample, weights=(1, 2, 3))
def resample(op: Resample, sig: Signature, target: Target) -> Kernel:
    """Sum by sum."""
    outer, inputs, inner = op.sizes(sig)
    weights = sig.inputs[1].dtype
    pairs = zip(("weights", "first", "widths"), sig.inputs[1:], strict=True)
    consts = tuple(Const.of(name, value.array(), value.dtype.itemsize) for name, value in pairs)
    kind = f"{weights.value} to {sig.y.dtype.value}"
    work = Work().block(f"{kind} sum", sig.y.elements)
    work = work.block(f"{sig.x.dtype.value} {weights.value} product", op.macs(sig))
    view = ResampleView(
        op=op,
        outer=outer,
        inputs=inputs,
        inner=inner,
        outputs=sig.y.shape[op.axis],
        type=sig.x.dtype.c_name,
        weight=weights.c_name,
        result=sig.y.dtype.c_name,
        scale="" if op.scale == 1 else c_float(op.scale),
    )
    return Kernel("resample", "picture/resample.c.j2", view, consts, work=work)


@design(Blend, weights=(1, 2, 3, 4))
def blend(op: Blend, sig: Signature, target: Target) -> Kernel:
    """Pixel by pixel, from four others."""
    names = ("rows", "row_weights", "columns", "column_weights")
    pairs = zip(names, sig.inputs[1:], strict=True)
    consts = tuple(Const.of(name, value.array(), value.dtype.itemsize) for name, value in pairs)
    rows, columns, channels = sig.y.shape
    is_real = sig.y.dtype is DType.FLOAT32
    view = BlendView(op, sig.x.shape[1], channels, rows, columns, is_real)
    kind = sig.y.dtype.value
    work = Work().block(f"{kind} pixel", rows * columns).block(f"{kind} number", sig.y.elements)
    return Kernel("blend", "picture/blend.c.j2", view, consts, work=work)


@design(ByteTable, weights=(1,))
def byte_table(op: ByteTable, sig: Signature, target: Target) -> Kernel:
    """A load each."""
    table = sig.inputs[1]
    channels = sig.x.shape[-1] if table.shape[0] > 1 else 1
    view = TableView(op, sig.x.elements // channels, channels, table.shape[0], sig.y.dtype.c_name)
    work = Work().block(f"{table.dtype.value} number", sig.y.elements)
    if channels > 1:
        work = work.block("pixel", sig.x.elements // channels)
    consts = (Const.of("table", table.array(), table.dtype.itemsize),)
    return Kernel("byte_table", "picture/byte_table.c.j2", view, consts, work=work)
