"""Depthwise convolutions with Helium, for windows of up to 4x4.

Four rows of the image are interleaved in scratch, a word for each of their elements, so that one gathering
load of four words is a patch of 4x4 inputs of a channel. Where the stride is 1 and the window at most 3x3, a
patch serves a square of four outputs, with the weights moved by a column, a row, or both; else it serves one.
Eight outputs of a channel are requantised together and scattered.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.dsp.finish import rescale_of
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.mve.finish import Finish, requantisation
from crtgen.kernels.mve.matrix import LANES, Words
from crtgen.kernels.registry import design
from crtgen.kernels.window import Window, least_lead
from crtgen.ops import DepthwiseConv2d
from crtgen.ops.fixedpoint import Int64

__all__ = ["Batch", "DepthwiseView", "Patch", "Strip", "depthwise"]

_SIDE = 4  # of a patch
_REGISTERS = ("r0", "r2", "r4", "r6", "r8", "r10", "r12", "r14")
_FAR_VECTOR = 508  # the greatest step of a gathering load
_FAR_ADD = 4095
_MOST_BATCHES = 40
_MOST_OFFSET = 65535


@dataclass(frozen=True, slots=True)
class Patch:
    """A load of 4x4 inputs, ``advance`` bytes behind the last one, and the sums that it serves.

    ``sums`` are pairs of a register and the vector that holds the weights.
    """

    register: str
    advance: int
    sums: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Eight outputs of a channel, or four; ``offsets`` are where they belong, in the order of the lanes."""

    patches: tuple[Patch, ...]
    offsets: tuple[int, ...]

    @property
    def full(self) -> bool:
        return len(self.offsets) == 2 * _SIDE

    @property
    def words(self) -> tuple[int, ...]:
        """The offsets as four words, eight of them as halves."""
        if not self.full:
            return self.offsets
        pairs = zip(self.offsets[::2], self.offsets[1::2], strict=True)
        return tuple(low | high << 16 for low, high in pairs)


@dataclass(frozen=True, slots=True)
class Rows:
    """How the four rows of a strip get into scratch.

    ``kept`` rows are there already and move to the front by ``moved`` places; of the others, ``inside`` tells
    whether they are read or padding. Rows that no weight meets count as padding.
    """

    kept: int
    moved: int
    inside: tuple[bool, ...]

    @property
    def padded(self) -> bool:
        return not all(self.inside)

    @property
    def reads(self) -> bool:
        return any(self.inside)

    @property
    def fresh(self) -> tuple[tuple[int, bool], ...]:
        """Number among the four and whether it is read."""
        return tuple(enumerate(self.inside, self.kept))


