"""Two convolutions by rows: a stripe of what lies between them is in scratch, and no more.

The stripe holds the rows that a block of output rows is computed from, padding above and below included. Both
functions are those of ordinary layers: the first makes one row of the stripe, the second takes the stripe for
a whole image. Rows that the next block needs too are moved up.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from crtgen.ir import DType, Signature, Value
from crtgen.kernels.kernel import Const, InPlace, Kernel, Part, Target
from crtgen.kernels.registry import applicable, design
from crtgen.kernels.window import Window, least_lead
from crtgen.ops import RowStream

__all__ = ["StreamView"]

_ALIGN = 16  # of the parts' scratch
_WORD = 4  # what kernels rely on where they are given a row


@dataclass(frozen=True, slots=True)
class StreamView:
    """``blocks`` blocks of ``rows`` rows of outputs, each from ``stripe_rows`` rows; the last may overlap.

    ``x_row``, ``stripe_row`` and ``y_row`` are elements per row, ``work`` the offset of the parts' scratch,
    the arguments what each part is given behind its input and output.
    """

    x_type: str
    rows: int
    blocks: int
    out_height: int
    height: int
    top: int
    stride: int
    stripe_rows: int
    x_row: int
    stripe_row: int
    y_row: int
    fill: int
    work: int
    first_arguments: str
    second_arguments: str

    @property
    def works(self) -> bool:
        """Whether a part has scratch of its own."""
        return "work" in f"{self.first_arguments}, {self.second_arguments}".split(", ")

    def first_rows(self) -> list[int]:
        """Row of outputs that each block begins with."""
        return [min(block * self.rows, self.out_height - self.rows) for block in range(self.blocks)]


@design(RowStream, weights=(1, 2, 3, 4))
def row_stream(op: RowStream, sig: Signature, target: Target) -> Kernel | None:
    """One image whose rows are whole words; None for others, and where windows leave rows out."""
    window = _window(op, sig)
    size = sig.x.dtype.itemsize
    images = (sig.x, op.middle, sig.y)
    if sig.x.shape[0] > 1 or window.rows < window.stride_y:
        return None
    if any(v.shape[2] * v.shape[3] * size % _WORD for v in images):
        return None
    parts = _parts(op, sig, window, target)
    if parts is None:
        return None
    view = _view(op, sig, window, parts)
    return Kernel(
        design=f"{op.rows} rows of {parts[0].kernel.design}, {parts[1].kernel.design}",
        template="stream.c.j2",
        view=view,
        consts=tuple(c for part, role in zip(parts, _ROLES, strict=True) for c in _consts(part, role)),
        scratch=view.work + max(part.kernel.scratch for part in parts),
        inplace=(InPlace(lead=_lead(view, size)),),
        cost=_cost(view, parts, size),
        libraries=tuple(dict.fromkeys(lib for part in parts for lib in part.kernel.libraries)),
        parts=parts,
    )


_ROLES = ("first", "second")


def _window(op: RowStream, sig: Signature) -> Window:
    _, second = op.signatures(sig)
    taps = second.inputs[1].shape
    return Window.of(second, (taps[1], taps[2]), op.second.stride, op.second.padding, op.second.dilation)


def _stripe_rows(op: RowStream, window: Window) -> int:
    return (op.rows - 1) * window.stride_y + window.rows


def _parts(op: RowStream, sig: Signature, window: Window, target: Target) -> tuple[Part, Part] | None:
    """The first for a row, the second for a stripe without padding above and below; None if one has none."""
    first, second = op.signatures(sig)
    row = Signature((_rows_of(first.x, 1), *first.inputs[1:]), (_rows_of(first.y, 1),))
    stripe = _rows_of(second.x, _stripe_rows(op, window))
    block = Signature((stripe, *second.inputs[1:]), (_rows_of(second.y, op.rows),))
    between = replace(op.second, padding=replace(op.second.padding, top=0, bottom=0))
    makers, takers = applicable(op.first, row, target), applicable(between, block, target)
    if not makers or not takers:
        return None
    return Part(op.first.name, row, makers[0]), Part(between.name, block, takers[0])


def _rows_of(value: Value, rows: int) -> Value:
    return replace(value, shape=(1, rows, *value.shape[2:]))


def _view(op: RowStream, sig: Signature, window: Window, parts: tuple[Part, Part]) -> StreamView:
    x, middle, y = sig.x, op.middle, sig.y
    stripe_rows = _stripe_rows(op, window)
    stripe = stripe_rows * middle.shape[2] * middle.shape[3] * middle.dtype.itemsize
    work = -(-stripe // _ALIGN) * _ALIGN
    zero_point = middle.quant.zero_point if middle.dtype is DType.INT8 and middle.quant else 0
    first, second = (", ".join(_arguments(p, r)) for p, r in zip(parts, _ROLES, strict=True))
    return StreamView(
        x_type=x.dtype.c_name,
        rows=op.rows,
        blocks=-(-y.shape[1] // op.rows),
        out_height=y.shape[1],
        height=middle.shape[1],
        top=op.second.padding.top,
        stride=window.stride_y,
        stripe_rows=stripe_rows,
        x_row=x.shape[2] * x.shape[3],
        stripe_row=middle.shape[2] * middle.shape[3],
        y_row=y.shape[2] * y.shape[3],
        fill=zero_point % 256,
        work=work,
        first_arguments=first,
        second_arguments=second,
    )


def _consts(part: Part, role: str) -> tuple[Const, ...]:
    return tuple(replace(const, name=f"{role}_{const.name}") for const in part.kernel.consts)


def _arguments(part: Part, role: str) -> Iterator[str]:
    for const in _consts(part, role):
        yield const.name
    if part.kernel.scratch:
        yield "work"


def _needed(view: StreamView) -> list[int]:
    """Rows of the image that are read when each block is written."""
    ends = [first * view.stride + view.stripe_rows - view.top for first in view.first_rows()]
    return [min(max(end, 0), view.height) for end in ends]


def _lead(view: StreamView, size: int) -> int:
    """All rows of a block's stripe are read when the block is written."""
    written = np.array([first + view.rows for first in view.first_rows()]) * view.y_row * size
    read = np.array(_needed(view))
    pending = read < read[-1]
    return least_lead(written[pending], read[pending] * view.x_row * size)


def _cost(view: StreamView, parts: tuple[Part, Part], size: int) -> float:
    """Of the parts and their calls, and of the rows that are filled or moved by words."""
    firsts = view.first_rows()
    kept = [view.stripe_rows - (b - a) * view.stride for a, b in pairwise(firsts)]
    rows = firsts[-1] * view.stride + view.stripe_rows
    made = _needed(view)[-1]
    bytes_moved = (sum(kept) + rows - made) * view.stripe_row * size
    calls = made * (parts[0].kernel.cost + 15) + len(firsts) * (parts[1].kernel.cost + 30)
    return calls + bytes_moved + 30
