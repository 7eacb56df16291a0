"""Layers on images that arrive row by row: even of the input, only a window is needed.

Problem
    A camera sends an image line by line. A loop over rows (``row_loop``) is driven from its end and asks for
    rows of an image that is in memory. Here nobody can be asked: a row comes when the camera has it, and the
    function has to return until then.

Idea
    A machine that is driven by what is there. Each stage has a stripe in scratch, the window of rows that it
    reads next, and counts the rows in it. A step of the machine is one of two:

    - The last stage whose window is complete computes. Its rows go to the stripe of the next stage, and the
      rows of its own stripe that the next window needs move up.
    - If no stage can compute, a row of the image goes into the stripe of the first stage. If there is none,
      the function returns; the next call goes on from the counters in scratch.

Why the last one
    A stage may compute only if the next stripe has room. The next stage's window is incomplete, otherwise it
    would compute itself; and its stripe is filled either row by row or by one call. So there is room
    whenever the rule picks a stage, and no stripe ever needs more than its window. Rows are also taken as
    late as possible: the input row that completes an output is the last one that was taken.

Example
    Depthwise 3x3 with stride 2 and padding above, then a convolution 3x3 without padding, on an image of 8
    rows. The numbers are the rows in both stripes after a step::

Rows that an addition needs later are kept in scratch until then (``_most_kept`` gives their maximum number).
A pooling of the whole image may end the chain: its rows are added up as they are computed.

    An image in memory is taken in one go by the same machine.

Rows that an addition needs later are kept in scratch until then (``_most_kept`` says how many at most). A
pooling of the whole image may end the chain: its rows are added up as they are made.

The hard step is scratch (``_places``): stripes that one call fills and the next one reads are never alive
together, unless they are neighbours, so two places serve them all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate

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
)
from crtgen.compiler.kernels.rows.row_total import TotalView, total_view
from crtgen.network.ir import DType, Signature, Value
from crtgen.network.ops.running_sum import RunningSum

__all__ = ["KeptView", "RowStreamView", "StreamStageView", "row_stream"]

_COUNTER = 4  # bytes; each stage has two
_WORD = 4  # bytes; where stripes begin


@dataclass(frozen=True, slots=True)
class KeptView:
    """Rows that stage ``source`` computes and stage ``reader`` adds later, at the offset ``place`` in
    scratch.
    """

    source: int
    reader: int
    place: int


@dataclass(frozen=True, slots=True)
class StreamStageView:
    """A stage that computes ``rows`` rows per call, ``out_height`` in all, from a stripe of ``window`` rows.

    ``left`` rows stay in the stripe after a call. Padding with bytes ``fill`` is ``above`` and ``below`` the
    image of ``height`` rows. The stripe is at the offset ``stripe`` in scratch. ``x_row`` and ``y_row`` are
    elements per row, of the C types ``type`` and ``y_type``. ``other`` is the address of the other image of
    an addition, ``arguments`` are the part's arguments after its images.
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
    """Stages, and ``kept`` rows; the image is ``fed`` by rows, or in memory.

    ``total`` describes the sum over the rows of the last stage, if there is one. ``counters`` and ``work``
    (the parts' scratch) are offsets in scratch.
    """

    stages: tuple[StreamStageView, ...]
    kept: tuple[KeptView, ...]
    total: TotalView | None
    counters: int
    work: int
    fed: bool

    @property
    def works(self) -> bool:
        return any("work" in stage.arguments for stage in self.stages)

    def kept_of(self, source: int) -> tuple[KeptView, ...]:
        return tuple(kept for kept in self.kept if kept.source == source)

    def kept_for(self, reader: int) -> tuple[KeptView, ...]:
        return tuple(kept for kept in self.kept if kept.reader == reader)


