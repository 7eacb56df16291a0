"""Depthwise convolutions with Helium for size: one function for all layers, with a table for each.

The function loops over patches, as in ``depthwise.py``, and computes eight outputs at a time: two squares of
four, or eight of a row. Each row of the image is copied to scratch once: row n goes to byte n modulo 4 of the
words there, and the weights are rotated to match. If outputs may overwrite their own inputs, 16 channels of
the whole image are computed before the next 16, and scratch only has room for 16 channels.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crtgen.compiler.kernels.asm import Routine
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, InPlace, Kernel
from crtgen.compiler.kernels.engine.window import WindowShape, rows_lead
from crtgen.compiler.kernels.engine.words import Words
from crtgen.compiler.kernels.mve.bytes import fill
from crtgen.compiler.kernels.mve.patches import SIDE, stretches
from crtgen.compiler.kernels.mve.shared import clamped, packed_constants
from crtgen.compiler.kernels.mve.stream import LANES
from crtgen.compiler.kernels.mve.strips_asm import StripsWriter, insert_row
from crtgen.compiler.kernels.shared.tables import table
from crtgen.network.ops import ConvParams
from crtgen.network.ops.fixedpoint import Int64

__all__ = ["StripsView", "shared_depthwise"]

_AT_ONCE = 8
_MOST_OFFSET = 65535


@dataclass(frozen=True, slots=True)
class StripsView:
    """Parameters of the function: if a patch serves four outputs, and if outputs are clamped."""

    squares: bool
    clamped: bool


def shared_depthwise(window: WindowShape, weights: Int64, bias: Int64, params: ConvParams) -> Kernel | None:
    """Return the kernel for ``weights[C, taps of a window]``.

    None if a scale is not below 1/2, if a window is larger than a patch, or for several images.
    """
    w = window
    if w.batch > 1 or max(w.taps_y, w.taps_x) > SIDE:
        return None
    constants = packed_constants(params, weights, bias)
    squares = _squares(w)
    if constants is None or max(_places(w, squares)) > _MOST_OFFSET:
        return None
    lead = _lead(w, squares)
    onto = lead == 0 and (w.height, w.width) == (w.out_height, w.out_width)
    channels = LANES if onto and w.channels % LANES == 0 else w.channels
    numbers = _table(w, params, squares, channels)
    vectors = _taps(w), _halves(tuple(p & 0xFFFF for p in _places(w, squares)))
    view = StripsView(squares, clamped(params))
    routine = StripsWriter.routine(squares, view.clamped)
    return Kernel(
        design="mve patches shared",
        template="mve/depthwise_shared.c.j2",
        view=view,
        consts=(
            _stream(constants, weights),
            table("mve_depthwise", {**numbers, **dict(zip(("taps", "places"), vectors, strict=True))}),
        ),
        scratch=numbers["plane"] + LANES,
        inplace=(InPlace(exact=True) if channels < w.channels else InPlace(lead=lead),),
        work=_work(w, numbers, squares, routine),
        routines=(routine, fill(), insert_row()),
        includes=("crt/mve_depthwise.h",),
    )


def _stream(constants: Int64, weights: Int64) -> Const:
    # ``weights[C, taps]`` behind the two words of each channel, without gaps.
    channels, taps = weights.shape

    def pack() -> Words:
        pairs = np.ascontiguousarray(constants[:, :channels].T.astype(np.uint32)).view(np.int8)
        packed = np.concatenate([pairs, weights.astype(np.int8)], axis=1).ravel()
        return np.append(packed, np.zeros(-packed.size % 4, np.int8)).view(np.uint32)

    words = -(-channels * (8 + taps) // 4)
    return Const("weights", "uint32", (words,), pack, 4, "per channel: requantisation, weights")


def _squares(w: WindowShape) -> bool:
    unit = w.stride_y == w.stride_x == w.dilation_y == w.dilation_x == 1
    return unit and max(w.taps_y, w.taps_x) < SIDE and w.out_height > 1


def _places(w: WindowShape, squares: bool) -> tuple[int, ...]:
    # Destinations of eight outputs: of two rows, column by column, or of one row.
    line = w.out_width * w.channels
    across, down = (4, 2) if squares else (8, 1)
    return tuple(x * w.channels + y * line for x in range(across) for y in range(down))


def _halves(values: tuple[int, ...]) -> tuple[int, int, int, int]:
    a, b, c, d = np.array(values, np.uint16).view(np.uint32).tolist()
    return a, b, c, d


def _taps(w: WindowShape) -> tuple[int, int, int, int]:
    # Which tap, or none, each byte of a patch meets.
    lanes = [(row, column) for column in range(SIDE) for row in range(SIDE)]
    taps = [row * w.taps_x + column if row < w.taps_y and column < w.taps_x else -1 for row, column in lanes]
    a, b, c, d = np.array(taps, np.int8).view(np.uint32).tolist()
    return a, b, c, d


def _table(w: WindowShape, params: ConvParams, squares: bool, channels: int) -> dict[str, int]:
    lines, columns_at_once = (2, 4) if squares else (1, 8)
    covered = -(-w.out_width // columns_at_once) * columns_at_once
    last = covered - 2 if squares else (covered - 1) * w.stride_x
    columns = last + (SIDE - 1) * w.dilation_x + 1
    needed = (w.out_width - 1) * w.stride_x + (w.taps_x - 1) * w.dilation_x + 1
    return dict(
        channels=channels,
        zero_point=params.output_offset,
        column=w.dilation_x * channels * SIDE,
        patch=(2 if squares else w.stride_x) * channels * SIDE,
        weights=w.taps_y * w.taps_x,
        outputs=w.out_width * lines,
        low=params.act_min,
        high=params.act_max,
        advance=columns_at_once * w.channels,
        fill=-params.input_offset,
        parts=w.channels // channels,
        out_height=w.out_height,
        lines=lines,
        rows=w.taps_y + lines - 1,
        stride=w.stride_y,
        dilation=w.dilation_y,
        top=w.top,
        height=w.height,
        row_bytes=w.width * w.channels,
        line_bytes=w.out_width * w.channels,
        plane=columns * channels * SIDE,
        left=w.left * channels * SIDE,
        seen=max(0, min(w.width, needed - w.left)) * channels,
        step=LANES if channels == w.channels else w.channels,
    )


def _rows(w: WindowShape, squares: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    # For each strip its first row of outputs, and the first row of the image that it reads. Unless strips are
    # apart, the previous one has left some rows in scratch.
    lines = 2 if squares else 1
    firsts = np.array(stretches(w.out_height, lines), np.int64)
    fresh = firsts * w.stride_y - w.top
    if w.dilation_y == 1:
        fresh[1:] = np.maximum(fresh[1:], fresh[:-1] + w.taps_y + lines - 1)
    return firsts, fresh


def _lead(w: WindowShape, squares: bool) -> int:
    # All rows of a strip's patches are in scratch when its outputs are written.
    firsts, fresh = _rows(w, squares)
    return rows_lead(w, firsts + 1 + squares, np.append(fresh[1:], w.height), w.channels)


def _work(w: WindowShape, numbers: dict[str, int], squares: bool, routine: Routine) -> Work:
    strip = routine.runs(channels=numbers["channels"], eights=-(-numbers["outputs"] // _AT_ONCE))
    firsts, fresh = _rows(w, squares)
    read = numbers["parts"] * int((firsts * w.stride_y - w.top + numbers["rows"] - fresh).sum())
    strips = numbers["parts"] * len(firsts)
    row = insert_row().runs(vectors=-(-numbers["seen"] // LANES))
    filled = fill().runs(vectors=-(-numbers["plane"] // LANES) + 1)
    work = Work(strips * strip + read * row + filled)
    return work.block("strip", strips).block("row", read).block("part", numbers["parts"])
