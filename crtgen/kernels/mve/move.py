"""Operators that move elements, with Helium: runs of bytes under masks, elements apart by gather loads."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from crtgen.ir import Signature
from crtgen.kernels.kernel import Const, Kernel, Target
from crtgen.kernels.loops import Loop, merge, strides_of
from crtgen.kernels.mve.elements import BYTES, MOST_LOOPS, ElementsView, around, scaled, unrolling, word
from crtgen.kernels.registry import design
from crtgen.ops import Concat, Pad, StridedSlice, Transpose

__all__ = ["MoveView", "Part", "concat", "pad", "strided_slice", "transpose"]

_SHORTEST = 16  # bytes of a run; shorter ones are better copied by words
_FARTHEST = 1 << 16  # beyond an offset in 16 bits


@dataclass(frozen=True, slots=True)
class Part:
    """A walk over bytes, from ``first`` of ``source`` on to those from ``start`` on."""

    source: str
    first: int
    start: int
    walk: ElementsView


@dataclass(frozen=True, slots=True)
class MoveView:
    """``parts`` one after another, with ``fill`` in all ``size`` bytes of the output before if not None."""

    parameters: tuple[str, ...]
    parts: tuple[Part, ...]
    size: int
    fill: int | None = None


@dataclass(frozen=True, slots=True)
class _Block:
    """Elements of an input, from ``first`` on, to those of the output from ``start`` on."""

    source: int
    first: int
    start: int
    loops: tuple[Loop, ...]


@design(Transpose)
def transpose(op: Transpose, sig: Signature, target: Target) -> Kernel | None:
    """Runs that stay together, or by gather loads where the last axis moves."""
    strides = strides_of(sig.x.shape)
    loops = _loops(sig.y.shape, [strides[p] for p in op.perm], strides_of(sig.y.shape))
    return _kernel("mve transpose", sig, target, [_Block(0, 0, 0, loops)])


@design(StridedSlice)
def strided_slice(op: StridedSlice, sig: Signature, target: Target) -> Kernel | None:
    """Runs of neighbours, or by gather loads where the last axis has a stride."""
    strides = strides_of(sig.x.shape)
    counts = [len(range(*s)) for s in zip(op.begin, op.end, op.stride, strict=True)]
    steps = [stride * step for stride, step in zip(strides, op.stride, strict=True)]
    first = sum(b * s for b, s in zip(op.begin, strides, strict=True))
    block = _Block(0, first, 0, _loops(counts, steps, strides_of(counts)))
    return _kernel("mve slice", sig, target, [block])


@design(Concat, weights=None)
def concat(op: Concat, sig: Signature, target: Target) -> Kernel | None:
    """One block of each input after another."""
    outer = prod(sig.y.shape[: op.axis])
    blocks, start = list[_Block](), 0
    for i, value in enumerate(sig.inputs):
        run = value.elements // outer
        loops = _loops((outer, run), (run, 1), (sig.y.elements // outer, 1))
        blocks.append(_Block(i, 0, start, loops))
        start += run
    return _kernel("mve concat", sig, target, blocks)


@design(Pad)
def pad(op: Pad, sig: Signature, target: Target) -> Kernel | None:
    """The output filled with the value, then the input's rows; None if the value's bytes differ."""
    to = strides_of(sig.y.shape)
    start = sum(b * s for b, s in zip(op.before, to, strict=True))
    fill = op.fill(sig)
    if sig.y.dtype.itemsize > 1 and fill != 0:
        return None
    block = _Block(0, 0, start, _loops(sig.x.shape, strides_of(sig.x.shape), to))
    return _kernel("mve pad", sig, target, [block], int(fill))


def _loops(counts: Sequence[int], steps: Sequence[int], to: Sequence[int]) -> tuple[Loop, ...]:
    return merge([Loop(n, tuple(pair)) for n, *pair in zip(counts, steps, to, strict=True)], 2)


def _kernel(
    name: str, sig: Signature, target: Target, blocks: Sequence[_Block], fill: int | None = None
) -> Kernel | None:
    if not target.core.mve:
        return None
    size = sig.y.dtype.itemsize
    walks = [_walk(block.loops, size, target) for block in blocks]
    found = [w for w in walks if w is not None]
    if len(found) < len(walks):
        return None
    consts = tuple(Const(f"operand{i}", v.array()) for i, v in enumerate(sig.inputs) if v.is_constant)
    names, c_type = _names(sig), sig.y.dtype.c_name
    parts = [
        Part(names[b.source], b.first * size, b.start * size, w) for b, w in zip(blocks, found, strict=True)
    ]
    inputs = [n for n, v in zip(names, sig.inputs, strict=True) if not v.is_constant]
    parameters = (*(f"const {c_type} *{n}" for n in inputs), f"{c_type} *y")
    view = MoveView(
        parameters=(*parameters, *(f"const {c_type} *{c.name}" for c in consts)),
        parts=tuple(parts),
        size=sig.y.nbytes,
        fill=fill,
    )
    cost = sum(w.cost + 6 for w in found) + (sig.y.nbytes / BYTES * 2 if fill is not None else 0)
    return Kernel(design=name, template="mve/move.c.j2", view=view, consts=consts, cost=cost)


def _names(sig: Signature) -> list[str]:
    """Of the inputs, in C."""
    names, variables = list[str](), 0
    for i, value in enumerate(sig.inputs):
        names.append(f"operand{i}" if value.is_constant else f"x{variables}")
        variables += not value.is_constant
    return names


def _walk(loops: tuple[Loop, ...], size: int, target: Target) -> ElementsView | None:
    """The cheapest order of the loops; None if none is short enough, or they are too many."""
    if len(loops) > MOST_LOOPS:
        return None
    views = [_inner(run, [a for a in loops if a is not run], size, unrolling(target)) for run in loops]
    return min((v for v in views if v is not None), key=lambda v: v.cost, default=None)


def _inner(run: Loop, outer: Sequence[Loop], size: int, unroll: int) -> ElementsView | None:
    """With this loop as the run: neighbours on both sides, or on one while the other takes gathers."""
    setup: tuple[str, ...] = ()
    if run.strides == (1, 1):
        if run.count * size < _SHORTEST:
            return None
        lanes = BYTES
        run = Loop(run.count * size, (1, 1))
        body: tuple[str, ...] = ("vldrb.8 q0, [r0], #16", "vstrb.8 q0, [r2], #16")
    else:
        lanes = 8 if size == 1 else 4
        step = max(run.strides) * size
        if min(run.strides) != 1 or run.count < lanes or step * (lanes - 1) >= _FARTHEST:
            return None
        kind, bits = ("b", 16) if size == 1 else ("w", 32)
        setup = ("movs r4, #0", f"vidup.u{bits} q1, r4, #1", *word("r3", step))
        setup = (*setup, f"vmul.i{bits} q1, q1, r3", *word("r5", step * lanes))
        near = f"#{lanes * size}"
        load, store = f"vldr{kind}.u{bits} q0", f"vstr{kind}.{bits} q0"
        if run.strides[1] == 1:
            body = (f"{load}, [r0, q1]", "add r0, r0, r5", f"{store}, [r2], {near}")
        else:
            body = (f"{load}, [r0], {near}", f"{store}, [r2, q1]", "add r2, r2, r5")
        (run,) = scaled([run], size)
    return ElementsView(
        run=run.count,
        parameters=("const int8_t *x", "int8_t *y"),
        arguments=("mov r2, r1",),
        setup=setup,
        entry=(),
        body=body,
        around=around((*scaled(outer, size), run), lanes),
        lanes=lanes,
        unroll=unroll,
        vectors=False,
    )
