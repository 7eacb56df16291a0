"""Transforms of int32 with 64-bit products: SMULL and SMLAL compute one part of a complex product.

A quarter of a value, ``(x (2^31 - 1) / 4 + 2^30) >> 31``, is computed as ``(x + 2 + (-x >> 29)) >> 2``, for
which saturation by QSUB makes no difference.
"""

from functools import cache

from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.shared.transform import (
    Stages,
    StageWalk,
    TransformView,
    apart_function,
    first_function,
    inputs_there,
    next_group,
    stage_function,
    transform_kernel,
)
from crtgen.network.ir import DType, Signature
from crtgen.network.ops.fft import Rfft, half_turns, turns

__all__ = ["transform"]

_PAIR = 8  # bytes of a complex number
Pair = tuple[str, str]


@design(Rfft, types=(DType.INT32,), needs="dsp")
def transform(op: Rfft, sig: Signature, target: Target) -> Kernel | None:
    """FFT of int32; None for an odd number of inputs."""
    plan, inputs = Stages.of(op.length // 2), sig.x.shape[-1]
    if plan is None or inputs % 2:
        return None
    view = TransformView.of(sig, plan.count, plan.calls(_PAIR))
    consts = [
        plan.order(_PAIR, "bytes to each transform"),
        Const.of("halves", half_turns(plan.count, DType.INT32).ravel(), 4, "real, imaginary"),
    ]
    if plan.sizes:
        table = turns(plan.count, DType.INT32)[plan.turns()].ravel()
        consts.append(Const.of("turns", table, 4, "three for each number of a stage"))
    once = _first(plan.first, plan.count, inputs // 2), _apart(plan.count)
    walk = StageWalk(_stage(), "numbers", _PAIR)
    return transform_kernel("dsp words", "dsp/fft32.c.j2", view, consts, once, walk, _PAIR)


def _divide(f: Function, x: str, by: int, spare: Pair) -> None:
    # Division by 2 or 4, rounded; the second register of ``spare`` is 0.
    bits = by.bit_length() - 1
    f("qsub", spare[0], spare[1], x)
    f("add", x, x, spare[0], f"asr #{31 - bits}")
    f("add", x, x, f"#{by // 2}")
    f("asr", x, x, f"#{bits}")


def _turn(f: Function, x: Pair, by: Pair, low: str, high: Pair) -> Pair:
    # Times a number of length 1, rounded: which registers have it; the others are free.
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
    # Sum and difference, and which register is free.
    f("add", spare, a, b)
    f("sub", a, a, b)
    return spare, a, b


def _four(f: Function, x: list[Pair], spare: str) -> list[Pair]:
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
    # ``first(to, x, order)``: transforms of ``radix`` numbers that are ``count / radix`` apart. From the
    # number ``inputs`` on there are zeros.
    f = first_function(radix, count, keep=(0,), local=1)
    to, x, order = f.arguments
    f.free(to)
    numbers = [(f.core("a number"), f.core("a number")) for _ in range(radix)]
    place, spare, zero = f.cores("place; spare; zero", 3)
    step = f.constant("to the next number", _PAIR * count // radix)
    for rounds, there in inputs_there(radix, count, inputs):
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
    # A number over the radix; 0 without a place.
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


def _turned(
    f: Function, places: tuple[str, str, str], data: tuple[str, ...], others: tuple[str, ...]
) -> list[Pair]:
    # Loads four numbers and turns three of them; which registers have them. Three wait on the stack.
    # ``places``: the address of the first number, which becomes that of the last; bytes from one number to
    # the next; the address of turns. The last register of ``others`` is 0 at first.
    at, step, turn = places
    (real, imaginary, cosine, sine), (low, high, higher, zero) = data, others
    _given(f, (real, imaginary), at, 4, (low, zero))
    f("strd", real, imaginary, "[sp]")
    for number in (1, 2, 3):
        f("add", at, at, step)
        _given(f, (real, imaginary), at, 4, (low, zero))
        f("ldrd", cosine, sine, f"[{turn}], #{_PAIR}")
        made = _turn(f, (real, imaginary), (cosine, sine), low, (high, higher))
        if number < 3:
            f("strd", *made, f"[sp, #{_PAIR * number}]")
    numbers: list[Pair] = [(real, imaginary), (cosine, sine), (low, zero), (high, higher)]
    for number, pair in enumerate(numbers[:3]):
        f("ldrd", *pair, f"[sp, #{_PAIR * number}]")
    return numbers


@cache
def _stage() -> Routine:
    # ``stage(x, turns, bytes, groups)``: groups of four transforms of so many bytes become one each.
    f = stage_function("int32_t", keep=(1, 3), local=6)
    x, turn, step, left = f.arguments
    at = f.core("a number's place")
    data, others = f.cores("a number; a turn", 4), f.cores("products; spare", 4)
    more = f.core("numbers left")
    with f.loop("groups", "groups") as following:
        f("ldr", turn, f.kept[1])
        f("lsr", more, step, "#3")
        with f.loop("numbers", "numbers") as again:
            f("mov", others[-1], "#0")
            f("mov", at, x)
            numbers = _turned(f, (at, step, turn), data, others)
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
        next_group(f, left, following)
    return f.done()


@cache
def _apart(count: int) -> Routine:
    # ``apart(x, y, halves)``: all but the ends of a transform of real numbers.
    f = apart_function("int32_t", local=1)
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
