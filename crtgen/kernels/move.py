"""Operators that move elements without a look at them."""

from dataclasses import dataclass
from math import prod

import numpy as np

from crtgen.ir import Signature
from crtgen.kernels.kernel import Const, Kernel, Target
from crtgen.kernels.literal import c_number, plus
from crtgen.kernels.loops import Loop, index_of, merge, strides_of
from crtgen.kernels.registry import design
from crtgen.ops import Concat, Pad, Reshape, ResizeNearest, StridedSlice, Transpose

__all__ = ["Copy", "MoveView", "ResizeView"]


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
    """Copies that fill the output; ``fill`` is what it holds before them, as a C literal, or empty."""

    copies: tuple[Copy, ...]
    elements: int
    fill: str = ""


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


@design(Transpose)
def transpose(op: Transpose, sig: Signature, target: Target) -> Kernel:
    """Runs of elements that stay together, in the order of the output."""
    strides = strides_of(sig.x.shape)
    return _move(sig, "transpose", [_walk(sig, [strides[p] for p in op.perm], sig.y.shape)])


@design(StridedSlice)
def strided_slice(op: StridedSlice, sig: Signature, target: Target) -> Kernel:
    """Runs of neighbours, in the order of the output."""
    strides = strides_of(sig.x.shape)
    counts = [len(range(*s)) for s in zip(op.begin, op.end, op.stride, strict=True)]
    steps = [stride * step for stride, step in zip(strides, op.stride, strict=True)]
    start = sum(b * s for b, s in zip(op.begin, strides, strict=True))
    return _move(sig, "slice", [_walk(sig, steps, counts, start)])


@design(Concat, weights=None)
def concat(op: Concat, sig: Signature, target: Target) -> Kernel:
    """One block of each input after another."""
    outer = prod(sig.y.shape[: op.axis])
    whole = sig.y.elements // outer
    copies, consts, start, variables = [], [], 0, 0
    for i, value in enumerate(sig.inputs):
        run = value.elements // outer
        name = f"operand{i}" if value.is_constant else f"x{variables}"
        if value.is_constant:
            consts.append(Const(name, value.array()))
        variables += not value.is_constant
        loops = (Loop(outer, (run, whole)),)
        copies.append(Copy(name, loops, index_of(loops, 0), f"{start} + {index_of(loops, 1)}", run))
        start += run
    return _move(sig, "concat", copies, consts=tuple(consts))


@design(Pad)
def pad(op: Pad, sig: Signature, target: Target) -> Kernel:
    """The output filled with the value, then the input's rows."""
    to = strides_of(sig.y.shape)
    start = sum(b * s for b, s in zip(op.before, to, strict=True))
    walk = zip(sig.x.shape, strides_of(sig.x.shape), to, strict=True)
    loops = merge([Loop(n, (a, b)) for n, a, b in walk], 2)
    loops, run = _split_run(loops)
    copy = Copy("x0", loops, index_of(loops, 0), f"{start} + {index_of(loops, 1)}", run)
    return _move(sig, "pad", [copy], c_number(op.fill(sig), sig.y.dtype.c_name))


@design(ResizeNearest)
def resize_nearest(op: ResizeNearest, sig: Signature, target: Target) -> Kernel:
    """Pixels by tables of rows and columns, computed offline."""
    rows, columns = (s.astype(np.uint16) for s in op.sources(sig))
    return Kernel(
        design="table",
        template="resize.c.j2",
        view=ResizeView(*sig.x.shape, *sig.y.shape[1:3]),
        consts=(Const("rows", rows, 2, "input row"), Const("columns", columns, 2, "input column")),
        cost=sig.y.elements * 3,
    )


def _walk(sig: Signature, steps: list[int], counts: list[int] | tuple[int, ...], start: int = 0) -> Copy:
    """A copy that fills the output in order, from an input with these steps per axis."""
    walk = zip(counts, steps, strides_of(counts), strict=True)
    loops, run = _split_run(merge([Loop(n, (a, b)) for n, a, b in walk], 2))
    first = index_of(loops, 0)
    return Copy("x0", loops, f"{start} + {first}" if start else first, index_of(loops, 1), run)


def _split_run(loops: tuple[Loop, ...]) -> tuple[tuple[Loop, ...], int]:
    """The innermost loop as a run of elements, where both sides are contiguous."""
    if loops[-1].strides == (1, 1):
        return merge(loops[:-1], 2), loops[-1].count
    return loops, 1


def _move(
    sig: Signature, name: str, copies: list[Copy], fill: str = "", consts: tuple[Const, ...] = ()
) -> Kernel:
    per_element = 2.0 if min(c.run for c in copies) >= 4 else 6.0
    return Kernel(
        design=name,
        template="move.c.j2",
        view=MoveView(tuple(copies), sig.y.elements, fill),
        consts=consts,
        cost=sig.y.elements * per_element,
    )
