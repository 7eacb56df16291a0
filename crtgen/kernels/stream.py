"""Layers on images by rows: a stripe of what lies between two of them is in scratch, and no more.

The functions are those of ordinary layers, for a few rows without padding above and below. The last stage
makes the rows of a block. Each stage before it makes a row at a time, as soon as the next one asks for it. A
stripe is the window of the stage that reads it: rows that the next window needs too are moved up, padding is
filled in. Where windows share no rows, one call fills the stripe. The first stage reads its image where it
lies; its windows at an edge of the image are copied. So does a layer that makes the other operand of an
addition: what it makes is in scratch until it is added.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from crtgen.ir import DType, Signature, Value
from crtgen.kernels.kernel import InPlace, Kernel, Part, Target
from crtgen.kernels.parts import CALL, aligned, arguments, assemble, find_part
from crtgen.kernels.registry import design
from crtgen.kernels.window import Window, least_lead
from crtgen.ops import (
    Add,
    AddProjection,
    AveragePool2d,
    Conv2d,
    DepthwiseConv2d,
    MaxPool2d,
    Padding,
    RowStream,
    Stage,
    Windowed,
)

__all__ = ["StageView", "StreamView"]

_WORD = 4  # what kernels rely on where they are given a row
_MOVED = {"speed": 0.6, "size": 1.3}  # instructions for a byte that crt_copy moves


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage that makes ``rows`` rows of outputs per call from ``window`` rows of its input.

    The window of output row y begins ``top`` rows above row ``y * stride``. Where it may leave the image of
    ``height`` rows it is ``padded``: bytes ``fill`` are there. ``own`` windows share no rows. The stripe is
    at the offset ``stripe`` in scratch. ``x_row`` and ``y_row`` are elements per row, ``other`` is where the
    other image of an addition is read, ``arguments`` what the part is given behind its images.
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

    @property
    def has_stripe(self) -> bool:
        """Whether it reads a stripe; the first stage does at an edge."""
        return self.number > 0 or self.padded

    @property
    def keeps(self) -> bool:
        """Whether rows of the stripe are needed again."""
        return self.number > 0 and not self.own

    @property
    def last_top(self) -> int:
        """Row of the lowest window that is inside of the image."""
        return self.height - self.window

    @property
    def x_step(self) -> int:
        """Elements from one window to the next."""
        return self.stride * self.x_row


@dataclass(frozen=True, slots=True)
class StreamView:
    """Stages, the last one making an image of ``height`` rows; ``work`` is where the parts' scratch is."""

    type: str
    height: int
    stages: tuple[StageView, ...]
    work: int

    @property
    def works(self) -> bool:
        """Whether a part has scratch of its own."""
        return any("work" in stage.arguments for stage in self.stages)


@design(RowStream, weights=None)
def row_stream(op: RowStream, sig: Signature, target: Target) -> Kernel | None:
    """One image per run whose rows are whole words, where all rows of each stripe are read."""
    sigs = op.signatures(sig)
    windows = [_window(stage, s) for stage, s in zip(op.stages, sigs, strict=True)]
    if sig.x.is_constant or not all(map(_streams, op.stages, sigs, windows)):
        return None
    if any(later.rows < later.stride_y for later in windows[1:]):
        return None
    rows = _rows(windows, op.rows)
    found = [_part(*each, target) for each in zip(op.stages, sigs, windows, rows, strict=True)]
    parts = [part for part in found if part is not None]
    if len(parts) < len(found):
        return None
    view = _view(op, sigs, windows, rows, parts)
    made = _made(view.stages, view.height)
    return assemble(
        f"{op.rows} rows of {', '.join(part.kernel.design for part in parts)}",
        "stream.c.j2",
        view,
        parts,
        work=view.work,
        inplace=tuple(_leaves(op, sigs, view, parts, made)),
        cost=_cost(view, parts, made, sig.x.dtype.itemsize * _MOVED[target.optimize]),
    )


