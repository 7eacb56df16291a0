"""Layers on images by rows: only a stripe of each intermediate image is in scratch.

Problem
    A pointwise layer often widens an image, and a depthwise layer with stride 2 makes it small again. The
    image between them is the largest array of the network, although the second layer looks at three of its
    rows at a time.

Idea
    One function runs the whole chain, driven from its end. It makes a block of output rows; for that the last
    layer asks the layer before it for the rows of its window, which asks the one before, up to the image in
    memory. Between two layers is a *stripe*, the window of rows that the reader needs now. The layers
    themselves are ordinary kernels for a few rows without padding above and below: no layer needs a version
    of its own for this.

Invariant
    Before a stage computes, its stripe holds exactly the rows of its window, padding included, in order.
    ``loaded`` counts the rows that have ever been in the stripe. To get there from the previous window, rows
    that both windows share move up, and the others are made or filled. Rows are made in order, each once, so
    a loop multiplies exactly as often as the layers do one after another, and results are the same bits:
    what is stored in a stripe is rounded as it would be in the image.

Example
    An image of 8 rows, pointwise to rows of 400 bytes, then depthwise 3x3 with stride 2 and one row of
    padding above: 4 rows of outputs. The image between takes 3,200 bytes, the stripe 1,200::

        output row   window, rows   moved up   made       rows made so far (``rows_made``)
        0            -1  0  1                  0, 1       2
        1             1  2  3       1          2, 3       4
        2             3  4  5       3          4, 5       6
        3             5  6  7       5          6, 7       8

Four things are different at the edges of this picture. Windows that share no rows (pooling 2x2 with stride
2) need no bookkeeping: one call of the stage before fills the stripe. The first stage reads its image in
place, and copies only windows that reach beyond an edge. A layer that computes the other operand of an
addition runs along, and its output is in scratch until it is added. An image that is enlarged by repeated
rows is a first stage: it reads row ``y // repeats`` for row y, and the joined rows of a U-Net's way up, of
this image and of the skip connection, are never whole. So is one that is resized by two rows each, which its
tables name.

The hard step is to say what the output may overwrite (``_leaves``): when a block is written, the first stage
has read a known part of its image, and what it has read is free.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

import numpy as np

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Part
from crtgen.compiler.kernels.engine.parts import Parts, aligned, arguments, assemble
from crtgen.compiler.kernels.engine.window import least_lead
from crtgen.compiler.kernels.rows.row_stage import (
    Rows,
    RowStage,
    fill_of,
    has_own_rows,
    part_of,
    rows_made,
    rows_per_call,
    span_of,
    step_of,
)
from crtgen.network.ir import Value
from crtgen.network.ops import Concat

__all__ = [
    "Outline",
    "RowLoopView",
    "StageView",
    "find_outline",
    "row_loop",
]


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage that makes ``rows`` rows of outputs per call from ``window`` rows of its input.

    The window of output row y begins ``top`` rows above row ``y * stride``. If it may extend beyond the image
    of ``height`` rows it is ``padded`` with bytes ``fill``. ``own``: windows share no rows. A ``blended``
    stage gets the whole image, and its tables from the row on that it begins with. The stripe is at
    the offset ``stripe`` in scratch. ``x_row`` and ``y_row`` are elements per row, ``other`` is the address
    of the other image of an addition, ``arguments`` are the part's arguments after its images.
    """

    number: int
    rows: int
    window: int
    stride: int
    top: int
    height: int
    padded: bool
    own: bool
    fill: int
    stripe: int
    x_row: int
    y_row: int
    other: str
    arguments: tuple[str, ...]
    turned: bool = False
    repeats: int = 1
    blended: bool = False

    @property
    def has_stripe(self) -> bool:
        """True if the stage reads a stripe; a first stage only does so at an edge."""
        return self.number > 0 or self.padded

    @property
    def keeps(self) -> bool:
        return self.number > 0 and not self.own

    @property
    def last_top(self) -> int:
        return self.height - self.window

    @property
    def x_step(self) -> int:
        return self.stride * self.x_row


