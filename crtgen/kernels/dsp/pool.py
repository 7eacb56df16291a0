"""Pooling with the DSP extension, four channels at a time.

Sums lie two by two in halves of words, by SXTAB16; the division is a multiplication that is checked for every
sum. The greater of two words' bytes is SSUB8 and SEL.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.kernel import InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.ops.attrs import Padding
from crtgen.ops.pool import AveragePool2d, MaxPool2d

__all__ = ["PoolView", "Reciprocal", "average", "greatest", "reciprocal"]

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
    """A pooling without padding: per output ``rows`` rows of ``blocks`` times ``unroll`` pixels."""

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
    reciprocal: Reciprocal | None
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
    """Windows of up to 255 pixels without padding; None for others, or if no reciprocal is exact."""
    count = op.window[0] * op.window[1]
    if count > _MOST or not _fits(op, sig, target):
        return None
    factor = reciprocal(count)
    return None if factor is None else _kernel(op, sig, "dsp_average", factor)


@design(MaxPool2d)
def greatest(op: MaxPool2d, sig: Signature, target: Target) -> Kernel | None:
    """Windows without padding."""
    return _kernel(op, sig, "dsp_max", None) if _fits(op, sig, target) else None


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


def _fits(op: AveragePool2d | MaxPool2d, sig: Signature, target: Target) -> bool:
    int8 = sig.x.dtype is DType.INT8
    return target.core.dsp and int8 and op.padding == Padding() and _CHANNELS <= sig.x.shape[3] <= _FAR


def _kernel(op: AveragePool2d | MaxPool2d, sig: Signature, name: str, factor: Reciprocal | None) -> Kernel:
    params = op.parameters(sig)
    images, height, width, channels = sig.x.shape
    rows, columns = op.window
    if columns == width:
        rows, columns = 1, rows * columns
    unroll = max(u for u in range(1, 9) if columns % u == 0 and (u - 1) * channels <= _FAR)
    view = PoolView(
        images=images,
        channels=channels,
        out_height=sig.y.shape[1],
        out_width=sig.y.shape[2],
        rows=rows,
        blocks=columns // unroll,
        unroll=unroll,
        row_gap=(width - columns) * channels,
        pixel_step=op.stride[1] * channels,
        row_step=op.stride[0] * width * channels,
        image_step=height * width * channels,
        reciprocal=factor,
        low=params.act_min if params.act_min > -128 else None,
        high=params.act_max if params.act_max < 127 else None,
    )
    return Kernel(
        design=name,
        template="dsp/pool.c.j2",
        view=view,
        inplace=() if view.overlaps else (InPlace(),),
        cost=_cost(view),
    )


def _cost(view: PoolView) -> float:
    window = view.rows * (view.blocks * (3 * view.unroll + 3) + (3 if view.rows > 1 else 0))
    clamps = 4 * 3 * ((view.low is not None) + (view.high is not None))
    group = window + clamps + (24 if view.reciprocal else 10)
    return view.images * view.out_height * (view.out_width * (group * view.groups + 6) + 6) + 20
