"""Pooling with Helium: one vector of channels at a time.

Sums of up to 255 int8 values fit into 16 bits, and the division is a multiplication that is checked for every
sum. Sums of int16 have 32 bits.
"""

from dataclasses import dataclass

import numpy as np

from crtgen.compiler.kernels.arithmetic.average import MOST, Reciprocal, reciprocal
from crtgen.compiler.kernels.arithmetic.requant import clamp_limits
from crtgen.compiler.kernels.asm import Routine
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape, least_lead
from crtgen.compiler.kernels.mve.columns import Columns, maxima, sums
from crtgen.compiler.kernels.mve.stream import LANES
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import AveragePool2d, MaxPool2d, scheme_of
from crtgen.network.ops.rescaling import by_float

__all__ = ["MvePoolView", "average", "greatest"]

_UNROLLS = range(1, 9)


@dataclass(frozen=True, slots=True)
class MvePoolView:
    """A window as ``rows`` rows of ``blocks`` times ``unroll`` pixels; vectors of channels and a ``rest``.

    If windows are ``padded``, rows and pixels are the part inside the image, with ``unroll`` 1. Then the
    reciprocals for an average are in an array, indexed by the number of pixels minus one. Elements have
    ``size`` bytes.
    """

    window: WindowShape
    average: bool
    reciprocal: Reciprocal | None
    rows: int
    blocks: int
    unroll: int
    low: int | None
    high: int | None
    size: int

    @property
    def lanes(self) -> int:
        return LANES // self.size

    @property
    def padded(self) -> bool:
        return self.window.padded

    @property
    def whole(self) -> int:
        return self.window.channels // self.lanes * self.lanes

    @property
    def rest(self) -> int:
        return self.window.channels % self.lanes

    @property
    def routines(self) -> tuple[Routine, ...]:
        parts = [n for n, there in ((0, self.whole), (self.rest, self.rest)) if there]
        return tuple(self._columns(rest) for rest in parts)

    def _columns(self, rest: int) -> Routine:
        g = self.window
        step, pitch = g.channels * self.size, g.pitch * self.size
        columns = Columns(rest, self.rows, self.blocks, self.unroll, step, pitch, self.padded, self.size)
        return sums(columns) if self.average else maxima(columns, self._least, self.high)

    @property
    def _least(self) -> int:
        return -(1 << (8 * self.size - 1)) if self.low is None else self.low

    @property
    def work(self) -> Work:
        g = self.window
        clamps = (self.low is not None) + (self.high is not None)
        kind = f"sum{' of int16' if self.size > 1 else ''} clamp {clamps}" if self.average else "most"
        form = f"{kind}{' padded' if self.padded else ''}"
        calls = [g.pixels * (self.whole // self.lanes)] if self.whole else []
        calls += [g.pixels] if self.rest else []
        work = Work().block("line", g.batch * g.out_height).block(f"{form} pixel", g.pixels)
        for routine, runs in zip(self.routines, calls, strict=True):
            work.block(f"{form} vector", runs)
            if self.padded:
                rows, columns = (int(n.sum()) for n in g.inside())
                lines, pixels = rows / g.out_height, rows * columns / (g.out_height * g.out_width)
                work.assembly += runs * routine.runs(rows=lines, pixels=pixels / lines)
            else:
                work.assembly += runs * routine.runs()
        return work


@design(AveragePool2d, types=(DType.INT8, DType.INT16), needs="mve")
def average(op: AveragePool2d, sig: Signature, target: Target) -> Kernel | None:
    """Average pooling with windows of up to 255 pixels; None for larger ones.

    Also None if a product with a reciprocal would not be exact, or if the output has another scale.
    """
    count = op.window[0] * op.window[1]
    if count > MOST or by_float(sig.y):
        return None
    window = WindowShape.of(op, sig)
    counts = _counts(window) if window.padded else {count}
    factors = {n: reciprocal(n) if sig.x.dtype is DType.INT8 else _reciprocal16(n) for n in counts}
    found = {n: factor for n, factor in factors.items() if factor is not None}
    if len(found) < len(counts):
        return None
    if not window.padded:
        return _kernel(op, sig, window, "mve average", found[count])
    table = np.zeros((max(counts), 3), np.int64)
    for n, factor in found.items():
        table[n - 1] = factor.multiplier, factor.constant, -factor.shift
    note = "by the pixels of a window less one: multiplier, constant, minus the shift"
    return _kernel(
        op, sig, window, "mve average", None, (Const.of("reciprocals", table.astype(np.int32), 4, note),)
    )


def _reciprocal16(count: int) -> Reciprocal:
    # The mean's magnitude is ``(2 * |sum| + constant) * multiplier >> 32``, exact for up to 255 numbers. The
    # multiplier is less than 1 above ``2**31 / count``: its error stays below ``sum / 2**31 < 1 / count``.
    return Reciprocal(-(-(1 << 31) // count), 2 * (count // 2), 0)


@design(MaxPool2d, types=(DType.INT8, DType.INT16), needs="mve")
def greatest(op: MaxPool2d, sig: Signature, target: Target) -> Kernel:
    return _kernel(op, sig, WindowShape.of(op, sig), "mve max", None)


def _counts(window: WindowShape) -> set[int]:
    # Pixels that windows share with the image.
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
    window: WindowShape,
    name: str,
    division: Reciprocal | None,
    consts: tuple[Const, ...] = (),
) -> Kernel:
    params = op.parameters(sig)
    low, high = clamp_limits(params.act_min, params.act_max, scheme_of(sig.x))
    rows, columns = op.window
    if columns == window.width and not window.padded:
        rows, columns = 1, rows * columns
    unroll = 1 if window.padded else max(u for u in _UNROLLS if columns % u == 0)
    view = MvePoolView(
        window=window,
        average=isinstance(op, AveragePool2d),
        reciprocal=division,
        rows=rows,
        blocks=columns // unroll,
        unroll=unroll,
        low=low,
        high=high,
        size=sig.x.dtype.itemsize,
    )
    written = np.arange(window.pixels) * window.channels * view.size
    return Kernel(
        design=name,
        template="mve/pool.c.j2",
        view=view,
        consts=consts,
        inplace=(InPlace(lead=least_lead(written, window.first_reads() * view.size)),),
        work=view.work,
        routines=view.routines,
        includes=("arm_mve.h",),
    )
