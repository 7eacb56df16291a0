"""Convolutions and fully connected layers in float32 in the registers of an FPU.

Four pixels times four output channels, or one pixel times eight: sums, weights and inputs fill the registers.
"""

from crtgen.compiler.kernels.arithmetic.epilogue import float_epilogue
from crtgen.compiler.kernels.asm import Routine, Runs
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.layout import biased
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape, gathered_window
from crtgen.compiler.kernels.portable.gemm import GemmView, gather, gemm_lead
from crtgen.compiler.kernels.shared.matrices import unrolled
from crtgen.compiler.kernels.vfp.copy import copied, copy, copy_window
from crtgen.compiler.kernels.vfp.products_asm import FloatTile, ProductsWriter
from crtgen.compiler.kernels.vfp.unit import FloatLimits, FloatUnit
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Conv2d, FullyConnected

__all__ = ["product"]

_PIXELS = 4  # at a time
_CHANNELS = {1: 8}  # of so many pixels, else as many as these:
_OF_SEVERAL = 4
_WRITTEN_OUT = {"speed": 64, "size": 16}  # products, and twice as many where they are fused
_MOST_INPUTS = 16


@design(Conv2d, FullyConnected, types=(DType.FLOAT32,), needs="vfp", weights=(1, 2))
def product(op: Conv2d | FullyConnected, sig: Signature, target: Target) -> Kernel:
    window = gathered_window(op, sig)
    weights, bias = (v.array() for v in sig.inputs[1:])
    outputs = len(bias)
    pixels, depth = sig.y.elements // outputs, weights.size // outputs
    tile = _tile(op, min(pixels, _PIXELS), depth, outputs, target)
    view = GemmView(
        epilogue=float_epilogue(op.activation),
        pixels=pixels,
        depth=depth,
        outputs=outputs,
        tile=tile.pixels,
        unroll=tile.unroll,
        fused=tile.unit.fused,
        blocks=tile.blocks,
        window=window,
    )
    whole = window is None and pixels == tile.pixels
    return Kernel(
        design=f"vfp {tile.pixels}x{tile.channels}" + (" gathered" if window else ""),
        template="" if whole else "vfp/products.c.j2",
        view=view,
        consts=(biased(weights.reshape(-1, depth), bias, tile.channels, ("output", "input")),),
        scratch=tile.pixels * depth * 4 if window else 0,
        inplace=(InPlace(lead=gemm_lead(view, 4)),),
        work=_work(view, tile, whole),
        routines=(ProductsWriter.routine(tile), *(_gathering(window) if window else ())),
    )


def _tile(op: Conv2d | FullyConnected, pixels: int, depth: int, outputs: int, target: Target) -> FloatTile:
    channels = _CHANNELS.get(pixels, _OF_SEVERAL)
    unit = FloatUnit.of(target)
    products = target.steps(_WRITTEN_OUT[target.optimize]) * (1 + unit.fused)
    most = min(_MOST_INPUTS, max(2, products // (pixels * min(channels, outputs))))
    most = 1 << most.bit_length() - 1
    unroll = min(depth, most) if pixels == 1 else unrolled(depth, most)
    return FloatTile(pixels, channels, depth, outputs, unroll, FloatLimits.of(op.activation), unit)


def _work(view: GemmView, tile: FloatTile, whole: bool) -> Work:
    each = ProductsWriter.routine(tile).runs()
    if whole:
        return Work(each)
    tiles = -(-view.pixels // view.tile)
    work = Work(tiles * each).block("tile", tiles)
    if view.window:
        windows, within = tiles * view.tile, view.window.within
        gather(work, view.window, windows, 4, copied, within)
        moved = Runs.sum(routine.runs() for routine in _gathering(view.window)[1:])
        work.block("whole window", windows * within).assembly += windows * within * moved
    return work


def _gathering(window: WindowShape) -> tuple[Routine, ...]:
    # Routines that copy rows, and windows within the image if there are any.
    if not window.within:
        return (copy(),)
    whole = copy_window(window.taps_y, window.taps_x * window.channels, 4 * window.dilation_y * window.pitch)
    return copy(), whole
