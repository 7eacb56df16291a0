"""A stage of a row loop: an operator, the window of rows that it reads, and its kernel for a few rows."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from crtgen.compiler.kernels.engine.kernel import Part
from crtgen.compiler.kernels.engine.parts import Parts
from crtgen.compiler.kernels.engine.window import WindowShape
from crtgen.compiler.kernels.portable.resize import lines_of, row_consts
from crtgen.compiler.kernels.rows.row_total import sums_up
from crtgen.compiler.kernels.rows.shortcut import add_shortcut
from crtgen.network.ir import AxisMap, Op, Signature, Value
from crtgen.network.ops import Add, Concat, ResizeNearest, Windowed
from crtgen.network.ops.resize import ResizeBilinear, ResizeBytes

__all__ = [
    "RowStage",
    "Rows",
    "fill_of",
    "has_own_rows",
    "makes_operand",
    "part_of",
    "rows_made",
    "rows_per_call",
    "runs_by_rows",
    "runs_in_loops",
    "span_of",
    "step_of",
    "takes_rows",
]

Rows = npt.NDArray[np.int64]

_IMAGE = 4  # axes
_WORD = 4  # what kernels rely on where they are given a row


@dataclass(frozen=True, eq=False)
class RowStage:
    """An operator of a row loop and its operands, of which the first is the image that passes through.

    ``shortcut`` is a layer that computes an addition's second operand, with that layer's operands. ``since``
    is the index of the stage whose output is the second operand, in a loop that keeps rows of it until then.
    A concatenation is ``turned`` if the image is its second input; ``sig`` has the image first.
    """

    op: Op
    sig: Signature
    shortcut: tuple[Op, Signature] | None = None
    since: int | None = None
    turned: bool = False

    @property
    def others(self) -> tuple[Value, ...]:
        """Inputs apart from the image, without a layer's output."""
        if self.shortcut is None:
            return self.sig.inputs[1:]
        return (*(v for v in self.sig.inputs[1:] if v != self.shortcut[1].y), *self.shortcut[1].inputs)

    @property
    def images(self) -> tuple[Value, ...]:
        other = self.sig.inputs[1:2] if self.shortcut is None else self.shortcut[1].inputs[:1]
        return (self.sig.x, *other) if self.takes_pairs else (self.sig.x,)

    @property
    def takes_pairs(self) -> bool:
        # Of two images.
        return isinstance(self.op, Add | Concat)

    @cached_property
    def repeats(self) -> int:
        """Rows of outputs that are made from the same row of the image: 1 unless it is enlarged."""
        return self.sig.y.shape[1] // self.sig.x.shape[1] if isinstance(self.op, ResizeNearest) else 1

    @property
    def is_blended(self) -> bool:
        # Each row is made of two rows of the image, which tables name: the image has to be whole.
        return isinstance(self.op, ResizeBilinear | ResizeBytes)

    @property
    def is_enlarged(self) -> bool:
        # A row of the image is needed for several rows of outputs, so that it cannot pass by.
        return self.repeats > 1 or self.is_blended

    def unread(self, made: Rows) -> Rows:
        """Return the first row of the image that is still to be read after ``made`` rows of outputs."""
        if isinstance(self.op, ResizeBilinear | ResizeBytes):
            lines = lines_of(self.op, self.sig)[0]
            least = np.minimum.accumulate(np.minimum(lines.lower, lines.upper)[::-1])[::-1]
            return np.append(least, self.sig.x.shape[1])[made]
        return np.maximum(made * self.window.stride_y - self.window.top, 0) // self.repeats

    @cached_property
    def window(self) -> WindowShape:
        return window_of(self.op, self.sig)

    @cached_property
    def fits(self) -> bool:
        """True if it can compute a few rows at a time with its image in place."""
        return _whole(self.sig.x) and self.fits_stripes

    @cached_property
    def fits_stripes(self) -> bool:
        """True if it can compute a few copied rows at a time, whatever the number of bytes in a row."""
        sig = self.sig
        if any(image.is_constant for image in self.images) or sig.x.shape[0] != 1 or not _whole(sig.y):
            return False
        if self.shortcut is not None:
            op, of_layer = self.shortcut
            inside = not window_of(op, of_layer).padded_rows
            return inside and _whole(of_layer.x) and of_layer.y.shape == sig.x.shape
        if isinstance(self.op, Add):
            return sig.inputs[1].shape == sig.x.shape
        if isinstance(self.op, Concat):
            return _whole(sig.inputs[1])
        return not (self.window.padded_rows and fill_of(self.op, sig.x) is None)

    @cached_property
    def sums_up(self) -> bool:
        """True if it reduces the image to one pixel by adding up rows as they arrive."""
        return sums_up(self.op, self.sig)

    @cached_property
    def shape(self) -> Hashable:
        of_layer = () if self.shortcut is None else (self.shortcut[1].inputs, self.shortcut[1].outputs)
        values = (*self.sig.inputs, *self.sig.outputs, *(v for values in of_layer for v in values))
        ops = self.op, self.shortcut and self.shortcut[0]
        shapes = tuple((v.shape, v.dtype, None if v.is_constant else v.quant) for v in values)
        return ops, shapes, self.turned


