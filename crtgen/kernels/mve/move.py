"""Operators that move elements, with Helium: runs of bytes under masks, elements apart by gather loads."""

from collections.abc import Sequence
from dataclasses import dataclass

from crtgen.ir import Signature
from crtgen.kernels.blocks import Movement, blocks_of
from crtgen.kernels.kernel import Const, Kernel, Target
from crtgen.kernels.loops import Loop
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


@design(Transpose, needs="mve")
def transpose(op: Transpose, sig: Signature, target: Target) -> Kernel | None:
    """Runs that stay together, or by gather loads where the last axis moves."""
    return _kernel("mve transpose", op, sig, target)


@design(StridedSlice, needs="mve")
def strided_slice(op: StridedSlice, sig: Signature, target: Target) -> Kernel | None:
    """Runs of neighbours, or by gather loads where the last axis has a stride."""
    return _kernel("mve slice", op, sig, target)


@design(Concat, needs="mve", weights=None)
def concat(op: Concat, sig: Signature, target: Target) -> Kernel | None:
    """One block of each input after another."""
    return _kernel("mve concat", op, sig, target)


@design(Pad, needs="mve")
def pad(op: Pad, sig: Signature, target: Target) -> Kernel | None:
    """The output filled with the value, then the input's rows; None if the value's bytes differ."""
    fill = op.fill(sig)
    if sig.y.dtype.itemsize > 1 and fill != 0:
        return None
    return _kernel("mve pad", op, sig, target, int(fill))


def _kernel(
    name: str, op: Movement, sig: Signature, target: Target, fill: int | None = None
) -> Kernel | None:
    if not target.core.mve:
        return None
    size, c_type = sig.y.dtype.itemsize, sig.y.dtype.c_name
    blocks = blocks_of(op, sig)
    walks = [_walk(block.loops, size, target) for block in blocks]
    found = [w for w in walks if w is not None]
    if len(found) < len(walks):
        return None
    consts = tuple(Const.of(f"operand{i}", v.array()) for i, v in enumerate(sig.inputs) if v.is_constant)
    parts = [Part(b.source, b.first * size, b.start * size, w) for b, w in zip(blocks, found, strict=True)]
    inputs = [f"x{i}" for i in range(len(sig.inputs) - len(consts))]
    view = MoveView(
        parameters=(
            *(f"const {c_type} *{n}" for n in inputs),
            f"{c_type} *y",
            *(f"const {c_type} *{c.name}" for c in consts),
        ),
        parts=tuple(parts),
        size=sig.y.nbytes,
        fill=fill,
    )
    cost = sum(w.cost + 6 for w in found) + (sig.y.nbytes / BYTES * 2 if fill is not None else 0)
    return Kernel(design=name, template="mve/move.c.j2", view=view, consts=consts, cost=cost)


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