@dataclass(frozen=True, slots=True)
class RowLoopView:
    """Stages, of which the last one computes an image of ``height`` rows; ``work`` is the offset of the
    parts' scratch.
    """

    type: str
    height: int
    stages: tuple[StageView, ...]
    work: int

    @property
    def works(self) -> bool:
        return any("work" in stage.arguments for stage in self.stages)


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """A loop whose stages have no kernels yet.

    ``rows`` are the output rows of each stage per call, ``made`` those that exist after each block.
    ``stripes`` are the bytes of scratch that it reads. ``inplace`` says what the output may overwrite if the
    kernel of the last stage permits it.
    """

    rows: tuple[int, ...]
    made: tuple[Rows, ...]
    stripes: tuple[int, ...]
    inplace: tuple[InPlace, ...]


def find_outline(stages: Sequence[RowStage], last_rows: int, known: Parts) -> Outline | None:
    """Return the outline of ``stages``; the last stage computes ``last_rows`` rows at a time.

    None unless a run has one image whose rows are whole words, the rows divide the image, and all rows of
    each stripe are read.
    """
    return known.once((_shapes(stages, known), last_rows), partial(_outline, stages, last_rows))


def row_loop(stages: Sequence[RowStage], last_rows: int, known: Parts) -> Kernel | None:
    """Return the kernel of ``stages``; the last stage computes ``last_rows`` rows at a time.

    None if there is no outline, or no kernel for a stage.
    """
    outline = find_outline(stages, last_rows, known)
    if outline is None:
        return None
    found = [
        known.once((stage, count), partial(part_of, stage, count, known))
        for stage, count in zip(stages, outline.rows, strict=True)
    ]
    parts = [part for part in found if part is not None]
    if len(parts) < len(found):
        return None
    given = arguments(parts)
    key = _shapes(stages, known), last_rows, given
    form = known.once(key, partial(_form, stages, outline, given))
    kernel = assemble(
        f"{last_rows} row{'s' if last_rows > 1 else ''} at a time",
        "row_loop.c.j2",
        form.view,
        [part.called(calls) for part, calls in zip(parts, form.calls, strict=True)],
        begin=form.view.work,
        inplace=_permits(outline, stages[-1], parts[-1]),
        work=form.work,
    )
    return kernel.priced(known.target)


@dataclass(frozen=True, slots=True)
class _LoopForm:
    # Shape of a loop, independent of its stages' operators; ``calls`` are those of each stage's kernel.
    view: RowLoopView
    calls: tuple[int, ...]
    work: Work


