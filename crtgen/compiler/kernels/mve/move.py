"""Operators that move elements, with Helium: contiguous runs with tail predication, separate elements by
gather loads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from crtgen.compiler.kernels.asm import EVEN, Function, Routine, Runs
from crtgen.compiler.kernels.engine.blocks import Gap, Movement, blocks_of, gaps_of
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.loops import Loop
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.mve.elements import BYTES, MOST_LOOPS, run_loops, scaled, spread, unrolling
from crtgen.network.ir import Signature
from crtgen.network.ops import Concat, Pad, StridedSlice, Transpose

__all__ = ["MovedPart", "MveMoveView", "concat", "pad", "strided_slice", "transpose"]

_SHORTEST = 16  # bytes of a run; shorter ones are better copied by words
_RUN = 64  # bytes that are filled while a run of them begins
_FARTHEST = 1 << 16  # beyond an offset in 16 bits
# For elements of each size with a stride: the suffix of loads, bits of an offset, lanes.
_LANES = {1: ("b", 16, 8), 2: ("h", 16, 8), 4: ("w", 32, 4)}


@dataclass(frozen=True, slots=True)
class MovedPart:
    """A copy of bytes, from offset ``first`` of ``source`` to the output from offset ``start`` on."""

    source: str
    first: int
    start: int


@dataclass(frozen=True, slots=True)
class MveMoveView:
    """``gaps``, each filled from this byte on, then ``parts`` one after another; the routines are in this
    order.
    """

    parts: tuple[MovedPart, ...]
    gaps: tuple[int, ...]


@design(Transpose, needs="mve")
def transpose(op: Transpose, sig: Signature, target: Target) -> Kernel | None:
    """Transpose by copying runs that stay together, or by gather loads if the last axis moves."""
    return _kernel("mve transpose", op, sig, target)


@design(StridedSlice, needs="mve")
def strided_slice(op: StridedSlice, sig: Signature, target: Target) -> Kernel | None:
    """Copy runs of adjacent elements, or use gather loads if the last axis has a stride."""
    return _kernel("mve slice", op, sig, target)


@design(Concat, needs="mve", weights=None)
def concat(op: Concat, sig: Signature, target: Target) -> Kernel | None:
    return _kernel("mve concat", op, sig, target)


@design(Pad, needs="mve")
def pad(op: Pad, sig: Signature, target: Target) -> Kernel | None:
    """Fill the border with the value, then copy the input's rows; None if the value's bytes differ from each
    other.
    """
    fill, size = op.fill(sig), sig.y.dtype.itemsize
    if size > 1 and fill != 0:
        return None
    return _kernel("mve pad", op, sig, target, gaps_of(op, sig, _RUN // size), int(fill))


def _kernel(
    name: str, op: Movement, sig: Signature, target: Target, gaps: tuple[Gap, ...] = (), fill: int = 0
) -> Kernel | None:
    if not target.core.mve:
        return None
    size, blocks = sig.y.dtype.itemsize, blocks_of(op, sig)
    walks = [_filled(gap, size, fill, target) for gap in gaps]
    walks += [_walk(block.loops, size, target) for block in blocks]
    routines = [w for w in walks if w is not None]
    if len(routines) < len(walks):
        return None
    work = Work(Runs.sum(routine.runs() for routine in routines))
    work.block("part", len(routines), len(routines))
    view = MveMoveView(
        parts=tuple(MovedPart(block.source, block.first * size, block.start * size) for block in blocks),
        gaps=tuple(gap.start * size for gap in gaps),
    )
    return Kernel(
        design=name,
        template="mve/move.c.j2",
        view=view,
        consts=tuple(Const.of(f"operand{i}", v.array()) for i, v in enumerate(sig.inputs) if v.is_constant),
        work=work,
        routines=tuple(routines),
    )


def _walk(loops: tuple[Loop, ...], size: int, target: Target) -> Routine | None:
    # The cheapest order of the loops; None if none is short enough, or they are too many.
    if len(loops) > MOST_LOOPS:
        return None
    ways = [_inner(run, [a for a in loops if a is not run], size, unrolling(target)) for run in loops]
    return min((w for w in ways if w is not None), key=lambda w: w.instructions(), default=None)


def _filled(gap: Gap, size: int, fill: int, target: Target) -> Routine | None:
    if len(gap.loops) >= MOST_LOOPS:
        return None
    f = Function("fill", "void *to", purpose="Sets bytes to a value.")
    (to,), vector = f.arguments, f.vector("bytes")
    spread(f, vector, fill, 8)
    loops = [Loop(loop.count, (loop.strides[0] * size,)) for loop in gap.loops if loop.count > 1]
    run = Loop(gap.run * size, (1,))
    store = partial(f, "vstrb.8", vector, f"[{to}], #{BYTES}")
    run_loops(f, (to,), (*loops, run), (BYTES, unrolling(target)), store)
    return f.done()


def _inner(run: Loop, outer: Sequence[Loop], size: int, unroll: int) -> Routine | None:
    # With this loop as the run: neighbours on both sides, or on one while the other takes gathers.
    f = Function("move", "const void *from", "void *to", purpose="Moves elements.")
    if run.strides == (1, 1):
        if run.count * size < _SHORTEST:
            return None
        lanes, run = BYTES, Loop(run.count * size, (1, 1))
        vector = _neighbours(f)
    else:
        if size not in _LANES:
            return None
        lanes = _LANES[size][2]
        step = max(run.strides) * size
        if min(run.strides) != 1 or run.count < lanes or step * (lanes - 1) >= _FARTHEST:
            return None
        vector = _apart(f, size, step, run.strides[1] == 1)
        (run,) = scaled([run], (size, size))
    run_loops(f, f.arguments, (*scaled(outer, (size, size)), run), (lanes, unroll), vector)
    return f.done()


def _neighbours(f: Function) -> Callable[[], None]:
    (source, to), elements = f.arguments, f.vector("bytes")

    def vector() -> None:
        f("vldrb.8", elements, f"[{source}], #{BYTES}")
        f("vstrb.8", elements, f"[{to}], #{BYTES}")

    return vector


def _apart(f: Function, size: int, step: int, gathers: bool) -> Callable[[], None]:
    # Elements that are ``step`` bytes apart, where they are read if it ``gathers``, or where they go.
    (source, to), elements, offsets = f.arguments, f.vector("elements"), f.vector("offsets of the lanes")
    kind, bits, lanes = _LANES[size]
    even, apart = f.core("a lane's number", EVEN), f.core("bytes apart")
    f("movs", even, "#0")
    f(f"vidup.u{bits}", offsets, even, "#1")
    f.number(apart, step)
    f(f"vmul.i{bits}", offsets, offsets, apart)
    f.number(apart, step * lanes)
    f.free(even)
    load, store, near = f"vldr{kind}.u{bits}", f"vstr{kind}.{bits}", f"#{lanes * size}"

    def vector() -> None:
        if gathers:
            f(load, elements, f"[{source}, {offsets}]")
            f("add", source, source, apart)
            f(store, elements, f"[{to}], {near}")
        else:
            f(load, elements, f"[{source}], {near}")
            f(store, elements, f"[{to}, {offsets}]")
            f("add", to, to, apart)

    return vector
