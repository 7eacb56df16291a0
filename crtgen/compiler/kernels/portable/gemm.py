"""Convolutions and fully connected layers as products of pixels with weights.

Two pixels times four output channels are accumulated at a time, so that a weight is loaded once for two
pixels and an input once for four channels; in float32 four pixels, if the FPU has enough registers. Pointwise
layers read the input in place; others first gather the pixels' windows into scratch, including padding.

All weights are read for each tile of pixels. If a flash has a cache that is too small for them, they are
fetched from the flash each time: MobileNetV1's layer of 65,536 weights and 100 pixels fetches 6.5 MB on a
Pico. The design ``by channels`` exchanges the loops: it computes all pixels for as many channels as have
weights in half of the cache, then for the next channels. So each weight is fetched once, and the inputs,
which are in RAM, are read several times. The other half of the cache is for code.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from crtgen.compiler.kernels.arithmetic.epilogue import (
    Epilogue,
    float_epilogue,
    folded_bias,
    integer_epilogue,
    sums,
)
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target, WeightRows
from crtgen.compiler.kernels.engine.layout import ChannelGroup, groups_of, in_groups
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape, gathered_window, tiles_lead
from crtgen.network.ir import Array, DType, Signature
from crtgen.network.ops import Conv2d, FullyConnected, scheme_of
from crtgen.network.ops.accumulate import Accumulate

__all__ = ["GemmView", "gather", "gemm_lead", "holds_bias", "product"]

_CHANNELS = 4  # at a time
_TYPES = (DType.INT8, DType.INT16, DType.FLOAT32)


@dataclass(frozen=True, slots=True)
class GemmView:
    """A product of ``pixels x depth`` with ``depth x outputs``, ``tile`` pixels and a block of channels at a
    time.

    ``unroll`` divides ``depth``. ``fused``: multiplication and addition are one instruction, rounded once.
    ``window`` describes how a pixel's ``depth`` inputs are gathered, None if they are contiguous; ``fill`` is
    the byte used for padding. ``int4``: weights have four bits. All pixels of ``chunk`` blocks are computed
    before those of the next ones; 0: all blocks of a tile at a time.
    """

    epilogue: Epilogue
    pixels: int
    depth: int
    outputs: int
    tile: int
    unroll: int
    fused: bool
    blocks: tuple[ChannelGroup, ...]
    window: WindowShape | None
    fill: int = 0
    int4: bool = False
    chunk: int = 0

    @property
    def chunks(self) -> int:
        return -(-self.blocks[0].times // self.chunk) if self.chunk else 1

    @property
    def block_bytes(self) -> int:
        return self.depth * _CHANNELS // (2 if self.int4 else 1)


@design(Conv2d, FullyConnected, types=_TYPES, weights=(1, 2), narrow_weights=True)
def product(op: Conv2d | FullyConnected, sig: Signature, target: Target) -> Kernel | None:
    """Compute layers of any shape; None if float32 cannot represent the bias in units of the int8 weights'
    scale.
    """
    return _kernel(op, sig, target, gathered_window(op, sig))


@design(Conv2d, FullyConnected, types=_TYPES, weights=(1, 2), narrow_weights=True)
def product_by_channels(op: Conv2d | FullyConnected, sig: Signature, target: Target) -> Kernel | None:
    """Compute all pixels of some channels before those of the next ones; None if that saves no reads."""
    if target.constants is None or gathered_window(op, sig) is not None:
        return None
    outputs = sig.inputs[1].shape[0]
    row = sig.inputs[1].elements // outputs * sig.inputs[1].dtype.itemsize
    row = row // 2 if sig.inputs[1].dtype is DType.INT4 else row
    chunk = target.constants.data_cache // 2 // (row * _CHANNELS)
    if sig.y.elements == outputs or outputs % _CHANNELS or not 0 < chunk < outputs // _CHANNELS:
        return None
    return _kernel(op, sig, target, None, chunk)


@design(Accumulate, types=(DType.INT8,), to=DType.INT32, weights=(1, 2))
def accumulate(op: Accumulate, sig: Signature, target: Target) -> Kernel | None:
    if not isinstance(op.layer, Conv2d | FullyConnected):
        return None
    return _kernel(op, sig, target, gathered_window(op.layer, sig))


def _kernel(
    op: Conv2d | FullyConnected | Accumulate,
    sig: Signature,
    target: Target,
    window: WindowShape | None,
    chunk: int = 0,
) -> Kernel | None:
    if scheme_of(sig.x).is_real and not holds_bias(sig):
        return None
    outputs = sig.inputs[1].shape[0]
    depth = sig.inputs[1].elements // outputs
    pixels = sig.y.elements // outputs
    tile = _tile(pixels, sig, target)
    int4 = sig.inputs[1].dtype is DType.INT4
    blocks = groups_of(outputs, _CHANNELS)
    epilogue, consts = _constants(op, sig, blocks, int4)
    if chunk:  # coded weights are decoded to RAM, where nobody waits for them
        consts = (replace(consts[0], rows=None), *consts[1:])
    fill = sig.x.quant.zero_point % 256 if sig.x.quant else 0
    unroll = max(u for u in range(1, 12 // tile) if depth % u == 0) if tile < 4 else 1
    view = GemmView(
        epilogue=epilogue,
        pixels=pixels,
        depth=depth,
        outputs=outputs,
        tile=tile,
        unroll=unroll,
        fused=scheme_of(sig.x).is_real and target.core.fast_fma,
        blocks=blocks,
        window=window,
        fill=fill,
        int4=int4,
        chunk=chunk,
    )
    size = sig.x.dtype.itemsize
    leads = () if chunk or isinstance(op, Accumulate) else (InPlace(lead=gemm_lead(view, size)),)
    return Kernel(
        design=f"gemm {tile}x4" + (" gathered" if window else " by channels" if chunk else ""),
        template="gemm.c.j2",
        view=view,
        consts=consts,
        scratch=tile * depth * size if window else 0,
        inplace=leads,
        work=_work(view, sig, sum(const.nbytes for const in consts)),
    )


def _work(view: GemmView, sig: Signature, constants: int) -> Work:
    tiles, tile = -(-view.pixels // view.tile), view.tile
    kind = "int4" if view.int4 else "hybrid" if view.epilogue.scaled else sig.x.dtype.value
    kind += " fused" if view.fused else ""
    work, padding = Work(constants=constants * (1 if view.chunk else tiles)), _padding(view)
    work.block(f"{kind} tile{' gathered' if view.window else ''}", tiles * view.chunks)
    for block in view.blocks:
        form, groups = f"{kind} {tile}x{block.channels}", tiles * block.times
        work.block(f"{form} product", groups * view.depth * (1 - padding), view.unroll)
        if padding:
            work.block(f"{form} product of padding", groups * view.depth * padding, 0)
        if view.depth > view.unroll:
            work.block(f"{form} round", groups * view.depth / view.unroll)
        work.block(f"{form} group", groups)
        view.epilogue.work(work, groups, tile, block.channels)
    if view.window:
        gather(work, view.window, tiles * tile, sig.x.dtype.itemsize)
    return work


def _padding(view: GemmView) -> float:
    # The share of products of float32 that are of padding: without an FPU, those of zeros take less time.
    if view.window is None or view.epilogue.x_type != "float":
        return 0.0
    rows, columns = view.window.taps_inside()
    return 1 - float(rows.mean() * columns.mean())


def gather(
    work: Work,
    window: WindowShape,
    windows: int,
    size: int,
    copy: Callable[[Work, int, float], object] = Work.copy,
    whole: float = 0.0,
) -> None:
    """Add the work of ``gather.j2`` for ``windows`` windows of elements of ``size`` bytes; ``copy`` copies
    them.

    The fraction ``whole`` of them, which are inside the image, is loaded differently.
    """
    w, pixel = window, window.channels * size
    rows, columns = w.taps_inside()
    lines = float(rows.sum()) / w.out_height  # of a window that are in the image, on average
    left = windows * (1 - whole)
    work.block("window", left).block("window row", left * w.taps_y)
    inside = float(columns.all(axis=1).mean()) if w.dilation_x == 1 else 0.0
    if w.dilation_x == 1:
        copy(work, w.taps_x * pixel, windows * (lines * inside - whole * w.taps_y))
    if w.padded or w.dilation_x > 1:
        copied = lines * (float(columns.sum()) / w.out_width - inside * w.taps_x)
        filled = (w.taps_y - lines + lines * (1 - inside)) * w.taps_x - copied
        work.block("tap", windows * copied)
        copy(work, pixel, windows * copied)
        if w.padded:
            work.fill(pixel, windows * filled)


def _tile(pixels: int, sig: Signature, target: Target) -> int:
    # Pixels at a time: their sums and a block's weights have to fit into registers.
    if scheme_of(sig.x).is_real and target.core.fpu != "none" and pixels >= 4:
        return 4
    return 2 if pixels > 1 and not target.core.narrow else 1


def _constants(
    op: Conv2d | FullyConnected | Accumulate, sig: Signature, blocks: tuple[ChannelGroup, ...], int4: bool
) -> tuple[Epilogue, tuple[Const, ...]]:
    weights = sig.inputs[1].array()
    depth = weights.size // len(weights)

    def pack() -> Array:
        return in_groups(weights.reshape(-1, depth), blocks, int4)

    size = depth * sum(b.times * (-(-b.channels // 2) if int4 else b.channels) for b in blocks)
    note = f"[output / 4][input][output % 4]{', two in a byte' if int4 else ''}"
    rows = WeightRows(1, size, 0, size) if weights.dtype == np.int8 and not int4 else None
    ordered = Const("weights", weights.dtype.name, (size,), pack, 4, note, rows)
    if isinstance(op, Accumulate):
        epilogue, start = sums(sig, op.zero_points(sig)[0], tuple(range(1, weights.ndim)))
        return epilogue, (ordered, start)
    if scheme_of(sig.x).is_real:
        return _real_constants(op, sig, ordered)
    params = op.parameters(sig)
    bias = folded_bias(sig, params, tuple(range(1, weights.ndim)))
    epilogue, scales = integer_epilogue(sig, params, bias)
    return epilogue, (
        ordered,
        Const.of("bias", bias, bias.dtype.itemsize, "less zero point times weights"),
        *scales,
    )


def _real_constants(
    op: Conv2d | FullyConnected, sig: Signature, weights: Const
) -> tuple[Epilogue, tuple[Const, ...]]:
    # Float32. Sums of int8 weights are in steps of their scales until they are complete.
    epilogue, quant = float_epilogue(op.activation), sig.inputs[1].quant
    if quant is None:
        return epilogue, (weights, Const.of("bias", _steps(sig)))
    scales = np.array(quant.scales, np.float32)
    epilogue = replace(epilogue, w_type="int8_t", scaled=True, per_channel=len(scales) > 1)
    return epilogue, (
        weights,
        Const.of("bias", _steps(sig), note="in steps of the weights' scales"),
        Const.of("scale", scales, note="of the weights"),
    )


def holds_bias(sig: Signature) -> bool:
    """Return True if float32 represents the bias exactly in units of the weights' scales."""
    return bool(np.isfinite(_steps(sig)).all())


def _steps(sig: Signature) -> Array:
    # The bias of float32, in steps of the weights' scales if they have any: infinite beyond float32.
    bias, quant = sig.inputs[2].array(), sig.inputs[1].quant
    if quant is None:
        return bias
    with np.errstate(over="ignore"):
        steps: Array = (bias.astype(np.float64) / np.array(quant.scales)).astype(np.float32)
    return steps


def gemm_lead(view: GemmView, size: int) -> int:
    """Return the lead: a gathered tile is read completely before it is written; without gathering, reads and
    writes alternate.
    """
    reads = view.window.first_reads() if view.window else np.arange(view.pixels) * view.depth
    return size * tiles_lead(reads, view.tile, view.outputs, whole=view.window is not None)
