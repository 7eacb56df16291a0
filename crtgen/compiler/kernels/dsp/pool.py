"""Pooling, and means of images, with the DSP extension, four channels at a time.

SXTAB16 adds to two 16-bit sums in a word. The division by the number of pixels is a multiplication that is
checked for every possible sum. SSUB8 and SEL compute the maximum of four bytes at once. Windows that extend
beyond the border have loops of their own, with a division.
"""

from dataclasses import dataclass, replace

from crtgen.compiler.kernels.arithmetic.average import MOST, reciprocal
from crtgen.compiler.kernels.arithmetic.requant import clamp_limits
from crtgen.compiler.kernels.asm import FAR, Routine, Runs
from crtgen.compiler.kernels.dsp.pool_asm import Pixels, of_part, of_window
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.window import WindowShape
from crtgen.compiler.kernels.portable.pool import least_pool_lead, rescaled_sum
from crtgen.compiler.kernels.portable.reduce import image_of, mean_result
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.attrs import Padding
from crtgen.network.ops.pool import AveragePool2d, MaxPool2d
from crtgen.network.ops.reduce import Mean
from crtgen.network.ops.rescaling import by_float

__all__ = ["DspPoolView", "average", "greatest", "mean"]

_CHANNELS = 4


@dataclass(frozen=True, slots=True)
class DspPoolView:
    """A pooling: an output reads ``rows`` rows of ``blocks`` times ``unroll`` pixels if its window is inside
    the image.

    ``mean`` is the C expression that turns ``sum`` into the output, empty for a maximum. ``across``: four
    channels share one output, the mean of all.
    """

    window: WindowShape
    rows: int
    blocks: int
    unroll: int
    mean: str
    across: bool = False
    low: int | None = None
    high: int | None = None

    @property
    def padded(self) -> bool:
        return self.window.padded

    @property
    def wide(self) -> bool:
        return bool(self.mean) and self.window.taps_y * self.window.taps_x > MOST

    @property
    def last_group(self) -> int:
        return self.window.channels - _CHANNELS

    @property
    def groups(self) -> int:
        """Groups of four channels; the last one may overlap the previous one."""
        return -(-self.window.channels // _CHANNELS)

    @property
    def overlaps(self) -> bool:
        return self.window.channels % _CHANNELS != 0

    @property
    def routines(self) -> tuple[Routine, ...]:
        g = self.window
        pixels = Pixels(
            bool(self.mean), self.wide, self.rows, self.blocks, self.unroll, g.channels, self.row_gap
        )
        border = replace(pixels, wide=False, rows=1, blocks=1, unroll=1, gap=0)
        return (of_window(pixels), *((of_part(border, g.width * g.channels),) if self.padded else ()))

    @property
    def row_gap(self) -> int:
        return max(self.window.width - self.window.taps_x, 0) * self.window.channels


@design(AveragePool2d, types=(DType.INT8,), needs="dsp")
def average(op: AveragePool2d, sig: Signature, target: Target) -> Kernel | None:
    """Average pooling of at least four channels; None for fewer, and for windows of over 255 pixels at a
    border.
    """
    count = op.window[0] * op.window[1]
    if not _fits(op, sig) or (op.padding != Padding() and count > MOST):
        return None
    if by_float(sig.y):
        return _pool(op, sig, "dsp_average", rescaled_sum(op.parameters(sig), "sum"))
    factor = reciprocal(count)
    if factor is None:
        half = count // 2
        return _pool(op, sig, "dsp_average", f"(sum > 0 ? sum + {half} : sum - {half}) / {count}")
    return _pool(
        op, sig, "dsp_average", f"(sum * {factor.multiplier} + ({factor.constant})) >> {factor.shift}"
    )


@design(MaxPool2d, types=(DType.INT8,), needs="dsp")
def greatest(op: MaxPool2d, sig: Signature, target: Target) -> Kernel | None:
    return _pool(op, sig, "dsp_max", "") if _fits(op, sig) else None


@design(Mean, types=(DType.INT8,), needs="dsp")
def mean(op: Mean, sig: Signature, target: Target) -> Kernel | None:
    """Means over all pixels of images with at least four channels, or over runs of words.

    None for other axes.
    """
    shape = image_of(op, sig.x)
    if shape is None:
        return None
    images, pixels, channels = shape
    across = channels == 1 and pixels % _CHANNELS == 0
    if across:
        pixels, channels = pixels // _CHANNELS, _CHANNELS
    if channels < _CHANNELS:
        return None
    window = WindowShape.whole(images, pixels, channels)
    view = DspPoolView(window, *_walk(window), mean_result(op, sig), across)
    return Kernel("dsp_mean", "dsp/pool.c.j2", view, work=_work(view), routines=view.routines)


def _fits(op: AveragePool2d | MaxPool2d, sig: Signature) -> bool:
    return _CHANNELS <= sig.x.shape[3] <= FAR and (op.window[1] <= MOST or op.window[1] == sig.x.shape[2])


def _pool(op: AveragePool2d | MaxPool2d, sig: Signature, name: str, result: str) -> Kernel:
    params = op.parameters(sig)
    low, high = clamp_limits(params.act_min, params.act_max)
    if params.factor is not None:  # a result with another scale, which may be beyond int8
        low, high = params.act_min, params.act_max
    window = WindowShape.of(op, sig)
    view = DspPoolView(
        window,
        *_walk(window),
        mean=result,
        low=low,
        high=high,
    )
    return Kernel(
        design=name,
        template="dsp/pool.c.j2",
        view=view,
        inplace=() if view.overlaps else (InPlace(lead=least_pool_lead(window, 1)),),
        work=_work(view),
        routines=view.routines,
    )


def _walk(window: WindowShape) -> tuple[int, int, int]:
    # Rows, blocks and unroll of a window; one as wide as the image has as few rows as have 16-bit sums.
    rows, columns = window.taps_y, window.taps_x
    if columns == window.width:
        pixels = rows * columns
        columns = max(n for n in range(1, min(pixels, MOST) + 1) if pixels % n == 0)
        rows = pixels // columns
    unroll = max(u for u in range(1, 9) if columns % u == 0 and (u - 1) * window.channels <= FAR)
    return rows, columns // unroll, unroll


def _work(view: DspPoolView) -> Work:
    g = view.window
    within, *border = view.routines
    rows, columns = g.inside()
    whole = int((rows == g.taps_y).sum() * (columns == g.taps_x).sum()) * g.batch
    clamps = (view.low is not None) + (view.high is not None)
    kind = (
        ("wide" if view.wide else "across" if view.across else "sum") if view.mean else f"most clamp {clamps}"
    )
    form = f"{kind}{' padded' if view.padded else ''}"
    work = Work(whole * view.groups * within.runs())
    work.block("line", g.batch * g.out_height).block(f"{form} pixel", g.pixels)
    work.block(f"{form} group", whole * view.groups, 1 + view.overlaps)
    if view.mean:
        outputs = 1 if view.across else _CHANNELS
        work.words(f"mean clamp {clamps}", whole * view.groups * outputs, view.mean, copies=outputs)
    if border:
        part = g.pixels - whole
        taps = g.batch * int(rows.sum() * columns.sum()) - whole * g.taps_y * g.taps_x
        lines = g.batch * int(rows.sum()) * len(columns) - whole * g.taps_y
        work.assembly += view.groups * _at_border(border[0], part, lines, taps)
        work.block(f"{kind} clamp {clamps} border", part * view.groups).block("border", part)
    return work


def _at_border(routine: Routine, calls: int, rows: int, taps: int) -> Runs:
    # Runs of ``calls`` calls with this total of rows and taps.
    none, row = routine.runs(rows=0, columns=0), routine.runs(rows=1, columns=0)
    tap = routine.runs(rows=1, columns=1) - row
    return calls * none + rows * (row - none) + taps * tap
