"""Samples an image at points that are computed at run time."""

from dataclasses import dataclass
from math import prod

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.elements import operands
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_float
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.grid import MODES, GridSample

__all__ = ["GridAxis", "GridView"]


@dataclass(frozen=True, slots=True)
class GridAxis:
    """``length`` pixels, ``step`` elements apart; coordinates are from ``low`` to ``high``.

    ``place`` is C for a point's coordinate ``v``; ``span`` is twice the distance of the borders.
    """

    length: int
    step: int
    place: str
    low: str
    high: str
    span: str


@dataclass(frozen=True, slots=True)
class GridView:
    """``batch`` times ``points``; the axes are those of the image, the last of which has the first
    coordinate.
    """

    x: str
    grid: str
    batch: int
    points: int
    image: int
    channels: int
    taps: int
    padding: str
    axes: tuple[GridAxis, ...]


@design(GridSample, types=(DType.FLOAT32,), weights=None)
def grid_sample(op: GridSample, sig: Signature, target: Target) -> Kernel:
    """Compute positions and weights along each axis, then sum the products."""
    batch, *size, channels = sig.x.shape
    (x, grid), consts = operands(sig)
    axes = []
    for number, length in enumerate(size):
        low, high = op.borders(length)
        whole, edge = c_float(length), c_float(length - 1)
        place = f"((v + 1.0f) * 0.5f) * {edge}" if op.corners else f"(((v + 1.0f) * {whole}) - 1.0f) * 0.5f"
        step = prod(size[number + 1 :]) * channels
        axes.append(GridAxis(length, step, place, c_float(low), c_float(high), c_float(2 * (high - low))))
    points, taps = sig.y.elements // channels // batch, MODES[op.mode]
    view = GridView(
        x=x,
        grid=grid,
        batch=batch,
        points=points,
        image=prod(size) * channels,
        channels=channels,
        taps=taps,
        padding=op.padding,
        axes=tuple(axes),
    )
    total = batch * points
    work = Work().block(f"axis {op.mode} {op.padding}", total * len(size), len(size)).block("point", total)
    work.block("tap", total * taps ** len(size)).block("channel", total * taps ** len(size) * channels)
    return Kernel("grid sample", "grid_sample.c.j2", view, consts, work=work)
