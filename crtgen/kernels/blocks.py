"""Where operators that move elements move them: blocks of an input to blocks of the output."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeAlias

from crtgen.ir import Signature
from crtgen.kernels.loops import Loop, merge, repeated_strides, strides_of
from crtgen.ops import Concat, Identity, Pad, StridedSlice, Transpose
from crtgen.ops.spread import BroadcastTo, MirrorPad

__all__ = ["Block", "Movement", "blocks_of"]

Movement: TypeAlias = Identity | Transpose | StridedSlice | Concat | Pad | BroadcastTo | MirrorPad


@dataclass(frozen=True, slots=True)
class Block:
    """Elements of ``source``, from ``first`` on, to those of the output from ``start`` on.

    ``source`` is the C name of an input: ``x<n>`` counts those that vary, ``operand<i>`` is a constant one.
    ``loops`` have two strides each: in the source, in the output.
    """

    source: str
    first: int
    start: int
    loops: tuple[Loop, ...]


def blocks_of(op: Movement, sig: Signature) -> tuple[Block, ...]:
    """All that is moved, in the order of the output; what padding fills is not among it."""
    match op:
        case Identity():
            source = "operand0" if sig.x.is_constant else "x0"
            return (Block(source, 0, 0, _loops((sig.x.elements,), (1,), (1,))),)
        case BroadcastTo():
            repeated = repeated_strides(sig.x, sig.y)
            return (Block("x0", 0, 0, _loops(sig.y.shape, repeated, strides_of(sig.y.shape))),)
        case MirrorPad():
            return tuple(_mirrored(op, sig))
        case Transpose():
            strides = strides_of(sig.x.shape)
            steps = [strides[p] for p in op.perm]
            return (Block("x0", 0, 0, _loops(sig.y.shape, steps, strides_of(sig.y.shape))),)
        case StridedSlice():
            strides = strides_of(sig.x.shape)
            counts = [len(range(*s)) for s in zip(op.begin, op.end, op.stride, strict=True)]
            steps = [stride * step for stride, step in zip(strides, op.stride, strict=True)]
            first = sum(b * s for b, s in zip(op.begin, strides, strict=True))
            return (Block("x0", first, 0, _loops(counts, steps, strides_of(counts))),)
        case Pad():
            to = strides_of(sig.y.shape)
            start = sum(b * s for b, s in zip(op.before, to, strict=True))
            return (Block("x0", 0, start, _loops(sig.x.shape, strides_of(sig.x.shape), to)),)
        case Concat():
            return tuple(_one_after_another(op, sig))


def _mirrored(op: MirrorPad, sig: Signature) -> Iterator[Block]:
    """The inside, and around it what is in the mirrors of one axis, of two, ..."""
    have, to = strides_of(sig.x.shape), strides_of(sig.y.shape)
    axes = [op.segments(length, axis) for axis, length in enumerate(sig.x.shape)]
    for parts in product(*axes):
        first = sum(part[0] * stride for part, stride in zip(parts, have, strict=True))
        start = sum(part[3] * stride for part, stride in zip(parts, to, strict=True))
        steps = [part[1] * stride for part, stride in zip(parts, have, strict=True)]
        yield Block("x0", first, start, _loops([part[2] for part in parts], steps, to))


def _one_after_another(op: Concat, sig: Signature) -> Iterator[Block]:
    outer = prod(sig.y.shape[: op.axis])
    start = variables = 0
    for i, value in enumerate(sig.inputs):
        run = value.elements // outer
        name = f"operand{i}" if value.is_constant else f"x{variables}"
        variables += not value.is_constant
        yield Block(name, 0, start, _loops((outer, run), (run, 1), (sig.y.elements // outer, 1)))
        start += run


def _loops(counts: Sequence[int], steps: Sequence[int], to: Sequence[int]) -> tuple[Loop, ...]:
    return merge([Loop(n, (a, b)) for n, a, b in zip(counts, steps, to, strict=True)], 2)
