"""Layers on images by rows that come one after the other: of the image, too, only a window is in memory.

It is a machine with a stripe in scratch for each stage: the window of rows that the stage reads next.
Whatever stage has its window whole computes rows, the last such stage first; they go to the stripe of the
next stage, and its own rows move up. Where no stage can compute, a row of the image is taken. So a row is
taken only when it is needed, and the machine can stop there until there is one: that is how images are fed
by rows.

Rows that an addition needs later are kept in scratch until then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

from crtgen.kernels.cost import Work
from crtgen.kernels.kernel import Kernel
from crtgen.kernels.parts import Parts, aligned, arguments, assemble
from crtgen.kernels.row_stage import (
    Rows,
    RowStage,
    fill_of,
    part_of,
    rows_made,
    rows_per_call,
    span_of,
)
from crtgen.ops import Add

__all__ = ["KeptView", "RowStreamView", "StreamStageView", "row_stream"]

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
    ``x_row`` and ``y_row`` are elements per row, of the C types ``type`` and ``y_type``. ``other`` is where
    the other image of an addition is read, ``arguments`` what the part is given behind its images.
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
    type: str
    y_type: str
    other: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowStreamView:
    """Stages, and ``kept`` rows. ``counters`` and ``work``, the parts' scratch, are offsets in scratch."""

    stages: tuple[StreamStageView, ...]
    kept: tuple[KeptView, ...]
    counters: int
    work: int

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


def row_stream(stages: Sequence[RowStage], last_rows: int, known: Parts) -> Kernel | None:
    """The kernel of ``stages``, of which the last makes ``last_rows`` rows at a time.

    Its function is called with some rows of the image at a time. None where a stage reads another image than
    that of the stage before and what is kept, unless there is one image per run whose rows are whole words,
    the rows divide the last image, all rows of each stripe are read, and each stage has a kernel.
    """
    windows, height = [stage.window for stage in stages], stages[-1].sig.y.shape[1]
    if not all(map(_is_fed, stages)) or height % last_rows:
        return None
    rows = rows_per_call(windows, last_rows)
    found = [
        known.once((stage, count), partial(part_of, stage, count, known))
        for stage, count in zip(stages, rows, strict=True)
    ]
    parts = [part for part in found if part is not None and not part.kernel.is_alias]
    if len(parts) < len(found):
        return None
    made = rows_made(windows, rows, height)
    view = _view(stages, rows, arguments(parts))
    calls = [int(done[-1]) // count for count, done in zip(rows, made, strict=True)]
    kernel = assemble(
        f"{last_rows} row{'s' if last_rows > 1 else ''} at a time, streamed",
        "row_stream.c.j2",
        view,
        [part.called(count) for part, count in zip(parts, calls, strict=True)],
        begin=view.work,
        inplace=(),
        work=_work(view, calls, made, [stage.sig.x.dtype.itemsize for stage in stages]),
    )
    return replace(kernel.priced(known.target), fed=True)


def _is_fed(stage: RowStage) -> bool:
    """Whether it reads nothing but rows that were made, and all of them."""
    alone = stage.since is not None or not isinstance(stage.op, Add)
    return alone and stage.fits and stage.window.rows >= stage.window.stride_y


def _stripes(stages: Sequence[RowStage], rows: Sequence[int]) -> Iterator[int]:
    """Bytes of the stripe of each stage, then of what is kept for each addition."""
    for stage, count in zip(stages, rows, strict=True):
        yield span_of(stage.window, count) * _row_bytes(stage)
    for number, stage in enumerate(stages):
        if stage.since is not None:
            yield _most_kept(stages, rows, stage.since, number) * _row_bytes(stage)


def _row_bytes(stage: RowStage) -> int:
    return stage.sig.x.nbytes // stage.window.height


def _most_kept(stages: Sequence[RowStage], rows: Sequence[int], source: int, reader: int) -> int:
    """The most rows of a stage that are there and not yet added."""
    windows, height = [stage.window for stage in stages[: reader + 1]], stages[reader].sig.y.shape[1]
    made = rows_made(windows, rows[: reader + 1], height)
    return int((made[source] - (made[reader] - rows[reader])).max())


def _view(stages: Sequence[RowStage], rows: Sequence[int], given: Sequence[tuple[str, ...]]) -> RowStreamView:
    starts = list(accumulate(_stripes(stages, rows), initial=0))
    readers = [(stage.since, number) for number, stage in enumerate(stages) if stage.since is not None]
    kept = tuple(
        KeptView(source, reader, place)
        for (source, reader), place in zip(readers, starts[len(stages) :], strict=False)
    )
    views: list[StreamStageView] = []
    for number, (stage, count) in enumerate(zip(stages, rows, strict=True)):
        sig, window = stage.sig, stage.window
        span = span_of(window, count)
        bottom = (window.out_height - 1) * window.stride_y + window.rows - window.top
        view = StreamStageView(
            number=number,
            rows=count,
            window=span,
            left=span - count * window.stride_y,
            above=window.top,
            below=bottom > window.height,
            height=window.height,
            out_height=window.out_height,
            fill=fill_of(stage.op, sig.x) or 0,
            stripe=starts[number],
            x_row=sig.x.shape[2] * sig.x.shape[3],
            y_row=sig.y.shape[2] * sig.y.shape[3],
            type=sig.x.dtype.c_name,
            y_type=sig.y.dtype.c_name,
            other="" if stage.since is None else f"kept{number}",
            arguments=given[number],
        )
        views.append(view)
    counters = 2 * _COUNTER * len(stages)
    return RowStreamView(tuple(views), kept, starts[-1], aligned(starts[-1] + counters))


def _work(view: RowStreamView, calls_of: Sequence[int], made: Sequence[Rows], sizes: Sequence[int]) -> Work:
    """Of the calls of the stages, and of rows that are taken, filled, kept or moved up.

    ``sizes`` are the bytes of an element of each stage's image.
    """
    work = Work()
    for stage, calls, size in zip(view.stages, calls_of, sizes, strict=True):
        work.block("stage", calls).block("moved 16", calls * stage.left * stage.x_row * size / 16)
        if stage.number == 0:
            work.block("row", stage.height).block("moved 16", stage.height * stage.x_row * size / 16)
    for kept in view.kept:
        row = view.stages[kept.reader].x_row * sizes[kept.reader]
        rows = int(made[kept.source][-1])
        work.block("row", rows).block("moved 16", 2 * rows * row / 16)
    return work
