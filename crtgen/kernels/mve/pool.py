"""Pooling with Helium: sixteen channels at a time.

The average of up to 255 values has its sums in 16 bits, and the division is a multiplication that is checked
for every sum.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.asm import Routine
from crtgen.kernels.average import MOST, Reciprocal, reciprocal
from crtgen.kernels.cost import Work
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.mve.columns import Columns, maxima, sums
from crtgen.kernels.mve.matrix import LANES
from crtgen.kernels.registry import design
from crtgen.kernels.requant import clamp_limits
from crtgen.kernels.window import Window, least_lead
from crtgen.ops import INT8, AveragePool2d, MaxPool2d

__all__ = ["PoolView", "average", "greatest"]

_UNROLLS = range(1, 9)


@dataclass(frozen=True, slots=True)
class PoolView:
    """Per window ``rows`` rows of ``blocks`` times ``unroll`` pixels, vectors of channels and ``rest``.

    If the window is ``padded``, rows and pixels are what it shares with the image, with ``unroll`` 1. Then
    the reciprocals of an average are in an array, by the number of its pixels less one.
    """

    window: Window
    average: bool
    reciprocal: Reciprocal | None
    rows: int
    blocks: int
    unroll: int
    low: int | None
    high: int | None

    @property
    def padded(self) -> bool:
        return self.window.padded

    @property
    def whole(self) -> int:
        """Channels in whole vectors."""
        return self.window.channels // LANES * LANES

    @property
    def rest(self) -> int:
        return self.window.channels % LANES

    @property
    def routines(self) -> tuple[Routine, ...]:
        """Of a vector of channels, and of those that fill none."""
        parts = [n for n, there in ((0, self.whole), (self.rest, self.rest)) if there]
        return tuple(self._columns(rest) for rest in parts)

    def _columns(self, rest: int) -> Routine:
        g = self.window
        columns = Columns(rest, self.rows, self.blocks, self.unroll, g.channels, g.pitch, self.padded)
        return sums(columns) if self.average else maxima(columns, self._least, self.high)

    @property
    def _least(self) -> int:
        return INT8.low if self.low is None else self.low

    @property
    def work(self) -> Work:
        g = self.window
        clamps = (self.low is not None) + (self.high is not None)
        kind = f"sum clamp {clamps}" if self.average else "most"
        form = f"{kind}{' padded' if self.padded else ''}"
        calls = [g.pixels * (self.whole // LANES)] if self.whole else []
        calls += [g.pixels] if self.rest else []
        work = Work().block("line", g.batch * g.out_height).block(f"{form} pixel", g.pixels)
        for routine, runs in zip(self.routines, calls, strict=True):
            work.block(f"{form} vector", runs)
            if self.padded:
                rows, columns = (int(n.sum()) for n in g.inside())
                lines, pixels = rows / g.out_height, rows * columns / (g.out_height * g.out_width)
                work.counted += runs * routine.instructions(rows=lines, pixels=pixels / lines)
            else:
                work.counted += runs * routine.instructions()
        return work


@design(AveragePool2d, types=(DType.INT8,), needs="mve")
def average(op: AveragePool2d, sig: Signature, target: Target) -> Kernel | None:
    """int8 and windows of up to 255 pixels; None for others, or if a reciprocal is not exact."""
    count = op.window[0] * op.window[1]
    if count > MOST:
        return None
    window = Window.of(sig, op.window, op.stride, op.padding)
    counts = _counts(window) if window.padded else {count}
    factors = {n: reciprocal(n) for n in counts}
    found = {n: factor for n, factor in factors.items() if factor is not None}
    if len(found) < len(counts):
        return None
    if not window.padded:
        return _kernel(op, sig, window, "mve average", found[count])
    table = np.zeros((max(counts), 3), np.int32)
    for n, factor in found.items():
        table[n - 1] = factor.multiplier, factor.constant, -factor.shift
    note = "by the pixels of a window less one: multiplier, constant, minus the shift"
    return _kernel(op, sig, window, "mve average", None, (Const.of("reciprocals", table, 4, note),))


@design(MaxPool2d, types=(DType.INT8,), needs="mve")
def greatest(op: MaxPool2d, sig: Signature, target: Target) -> Kernel:
    """int8 and windows of any size."""
    return _kernel(op, sig, Window.of(sig, op.window, op.stride, op.padding), "mve max", None)


def _counts(window: Window) -> set[int]:
    """How many pixels windows share with the image."""
    along = (
        (window.out_height, window.stride_y, window.top, window.taps_y, window.height),
        (window.out_width, window.stride_x, window.left, window.taps_x, window.width),
    )
    rows, columns = (
        {min(i * stride - before + taps, size) - max(i * stride - before, 0) for i in range(outputs)}
        for outputs, stride, before, taps, size in along
    )
    return {r * c for r in rows for c in columns}


def _kernel(
    op: AveragePool2d | MaxPool2d,
    sig: Signature,
    window: Window,
    name: str,
    division: Reciprocal | None,
    consts: tuple[Const, ...] = (),
) -> Kernel:
    params = op.parameters(sig)
    low, high = clamp_limits(params.act_min, params.act_max)
    rows, columns = op.window
    if columns == window.width and not window.padded:
        rows, columns = 1, rows * columns
    unroll = 1 if window.padded else max(u for u in _UNROLLS if columns % u == 0)
    view = PoolView(
        window=window,
        average=isinstance(op, AveragePool2d),
        reciprocal=division,
        rows=rows,
        blocks=columns // unroll,
        unroll=unroll,
        low=low,
        high=high,
    )
    written = np.arange(window.pixels) * window.channels
    return Kernel(
        design=name,
        template="mve/pool.c.j2",
        view=view,
        consts=consts,
        inplace=(InPlace(lead=least_lead(written, window.first_reads())),),
        work=view.work,
        routines=view.routines,
        includes=("arm_mve.h",),
    )