def _window(stage: Stage, sig: Signature) -> Window:
    match stage:
        case Conv2d() | DepthwiseConv2d():
            taps = sig.inputs[1].shape
            return Window.of(sig, (taps[1], taps[2]), stage.stride, stage.padding, stage.dilation)
        case AveragePool2d() | MaxPool2d():
            return Window.of(sig, stage.window, stage.stride, stage.padding)
    return Window.of(sig, (1, 1), (1, 1), Padding())


def _streams(stage: Stage, sig: Signature, window: Window) -> bool:
    """Whether a stage can compute a few rows on their own."""
    whole = _whole(sig.x) and _whole(sig.y)
    match stage:
        case Add():
            return whole and not sig.inputs[1].is_constant and sig.inputs[1].shape == sig.x.shape
        case AddProjection():
            of_layer, _ = stage.signatures(sig)
            inside = not _window(stage.layer, of_layer).padded_rows
            return whole and inside and _whole(of_layer.x) and stage.projected.shape == sig.x.shape
    return whole and not (window.padded_rows and _fill(stage, sig.x) is None)


def _whole(image: Value) -> bool:
    """Whether it is a single image with rows of whole words."""
    return image.shape[0] == 1 and image.shape[2] * image.shape[3] * image.dtype.itemsize % _WORD == 0


def _fill(stage: Stage, x: Value) -> int | None:
    """The byte that padding consists of; None where no value does instead of it."""
    if isinstance(stage, Conv2d | DepthwiseConv2d):
        return x.quant.zero_point % 256 if x.quant else 0
    return 0x80 if isinstance(stage, MaxPool2d) and x.dtype is DType.INT8 else None


def _own(window: Window) -> bool:
    """Whether windows have rows of their own, and all of these are of the image."""
    return window.rows == window.stride_y and not window.padded_rows


def _rows(windows: Sequence[Window], last: int) -> list[int]:
    """How many rows each stage makes per call: what fills a stripe that keeps nothing, or one."""
    rows = [last]
    for after in reversed(windows[1:]):
        rows.insert(0, rows[0] * after.stride_y if _own(after) else 1)
    return rows


def _span(window: Window, rows: int) -> int:
    return (rows - 1) * window.stride_y + window.rows


@lru_cache(maxsize=256)
def _part(stage: Stage, sig: Signature, window: Window, rows: int, target: Target) -> Part | None:
    """The kernel of a stage for so many rows, without padding above and below, if there is one.

    A planner that tries chains asks for the same ones again and again.
    """
    inside: Stage
    others = sig.inputs[1:]
    match stage:
        case Add():
            inside, others = stage, (_cut(others[0], rows),)
        case AddProjection():
            beside = _window(stage.layer, stage.signatures(sig)[0])
            inside = replace(stage, layer=_inside(stage.layer), projected=_cut(stage.projected, rows))
            others = (_cut(others[0], _span(beside, rows)), *others[1:])
        case _:
            inside = _inside(stage)
    piece = Signature((_cut(sig.x, _span(window, rows)), *others), (_cut(sig.y, rows),))
    return find_part(inside, piece, target)


def _inside(layer: Windowed) -> Windowed:
    """The layer without padding above and below."""
    return replace(layer, padding=replace(layer.padding, top=0, bottom=0))


def _cut(image: Value, rows: int) -> Value:
    return replace(image, shape=(1, rows, *image.shape[2:]))