def _form(stages: Sequence[RowStage], outline: Outline, given: Sequence[tuple[str, ...]]) -> _LoopForm:
    view = _view(stages, outline, given)
    calls = tuple(int(done[-1]) // count for count, done in zip(outline.rows, outline.made, strict=True))
    return _LoopForm(view, calls, _work(view, calls, outline.made, stages[0].sig.x.dtype.itemsize))


def _outline(stages: Sequence[RowStage], last_rows: int) -> Outline | None:
    windows, height = [stage.window for stage in stages], stages[-1].sig.y.shape[1]
    if not all(stage.fits for stage in stages) or height % last_rows:
        return None
    if any(later.rows < later.stride_y for later in windows[1:]):
        return None
    rows = rows_per_call(windows, last_rows)
    if any(stage.is_enlarged for stage in stages[1:]):
        return None  # a stripe would be read several times
    made = rows_made(windows, rows, height)
    stripes = tuple(
        span_of(stage.window, count) * stage.sig.x.nbytes // stage.window.height
        if stage.window.padded_rows or number > 0
        else 0
        for number, (stage, count) in enumerate(zip(stages, rows, strict=True))
    )
    return Outline(tuple(rows), tuple(made), stripes, tuple(_leaves(stages, made)))


def _shapes(stages: Sequence[RowStage], known: Parts) -> tuple[int, ...]:
    # A number for each stage, the same for those that only constants and names tell apart.
    return tuple(known.once(stage, partial(known.number, stage.shape)) for stage in stages)


def _view(stages: Sequence[RowStage], outline: Outline, given: Sequence[tuple[str, ...]]) -> RowLoopView:
    views: list[StageView] = []
    images = 0
    starts = [0, *accumulate(outline.stripes)]
    for number, (stage, count) in enumerate(zip(stages, outline.rows, strict=True)):
        sig, window = stage.sig, stage.window
        images += stage.takes_pairs
        view = StageView(
            number=number,
            rows=count,
            window=span_of(window, count),
            stride=window.stride_y,
            top=window.top,
            height=window.height,
            padded=window.padded_rows,
            own=has_own_rows(window),
            fill=fill_of(stage.op, sig.x) or 0,
            stripe=starts[number],
            x_row=sig.x.shape[2] * sig.x.shape[3],
            y_row=sig.y.shape[2] * sig.y.shape[3],
            other=_other(stage, images, number),
            arguments=_from_row(given[number], number) if stage.is_blended else given[number],
            turned=stage.turned,
            repeats=stage.repeats,
            blended=stage.is_blended,
        )
        views.append(view)
    first, last = stages[0].sig.x, stages[-1].sig.y
    return RowLoopView(first.dtype.c_name, last.shape[1], tuple(views), aligned(starts[-1]))


def _from_row(given: Sequence[str], number: int) -> tuple[str, ...]:
    # Its tables by rows, where those of the next rows begin: two entries of a row, and one.
    places = {f"stage{number}_rows": f" + row{number} * 2", f"stage{number}_down": f" + row{number}"}
    return tuple(name + places.get(name, "") for name in given)


def _other(stage: RowStage, image: int, number: int) -> str:
    if not stage.takes_pairs:
        return ""
    _, _, width, channels = stage.images[1].shape
    return f"x{image} + row{number} * {step_of(stage) * width * channels}"


def _leaves(stages: Sequence[RowStage], made: Sequence[Rows]) -> Iterator[InPlace]:
    # The output over the first stage's image, or over the other image of an addition. When the last stage
    # writes a block's rows, the stages before it have read what they need for it.
    #
    # After block n the output has ``written[n]`` bytes. The first stage has made ``made[0][n]`` rows by then,
    # so it never again reads above the window of the next one: row ``unread[n]`` of its image. If the output
    # begins ``lead`` bytes before the image, no write passes that row as long as, for every n,
    # written[n] <= lead + unread[n] * (bytes of a row). Once all rows are made, nothing is read any more.
    y = stages[-1].sig.y
    written = made[-1] * y.nbytes // y.shape[1]
    unread = stages[0].unread(made[0])
    yield InPlace(0, lead=_lead(written, unread, made[0], stages[0].sig.x))
    index = 1
    for stage, rows in zip(stages, made, strict=True):
        if stage.takes_pairs:
            lead = _lead(written, rows * step_of(stage), rows, stage.images[1])
            yield InPlace(index, lead=lead)
        index += len(stage.others)


def _permits(outline: Outline, last: RowStage, part: Part) -> tuple[InPlace, ...]:
    # In-place permissions of the output; if the last stage reads a second image, within those of its kernel.
    if not last.takes_pairs:
        return outline.inplace
    *others, other = outline.inplace
    if isinstance(last.op, Concat):  # it writes a block before it has read the other image's rows of it
        y, image, rows = last.sig.y, last.images[1], outline.made[-1]
        begun = np.append(0, rows[:-1]) * (image.nbytes // image.shape[1])
        return (*others, replace(other, lead=least_lead(rows * y.nbytes // y.shape[1], begun)))
    return (*others, replace(other, lead=max(other.lead, _within(part))))


def _lead(written: Rows, unread: Rows, made: Rows, image: Value) -> int:
    # From row ``unread`` of the image on, a stage still has to read it, until all its rows are made.
    pending = made < made[-1]
    return least_lead(written[pending], unread[pending] * (image.nbytes // image.shape[1]))


def _within(part: Part) -> int:
    # The lead with which an addition may overwrite its other operand.
    leads = [permit.lead for permit in part.kernel.inplace if permit.input == 1 and not permit.exact]
    return min(leads, default=part.sig.y.nbytes)


def _work(view: RowLoopView, calls_of: Sequence[int], made: Sequence[Rows], size: int) -> Work:
    # Calls of the stages, and rows that are filled, copied or moved up.
    work = Work()
    for number, (stage, calls) in enumerate(zip(view.stages, calls_of, strict=True)):
        row = stage.x_row * size
        work.block("stage", calls)
        if stage.keeps:
            came = int(made[number - 1][-1])
            moved = calls * stage.window - came
            work.block("stripe", calls).block("stripe row", came).block("moved 16", moved * row / 16)
        elif stage.padded:
            tops = np.arange(calls) * stage.rows * stage.stride - stage.top
            edges = np.count_nonzero((tops < 0) | (tops > stage.last_top))
            work.block("edge", calls).copy(row, int(edges) * stage.window)
    return work