def runs_in_loops(op: Op, sig: Signature) -> bool:
    """Return True if an operator can be a stage of a loop over images in memory.

    A concatenation of the channels of two images is read like an addition; an image is enlarged by a whole
    number of equal rows, or resized by two rows each.
    """
    if isinstance(op, Concat):
        return len(sig.inputs) == 2 and op.axis == _IMAGE - 1 == len(sig.x.shape) - 1
    if isinstance(op, ResizeNearest):
        return _repeated(op, sig) is not None
    if isinstance(op, ResizeBilinear | ResizeBytes):
        return True
    return runs_by_rows(op, sig)


def _repeated(op: ResizeNearest, sig: Signature) -> int | None:
    # Times that each row of the image is repeated, if that is the same for all rows.
    have, want = sig.x.shape[1], sig.y.shape[1]
    if want % have:
        return None
    return want // have if (op.sources(sig)[0] == np.arange(want) // (want // have)).all() else None


def runs_by_rows(op: Op, sig: Signature) -> bool:
    return isinstance(op, Windowed | Add) and len(sig.x.shape) == len(sig.y.shape) == _IMAGE


def takes_rows(op: Op, sig: Signature) -> bool:
    """Return True if an operator can be a stage of a stream, in which each image may have a different type.

    This includes element-wise operators, such as the quantisation of a camera's bytes, and sums over all
    rows.
    """
    if runs_by_rows(op, sig) or sums_up(op, sig):
        return True
    alike = len(sig.inputs) == 1 and len(sig.x.shape) == _IMAGE and sig.x.shape == sig.y.shape
    return alike and op.axis_map(sig, (1,)) == AxisMap(1)


def makes_operand(op: Op) -> bool:
    """Return True if an operator can compute the operand of an addition on its shortcut."""
    return isinstance(op, Windowed)


def window_of(op: Op, sig: Signature) -> WindowShape:
    """Return the window of an operator's own image; for an addition it is a single pixel."""
    if isinstance(op, Windowed):
        return WindowShape.of(op, sig)
    if isinstance(op, ResizeNearest | ResizeBilinear | ResizeBytes):  # as if it was resized before
        sig = Signature(sig.outputs, sig.outputs)
    return WindowShape.pixel(sig)


def _whole(image: Value) -> bool:
    # True for a single image with rows of whole words.
    return image.shape[0] == 1 and image.shape[2] * image.shape[3] * image.dtype.itemsize % _WORD == 0


def fill_of(op: Op, x: Value) -> int | None:
    """Return the byte used for padding; None if the padding value has different bytes."""
    value = op.padding_value(x) if isinstance(op, Windowed) else None
    return None if value is None else value % 256


