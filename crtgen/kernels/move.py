"""Operators that move elements without a look at them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from crtgen.ir import Signature
from crtgen.kernels.blocks import Block, Movement, blocks_of
from crtgen.kernels.cost import Work
from crtgen.kernels.kernel import Const, Kernel, Target
from crtgen.kernels.literal import c_number, plus
from crtgen.kernels.loops import Loop, index_of, merge
from crtgen.kernels.registry import design
from crtgen.ops import Concat, Identity, Pad, Reshape, ResizeNearest, StridedSlice, Transpose
from crtgen.ops.spread import BroadcastTo, MirrorPad

__all__ = ["Copy", "MoveView", "ResizeView", "moved", "split_run"]


_UNROLL = 4


@dataclass(frozen=True, slots=True)
class Copy:
    """In each of ``loops`` ``run`` elements from ``source[from_index]`` to ``y0[to_index]``, both C.

    Single elements go four at once, where the innermost loop has a multiple of that.
    """

    source: str
    loops: tuple[Loop, ...]
    from_index: str
    to_index: str
    run: int

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Indices of the runs that are written out in the innermost loop: in the source, in the output."""
        count, (from_step, to_step) = self.loops[-1].count, self.loops[-1].strides
        unroll = _UNROLL if self.run == 1 and count % _UNROLL == 0 else 1
        return tuple(
            (f"{self.from_index} {plus(n * from_step)}", f"{self.to_index} {plus(n * to_step)}")
            if n
            else (self.from_index, self.to_index)
            for n in range(unroll)
        )


@dataclass(frozen=True, slots=True)
class MoveView:
    """Copies that fill the output; ``fill`` is what it holds before them, as a C literal, or empty.

    ``lines`` are C that comes before.
    """

    copies: tuple[Copy, ...]
    elements: int
    fill: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResizeView:
    """Output pixel (i, j) is input pixel (rows[i], columns[j])."""

    batch: int
    height: int
    width: int
    channels: int
    out_height: int
    out_width: int


@design(Reshape)
def reshape(op: Reshape, sig: Signature, target: Target) -> Kernel:
    """Nothing moves."""
    return Kernel(design="alias", template="", view=None)


@design(Identity, weights=None)
def identity(op: Identity, sig: Signature, target: Target) -> Kernel:
    """All of it at once."""
    return _move("copy", op, sig)


@design(Transpose)
def transpose(op: Transpose, sig: Signature, target: Target) -> Kernel:
    """Runs of elements that stay together, in the order of the output."""
    return _move("transpose", op, sig)


@design(StridedSlice)
def strided_slice(op: StridedSlice, sig: Signature, target: Target) -> Kernel:
    """Runs of neighbours, in the order of the output."""
    return _move("slice", op, sig)


@design(Concat, weights=None)
def concat(op: Concat, sig: Signature, target: Target) -> Kernel:
    """One block of each input after another."""
    return _move("concat", op, sig)


@design(Pad)
def pad(op: Pad, sig: Signature, target: Target) -> Kernel:
    """The output filled with the value, then the input's rows."""
    return _move("pad", op, sig, c_number(op.fill(sig), sig.y.dtype.c_name))


@design(BroadcastTo)
def broadcast_to(op: BroadcastTo, sig: Signature, target: Target) -> Kernel:
    """Elements again and again."""
    return _move("broadcast", op, sig)


@design(MirrorPad)
def mirror_pad(op: MirrorPad, sig: Signature, target: Target) -> Kernel:
    """The inside and its mirrors."""
    return _move("mirror pad", op, sig)


@design(ResizeNearest)
def resize_nearest(op: ResizeNearest, sig: Signature, target: Target) -> Kernel:
    """Pixels by tables of rows and columns, computed offline."""
    rows, columns = (s.astype(np.uint16) for s in op.sources(sig))
    return Kernel(
        design="table",
        template="resize.c.j2",
        view=ResizeView(*sig.x.shape, *sig.y.shape[1:3]),
        consts=(Const.of("rows", rows, 2, "input row"), Const.of("columns", columns, 2, "input column")),
        work=_resized(sig),
    )


def _move(name: str, op: Movement, sig: Signature, fill: str = "") -> Kernel:
    copies = tuple(map(_copy, blocks_of(op, sig)))
    return Kernel(
        design=name,
        template="move.c.j2",
        view=MoveView(copies, sig.y.elements, fill),
        consts=tuple(Const.of(f"operand{i}", v.array()) for i, v in enumerate(sig.inputs) if v.is_constant),
        work=moved(sig, copies, fill),
    )


def _resized(sig: Signature) -> Work:
    batch, height, width, channels = sig.y.shape
    work = Work().block("line", batch * height).block("pixel", batch * height * width)
    return work.copy(channels * sig.y.dtype.itemsize, batch * height * width)


def moved(sig: Signature, copies: Sequence[Copy], fill: str = "") -> Work:
    """The work of copies that fill the output."""
    work, kind = Work(), sig.y.dtype.value
    if fill:
        work.block(f"{kind} fill", sig.y.elements)
    for copy in copies:
        runs = prod(loop.count for loop in copy.loops)
        if copy.run == 1:
            places = len(copy.places)
            work.block(f"{kind} {places} in {len(copy.loops)}", runs / places)
        else:
            work.block(f"run in {len(copy.loops)}", runs).copy(copy.run * sig.y.dtype.itemsize, runs)
        work.loops("line", copy.loops)
    return work


def _copy(block: Block) -> Copy:
    loops, run = split_run(block.loops)
    first, to = index_of(loops, 0), index_of(loops, 1)
    return Copy(
        source=block.source,
        loops=loops,
        from_index=f"{block.first} + {first}" if block.first else first,
        to_index=f"{block.start} + {to}" if block.start else to,
        run=run,
    )


def split_run(loops: tuple[Loop, ...]) -> tuple[tuple[Loop, ...], int]:
    """The innermost loop as a run of elements, where both sides are contiguous."""
    if loops[-1].strides == (1, 1):
        return merge(loops[:-1], 2), loops[-1].count
    return loops, 1
