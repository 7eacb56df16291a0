"""Pooling without padding, and means of images, with Helium: sixteen channels at a time.

The average of up to 255 values has its sums in 16 bits, and the division is a multiplication that is checked
for every sum.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.dsp.pool import Reciprocal, reciprocal
from crtgen.kernels.kernel import InPlace, Kernel, Target
from crtgen.kernels.mve.finish import requantisation
from crtgen.kernels.mve.matrix import LANES
from crtgen.kernels.registry import design
from crtgen.kernels.requant import Rescale
from crtgen.ops import AveragePool2d, MaxPool2d, Mean, Padding

__all__ = ["MeanForm", "PoolView", "average", "greatest", "mean"]

_MOST = 255  # values whose sum fits into 16 bits


@dataclass(frozen=True, slots=True)
class MeanForm:
    """``sat8(((sum + start) * multiplier >> 32) + constant >> shift)``, rounded by that shift."""

    start: int
    multiplier: int
    constant: int
    shift: int


@dataclass(frozen=True, slots=True)
class PoolView:
    """Per output ``rows`` rows of ``blocks`` times ``unroll`` pixels, vectors of channels and ``rest``."""

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
    mean: MeanForm | None
    low: int | None
    high: int | None

    @property
    def sums(self) -> bool:
        """Whether values are added, else compared."""
        return self.reciprocal is not None or self.mean is not None

    @property
    def whole(self) -> int:
        """Channels in whole vectors."""
        return self.channels // LANES * LANES

    @property
    def rest(self) -> int:
        return self.channels % LANES

    @property
    def block_bytes(self) -> int:
        return self.unroll * self.channels

    @property
    def cost(self) -> float:
        each = 5 if self.sums else 2
        window = self.rows * (self.blocks * (each * self.unroll + 4) + 4)
        clamps = ((self.low is not None) + (self.high is not None)) * (2 if self.sums else 1)
        vector = window + clamps + (32 if self.sums else 8)
        vectors = self.whole // LANES + (2 if self.rest else 0)
        return self.images * self.out_height * (self.out_width * (vector * vectors + 8) + 8) + 20


@design(AveragePool2d)
def average(op: AveragePool2d, sig: Signature, target: Target) -> Kernel | None:
    """Windows of up to 255 pixels; None for others, or if no reciprocal is exact."""
    count = op.window[0] * op.window[1]
    if count > _MOST or not _fits(op, sig, target):
        return None
    factor = reciprocal(count)
    return None if factor is None else _pool(op, sig, "mve average", factor)


@design(MaxPool2d)
def greatest(op: MaxPool2d, sig: Signature, target: Target) -> Kernel | None:
    """Windows of any size."""
    return _pool(op, sig, "mve max", None) if _fits(op, sig, target) else None


@design(Mean)
def mean(op: Mean, sig: Signature, target: Target) -> Kernel | None:
    """Means over images of up to 255 pixels; None for others, or if the requantisation has no cheap form."""
    images = len(sig.x.shape) == 4 and sorted(op.axes) == [1, 2]
    if not target.core.mve or sig.x.dtype is not DType.INT8 or not images:
        return None
    params = op.parameters(sig)
    if params.count > _MOST:
        return None
    start = params.count * params.input_offset
    low, high = params.count * -128 + start, params.count * 127 + start
    numbers = [np.array([n], np.int64) for n in (params.multiplier, params.shift, low, high, start)]
    rescale = Rescale(numbers[0], numbers[1], params.output_offset, -128, 127, numbers[2], numbers[3])
    requant = requantisation(rescale, numbers[4])
    if requant.finish.shift is None:
        return None
    first, multiplier, constant = (int(c[0]) for c in requant.constants)
    form = MeanForm(first, multiplier, constant, requant.finish.shift)
    return _kernel(sig, sig.x.shape[1:3], (1, 1), (1, 1), "mve mean", (-128, 127), form)


def _fits(op: AveragePool2d | MaxPool2d, sig: Signature, target: Target) -> bool:
    return target.core.mve and sig.x.dtype is DType.INT8 and op.padding == Padding()


def _pool(op: AveragePool2d | MaxPool2d, sig: Signature, name: str, form: Reciprocal | None) -> Kernel:
    params = op.parameters(sig)
    size = (sig.y.shape[1], sig.y.shape[2])
    return _kernel(sig, op.window, op.stride, size, name, (params.act_min, params.act_max), form)


def _kernel(
    sig: Signature,
    taps: tuple[int, ...],
    stride: tuple[int, int],
    size: tuple[int, int],
    name: str,
    clamp: tuple[int, int],
    form: Reciprocal | MeanForm | None,
) -> Kernel:
    images, height, width, channels = sig.x.shape
    rows, columns = taps
    if columns == width:
        rows, columns = 1, rows * columns
    unroll = max(u for u in range(1, 9) if columns % u == 0)
    mean = isinstance(form, MeanForm)
    view = PoolView(
        images=images,
        channels=channels,
        out_height=size[0],
        out_width=size[1],
        rows=rows,
        blocks=columns // unroll,
        unroll=unroll,
        row_gap=(width - columns) * channels if rows > 1 else 0,
        pixel_step=stride[1] * channels,
        row_step=stride[0] * width * channels,
        image_step=height * width * channels,
        reciprocal=form if isinstance(form, Reciprocal) else None,
        mean=form if isinstance(form, MeanForm) else None,
        low=clamp[0] if mean or clamp[0] > -128 else None,
        high=clamp[1] if mean or clamp[1] < 127 else None,
    )
    return Kernel(
        design=name,
        template="mve/pool.c.j2",
        view=view,
        inplace=(InPlace(),),
        cost=view.cost,
        includes=("arm_mve.h",),
    )