def has_own_rows(window: WindowShape) -> bool:
    return window.rows == window.stride_y and not window.padded_rows


def rows_per_call(windows: Sequence[WindowShape], last: int) -> list[int]:
    """Return the rows that each stage computes per call: enough to fill a stripe that keeps nothing,
    otherwise one.
    """
    rows = [last]
    for after in reversed(windows[1:]):
        rows.insert(0, rows[0] * after.stride_y if has_own_rows(after) else 1)
    return rows


def span_of(window: WindowShape, rows: int) -> int:
    return (rows - 1) * window.stride_y + window.rows


def part_of(stage: RowStage, rows: int, known: Parts) -> Part | None:
    """Return the kernel of a stage for ``rows`` rows without vertical padding; None if there is none."""
    sig = stage.sig
    if isinstance(stage.op, ResizeNearest):
        return _enlarged(stage.op, sig, rows, stage.repeats, known)
    if isinstance(stage.op, ResizeBilinear | ResizeBytes):
        return _blended(stage.op, sig, rows, known)
    x, y = _cut(sig.x, span_of(stage.window, rows)), _cut(sig.y, rows)
    if stage.shortcut is not None:
        op, of_layer = stage.shortcut
        image = _cut(of_layer.x, span_of(window_of(op, of_layer), rows))
        layer = Signature((image, *of_layer.inputs[1:]), (_cut(of_layer.y, rows),))
        return add_shortcut(stage.op, Signature((x, layer.y), (y,)), _inside(op), layer, known)
    others = tuple(_cut(v, rows) for v in sig.inputs[1:]) if stage.takes_pairs else sig.inputs[1:]
    inputs = (*others, x) if stage.turned else (x, *others)
    return known.find(_inside(stage.op), Signature(inputs, (y,)))


def _enlarged(op: ResizeNearest, sig: Signature, rows: int, times: int, known: Parts) -> Part | None:
    # Rows of outputs from one row of the image, or from all that they repeat.
    if rows > 1 and rows % times:
        return None
    cut = Signature((_cut(sig.x, max(rows // times, 1)),), (_cut(sig.y, rows),))
    resize = replace(op, size=(rows, op.size[1]))
    whole, part = op.sources(sig), resize.sources(cut)
    same = (part[0] == np.arange(rows) // times).all() and (part[1] == whole[1]).all()
    return known.find(resize, cut) if same else None


def _blended(op: ResizeBilinear | ResizeBytes, sig: Signature, rows: int, known: Parts) -> Part | None:
    # Rows of outputs from the whole image; the loop passes on the place of these rows in the image's tables.
    part = known.find(replace(op, size=(rows, op.size[1])), Signature((sig.x,), (_cut(sig.y, rows),)))
    if part is None:
        return None
    tables = {const.name: const for const in row_consts(op, sig)}
    consts = tuple(tables.get(const.name, const) for const in part.kernel.consts)
    return replace(part, kernel=replace(part.kernel, consts=consts))


def _inside(op: Op) -> Op:
    # The operator without padding above and below.
    return op.padded(replace(op.padding, top=0, bottom=0)) if isinstance(op, Windowed) else op


def _cut(image: Value, rows: int) -> Value:
    return replace(image, shape=(1, rows, *image.shape[2:]))


def rows_made(windows: Sequence[WindowShape], rows: Sequence[int], height: int) -> list[Rows]:
    """Return for each stage the number of output rows that exist after each block."""
    made = [np.arange(rows[-1], height + 1, rows[-1])]
    for after, count in zip(windows[:0:-1], rows[:0:-1], strict=True):
        ends = (made[0] - count) * after.stride_y + span_of(after, count) - after.top
        made.insert(0, np.clip(ends, 0, after.height))
    return made


def step_of(stage: RowStage) -> int:
    """Return the rows of the other image per row of outputs."""
    return 1 if stage.shortcut is None else window_of(*stage.shortcut).stride_y