def _view(
    op: RowStream,
    sigs: Sequence[Signature],
    windows: Sequence[Window],
    rows: Sequence[int],
    parts: Sequence[Part],
) -> StreamView:
    stages: list[StageView] = []
    given = arguments(parts)
    at = images = 0
    for number, (stage, sig, window, count) in enumerate(zip(op.stages, sigs, windows, rows, strict=True)):
        images += isinstance(stage, Add | AddProjection)
        y_row = sig.y.shape[2] * sig.y.shape[3]
        view = StageView(
            number=number,
            rows=count,
            window=_span(window, count),
            stride=window.stride_y,
            top=window.top,
            height=window.height,
            padded=window.padded_rows,
            own=_own(window),
            fill=_fill(stage, sig.x) or 0,
            stripe=at,
            x_row=sig.x.shape[2] * sig.x.shape[3],
            y_row=y_row,
            other=_other(stage, sig, images, number),
            arguments=given[number],
        )
        stages.append(view)
        if view.has_stripe:
            at += view.window * view.x_row * sig.x.dtype.itemsize
    return StreamView(sigs[0].x.dtype.c_name, sigs[-1].y.shape[1], tuple(stages), aligned(at))


def _other(stage: Stage, sig: Signature, image: int, number: int) -> str:
    if not isinstance(stage, Add | AddProjection):
        return ""
    _, _, width, channels = sig.inputs[1].shape
    return f"x{image} + row{number} * {_step(stage) * width * channels}"


def _step(stage: Add | AddProjection) -> int:
    """Rows of the other image from one row of outputs to the next."""
    return stage.layer.stride[0] if isinstance(stage, AddProjection) else 1


_Rows = npt.NDArray[np.int64]


def _made(stages: Sequence[StageView], height: int) -> list[_Rows]:
    """For each stage, the rows of its output that are there after each block."""
    last = stages[-1].rows
    made = [np.arange(last, height + 1, last)]
    for after in reversed(stages[1:]):
        ends = made[0] * after.stride + after.window - after.rows * after.stride - after.top
        made.insert(0, np.clip(ends, 0, after.height))
    return made


def _leaves(
    op: RowStream, sigs: Sequence[Signature], view: StreamView, parts: Sequence[Part], made: Sequence[_Rows]
) -> Iterator[InPlace]:
    """The output over the first stage's image, or over the other image of an addition.

    When the last stage writes a block's rows, the stages before it have read what they need for it.
    """
    written = made[-1] * sigs[-1].y.nbytes // view.height
    first = view.stages[0]
    unread = np.maximum(made[0] * first.stride - first.top, 0)
    yield InPlace(0, lead=_lead(written, unread, made[0], sigs[0].x))
    for number, stage in enumerate(op.stages):
        if isinstance(stage, Add | AddProjection):
            index = op.inputs_of(number)[0]
            unread = made[number] * _step(stage)
            lead = _lead(written, unread, made[number], sigs[number].inputs[1])
            if number == len(parts) - 1:
                lead = max(lead, _within(parts[number]))
            yield InPlace(index, lead=lead)


def _lead(written: _Rows, unread: _Rows, made: _Rows, image: Value) -> int:
    """From row ``unread`` of the image on, a stage still has to read it, until all its rows are made."""
    pending = made < made[-1]
    return least_lead(written[pending], unread[pending] * (image.nbytes // image.shape[1]))


def _within(part: Part) -> int:
    """The lead of an addition's output over its other operand."""
    leads = [leave.lead for leave in part.kernel.inplace if leave.input == 1 and not leave.exact]
    return min(leads, default=part.sig.y.nbytes)


def _cost(view: StreamView, parts: Sequence[Part], made: Sequence[_Rows], element: float) -> float:
    """Of the parts and their calls, and of rows filled or moved, which takes ``element`` for each element."""
    cost = 30.0
    for number, (stage, part) in enumerate(zip(view.stages, parts, strict=True)):
        calls = int(made[number][-1]) // stage.rows
        cost += calls * (part.kernel.cost + CALL)
        if stage.keeps:
            cost += (calls * stage.window - int(made[number - 1][-1])) * stage.x_row * element
        elif stage.padded:
            tops = np.arange(calls) * stage.rows * stage.stride - stage.top
            edges = np.count_nonzero((tops < 0) | (tops > stage.last_top))
            cost += int(edges) * stage.window * stage.x_row * element
    return cost
