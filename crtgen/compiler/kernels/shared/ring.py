"""A ring of padded rows in scratch, and rows of outputs that routines compute from it."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from crtgen.compiler.kernels.arithmetic.epilogue import Epilogue
from crtgen.compiler.kernels.asm import Function, Routine, Writer
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel
from crtgen.compiler.kernels.engine.layout import groups_of
from crtgen.compiler.kernels.engine.window import WindowShape, as_row, ring_lead
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import DepthwiseConv2d

__all__ = [
    "DepthwiseView",
    "FloatLine",
    "FloatRow",
    "RingRow",
    "float_lines",
    "ring_view",
    "ring_work",
]

_UNROLLED_TAPS = 16


@dataclass(frozen=True, slots=True)
class DepthwiseView:
    """``multiplier`` outputs per input channel, ``tile`` adjacent outputs of a row at a time.

    The ring holds rows of ``ring_columns`` pixels; of each input row, only ``copied`` pixels are read.
    ``unrolled``: the sum over the taps is unrolled. ``int4``: weights have four bits.
    """

    epilogue: Epilogue
    window: WindowShape
    multiplier: int
    ring_rows: int
    ring_columns: int
    copied: int
    fill: int
    tile: int
    unrolled: bool
    int4: bool

    @property
    def ring_elements(self) -> int:
        return self.ring_rows * self.ring_columns * self.window.channels

    @property
    def lead(self) -> int:
        """Lead of the output before the input, in elements."""
        return ring_lead(self.window, self.window.channels * self.multiplier)


@dataclass(frozen=True, slots=True)
class RingRow:
    """A row of ``width`` outputs of ``channels`` channels, each of ``taps_y`` times ``taps_x`` inputs.

    ``stride`` and ``dilation`` are columns.
    """

    width: int
    channels: int
    taps_y: int
    taps_x: int
    stride: int
    dilation: int

    def columns(self, outputs: int, taps: Sequence[int]) -> Mapping[int, Sequence[tuple[int, int]]]:
        """Return, for each column from left to right, which outputs use which of these taps of a row."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for output in range(outputs):
            for tap in taps:
                found[output * self.stride + tap * self.dilation].append((output, tap))
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class FloatRow(RingRow):
    @property
    def pixel(self) -> int:
        return 4 * self.channels

    @property
    def weight_bytes(self) -> int:
        return self.pixel * (1 + self.taps_y * self.taps_x)


class FloatLine(Writer):
    """Writes ``line(rows, y, weights)``; ``rows`` are the addresses at which the rows of the windows begin.

    ``at_once`` outputs are computed together, then the remaining ones.
    """

    at_once: ClassVar[int]

    def __init__(self, k: FloatRow) -> None:
        self.row = k
        self.f = f = Function(
            "line",
            "const float *const *rows",
            "float *y",
            "const float *weights",
            purpose=f"A row of {k.width} outputs of {k.channels} channels.",
        )
        self.rows, self.y, self.weights = f.arguments
        self.column = f.core("bytes from where rows begin")

    def write(self) -> None:
        f, k = self.f, self.row
        f.number(self.column, 0)
        for outputs, count in groups_of(k.width, self.at_once):
            with f.repeated("neighbours", count):
                self.outputs(outputs)
                if k.width > outputs:
                    f.advance(self.weights, -k.weight_bytes)
                    f.advance(self.column, (outputs * k.stride - 1) * k.pixel)
                    f.advance(self.y, (outputs - 1) * k.pixel)

    def outputs(self, count: int) -> None:
        raise NotImplementedError


def ring_view(op: DepthwiseConv2d, sig: Signature, epilogue: Epilogue, lies: bool = False) -> DepthwiseView:
    """Return the ring that the layer needs and the loops over it; an image of one column may be treated as a
    row.
    """
    _, taps_y, taps_x, _ = sig.inputs[1].shape
    window = WindowShape.of(op, sig)
    window = as_row(window) if lies else window
    return DepthwiseView(
        epilogue=epilogue,
        window=window,
        multiplier=op.multiplier,
        ring_rows=window.rows,
        ring_columns=window.columns,
        copied=max(0, min(window.width, window.columns - window.left)),
        fill=sig.x.quant.zero_point % 256 if sig.x.quant else 0,
        tile=_tile(window.out_width),
        unrolled=taps_y * taps_x <= _UNROLLED_TAPS,
        int4=sig.inputs[1].dtype is DType.INT4,
    )


def ring_work(
    work: Work,
    view: DepthwiseView,
    size: int,
    copy: Callable[[Work, int, float], object] = Work.copy,
    fill: Callable[[Work, int, float], object] = Work.fill,
) -> Work:
    """Return ``work`` plus the work of maintaining the ring; ``copy`` and ``fill`` are its routines."""
    g, lines = view.window, view.window.batch * view.window.out_height
    work.block("image", g.batch).block("line", lines).block("row", lines * g.taps_y)
    loaded = max((g.out_height - 1) * g.stride_y + view.ring_rows - g.top, 0)
    inside, copied = min(g.height, loaded), view.copied * g.channels * size
    copy(work, copied, g.batch * inside)
    fill(work, copied, g.batch * (loaded - inside))
    fill(work, view.ring_elements * size, g.batch)
    return work


def _tile(width: int) -> int:
    # Two neighbours, or three where fewer outputs are then computed twice.
    return min((2, 3), key=lambda tile: -(-width // tile) * tile) if width > 1 else 1


def float_lines(
    design: str,
    view: DepthwiseView,
    weights: Const,
    routines: tuple[Routine, Routine, Routine],
    copy: Callable[[Work, int, float], object],
    fill: Callable[[Work, int, float], object],
) -> Kernel:
    """Return the kernel of ``routines`` that compute, copy and fill a row of outputs; ``copy`` and ``fill``
    are as in ``ring_work``.
    """
    lines = view.window.batch * view.window.out_height
    return Kernel(
        design=design,
        template="depthwise_lines.c.j2",
        view=view,
        consts=(weights,),
        scratch=4 * view.ring_elements,
        inplace=(InPlace(lead=4 * view.lead),),
        work=ring_work(Work(lines * routines[0].runs()), view, 4, copy, fill),
        routines=routines,
    )
