"""Average and max pooling, four channels of a window at a time."""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.epilogue import even, float_epilogue
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.literal import plus
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape, least_lead
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import AveragePool2d, MaxPool2d, PoolParams, scheme_of
from crtgen.network.ops.rescaling import by_float

__all__ = ["ChannelBlock", "PoolView", "least_pool_lead"]


@dataclass(frozen=True, slots=True)
class ChannelBlock:
    channels: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class PoolView:
    """A window whose ``average``, or else maximum, is computed. ``low`` and ``high`` are C literals, empty
    without a clamp.

    ``clamp`` is the function that converts an integer to an element. ``rescaled`` is C for the ``value`` of a
    sum that is not divided. ``count`` is the number of elements if no window has padding, otherwise 0.
    """

    x_type: str
    sum_type: str
    clamp: str
    average: bool
    rescaled: str
    window: WindowShape
    count: int
    blocks: tuple[ChannelBlock, ...]
    low: str
    high: str


@design(AveragePool2d, MaxPool2d, types=(DType.INT8, DType.INT16, DType.FLOAT32))
def pool(op: AveragePool2d | MaxPool2d, sig: Signature, target: Target) -> Kernel:
    window = WindowShape.of(op, sig)
    low, high = _limits(op, sig)
    average = isinstance(op, AveragePool2d)
    rescaled = rescaled_sum(op.parameters(sig), "value") if average and by_float(sig.y) else ""
    whole = window.channels // 4 * 4
    blocks = (ChannelBlock(4, 0, whole), ChannelBlock(1, whole, window.channels))
    view = PoolView(
        x_type=sig.x.dtype.c_name,
        sum_type="float" if scheme_of(sig.x).is_real else "int32_t",
        clamp=f"crt_{sig.x.dtype.value}",
        average=average,
        rescaled=rescaled,
        window=window,
        count=0 if window.padded else window.taps_y * window.taps_x,
        blocks=tuple(b for b in blocks if b.first < b.end),
        low=low,
        high=high,
    )
    return Kernel(
        design="average" if view.average else "maximum",
        template="pool.c.j2",
        view=view,
        inplace=(InPlace(lead=least_pool_lead(window, sig.x.dtype.itemsize)),),
        work=_work(view, sig),
    )


def _work(view: PoolView, sig: Signature) -> Work:
    g, kind = view.window, f"{sig.x.dtype.value} {'sum' if view.average else 'most'}"
    rows, columns = g.inside()
    lines, pixels = g.batch * int(rows.sum()), g.batch * int(rows.sum()) * int(columns.sum())
    clamped = sum(limit not in ("", "-128", "127") for limit in (view.low, view.high))
    form = f"{kind}{_form(g)}"
    work = Work().block("line", g.batch * g.out_height).block(f"{form} pixel", g.pixels)
    for block in view.blocks:
        n, times = block.channels, (block.end - block.first) // block.channels
        work.block(f"{form} {n} pixels", pixels * times)
        work.block(f"{form} {n} rows", lines * g.out_width * times)
        work.block(f"{form} {n} outputs", g.pixels * times)
        work.block(f"{kind} clamp {clamped}", g.pixels * times * n, n)
        if view.average and not view.count:
            work.block(f"{kind} division", g.pixels * times * n, n)
        if view.rescaled:
            work.words(f"{kind} rescaled", g.pixels * times * n, view.rescaled, copies=n)
    return work


def _form(window: WindowShape) -> str:
    # Cases that a compiler distinguishes: a loop with one round is none.
    if window.padded:
        return " padded"
    return f"{' of one row' if window.taps_y == 1 else ''}{' of one column' if window.taps_x == 1 else ''}"


def rescaled_sum(p: PoolParams, total: str) -> str:
    # Return C for the mean of a window with this sum.
    assert p.factor is not None
    return f"{even(f'{total} {plus(p.start)}', p.factor, p.odd)} {plus(p.output_offset)}"


def _limits(op: AveragePool2d | MaxPool2d, sig: Signature) -> tuple[str, str]:
    if scheme_of(sig.x).is_real:
        epilogue = float_epilogue(op.activation)
        return epilogue.low, epilogue.high
    params = op.parameters(sig)
    return str(params.act_min), str(params.act_max)


def least_pool_lead(window: WindowShape, size: int) -> int:
    """Return the smallest lead if output channel c is written as soon as channels 0 to c of its window are
    read.
    """
    written = np.arange(window.pixels) * window.channels
    return least_lead(written * size, window.first_reads() * size)
