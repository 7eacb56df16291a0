"""Layers on images by rows that come one after the other: of the image, too, only a window is in memory.

It is a machine with a stripe in scratch for each stage: the window of rows that the stage reads next.
Whatever stage has its window whole computes rows, the last such stage first; they go to the stripe of the
next stage, and its own rows move up. Where no stage can compute, a row of the image is taken. So a row is
taken only when it is needed, and the machine can stop there until there is one: that is how images are fed
by rows.

Rows that an addition needs later are kept in scratch until then. A pooling of the whole image, as the last
stage, is a running sum.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

import numpy as np

from crtgen.kernels.cost import Work
from crtgen.kernels.kernel import InPlace, Kernel
from crtgen.kernels.parts import Parts, aligned, arguments, assemble
from crtgen.kernels.row_loop import Outline, lead_of, permits, shapes_of
from crtgen.kernels.row_stage import (
    Rows,
    RowStage,
    fill_of,
    part_of,
    rows_made,
    rows_per_call,
    span_of,
    step_of,
)
from crtgen.ops import Add

__all__ = ["KeptView", "RowStreamView", "StreamStageView", "row_stream", "stream_outline"]

_COUNTER = 4  # bytes; each stage has two


@dataclass(frozen=True, slots=True)
class KeptView:
    """Rows that stage ``source`` made and stage ``reader`` adds later, at the offset ``place`` in scratch."""

    source: int
    reader: int
    place: int


@dataclass(frozen=True, slots=True)
class StreamStageView:
    """A stage that makes ``rows`` rows per call, ``out_height`` in all, from a stripe of ``window`` rows.

    ``left`` rows of the stripe stay when it has. Rows of padding are ``above`` the image of ``height`` rows,
    and below it where ``below``: bytes ``fill``. The stripe is at the offset ``stripe`` in scratch.
    ``x_row`` and ``y_row`` are elements per row, ``other`` is where the other image of an addition is
    read, ``arguments`` what the part is given behind its images.
    """

    number: int
    rows: int
    window: int
    left: int
    above: int
    below: bool
    height: int
    out_height: int
    fill: int
    stripe: int
    x_row: int
    y_row: int
    other: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowStreamView:
    """Stages, and ``kept`` rows. ``counters`` and ``work``, the parts' scratch, are offsets in scratch.

    The image comes in calls of some rows each where it is ``fed``.
    """

    type: str
    stages: tuple[StreamStageView, ...]
    kept: tuple[KeptView, ...]
    counters: int
    work: int
    fed: bool

    @property
    def works(self) -> bool:
        """Whether a part has scratch of its own."""
        return any("work" in stage.arguments for stage in self.stages)

    def kept_of(self, source: int) -> tuple[KeptView, ...]:
        """The rows that are kept of what a stage makes."""
        return tuple(kept for kept in self.kept if kept.source == source)

    def kept_for(self, reader: int) -> tuple[KeptView, ...]:
        """The rows that are kept for a stage."""
        return tuple(kept for kept in self.kept if kept.reader == reader)


def stream_outline(stages: Sequence[RowStage], last_rows: int, known: Parts) -> Outline | None:
    """That of ``stages``, of which the last makes ``last_rows`` rows at a time.

    The stripes are followed by what is kept for additions. None unless there is one image per run whose rows
    are whole words, the rows divide the image, and all rows of each stripe are read.
    """
    return known.once(("stream", shapes_of(stages, known), last_rows), partial(_outline, stages, last_rows))


def row_stream(stages: Sequence[RowStage], last_rows: int, known: Parts, *, fed: bool) -> Kernel | None:
    """The kernel of ``stages``; where it is ``fed``, its function is called with rows of the image.

    None where there is no outline, or no kernel of a stage.
    """
    outline = stream_outline(stages, last_rows, known)
    if outline is None:
        return None
    found = [
        known.once((stage, count), partial(part_of, stage, count, known))
        for stage, count in zip(stages, outline.rows, strict=True)
    ]
    parts = [part for part in found if part is not None]
    if len(parts) < len(found):
        return None
    view = _view(stages, outline, arguments(parts), fed)
    calls = [int(done[-1]) // count for count, done in zip(outline.rows, outline.made, strict=True)]
    kernel = assemble(
        f"{last_rows} row{'s' if last_rows > 1 else ''} at a time, streamed",
        "row_stream.c.j2",
        view,
        [part.called(count) for part, count in zip(parts, calls, strict=True)],
        begin=view.work,
        inplace=() if fed else permits(outline, stages[-1], parts[-1]),
        work=_work(view, calls, outline.made, stages[0].sig.x.dtype.itemsize),
    )
    return replace(kernel.priced(known.target), fed=fed)


def _outline(stages: Sequence[RowStage], last_rows: int) -> Outline | None:
    windows, height = [stage.window for stage in stages], stages[-1].sig.y.shape[1]
    if not all(stage.fits for stage in stages) or height % last_rows:
        return None
    if any(window.rows < window.stride_y for window in windows):
        return None
    rows = rows_per_call(windows, last_rows)
    made = rows_made(windows, rows, height)
    stripes = [
        span_of(stage.window, count) * _row_bytes(stage.sig.x.nbytes, stage.window.height)
        for stage, count in zip(stages, rows, strict=True)
    ]
    stripes += [
        _most_kept(stages, rows, stage.since, number) * _row_bytes(stage.sig.x.nbytes, stage.window.height)
        for number, stage in enumerate(stages)
        if stage.since is not None
    ]
    return Outline(tuple(rows), tuple(made), tuple(stripes), tuple(_leaves(stages, rows, made)))


def _row_bytes(nbytes: int, rows: int) -> int:
    return nbytes // rows


def _most_kept(stages: Sequence[RowStage], rows: Sequence[int], source: int, reader: int) -> int:
    """The most rows of a stage that are there and not yet added."""
    windows, height = [stage.window for stage in stages[: reader + 1]], stages[reader].sig.y.shape[1]
    made = rows_made(windows, rows[: reader + 1], height)
    return int((made[source] - (made[reader] - rows[reader])).max())


def _taken(stages: Sequence[RowStage], rows: Sequence[int], made: Sequence[Rows]) -> Rows:
    """The rows of the image that were taken when each block is written."""
    window = stages[0].window
    ends = (made[0] - rows[0]) * window.stride_y + span_of(window, rows[0]) - window.top
    return np.clip(ends, 0, window.height)


def _leaves(stages: Sequence[RowStage], rows: Sequence[int], made: Sequence[Rows]) -> Iterator[InPlace]:
    """The output over the image, or over the other image of an addition."""
    y = stages[-1].sig.y
    written = made[-1] * y.nbytes // y.shape[1]
    taken = _taken(stages, rows, made)
    yield InPlace(0, lead=lead_of(written, taken, taken, stages[0].sig.x))
    index = 1
    for stage, done in zip(stages, made, strict=True):
        if isinstance(stage.op, Add) and stage.since is None:
            yield InPlace(index, lead=lead_of(written, done * step_of(stage), done, stage.images[1]))
        index += len(stage.others)


def _view(
    stages: Sequence[RowStage], outline: Outline, given: Sequence[tuple[str, ...]], fed: bool
) -> RowStreamView:
    starts = list(accumulate(outline.stripes, initial=0))
    readers = [number for number, stage in enumerate(stages) if stage.since is not None]
    kept = tuple(
        KeptView(stages[number].since or 0, number, place)
        for number, place in zip(readers, starts[len(stages) :], strict=False)
    )
    views: list[StreamStageView] = []
    images = 0
    for number, (stage, count) in enumerate(zip(stages, outline.rows, strict=True)):
        sig, window = stage.sig, stage.window
        images += isinstance(stage.op, Add) and stage.since is None
        rows = span_of(window, count)
        bottom = (window.out_height - 1) * window.stride_y + window.rows - window.top
        view = StreamStageView(
            number=number,
            rows=count,
            window=rows,
            left=rows - count * window.stride_y,
            above=window.top,
            below=bottom > window.height,
            height=window.height,
            out_height=window.out_height,
            fill=fill_of(stage.op, sig.x) or 0,
            stripe=starts[number],
            x_row=sig.x.shape[2] * sig.x.shape[3],
            y_row=sig.y.shape[2] * sig.y.shape[3],
            other=_other(stage, images, number),
            arguments=given[number],
        )
        views.append(view)
    counters = 2 * _COUNTER * len(stages) if fed else 0
    kind = stages[0].sig.x.dtype.c_name
    return RowStreamView(kind, tuple(views), kept, starts[-1], aligned(starts[-1] + counters), fed)


def _other(stage: RowStage, image: int, number: int) -> str:
    if not isinstance(stage.op, Add):
        return ""
    if stage.since is not None:
        return f"kept{number}"
    _, _, width, channels = stage.images[1].shape
    return f"x{image} + made[{number}] * {step_of(stage) * width * channels}"


def _work(view: RowStreamView, calls_of: Sequence[int], made: Sequence[Rows], size: int) -> Work:
    """Of the calls of the stages, and of rows that are taken, filled, kept or moved up."""
    work = Work()
    for stage, calls in zip(view.stages, calls_of, strict=True):
        work.block("stage", calls).block("moved 16", calls * stage.left * stage.x_row * size / 16)
        if stage.number == 0:
            work.block("row", stage.height).block("moved 16", stage.height * stage.x_row * size / 16)
    for kept in view.kept:
        row = view.stages[kept.reader].x_row * size
        rows = int(made[kept.source][-1])
        work.block("row", rows).block("moved 16", 2 * rows * row / 16)
    return work
