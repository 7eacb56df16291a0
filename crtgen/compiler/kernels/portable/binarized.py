"""Binarised layers on packed signs, 32 of them in a word."""

from dataclasses import dataclass

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import operands
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_float
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import Signature
from crtgen.network.ops.binarized import BinaryConv2d, PackedMaxPool2d, PackSigns, UnpackSigns

__all__ = ["BinaryConvView", "PackedPoolView", "SignsView"]


@dataclass(frozen=True, slots=True)
class SignsView:
    """Packing of signs: ``rows`` of ``channels`` values, or of ``words``; ``zero`` is the C expression of the
    value that counts as zero.
    """

    rows: int
    channels: int
    words: int
    zero: str = "0"


@dataclass(frozen=True, slots=True)
class PackedPoolView:
    """Height and width of the input (``size``), the output and the window; ``before`` is the padding before
    the input.
    """

    batch: int
    size: tuple[int, int]
    out: tuple[int, int]
    words: int
    taps: tuple[int, int]
    stride: tuple[int, int]
    before: tuple[int, int]


@dataclass(frozen=True, slots=True)
class BinaryConvView(PackedPoolView):
    """A binary convolution to ``channels`` outputs; a tap has ``depth`` signs. Padding is 1 if ``fill``,
    otherwise 0.
    """

    channels: int
    depth: int
    dilation: tuple[int, int]
    fill: bool


@design(PackSigns)
def pack_signs(op: PackSigns, sig: Signature, target: Target) -> Kernel:
    *_, channels = sig.x.shape
    zero = op.zero(sig)
    real = sig.x.dtype.numpy.kind == "f"
    view = SignsView(
        sig.x.elements // channels, channels, sig.y.shape[-1], c_float(0.0) if real else str(zero)
    )
    work = Work().block(f"{sig.x.dtype.value} sign", sig.x.elements).block("word", sig.y.elements)
    return Kernel("pack signs", "pack_signs.c.j2", view, work=work)


@design(UnpackSigns)
def unpack_signs(op: UnpackSigns, sig: Signature, target: Target) -> Kernel:
    view = SignsView(sig.y.elements // op.channels, op.channels, sig.x.shape[-1])
    work = Work().block("number", sig.y.elements).block("row", view.rows)
    return Kernel("unpack signs", "unpack_signs.c.j2", view, work=work)


@design(PackedMaxPool2d)
def packed_max_pool2d(op: PackedMaxPool2d, sig: Signature, target: Target) -> Kernel:
    """Combine words by AND: a result is 1 (an unset bit) if any input is."""
    batch, height, width, words = sig.x.shape
    view = PackedPoolView(
        batch=batch,
        size=(height, width),
        out=(sig.y.shape[1], sig.y.shape[2]),
        words=words,
        taps=op.window,
        stride=op.stride,
        before=(op.padding.top, op.padding.left),
    )
    work = Work().block("tap", sig.y.elements * op.window[0] * op.window[1]).block("word", sig.y.elements)
    return Kernel("packed max pool", "packed_max_pool.c.j2", view, work=work)


@design(BinaryConv2d, weights=(1,))
def binary_conv2d(op: BinaryConv2d, sig: Signature, target: Target) -> Kernel:
    """Count the signs that differ: set bits of 32, in four byte-wide sums."""
    batch, height, width, words = sig.x.shape
    _, (constant,) = operands(sig)
    taps = op.taps(sig.inputs[1])
    view = BinaryConvView(
        batch=batch,
        size=(height, width),
        out=(sig.y.shape[1], sig.y.shape[2]),
        words=words,
        taps=taps,
        stride=op.stride,
        before=(op.padding.top, op.padding.left),
        channels=sig.y.shape[3],
        depth=op.channels,
        dilation=op.dilation,
        fill=bool(op.fill),
    )
    seen = sig.y.elements * taps[0] * taps[1]
    work = Work().block("words", seen * words).block("tap", seen).block("sum", sig.y.elements)
    return Kernel("binary", "binary_conv.c.j2", view, (constant.named("weights"),), work=work)
