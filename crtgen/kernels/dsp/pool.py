"""Pooling, and means of images, with the DSP extension, four channels at a time.

Sums lie two by two in halves of words, by SXTAB16; the division is a multiplication that is checked for every
sum. The greater of two words' bytes is SSUB8 and SEL. Windows that reach over the border have loops of their
own, and a division.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.kernel import InPlace, Kernel, Target
from crtgen.kernels.pool import least_pool_lead
from crtgen.kernels.reduce import image_of, mean_result
from crtgen.kernels.registry import design
from crtgen.kernels.window import Window
from crtgen.ops.attrs import Padding
from crtgen.ops.pool import AveragePool2d, MaxPool2d
from crtgen.ops.reduce import Mean

__all__ = ["PoolView", "Reciprocal", "average", "greatest", "mean", "reciprocal"]

_CHANNELS = 4
_MOST = 255  # values whose sum fits into 16 bits
_FAR = 4095  # LDR's largest offset


@dataclass(frozen=True, slots=True)
class Reciprocal:
    """``(sum * multiplier + constant) >> shift`` is the mean, halves rounded away from zero."""

    multiplier: int
    constant: int
    shift: int


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pooling: per output ``rows`` rows of ``blocks`` times ``unroll`` pixels, if all lie within the image.

    ``mean`` is C, what becomes of ``sum``, empty for a maximum. ``wide``: a row's sums go to 32 bits.
    ``across``: the four channels have one output, the mean of all. ``edges`` is the window
    if it can reach over the border.
    """

    images: int
    channels: int
    out_height: int
    out_width: int
    rows: int
    blocks: int
    unroll: int
    row_gap: int
    pixel_step: int
    row_step: int
    image_step: int
    mean: str
    wide: bool
    across: bool
    edges: Window | None
    low: int | None
    high: int | None

    @property
    def last_group(self) -> int:
        return self.channels - _CHANNELS

    @property
    def groups(self) -> int:
        return -(-self.channels // _CHANNELS)

    @property
    def overlaps(self) -> bool:
        return self.channels % _CHANNELS != 0

    @property
    def block_bytes(self) -> int:
        return self.unroll * self.channels


@design(AveragePool2d)
def average(op: AveragePool2d, sig: Signature, target: Target) -> Kernel | None:
    """Windows over four channels or more; None for others, and for windows of over 255 pixels at a border."""
    count = op.window[0] * op.window[1]
    if not _fits(sig, target) or (op.padding != Padding() and count > _MOST):
        return None
    factor = reciprocal(count)
    if factor is None:
        half = count // 2
        return _pool(op, sig, "dsp_average", f"(sum > 0 ? sum + {half} : sum - {half}) / {count}")
    return _pool(
        op, sig, "dsp_average", f"(sum * {factor.multiplier} + ({factor.constant})) >> {factor.shift}"
    )


@design(MaxPool2d)
def greatest(op: MaxPool2d, sig: Signature, target: Target) -> Kernel | None:
    """Windows over four channels or more; None for others."""
    return _pool(op, sig, "dsp_max", "") if _fits(sig, target) else None


@design(Mean)
def mean(op: Mean, sig: Signature, target: Target) -> Kernel | None:
    """Over the pixels of images of four channels or more, or over runs of words; None for others."""
    shape = image_of(op, sig.x)
    if shape is None or not target.core.dsp or sig.x.dtype is not DType.INT8:
        return None
    images, pixels, channels = shape
    across = channels == 1 and pixels % _CHANNELS == 0
    if across:
        pixels, channels = pixels // _CHANNELS, _CHANNELS
    window = _window((1, pixels), pixels)
    if channels < _CHANNELS or window is None:
        return None
    rows, columns = window
    unroll = _unroll(columns, channels)
    view = PoolView(
        images=images,
        channels=channels,
        out_height=1,
        out_width=1,
        rows=rows,
        blocks=columns // unroll,
        unroll=unroll,
        row_gap=0,
        pixel_step=0,
        row_step=0,
        image_step=pixels * channels,
        mean=mean_result(op, sig),
        wide=pixels > _MOST,
        across=across,
        edges=None,
        low=None,
        high=None,
    )
    return Kernel("dsp_mean", "dsp/pool.c.j2", view, cost=_cost(view))


def reciprocal(count: int) -> Reciprocal | None:
    """The division by ``count`` of every sum of so many int8 values; None if there is none in 32 bits.

    Halves are rounded away from zero, which a slightly larger multiplier does on both sides of zero.
    """
    sums = np.arange(-128 * count, 127 * count + 1, dtype=np.int64)
    means = np.sign(sums) * ((np.abs(sums) + count // 2) // count)
    for shift in range(22, 15, -1):
        for part in range(17):
            multiplier = round((1 << shift) / (count - part / (16 * 130)))
            product = sums * multiplier
            least = int(((means << shift) - product).max())
            beyond = int((((means + 1) << shift) - product).min())
            constant = (least + beyond) // 2
            if least < beyond and int(np.abs(product).max()) + abs(constant) < 1 << 31:
                return Reciprocal(multiplier, constant, shift)
    return None


def _fits(sig: Signature, target: Target) -> bool:
    return target.core.dsp and sig.x.dtype is DType.INT8 and _CHANNELS <= sig.x.shape[3] <= _FAR


def _window(taps: tuple[int, int], width: int) -> tuple[int, int] | None:
    """Rows and columns as few rows as hold whole; None if a row's sum does not fit into 16 bits."""
    rows, columns = taps
    if columns != width:
        return (rows, columns) if columns <= _MOST else None
    pixels = rows * columns
    parts = next((n for n in range(1, pixels + 1) if pixels % n == 0 and pixels // n <= _MOST), pixels)
    return parts, pixels // parts


def _unroll(columns: int, channels: int) -> int:
    return max(u for u in range(1, 9) if columns % u == 0 and (u - 1) * channels <= _FAR)


def _pool(op: AveragePool2d | MaxPool2d, sig: Signature, name: str, result: str) -> Kernel | None:
    params = op.parameters(sig)
    images, height, width, channels = sig.x.shape
    split = _window(op.window, width)
    if split is None:
        return None
    rows, columns = split
    unroll = _unroll(columns, channels)
    window = Window.of(sig, op.window, op.stride, op.padding)
    view = PoolView(
        images=images,
        channels=channels,
        out_height=sig.y.shape[1],
        out_width=sig.y.shape[2],
        rows=rows,
        blocks=columns // unroll,
        unroll=unroll,
        row_gap=(width - columns) * channels if columns < width else 0,
        pixel_step=op.stride[1] * channels,
        row_step=op.stride[0] * width * channels,
        image_step=height * width * channels,
        mean=result,
        wide=bool(result) and prod(op.window) > _MOST,
        across=False,
        edges=window if window.padded else None,
        low=params.act_min if params.act_min > -128 else None,
        high=params.act_max if params.act_max < 127 else None,
    )
    return Kernel(
        design=name,
        template="dsp/pool.c.j2",
        view=view,
        inplace=() if view.overlaps else (InPlace(lead=least_pool_lead(window, 1)),),
        cost=_cost(view),
    )


def _cost(view: PoolView) -> float:
    flush = 7 if view.wide else 0
    window = view.rows * (view.blocks * (3 * view.unroll + 3) + (3 if view.rows > 1 else 0) + flush)
    clamps = 4 * 3 * ((view.low is not None) + (view.high is not None))
    group = window + clamps + (12 if view.across else 24 if view.mean else 10)
    pixels = view.out_height * view.out_width
    total: float = pixels * (group * view.groups + 6) + view.out_height * 6
    if view.edges:
        inside = _inside(view.edges)
        taps = view.edges.taps_y * view.edges.taps_x
        part = 4.5 * taps + 20 + clamps + (36 if view.mean else 10)
        total += 20 * pixels + (pixels - inside) * (part - group) * view.groups
    return view.images * total + 20


def _inside(window: Window) -> int:
    """Outputs of an image whose window lies within it."""
    g = window
    rows = np.arange(g.out_height) * g.stride_y - g.top
    columns = np.arange(g.out_width) * g.stride_x - g.left
    whole_rows = (rows >= 0) & (rows + g.taps_y <= g.height)
    whole_columns = (columns >= 0) & (columns + g.taps_x <= g.width)
    return int(whole_rows.sum() * whole_columns.sum())
