"""Depthwise convolutions with Helium for size: one function for all, and a table with the numbers of each.

The patches of ``depthwise.py``, eight outputs at a time in a loop: two squares of four, or eight of a row.
"""

from dataclasses import astuple, dataclass, fields

import numpy as np

from crtgen.kernels.kernel import Const, InPlace, Kernel
from crtgen.kernels.mve.matrix import LANES
from crtgen.kernels.mve.patches import SIDE, plane_bytes, stretches
from crtgen.kernels.mve.shared import clamped, packed_constants
from crtgen.kernels.window import Window, least_lead
from crtgen.ops import ConvParams
from crtgen.ops.fixedpoint import Int64

__all__ = ["StripsView", "shared_depthwise"]

_AT_ONCE = 8
_MOST_OFFSET = 65535


@dataclass(frozen=True, slots=True)
class _Table:
    """A layer's numbers, in the order of the table.

    ``constants`` are bytes before the weights, ``weights`` those of a channel. ``column`` bytes lie between
    two columns of a window, ``patch`` between two patches. ``mask`` and ``taps`` tell which of a patch's 16
    weights there are, and where; ``places`` where eight outputs go, ``advance`` how far it is to the next
    eight. A strip of ``lines`` rows of outputs has ``outputs`` of each channel. ``blank`` is where in scratch
    the row of padding is, ``left`` where the image begins, of which ``seen`` bytes of a row are read.
    """

    channels: int
    constants: int
    column: int
    patch: int
    mask: int
    weights: int
    taps: tuple[int, int, int, int]
    places: tuple[int, int, int, int]
    outputs: int
    zero_point: int
    low: int
    high: int
    advance: int
    images: int
    out_height: int
    lines: int
    stride: int
    dilation: int
    top: int
    height: int
    row_bytes: int
    line_bytes: int
    left: int
    seen: int
    blank: int
    fill: int


@dataclass(frozen=True, slots=True)
class StripsView:
    """What differs between functions: whether a patch serves four outputs, and whether these are clamped."""

    squares: bool
    clamped: bool

    @property
    def table(self) -> tuple[str, ...]:
        """The table's numbers as they are declared."""
        vectors = ("taps", "places")
        return tuple(f"{f.name}[4]" if f.name in vectors else f.name for f in fields(_Table))

    @property
    def at(self) -> dict[str, int]:
        """Where in the table each is, in bytes."""
        places, at = {}, 0
        for name in self.table:
            places[name.removesuffix("[4]")] = at
            at += 16 if name.endswith("[4]") else 4
        return places


