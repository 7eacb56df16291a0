"""Block copies: the moves of CONCAT, PAD, SLICE, TRANSPOSE and similar operators, as nested loops over runs
of elements.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeAlias

from crtgen.compiler.kernels.engine.loops import Loop, index_of, merge, repeated_strides, strides_of
from crtgen.network.ir import Signature
from crtgen.network.ops import Concat, Identity, Pad, StridedSlice, Transpose
from crtgen.network.ops.spread import BroadcastTo, MirrorPad

__all__ = ["BlockCopy", "Gap", "Movement", "blocks_of", "gaps_of"]

Movement: TypeAlias = Identity | Transpose | StridedSlice | Concat | Pad | BroadcastTo | MirrorPad


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """A copy of elements of ``source``, from index ``first``, to the output, from index ``start``.

    ``source`` is the C name of an input: ``x<n>`` for the n-th non-constant input, ``operand<i>`` for
    constant input i. Each of ``loops`` has two strides: in the source and in the output.
    """

    source: str
    first: int
    start: int
    loops: tuple[Loop, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """Runs of ``run`` output elements that no copy writes; the first begins at ``start``, the others follow
    from ``loops``.
    """

    loops: tuple[Loop, ...]
    start: int
    run: int

    @property
    def runs(self) -> int:
        return prod(loop.count for loop in self.loops)

    @property
    def to(self) -> str:
        first = index_of(self.loops, 0)
        return f"{self.start} + {first}" if self.start else first


def gaps_of(op: Pad, sig: Signature, run: int) -> tuple[Gap, ...]:
    """Return the elements to fill with padding, or one gap over the whole output if that is cheaper.

    Starting a run is counted as ``run`` elements.
    """
    gaps, length = tuple(_gaps(op, sig)), sig.y.elements
    each = sum(gap.runs * (gap.run + run) for gap in gaps)
    return gaps if each < length + run else (Gap((Loop(1, (0,)),), 0, length),)


def _gaps(op: Pad, sig: Signature) -> Iterator[Gap]:
    # Along each axis: the padding before and after the input. The padding after one line and before the next
    # is one run.
    strides = strides_of(sig.y.shape)
    outer: list[Loop] = []
    line, start = Loop(1, (0,)), 0
    for length, stride, before, after in zip(sig.x.shape, strides, op.before, op.after, strict=True):
        behind, (step,) = start + (before + length) * stride, line.strides
        for first, lines, run in (
            (start, 1, before),
            (behind, line.count - 1, after + before),
            (behind + (line.count - 1) * step, 1, after),
        ):
            if lines and run:
                yield Gap(merge([*outer, Loop(lines, line.strides)], 1), first, run * stride)
        outer.append(line)
        line = Loop(length, (stride,))
        start += before * stride


def blocks_of(op: Movement, sig: Signature) -> tuple[BlockCopy, ...]:
    """Return the copies that write the output, in the output's order, without padding."""
    match op:
        case Identity():
            source = "operand0" if sig.x.is_constant else "x0"
            return (BlockCopy(source, 0, 0, _loops((sig.x.elements,), (1,), (1,))),)
        case BroadcastTo():
            repeated = repeated_strides(sig.x, sig.y)
            return (BlockCopy("x0", 0, 0, _loops(sig.y.shape, repeated, strides_of(sig.y.shape))),)
        case MirrorPad():
            return tuple(_mirrored(op, sig))
        case Transpose():
            strides = strides_of(sig.x.shape)
            steps = [strides[p] for p in op.perm]
            return (BlockCopy("x0", 0, 0, _loops(sig.y.shape, steps, strides_of(sig.y.shape))),)
        case StridedSlice():
            strides = strides_of(sig.x.shape)
            counts = [len(range(*s)) for s in zip(op.begin, op.end, op.stride, strict=True)]
            steps = [stride * step for stride, step in zip(strides, op.stride, strict=True)]
            first = sum(b * s for b, s in zip(op.begin, strides, strict=True))
            return (BlockCopy("x0", first, 0, _loops(counts, steps, strides_of(counts))),)
        case Pad():
            to = strides_of(sig.y.shape)
            start = sum(b * s for b, s in zip(op.before, to, strict=True))
            return (BlockCopy("x0", 0, start, _loops(sig.x.shape, strides_of(sig.x.shape), to)),)
        case Concat():
            return tuple(_one_after_another(op, sig))


def _mirrored(op: MirrorPad, sig: Signature) -> Iterator[BlockCopy]:
    # The input itself, then its mirror images along one axis, along two axes, and so on.
    have, to = strides_of(sig.x.shape), strides_of(sig.y.shape)
    axes = [op.segments(length, axis) for axis, length in enumerate(sig.x.shape)]
    for parts in product(*axes):
        first = sum(part[0] * stride for part, stride in zip(parts, have, strict=True))
        start = sum(part[3] * stride for part, stride in zip(parts, to, strict=True))
        steps = [part[1] * stride for part, stride in zip(parts, have, strict=True)]
        yield BlockCopy("x0", first, start, _loops([part[2] for part in parts], steps, to))


def _one_after_another(op: Concat, sig: Signature) -> Iterator[BlockCopy]:
    outer = prod(sig.y.shape[: op.axis])
    start = variables = 0
    for i, value in enumerate(sig.inputs):
        run = value.elements // outer
        name = f"operand{i}" if value.is_constant else f"x{variables}"
        variables += not value.is_constant
        yield BlockCopy(name, 0, start, _loops((outer, run), (run, 1), (sig.y.elements // outer, 1)))
        start += run


def _loops(counts: Sequence[int], steps: Sequence[int], to: Sequence[int]) -> tuple[Loop, ...]:
    return merge([Loop(n, (a, b)) for n, a, b in zip(counts, steps, to, strict=True)], 2)