def row_stream(all_stages: Sequence[RowStage], last_rows: int, known: Parts, *, fed: bool) -> Kernel | None:
    """Return the kernel of the stages; the last stage that computes rows computes ``last_rows`` at a time.

    If ``fed``, its function is called with some rows of the image at a time. None unless every stage only
    reads the output of the previous stage and kept rows, a run has one image whose rows are whole words, the
    rows divide the last image, all rows of each stripe are read, and each stage has a kernel.
    """
    end = all_stages[-1] if all_stages[-1].sums_up else None
    stages = all_stages[:-1] if end else all_stages
    if not stages or not all(map(_is_fed, stages)) or stages[-1].sig.y.shape[1] % last_rows:
        return None
    windows, height = [stage.window for stage in stages], stages[-1].sig.y.shape[1]
    rows = rows_per_call(windows, last_rows)
    found = [
        known.once((stage, count), partial(part_of, stage, count, known))
        for stage, count in zip(stages, rows, strict=True)
    ]
    parts = [part for part in found if part is not None and not part.kernel.is_alias]
    if len(parts) < len(found):
        return None
    made = rows_made(windows, rows, height)
    view = _view(stages, end, rows, arguments(parts), fed=fed)
    calls = [int(done[-1]) // count for count, done in zip(rows, made, strict=True)]
    times = list(calls)
    if end is not None:
        parts.append(_added(end, rows[-1], known))
        times.append(calls[-1])
    work = _work(view, calls, made, [stage.sig.x.dtype.itemsize for stage in stages])
    if view.total is not None:
        work.words("total", view.total.channels, view.total.result)
    kernel = assemble(
        f"{last_rows} row{'s' if last_rows > 1 else ''} at a time, streamed",
        "row_stream.c.j2",
        view,
        [part.called(count) for part, count in zip(parts, times, strict=True)],
        begin=view.work,
        inplace=() if fed or end else (_over_the_image(stages, rows, made),),
        work=work,
    )
    return replace(kernel.priced(known.target), fed=fed)


def _added(end: RowStage, rows: int, known: Parts) -> Part:
    # The part that adds up this many rows.
    x = replace(end.sig.x, shape=(1, rows, *end.sig.x.shape[2:]))
    sums = Value("sums", x.shape[3:], DType.INT32)
    part = known.find(RunningSum(), Signature((x, sums), (sums,)))
    assert part is not None
    return part


def _is_fed(stage: RowStage) -> bool:
    # True if it reads only rows that were made, and all of them.
    alone = stage.since is not None or not stage.takes_pairs
    passes = stage.fits_stripes and stage.window.rows >= stage.window.stride_y
    return alone and not stage.is_enlarged and passes


def _over_the_image(stages: Sequence[RowStage], rows: Sequence[int], made: Sequence[Rows]) -> InPlace:
    # The output over the image: what was taken of it, when rows of the output are written, is free.
    window, x, y = stages[0].window, stages[0].sig.x, stages[-1].sig.y
    taken = (made[0] - rows[0]) * window.stride_y + span_of(window, rows[0]) - window.top
    pending = taken < window.height
    written = made[-1] * (y.nbytes // y.shape[1])
    return InPlace(0, lead=least_lead(written[pending], taken[pending] * (x.nbytes // window.height)))


@dataclass(frozen=True, slots=True)
class _Places:
    """Offsets in scratch: of each stage's stripe, of rows kept for a stage, and the end."""

    stripes: tuple[int, ...]
    kept: Mapping[int, int]
    end: int


def _places(stages: Sequence[RowStage], rows: Sequence[int]) -> _Places:
    # One stripe after the other, and then what is kept. A stripe that one call fills is read by the next one,
    # and is free again: nothing of it is kept from step to step. All such stripes share a place. If two
    # stages in a row have one, the first is read while the second is written, so they take turns between two
    # places.
    sizes = [span_of(s.window, count) * _row_bytes(s) for s, count in zip(stages, rows, strict=True)]
    shared: list[int | None] = [None]
    for number in range(1, len(stages)):
        window, filled = stages[number].window, rows[number - 1]
        at_once = has_own_rows(window) and span_of(window, rows[number]) == filled
        shared.append((1 if shared[-1] == 0 else 0) if at_once else None)
    room = [max((s for s, n in zip(sizes, shared, strict=True) if n == place), default=0) for place in (0, 1)]
    own = [0 if place is not None else size for size, place in zip(sizes, shared, strict=True)]
    starts = list(accumulate(map(_words, (*room, *own)), initial=0))
    stripes = (starts[n + 2] if place is None else starts[place] for n, place in enumerate(shared))
    kept, end = dict[int, int](), starts[-1]
    for number, stage in enumerate(stages):
        if stage.since is not None:
            kept[number] = end
            end += _most_kept(stages, rows, stage.since, number) * _row_bytes(stage)
    return _Places(tuple(stripes), kept, end)


def _words(nbytes: int) -> int:
    # Bytes of so many, in whole words.
    return -(-nbytes // _WORD) * _WORD


def _row_bytes(stage: RowStage) -> int:
    return stage.sig.x.nbytes // stage.sig.x.shape[1]


def _most_kept(stages: Sequence[RowStage], rows: Sequence[int], source: int, reader: int) -> int:
    # The most rows of a stage that are there and not yet added: after each block of the reader, the rows that
    # the source has made by then, minus those that the reader had added before the block.
    windows, height = [stage.window for stage in stages[: reader + 1]], stages[reader].sig.y.shape[1]
    made = rows_made(windows, rows[: reader + 1], height)
    return int((made[source] - (made[reader] - rows[reader])).max())


def _view(
    stages: Sequence[RowStage],
    end: RowStage | None,
    rows: Sequence[int],
    given: Sequence[tuple[str, ...]],
    *,
    fed: bool,
) -> RowStreamView:
    places = _places(stages, rows)
    sources = {number: stage.since for number, stage in enumerate(stages) if stage.since is not None}
    kept = tuple(KeptView(source, reader, places.kept[reader]) for reader, source in sources.items())
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
            stripe=places.stripes[number],
            x_row=sig.x.shape[2] * sig.x.shape[3],
            y_row=sig.y.shape[2] * sig.y.shape[3],
            type=sig.x.dtype.c_name,
            y_type=sig.y.dtype.c_name,
            other="" if stage.since is None else f"kept{number}",
            arguments=given[number],
        )
        views.append(view)
    counters, total = places.end, None
    if end is not None:
        sums = places.end + _words(rows[-1] * _row_bytes(end))
        total = total_view(end.op, end.sig, places.end, sums)
        counters = total.end
    work = aligned(counters + 2 * _COUNTER * len(stages))
    return RowStreamView(tuple(views), kept, total, counters, work, fed)


def _work(view: RowStreamView, calls_of: Sequence[int], made: Sequence[Rows], sizes: Sequence[int]) -> Work:
    # Calls of the stages, and rows that are taken, filled, kept or moved up. ``sizes`` are the bytes of an
    # element in each stage's image.
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
