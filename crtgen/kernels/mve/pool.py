"""Pooling without padding with Helium: sixteen channels at a time.

The average of up to 255 values has its sums in 16 bits, and the division is a multiplication that is checked
for every sum.
"""

from dataclasses import dataclass

from crtgen.ir import DType, Signature
from crtgen.kernels.dsp.pool import Reciprocal, reciprocal
from crtgen.kernels.kernel import InPlace, Kernel, Target
from crtgen.kernels.mve.matrix import LANES
from crtgen.kernels.registry import design
from crtgen.ops import AveragePool2d, MaxPool2d, Padding

__all__ = ["PoolView", "average", "greatest"]

_MOST = 255  # values whose sum fits into 16 bits


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
    low: int | None
    high: int | None

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
        each = 5 if self.reciprocal else 2
        window = self.rows * (self.blocks * (each * self.unroll + 4) + 4)
        clamps = ((self.low is not None) + (self.high is not None)) * (2 if self.reciprocal else 1)
        vector = window + clamps + (32 if self.reciprocal else 8)
        vectors = self.whole // LANES + (2 if self.rest else 0)
        return self.images * self.out_height * (self.out_width * (vector * vectors + 8) + 8) + 20


@design(AveragePool2d)
def average(op: AveragePool2d, sig: Signature, target: Target) -> Kernel | None:
    """Windows of up to 255 pixels; None for others, or if no reciprocal is exact."""
    count = op.window[0] * op.window[1]
    if count > _MOST or not _fits(op, sig, target):
        return None
    factor = reciprocal(count)
    return None if factor is None else _kernel(op, sig, "mve average", factor)


@design(MaxPool2d)
def greatest(op: MaxPool2d, sig: Signature, target: Target) -> Kernel | None:
    """Windows of any size."""
    return _kernel(op, sig, "mve max", None) if _fits(op, sig, target) else None


def _fits(op: AveragePool2d | MaxPool2d, sig: Signature, target: Target) -> bool:
    return target.core.mve and sig.x.dtype is DType.INT8 and op.padding == Padding()


def _kernel(op: AveragePool2d | MaxPool2d, sig: Signature, name: str, factor: Reciprocal | None) -> Kernel:
    params = op.parameters(sig)
    images, height, width, channels = sig.x.shape
    rows, columns = op.window
    if columns == width:
        rows, columns = 1, rows * columns
    unroll = max(u for u in range(1, 9) if columns % u == 0)
    view = PoolView(
        images=images,
        channels=channels,
        out_height=sig.y.shape[1],
        out_width=sig.y.shape[2],
        rows=rows,
        blocks=columns // unroll,
        unroll=unroll,
        row_gap=(width - columns) * channels if rows > 1 else 0,
        pixel_step=op.stride[1] * channels,
        row_step=op.stride[0] * width * channels,
        image_step=height * width * channels,
        reciprocal=factor,
        low=params.act_min if params.act_min > -128 else None,
        high=params.act_max if params.act_max < 127 else None,
    )
    return Kernel(
        design=name,
        template="mve/pool.c.j2",
        view=view,
        inplace=(InPlace(),),
        cost=view.cost,
        includes=("arm_mve.h",),
    )
