"""Transforms of int16 with Helium: four complex numbers are a vector, real and imaginary parts in turn.

VQRDMULH divides, and VQRDMLSDH with VQRDMLADHX are the two parts of a product, all rounded as the definition
rounds; numbers that are divided by four cannot saturate there. Where the transform is taken apart they could,
and products have 32 bits. The order of stages is that of float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.asm import EVEN, Function, Routine, Runs
from crtgen.kernels.cost import Work
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.ops.fft import Rfft, digit_order, half_turns, turns

__all__ = ["ShortFftView", "transform"]

_VECTOR, _LANES = 16, 4  # bytes; complex numbers
_SHARES = {radix: ((1 << 15) - 1) // radix for radix in (2, 4)}
_QUARTER, _THREE = "#90", "#270"


@dataclass(frozen=True, slots=True)
class ShortFftView:
    """``rows`` of ``inputs`` numbers, transformed as ``count`` complex ones.

    ``stages`` are those behind the second one: bytes of their transforms, how many groups of four of these
    there are, and where their turns begin.
    """

    rows: int
    inputs: int
    count: int
    stages: tuple[tuple[int, int, int], ...]


@design(Rfft, types=(DType.INT16,), needs="mve")
def transform(op: Rfft, sig: Signature, target: Target) -> Kernel | None:
    """Twice a power of four; None for others, and where zeros begin within four pairs of numbers."""
    count, inputs = op.length // 2, sig.x.shape[-1]
    if count < _LANES**2 or count.bit_length() % 2 == 0 or inputs % (2 * _LANES):
        return None
    sizes = [4**n for n in range(1, (count.bit_length() - 1) // 2)]
    starts = np.cumsum([0, *(6 * size for size in sizes)]).tolist()
    stages = tuple((4 * s, count // (4 * s), at) for s, at in zip(sizes[1:], starts[1:], strict=False))
    view = ShortFftView(sig.x.elements // inputs, inputs, count, stages)
    once = [_first(count, inputs // 2), _apart(count), _second(count)]
    counted = Runs.sum(routine.runs() for routine in once)
    if stages:
        once.append(_stage())
        counted += Runs.sum(
            once[-1].runs(groups=groups, numbers=size // _VECTOR) for size, groups, _ in stages
        )
    return Kernel(
        design="mve radix 4",
        template="mve/fft.c.j2",
        view=view,
        consts=_consts(count, sizes),
        scratch=4 * count,
        inplace=(InPlace(),) if view.rows == 1 else (),
        work=Work(view.rows * counted)
        .block("row", view.rows)
        .block("stage", view.rows * len(stages), len(stages)),
        routines=tuple(once),
    )


def _consts(count: int, sizes: list[int]) -> tuple[Const, ...]:
    """Places of every fourth transform of the first stage; turns, those of four numbers side by side."""
    places = np.empty(count // 4, np.int64)
    places[digit_order(count)[::4]] = np.arange(count // 4)
    tables = [_places_of(count, size) for size in sizes]
    return (
        Const.of("order", (_VECTOR * places[::4]).astype(np.uint16), 2, "bytes to every fourth transform"),
        Const.of("halves", half_turns(count, DType.INT16).ravel(), 4, "real, imaginary"),
        Const.of(
            "turns",
            turns(count, DType.INT16)[np.concatenate(tables)].ravel(),
            4,
            "three for each four numbers",
        ),
    )


def _places_of(count: int, size: int) -> list[int]:
    step = count // (4 * size)
    firsts = range(0, size, _LANES)
    return [t * n * step for first in firsts for t in (1, 2, 3) for n in range(first, first + _LANES)]


def _four(f: Function, x: Sequence[str], spare: str) -> tuple[str, ...]:
    """A transform of four numbers; which registers have it. The second one of ``x`` is free afterwards."""
    a, b, c, d = x
    f("vadd.i16", spare, a, c)
    f("vsub.i16", a, a, c)
    f("vadd.i16", c, b, d)
    f("vsub.i16", b, b, d)
    f("vadd.i16", d, spare, c)
    f("vsub.i16", spare, spare, c)
    f("vcadd.i16", c, a, b, _THREE)
    f("vcadd.i16", a, a, b, _QUARTER)
    return d, c, spare, a


def _load(f: Function, to: str, address: str, share: str) -> None:
    """Numbers divided by the radix."""
    f("vldrh.u16", to, address)
    f("vqrdmulh.s16", to, to, share)


def _turned(f: Function, to: str, x: str, by: str) -> None:
    """Products; each instruction makes one part of them."""
    f("vqrdmlsdh.s16", to, x, by)
    f("vqrdmladhx.s16", to, x, by)


@cache
def _first(count: int, inputs: int) -> Routine:
    """``first(to, x, order)``: transforms of four numbers that lie ``count / 4`` apart.

    From the number ``inputs`` on there are zeros.
    """
    f = Function(
        "first",
        "void *to",
        "const void *x",
        "const uint16_t *order",
        purpose=f"{count // 4} transforms of 4 numbers, four at a time.",
    )
    apart = count // 4
    whole, rest = divmod(inputs, apart)
    to, x, order = f.arguments
    parts = (x, *f.cores("numbers", 3))
    place, share = f.core("place", EVEN), f.constant("share", _SHARES[4])
    for before, part in pairwise(parts):
        f.add(part, before, 4 * apart)
    q, places, steps = f.vectors("numbers", 5), f.vector("places"), f.vector("places of four")
    f.number(place, 0)
    f("vidup.u32", steps, place, "#1")
    f.number(place, 4 * count // 4)
    f("vmul.i32", steps, steps, place)
    for rounds, there in ((rest // _LANES, whole + 1), ((apart - rest) // _LANES, whole)):
        if not rounds:
            continue
        with f.low_overhead_loop("numbers", rounds):
            f("ldrh", place, f"[{order}], #2")
            f("add", place, place, to)
            f("vadd.i32", places, steps, place)
            for number, part in enumerate(parts):
                if number < there:
                    _load(f, q[number], f"[{part}], #{_VECTOR}", share)
                else:
                    f("vmov.i32", q[number], "#0")
            for number, made in enumerate(_four(f, q[:4], q[4])):
                f("vstrw.32", made, f"[{places}, #{4 * number}]")
    return f.done()


@cache
def _second(count: int) -> Routine:
    """``second(x, turns)``: the stage behind the first one, whose transforms are a vector each."""
    f = Function(
        "second", "void *x", "const int16_t *turns", purpose="Four transforms of 4 numbers become one."
    )
    x, turn = f.arguments
    share = f.constant("share", _SHARES[4])
    by, q = f.vectors("turns", 3), f.vectors("numbers", 5)
    for vector in by:
        f("vldrh.u16", vector, f"[{turn}], #{_VECTOR}")
    with f.low_overhead_loop("groups", count // 16):
        for number in (1, 2, 3):
            _load(f, q[0], f"[{x}, #{_VECTOR * number}]", share)
            _turned(f, q[number], q[0], by[number - 1])
        _load(f, q[0], f"[{x}]", share)
        made = _four(f, q[:4], q[4])
        for number in (1, 2, 3):
            f("vstrh.16", made[number], f"[{x}, #{_VECTOR * number}]")
        f("vstrh.16", made[0], f"[{x}], #{4 * _VECTOR}")
    return f.done()


@cache
def _stage() -> Routine:
    """``stage(x, turns, bytes, groups)``: groups of four transforms of so many bytes become one each."""
    f = Function(
        "stage",
        "void *x",
        "const int16_t *turns",
        "uint32_t bytes",
        "uint32_t groups",
        purpose="A stage: four transforms of so many bytes become one, group by group.",
    )
    x, turns_, step, left = f.arguments
    parts = (x, *f.cores("numbers", 3))
    turn, rounds = f.cores("turns; vectors", 2)
    share = f.constant("share", _SHARES[4])
    by, q = f.vector("a turn"), f.vectors("numbers", 5)
    f("lsr", rounds, step, "#4")
    for before, part in pairwise(parts):
        f("add", part, before, step)
    f("add", step, step, step, "lsl #1")
    with f.loop("groups", "groups") as next_group:
        f("mov", turn, turns_)
        with f.low_overhead_loop("numbers", "numbers", rounds):
            for number in (1, 2, 3):
                f("vldrh.u16", by, f"[{turn}], #{_VECTOR}")
                _load(f, q[0], f"[{parts[number]}]", share)
                _turned(f, q[number], q[0], by)
            _load(f, q[0], f"[{x}]", share)
            for register, part in zip(_four(f, q[:4], q[4]), parts, strict=True):
                f("vstrh.16", register, f"[{part}], #{_VECTOR}")
        for part in parts:
            f("add", part, part, step)
        f("subs", left, left, "#1")
        f("bne", next_group)
    return f.done()


@cache
def _apart(count: int) -> Routine:
    """``apart(x, y, halves)``: all but the ends of a transform of real numbers, by fours from both ends."""
    f = Function(
        "apart",
        "const void *x",
        "void *y",
        "const int16_t *halves",
        purpose="Numbers of a transform by fours, from both ends.",
    )
    x, y, halves = f.arguments
    number = f.core("a number", EVEN)
    x_far, y_far = f.cores("numbers from the end", 2)
    near, far, by, total, one, two = f.vectors("numbers", 6)
    back, signs = f.vectors("the other order; signs", 2)
    share = f.constant("share", _SHARES[2])
    f.add(x_far, x, 4 * count - _VECTOR)
    f.add(y_far, y, 4 * count - _VECTOR)
    f("add", x, x, "#4")
    f("add", y, y, "#4")
    f.number(number, 12)
    f("vddup.u32", back, number, "#4")
    f.number(number, 0xFFFF0001)
    f("vdup.32", signs, number)
    with f.low_overhead_loop("numbers", count // 8):
        _load(f, near, f"[{x}], #{_VECTOR}", share)
        f("vldrw.u32", far, f"[{x_far}, {back}]")
        f("sub", x_far, x_far, f"#{_VECTOR}")
        f("vmul.i16", far, far, signs)
        f("vqrdmulh.s16", far, far, share)
        f("vadd.i16", total, near, far)
        f("vsub.i16", near, near, far)
        f("vldrh.u16", by, f"[{halves}], #{_VECTOR}")
        f("vmullb.s16", one, near, by)
        f("vmullt.s16", two, near, by)
        f("vsub.i32", one, one, two)
        f("vrev32.16", by, by)
        f("vrshrnb.i32", far, one, "#15")
        f("vmullb.s16", one, near, by)
        f("vmullt.s16", two, near, by)
        f("vadd.i32", one, one, two)
        f("vrshrnt.i32", far, one, "#15")
        f("vhadd.s16", one, total, far)
        f("vstrh.16", one, f"[{y}], #{_VECTOR}")
        f("vhsub.s16", two, total, far)
        f("vpt.s16", "lt", signs, "zr")
        f("vhsubt.s16", two, far, total)
        f("vstrw.32", two, f"[{y_far}, {back}]")
        f("sub", y_far, y_far, f"#{_VECTOR}")
    return f.done()