@dataclass(frozen=True, slots=True)
class Strip:
    """``count`` strips of output rows, the first one at row ``first``, each ``step`` behind the last."""

    first: int
    count: int
    step: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class DepthwiseView:
    """A depthwise convolution, strip by strip, all channels of a strip at once.

    In scratch there are ``columns`` columns of ``channels`` words, the image from column ``window.left`` on.
    ``lanes`` are the offsets of a patch's four words; ``stepping``: its address is a vector that steps on.
    """

    window: Window
    fill: int
    strips: tuple[Strip, ...]
    batches: tuple[Batch, ...]
    columns: int
    seen: int
    squares: bool
    stepping: bool
    finish: Finish

    @property
    def channels(self) -> int:
        return self.window.channels

    @property
    def row_bytes(self) -> int:
        return self.window.width * self.channels

    @property
    def whole(self) -> int:
        """Blocks of 16 elements in a row."""
        return self.seen * self.channels // LANES

    @property
    def rest(self) -> int:
        return self.seen * self.channels % LANES

    @property
    def image(self) -> int:
        """Where the image begins in scratch."""
        return self.window.left * self.channels * _SIDE

    @property
    def scratch(self) -> int:
        """The last block of a row may reach behind its end."""
        return -(-self.columns * self.channels * _SIDE // LANES) * LANES + 4 * LANES

    @property
    def lanes(self) -> tuple[int, ...]:
        """Before the first step, which the first load takes."""
        start = self.batches[0].patches[0].advance if self.stepping else 0
        return tuple((i * self.channels * _SIDE - start) % (1 << 32) for i in range(_SIDE))

    @property
    def kinds(self) -> tuple[Rows, ...]:
        """The ways to interleave."""
        return tuple(dict.fromkeys(strip.rows for strip in self.strips))

    @property
    def frame(self) -> int:
        """Bytes of stack: registers, vectors and four words."""
        return 36 + 64 + 16

    @property
    def cost(self) -> float:
        batches = sum(self._batch(b) for b in self.batches)
        channel = (
            (14 if self.squares else 11)
            + 2 * self.stepping
            + (3 if self.finish.shift is None else 0)
            + batches
        )
        blocks = self.whole + (2 if self.rest else 0)
        strip = self.channels * channel + blocks * 10 + 60
        strips = self.window.batch * sum(s.count for s in self.strips)
        return strips * strip + self.scratch / 8 + 40

    def _batch(self, batch: Batch) -> int:
        loads = len(batch.patches)
        loads += 0 if self.stepping else sum(patch.advance > 0 for patch in batch.patches)
        vectors = 2 if batch.full else 1
        clamps = (self.finish.low is not None) + (self.finish.high is not None)
        requant = 3 * vectors + vectors if self.finish.shift is not None else 6 * vectors + vectors + 2
        return loads + sum(len(p.sums) for p in batch.patches) + 2 * vectors + requant + 3 + 3 * clamps


@design(DepthwiseConv2d, weights=(1, 2))
def depthwise(op: DepthwiseConv2d, sig: Signature, target: Target) -> Kernel | None:
    """For int8; None for others, large or dilated windows, and channel multipliers."""
    x, w, b = sig.inputs
    taps = (w.shape[1], w.shape[2])
    if not target.core.mve or x.dtype is not DType.INT8 or op.multiplier != 1:
        return None
    if max(taps) > _SIDE or op.dilation != (1, 1):
        return None
    window = Window.of(sig, taps, op.stride, op.padding)
    weights, bias = w.array().astype(np.int64)[0], b.array().astype(np.int64)
    params = op.parameters(sig)
    by_channel = weights.reshape(-1, window.channels).T
    start = bias + params.input_offset * by_channel.sum(axis=1)
    requant = requantisation(rescale_of(params, by_channel, bias), start)
    if requant.finish.left or requant.finish.some_whole:
        return None
    view = _view(window, -params.input_offset, requant.finish)
    if view is None:
        return None
    return Kernel(
        design="mve patches",
        template="mve/depthwise.c.j2",
        view=view,
        consts=(
            Const("weights", _patches(weights), 8, "16 zeros; per channel: columns of four rows"),
            Const("requant", _constants(requant.constants), 4, "per channel: multiplier, start, last"),
        ),
        scratch=view.scratch,
        inplace=(InPlace(lead=_lead(view)),),
        cost=view.cost,
        includes=("arm_mve.h",),
    )


def _patches(weights: Int64) -> Words:
    """``weights[rows, columns, C]`` as patches: what lies before one is zeros for a row and a column."""
    rows, columns, channels = weights.shape
    packed = np.zeros((channels + 1, _SIDE, _SIDE), np.int8)
    packed[1:, :columns, :rows] = weights.transpose(2, 1, 0)
    return packed.reshape(-1).view(np.uint32)


def _constants(constants: Int64) -> Words:
    """Start, multiplier and the last one as the registers want them, ``[C * 3]``."""
    return np.ascontiguousarray(constants[[1, 0, 2]].T.astype(np.int32)).reshape(-1).view(np.uint32)


def _view(window: Window, fill: int, finish: Finish) -> DepthwiseView | None:
    single = window.stride_y == window.stride_x == 1 and max(window.taps_y, window.taps_x) < _SIDE
    squares = single and min(window.out_height, window.out_width) > 1
    starts = _starts(window.out_width, 2 if squares else 1)
    columns = starts[-1] * window.stride_x + _SIDE
    batches = tuple(_batches(window, starts, squares))
    advances = [patch.advance for batch in batches for patch in batch.patches]
    furthest = max(max(batch.offsets) for batch in batches)
    if len(batches) > _MOST_BATCHES or furthest > _MOST_OFFSET or max(advances) > _FAR_ADD:
        return None
    strips = _strips(window, 2 if squares else 1)
    seen = max(0, min(window.width, columns - window.left))
    stepping = max(advances) <= _FAR_VECTOR
    return DepthwiseView(window, fill, strips, batches, columns, seen, squares, stepping, finish)


def _starts(length: int, step: int) -> list[int]:
    """Beginnings of stretches of ``step`` that cover ``length``; the last one may overlap."""
    return sorted({min(at, length - step) for at in range(0, length, step)})


def _batches(window: Window, starts: Sequence[int], squares: bool) -> Iterator[Batch]:
    """The patches at these output columns by eight sums, and four more if that is enough for the rest."""
    full = 2 if squares else 8
    column = window.channels * _SIDE * window.stride_x
    at = 0
    for first in range(0, len(starts), full):
        part = list(starts[first : first + full])
        size = full if len(part) * 2 > full else full // 2
        part += [part[-1]] * (size - len(part))
        patches, places = [], []
        registers = iter(_REGISTERS)
        for number, start in enumerate(part):
            where = _outputs(window, start, squares)
            sums = tuple((next(registers), f"q{vector}") for vector in range(len(where)))
            advance = start * column - at
            patches.append(Patch(_window_register(squares, number), advance, sums))
            places += where
            at = start * column
        yield Batch(tuple(patches), _in_lanes(places))


def _window_register(squares: bool, number: int) -> str:
    return ("q5", "q7")[number % 2] if squares else ("q1", "q2", "q3")[number % 3]


def _outputs(window: Window, start: int, squares: bool) -> list[int]:
    """Offsets of a patch's outputs: in a square the next column, the next row, and both."""
    here, row = start * window.channels, window.out_width * window.channels
    return [here, here + window.channels, here + row, here + row + window.channels] if squares else [here]


def _in_lanes(places: Sequence[int]) -> tuple[int, ...]:
    """In the order that narrowing two vectors to one gives: their lanes in turn."""
    if len(places) == _SIDE:
        return tuple(places)
    return tuple(p for pair in zip(places[:_SIDE], places[_SIDE:], strict=True) for p in pair)


def _strips(window: Window, step: int) -> tuple[Strip, ...]:
    """All strips, neighbours of one kind together."""
    strips: list[Strip] = []
    used = window.taps_y + (step - 1) * window.stride_y
    previous = None
    for first in _starts(window.out_height, step):
        top = first * window.stride_y - window.top
        moved = _SIDE if previous is None else top - previous
        kept = max(0, used - moved) if window.stride_y == 1 else 0
        rows = range(top + kept, top + _SIDE)
        inside = tuple(row < top + used and 0 <= row < window.height for row in rows)
        kind = Rows(kept, moved if kept else 0, inside)
        previous = top
        last = strips[-1] if strips else None
        if last and last.rows == kind and first == last.first + last.count * step:
            strips[-1] = Strip(last.first, last.count + 1, step, last.rows)
        else:
            strips.append(Strip(first, 1, step, kind))
    return tuple(strips)


def _lead(view: DepthwiseView) -> int:
    """All rows of a strip's patches are in scratch when its outputs are written."""
    w = view.window
    firsts = np.array([s.first + i * s.step for s in view.strips for i in range(s.count)])
    kept = np.array([s.rows.kept for s in view.strips for _ in range(s.count)])
    images = np.arange(w.batch)[:, None]
    rows = firsts + (2 if view.squares else 1)
    written = ((images * w.out_height + rows) * w.out_width * w.channels).ravel()
    read = np.clip(firsts * w.stride_y - w.top + kept, 0, w.height)
    unread = ((images * w.height + read) * view.row_bytes).ravel()
    return least_lead(written[:-1], unread[1:])
