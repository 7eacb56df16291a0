"""Transforms of int32 by products of 64 bits: SMULL and SMLAL are a part of a complex product.

A share of a number, ``(x (2^31 - 1) / 4 + 2^30) >> 31``, is ``(x + 2 + (-x >> 29)) >> 2``, where what QSUB
saturates comes to the same.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from crtgen.ir import DType, Signature
from crtgen.kernels.asm import Function, Routine, Runs
from crtgen.kernels.cost import Work
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.ops.fft import Rfft, digit_order, half_turns, radices, turns

__all__ = ["WordFftView", "transform"]

_PAIR = 8  # bytes of a complex number
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class WordFftView:
    """``rows`` of ``inputs`` numbers, transformed as ``count`` complex ones.

    ``stages`` are those behind the first one: bytes of their transforms, how many groups of four of these
    there are, and where their turns begin.
    """

    rows: int
    inputs: int
    count: int
    stages: tuple[tuple[int, int, int], ...]


@design(Rfft, types=(DType.INT32,), needs="dsp")
def transform(op: Rfft, sig: Signature, target: Target) -> Kernel | None:
    """None for an odd number of inputs."""
    count, inputs = op.length // 2, sig.x.shape[-1]
    if inputs % 2:
        return None
    first, *others = reversed(radices(count))
    sizes = [first * 4**n for n in range(len(others))]
    starts = np.cumsum([0, *(6 * size for size in sizes)]).tolist()
    stages = tuple((_PAIR * s, count // (4 * s), at) for s, at in zip(sizes, starts, strict=False))
    view = WordFftView(sig.x.elements // inputs, inputs, count, stages)
    once = [_first(first, count, inputs // 2), _apart(count)]
    counted = Runs.sum(routine.runs() for routine in once)
    if stages:
        once.append(_stage())
        counted += Runs.sum(once[-1].runs(groups=groups, numbers=size // _PAIR) for size, groups, _ in stages)
    work = Work(view.rows * counted).block("row", view.rows)
    return Kernel(
        design="dsp words",
        template="dsp/fft32.c.j2",
        view=view,
        consts=_consts(count, first, sizes),
        scratch=_PAIR * count,
        inplace=(InPlace(),) if view.rows == 1 else (),
        work=work.block("stage", view.rows * len(stages), len(stages)),
        routines=tuple(once),
    )


def _consts(count: int, first: int, sizes: list[int]) -> tuple[Const, ...]:
    transforms = np.empty(count // first, np.int64)
    transforms[digit_order(count)[::first]] = np.arange(count // first)
    consts = [
        Const.of("order", (_PAIR * first * transforms).astype(np.uint16), 2, "bytes to each transform"),
        Const.of("halves", half_turns(count, DType.INT32).ravel(), 4, "real, imaginary"),
    ]
    if sizes:
        places = [t * n * count // (4 * size) for size in sizes for n in range(size) for t in (1, 2, 3)]
        table = turns(count, DType.INT32)[places].ravel()
        consts.append(Const.of("turns", table, 4, "three for each number of a stage"))
    return tuple(consts)


def _divide(f: Function, x: str, by: int, spare: Pair) -> None:
    """By 2 or 4, rounded; the second one of ``spare`` is 0."""
    bits = by.bit_length() - 1
    f("qsub", spare[0], spare[1], x)
    f("add", x, x, spare[0], f"asr #{31 - bits}")
    f("add", x, x, f"#{by // 2}")
    f("asr", x, x, f"#{bits}")


def _turn(f: Function, x: Pair, by: Pair, low: str, high: Pair) -> Pair:
    """Times a number of length 1, rounded: which registers have it; the others are free."""
    (real, imaginary), (cosine, sine) = x, by
    f("rsb", high[1], sine, "#0")
    f("smull", low, high[0], real, cosine)
    f("smlal", low, high[0], imaginary, high[1])
    _round(f, low, high[0])
    f("smull", low, high[1], real, sine)
    f("smlal", low, high[1], imaginary, cosine)
    _round(f, low, high[1])
    return high


def _round(f: Function, low: str, high: str) -> None:
    f("adds", low, low, "#0x40000000")
    f("adc", high, high, "#0")
    f("lsl", high, high, "#1")
    f("orr", high, high, low, "lsr #31")


def _both(f: Function, a: str, b: str, spare: str) -> tuple[str, str, str]:
    """Sum and difference, and which register is free."""
    f("add", spare, a, b)
    f("sub", a, a, b)
    return spare, a, b


def _four(f: Function, x: list[Pair], spare: str) -> list[Pair]:
    """A transform of four numbers."""
    (ar, ai), (br, bi), (cr, ci), (dr, di) = x
    even_r, odd_r, spare = _both(f, ar, cr, spare)
    even_i, odd_i, spare = _both(f, ai, ci, spare)
    total_r, rest_r, spare = _both(f, br, dr, spare)
    total_i, rest_i, spare = _both(f, bi, di, spare)
    p0r, p2r, spare = _both(f, even_r, total_r, spare)
    p0i, p2i, spare = _both(f, even_i, total_i, spare)
    p1r, p3r, spare = _both(f, odd_r, rest_i, spare)
    p3i, p1i, spare = _both(f, odd_i, rest_r, spare)
    return [(p0r, p0i), (p1r, p1i), (p2r, p2i), (p3r, p3i)]


@cache
def _first(radix: int, count: int, inputs: int) -> Routine:
    """``first(to, x, order)``: transforms of ``radix`` numbers that lie ``count / radix`` apart.

    From the number ``inputs`` on there are zeros.
    """
    f = Function(
        "first",
        "void *to",
        "const void *x",
        "const uint16_t *order",
        purpose=f"{count // radix} transforms of {radix} numbers.",
        keep=(0,),
        local=1,
    )
    to, x, order = f.arguments
    f.free(to)
    numbers = [(f.core("a number"), f.core("a number")) for _ in range(radix)]
    place, spare, zero = f.cores("place; spare; zero", 3)
    step = f.constant("to the next number", _PAIR * count // radix)
    whole, rest = divmod(inputs, count // radix)
    for rounds, there in ((rest, whole + 1), (count // radix - rest, whole)):
        if not rounds:
            continue
        f.number(spare, rounds)
        f("str", spare, "[sp]")
        with f.loop("transforms", rounds) as again:
            f("mov", zero, "#0")
            f("mov", place, x)
            for number, pair in enumerate(numbers):
                _given(f, pair, place if number < there else "", radix, (spare, zero))
                if number + 1 < there:
                    f("add", place, place, step)
            f("add", x, x, f"#{_PAIR}")
            f("ldrh", place, f"[{order}], #2")
            f("ldr", spare, f.kept[0])
            f("add", place, place, spare)
            for number, made in enumerate(_of_radix(f, numbers, spare)):
                f("strd", *made, f"[{place}, #{_PAIR * number}]")
            f("ldr", spare, "[sp]")
            f("subs", spare, spare, "#1")
            f("str", spare, "[sp]")
            f("bne", again)
    return f.done()


def _given(f: Function, x: Pair, place: str, radix: int, spare: Pair) -> None:
    """A number over the radix; 0 without a place."""
    if place:
        f("ldrd", *x, f"[{place}]")
    for part in x:
        if place:
            _divide(f, part, radix, spare)
        else:
            f("mov", part, "#0")


def _of_radix(f: Function, x: list[Pair], spare: str) -> list[Pair]:
    if len(x) == 4:
        return _four(f, x, spare)
    (ar, ai), (br, bi) = x
    p0r, p1r, spare = _both(f, ar, br, spare)
    p0i, p1i, _ = _both(f, ai, bi, spare)
    return [(p0r, p0i), (p1r, p1i)]


@cache
def _stage() -> Routine:
    """``stage(x, turns, bytes, groups)``: groups of four transforms of so many bytes become one each."""
    f = Function(
        "stage",
        "void *x",
        "const int32_t *turns",
        "uint32_t bytes",
        "uint32_t groups",
        purpose="A stage: four transforms of so many bytes become one, group by group.",
        keep=(1, 3),
        local=6,
    )
    x, turn, step, left = f.arguments
    at = f.core("a number's place")
    data, others = f.cores("a number; a turn", 4), f.cores("products; spare", 4)
    real, imaginary, cosine, sine = data
    low, high, higher, zero = others
    more = f.core("numbers left")
    with f.loop("groups", "groups") as next_group:
        f("ldr", turn, f.kept[1])
        f("lsr", more, step, "#3")
        with f.loop("numbers", "numbers") as again:
            f("mov", zero, "#0")
            f("mov", at, x)
            f("ldrd", real, imaginary, f"[{at}]")
            for part in (real, imaginary):
                _divide(f, part, 4, (low, zero))
            f("strd", real, imaginary, "[sp]")
            for number in (1, 2, 3):
                f("add", at, at, step)
                f("ldrd", real, imaginary, f"[{at}]")
                for part in (real, imaginary):
                    _divide(f, part, 4, (low, zero))
                f("ldrd", cosine, sine, f"[{turn}], #{_PAIR}")
                made = _turn(f, (real, imaginary), (cosine, sine), low, (high, higher))
                if number < 3:
                    f("strd", *made, f"[sp, #{_PAIR * number}]")
            numbers: list[Pair] = [(real, imaginary), (cosine, sine), (low, zero), (high, higher)]
            for number, pair in enumerate(numbers[:3]):
                f("ldrd", *pair, f"[sp, #{_PAIR * number}]")
            for place, result in reversed(list(enumerate(_four(f, numbers, left)))):
                if place:
                    f("strd", *result, f"[{at}]")
                    f("sub", at, at, step)
                else:
                    f("strd", *result, f"[{x}], #{_PAIR}")
            f("subs", more, more, "#1")
            f("bne", again)
        f("add", x, x, step)
        f("add", x, x, step, "lsl #1")
        f("ldr", left, f.kept[3])
        f("subs", left, left, "#1")
        f("str", left, f.kept[3])
        f("bne", next_group)
    return f.done()


@cache
def _apart(count: int) -> Routine:
    """``apart(x, y, halves)``: all but the ends of a transform of real numbers."""
    f = Function(
        "apart",
        "const void *x",
        "void *y",
        "const int32_t *halves",
        purpose="Numbers of a transform by twos, from both ends.",
        local=1,
    )
    x, y, halves = f.arguments
    x_far, y_far = f.cores("numbers from the end", 2)
    ar, ai, br, bi = f.cores("numbers", 4)
    low, high, higher, by, zero = f.cores("products, turns, spare", 5)
    f.number(low, _PAIR * count)
    f("add", x_far, x, low)
    f("add", y_far, y, low)
    f("add", x, x, f"#{_PAIR}")
    f("add", y, y, f"#{_PAIR}")
    f.number(low, count // 2)
    f("str", low, "[sp]")
    with f.loop("numbers", count // 2) as again:
        f("mov", zero, "#0")
        f("ldrd", ar, ai, f"[{x}], #{_PAIR}")
        f("ldrd", br, bi, f"[{x_far}, #-{_PAIR}]!")
        f("rsb", bi, bi, "#0")
        for part in (ar, ai, br, bi):
            _divide(f, part, 2, (low, zero))
        total_r, rest_r, low = _both(f, ar, br, low)
        total_i, rest_i, low = _both(f, ai, bi, low)
        f("ldrd", by, zero, f"[{halves}], #{_PAIR}")
        turned_r, turned_i = _turn(f, (rest_r, rest_i), (by, zero), low, (high, higher))
        f("add", rest_r, total_r, turned_r)
        f("add", rest_i, total_i, turned_i)
        f("sub", turned_r, total_r, turned_r)
        f("sub", turned_i, turned_i, total_i)
        for part in (rest_r, rest_i, turned_r, turned_i):
            f("asr", part, part, "#1")
        f("strd", rest_r, rest_i, f"[{y}], #{_PAIR}")
        f("strd", turned_r, turned_i, f"[{y_far}, #-{_PAIR}]!")
        f("ldr", low, "[sp]")
        f("subs", low, low, "#1")
        f("str", low, "[sp]")
        f("bne", again)
    return f.done()