def shared_depthwise(window: Window, weights: Int64, bias: Int64, params: ConvParams) -> Kernel | None:
    """The kernel for ``weights[C, taps of a window]``.

    None if a scale is not below 1/2, if a window is larger than a patch, or a row of the image than a vector.
    """
    w = window
    if max(w.taps_y, w.taps_x) > SIDE:
        return None
    constants = packed_constants(params, weights, bias)
    squares = _squares(w)
    table = _table(w, params, squares)
    if constants is None or table.seen < LANES or max(_places(w, squares)) > _MOST_OFFSET:
        return None
    rows = np.zeros(-(-weights.size // 4) * 4, np.int8)
    rows[: weights.size] = weights.ravel()
    pairs = constants[:, : w.channels].T.astype(np.uint32).ravel()
    numbers = np.array([n for value in astuple(table) for n in np.ravel(value)], np.int64).astype(np.uint32)
    return Kernel(
        design="mve patches shared",
        template="mve/depthwise_shared.c.j2",
        view=StripsView(squares, clamped(params)),
        consts=(
            Const(
                "weights", np.concatenate([pairs, rows.view(np.uint32)]), 4, "requantisation, then weights"
            ),
            Const("table", numbers.view(np.int32), 4, "the layer's numbers, see the code"),
        ),
        scratch=table.blank + table.seen,
        inplace=(InPlace(lead=_lead(w, table.lines)),),
        cost=_cost(w, table, squares),
        includes=("arm_mve.h",),
    )


def _squares(w: Window) -> bool:
    unit = w.stride_y == w.stride_x == w.dilation_y == w.dilation_x == 1
    return unit and max(w.taps_y, w.taps_x) < SIDE and w.out_height > 1


def _places(w: Window, squares: bool) -> tuple[int, ...]:
    """Where eight outputs go: of two rows, column by column, or of one row."""
    line = w.out_width * w.channels
    across, down = (4, 2) if squares else (8, 1)
    return tuple(x * w.channels + y * line for x in range(across) for y in range(down))


def _halves(values: tuple[int, ...]) -> tuple[int, int, int, int]:
    a, b, c, d = np.array(values, np.uint16).view(np.uint32).tolist()
    return a, b, c, d


def _bytes(values: list[int]) -> tuple[int, int, int, int]:
    a, b, c, d = np.array(values, np.uint8).view(np.uint32).tolist()
    return a, b, c, d


def _table(w: Window, params: ConvParams, squares: bool) -> _Table:
    lines, columns_at_once = (2, 4) if squares else (1, 8)
    lanes = [(row, column) for column in range(SIDE) for row in range(SIDE)]
    inside = [row < w.taps_y and column < w.taps_x for row, column in lanes]
    taps = [
        row * w.taps_x + column if there else 0 for (row, column), there in zip(lanes, inside, strict=True)
    ]
    covered = -(-w.out_width // columns_at_once) * columns_at_once
    last = covered - 2 if squares else (covered - 1) * w.stride_x
    columns = last + (SIDE - 1) * w.dilation_x + 1
    needed = (w.out_width - 1) * w.stride_x + (w.taps_x - 1) * w.dilation_x + 1
    return _Table(
        channels=w.channels,
        constants=8 * w.channels,
        column=w.dilation_x * w.channels * SIDE,
        patch=(2 if squares else w.stride_x) * w.channels * SIDE,
        mask=sum(1 << i for i, there in enumerate(inside) if there),
        weights=w.taps_y * w.taps_x,
        taps=_bytes(taps),
        places=_halves(tuple(p & 0xFFFF for p in _places(w, squares))),
        outputs=w.out_width * lines,
        zero_point=params.output_offset,
        low=params.act_min,
        high=params.act_max,
        advance=columns_at_once * w.channels,
        images=w.batch,
        out_height=w.out_height,
        lines=lines,
        stride=w.stride_y,
        dilation=w.dilation_y,
        top=w.top,
        height=w.height,
        row_bytes=w.width * w.channels,
        line_bytes=w.out_width * w.channels,
        left=w.left * w.channels * SIDE,
        seen=max(0, min(w.width, needed - w.left)) * w.channels,
        blank=plane_bytes(w, columns),
        fill=-params.input_offset,
    )


def _lead(w: Window, lines: int) -> int:
    """All rows of a strip's patches are in scratch when its outputs are written."""
    firsts = np.array(stretches(w.out_height, lines))
    images = np.arange(w.batch)[:, None]
    written = ((images * w.out_height + firsts + lines) * w.out_width * w.channels).ravel()
    read = np.clip(firsts * w.stride_y - w.top, 0, w.height)
    unread = ((images * w.height + read) * w.width * w.channels).ravel()
    return least_lead(written[:-1], unread[1:])


def _cost(w: Window, table: _Table, squares: bool) -> float:
    batches = -(-table.outputs // _AT_ONCE)
    batch = (45 if squares else 57) + 5 * ((table.low, table.high) != (-128, 127))
    channel = 24 + 7 * squares + batches * batch
    strips = -(-w.out_height // table.lines)
    strip = w.channels * channel + 13 * table.seen / LANES + 120
    return w.batch * (strips * strip + table.blank / 8 + 60) + 30
