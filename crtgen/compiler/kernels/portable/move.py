"""Operators that move elements without changing them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from crtgen.compiler.kernels.engine.blocks import BlockCopy, Gap, Movement, blocks_of, gaps_of
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_number, plus
from crtgen.compiler.kernels.engine.loops import Loop, index_of, merge
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import Signature
from crtgen.network.ops import Concat, Identity, Pad, Reshape, ResizeNearest, StridedSlice, Transpose
from crtgen.network.ops.spread import BroadcastTo, MirrorPad, PadWith

__all__ = ["Copy", "MoveView", "ResizeView", "moved", "split_run"]


_UNROLL = 4
_RUN = 24  # elements that are filled while a run of them begins


@dataclass(frozen=True, slots=True)
class Copy:
    """Copies, one for each of ``loops``, of ``run`` elements from ``source[from_index]`` to
    ``y0[to_index]``; both indices are C.

    Single elements are copied four at a time, if the innermost loop has a multiple of four. ``words``: runs
    are whole, aligned words.
    """

    source: str
    loops: tuple[Loop, ...]
    from_index: str
    to_index: str
    run: int
    words: bool = False

    @property
    def places(self) -> tuple[tuple[str, str], ...]:
        """Indices of the unrolled runs in the innermost loop: in the source, in the output."""
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
    """Copies to the output, and gaps filled with ``fill``, a C literal, which is a single byte if all bytes
    are ``alike``.

    ``lines`` are C code that precedes the copies.
    """

    copies: tuple[Copy, ...]
    gaps: tuple[Gap, ...] = ()
    fill: str = ""
    alike: bool = False
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
    return Kernel(design="alias", template="", view=None)


@design(Identity, weights=None)
def identity(op: Identity, sig: Signature, target: Target) -> Kernel:
    return _move("copy", op, sig)


@design(Transpose)
def transpose(op: Transpose, sig: Signature, target: Target) -> Kernel:
    return _move("transpose", op, sig)


@design(StridedSlice)
def strided_slice(op: StridedSlice, sig: Signature, target: Target) -> Kernel:
    return _move("slice", op, sig)


@design(Concat, weights=None)
def concat(op: Concat, sig: Signature, target: Target) -> Kernel:
    return _move("concat", op, sig)


@design(Pad)
def pad(op: Pad, sig: Signature, target: Target) -> Kernel:
    fill, dtype = op.fill(sig), sig.y.dtype
    alike = dtype.itemsize == 1 or fill == 0
    value = str(int(fill) % 256) if alike else c_number(fill, dtype.c_name)
    copies, gaps = _copies(op, sig), gaps_of(op, sig, _RUN)
    view = MoveView(copies, gaps, value, alike)
    return Kernel("pad", "move.c.j2", view, work=moved(sig, copies, gaps))


@design(PadWith)
def pad_with(op: PadWith, sig: Signature, target: Target) -> Kernel:
    plain, alone = Pad(op.before, op.after), Signature(sig.inputs[:1], sig.outputs)
    copies, gaps = _copies(plain, alone), gaps_of(plain, alone, _RUN)
    alike = sig.y.dtype.itemsize == 1
    view = MoveView(copies, gaps, "(uint8_t)*x1" if alike else "*x1", alike)
    return Kernel("pad with", "move.c.j2", view, work=moved(sig, copies, gaps))


@design(BroadcastTo)
def broadcast_to(op: BroadcastTo, sig: Signature, target: Target) -> Kernel:
    return _move("broadcast", op, sig)


@design(MirrorPad)
def mirror_pad(op: MirrorPad, sig: Signature, target: Target) -> Kernel:
    return _move("mirror pad", op, sig)


@design(ResizeNearest)
def resize_nearest(op: ResizeNearest, sig: Signature, target: Target) -> Kernel:
    """Copy pixels by tables of rows and columns that are computed at generation time."""
    rows, columns = (s.astype(np.uint16) for s in op.sources(sig))
    return Kernel(
        design="table",
        template="resize.c.j2",
        view=ResizeView(*sig.x.shape, *sig.y.shape[1:3]),
        consts=(Const.of("rows", rows, 2, "input row"), Const.of("columns", columns, 2, "input column")),
        work=_resized(sig),
    )


def _move(name: str, op: Movement, sig: Signature) -> Kernel:
    copies = _copies(op, sig)
    return Kernel(
        design=name,
        template="move.c.j2",
        view=MoveView(copies),
        consts=tuple(Const.of(f"operand{i}", v.array()) for i, v in enumerate(sig.inputs) if v.is_constant),
        work=moved(sig, copies),
    )


def _resized(sig: Signature) -> Work:
    batch, height, width, channels = sig.y.shape
    work = Work().block("line", batch * height).block("pixel", batch * height * width)
    return work.copy(channels * sig.y.dtype.itemsize, batch * height * width)


def moved(sig: Signature, copies: Sequence[Copy], gaps: Sequence[Gap] = ()) -> Work:
    work, kind = Work(), sig.y.dtype.value
    for gap in gaps:
        size = sig.y.dtype.itemsize
        work.block("gap", gap.runs).block(f"fill of {size}", gap.runs * gap.run)
    for copy in copies:
        runs = prod(loop.count for loop in copy.loops)
        if copy.run == 1:
            places = len(copy.places)
            work.block(f"{kind} {places} in {len(copy.loops)}", runs / places)
        else:
            nbytes = copy.run * sig.y.dtype.itemsize
            work.block(f"run in {len(copy.loops)}", runs).copy(nbytes, runs, words=copy.words)
        work.loops("line", copy.loops)
    return work


def _copies(op: Movement, sig: Signature) -> tuple[Copy, ...]:
    return tuple(_copy(block, sig.y.dtype.itemsize) for block in blocks_of(op, sig))


def _copy(block: BlockCopy, size: int) -> Copy:
    loops, run = split_run(block.loops)
    steps = (run, block.first, block.start, *(stride for loop in loops for stride in loop.strides))
    first, to = index_of(loops, 0), index_of(loops, 1)
    return Copy(
        source=block.source,
        loops=loops,
        from_index=f"{block.first} + {first}" if block.first else first,
        to_index=f"{block.start} + {to}" if block.start else to,
        run=run,
        words=run > 1 and all(step * size % 4 == 0 for step in steps),
    )


def split_run(loops: tuple[Loop, ...]) -> tuple[tuple[Loop, ...], int]:
    if loops[-1].strides == (1, 1):
        return merge(loops[:-1], 2), loops[-1].count
    return loops, 1
