"""Transforms of int16 with the DSP extension: a complex value is a word, with its real part in the low half.

SMLSD and SMLADX compute the two parts of a product, SADD16 and SSUB16 sums of both parts, SSAX and SASX sums
with a value that is rotated by a quarter turn. A stage whose transforms have one element rotates nothing.
"""

from dataclasses import replace
from functools import cache

import numpy as np

from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.dsp.words import words16
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import Words
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
from crtgen.network.ops.fft import Irfft, Rfft, half_turns, turns

__all__ = ["transform"]

_BITS = 15
_WORD = 4  # bytes of a complex number


@design(Rfft, Irfft, types=(DType.INT16,), needs="dsp")
def transform(op: Rfft | Irfft, sig: Signature, target: Target) -> Kernel | None:
    """FFT of int16; None for an odd number of inputs."""
    plan, inverse, inputs = Stages.of(op.length // 2), isinstance(op, Irfft), sig.x.shape[-1]
    if plan is None or inputs % 2:
        return None
    count = plan.count
    view = replace(TransformView.of(sig, count, plan.calls(_WORD, parts=1)), inverse=inverse)
    once = _first(plan.first, count, count if inverse else inputs // 2, inverse), _apart(count, inverse)
    consts, walk = _consts(plan, 1 if inverse else -1), StageWalk(_stage(inverse), "numbers", _WORD)
    return transform_kernel("dsp radix 4", "dsp/fft.c.j2", view, consts, once, walk, _WORD)


def _consts(plan: Stages, sign: int) -> list[Const]:
    consts = [
        plan.order(_WORD, "bytes to each transform"),
        Const.of("halves", _words(half_turns(plan.count, DType.INT16, sign)), 4, "real, imaginary"),
    ]
    if plan.sizes:
        table = _words(turns(plan.count, DType.INT16, sign))[plan.turns()]
        consts.append(Const.of("turns", table, 4, "three for each number of a stage"))
    return consts


def _words(pairs: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Words:
    # ``[n, 2]``, real and imaginary parts, as words.
    wide = pairs.astype(np.int64)
    return words16(wide[:, 0], wide[:, 1])


class _Complex:
    def __init__(self, f: Function, divisor: int) -> None:
        self.f = f
        self.factor = f.constant("share, doubled", 2 * (((1 << _BITS) - 1) // divisor))
        self.half = f.constant("half of 2^16", 1 << 15)
        self.spare = f.core("spare")

    def divide(self, x: str) -> None:
        # Both parts by the divisor, rounded.
        self.f("smlabb", self.spare, x, self.factor, self.half)
        self.f("smlatb", x, x, self.factor, self.half)
        self.f("pkhtb", x, x, self.spare, "asr #16")

    def turn(self, x: str, by: str, half: str) -> None:
        # Times a number of length 1, rounded; ``half`` is 2^14.
        self.f("smlsd", self.spare, x, by, half)
        self.f("smladx", x, x, by, half)
        self.f("asr", self.spare, self.spare, f"#{_BITS}")
        self.f("pkhbt", x, self.spare, x, "lsl #1")

    def two(self, x: tuple[str, ...], spare: str) -> tuple[str, str]:
        # A transform of two numbers; which registers have it.
        a, b = x
        self.f("sadd16", spare, a, b)
        self.f("ssub16", b, a, b)
        return spare, b

    def four(self, x: tuple[str, ...], spare: str, inverse: bool) -> tuple[str, ...]:
        # A transform of four numbers; which registers have it.
        f, (a, b, c, d) = self.f, x
        f("sadd16", spare, a, c)
        f("ssub16", a, a, c)
        f("sadd16", c, b, d)
        f("ssub16", b, b, d)
        f("sadd16", d, spare, c)
        f("ssub16", spare, spare, c)
        plus, minus = ("sasx", "ssax") if inverse else ("ssax", "sasx")
        f(plus, c, a, b)
        f(minus, b, a, b)
        return d, c, spare, b


@cache
def _first(radix: int, count: int, inputs: int, inverse: bool) -> Routine:
    # ``first(to, x, order)``: transforms of ``radix`` numbers that are ``count / radix`` apart. From the
    # number ``inputs`` on there are zeros.
    f = first_function(radix, count)
    to, x, order = f.arguments
    apart = count // radix
    numbers, spare = f.cores("numbers", radix), f.core("a number")
    at = _Complex(f, radix)
    step = f.constant("to the next number", 4 * apart)
    places = [f"[{x}], #4", f"[{x}, {step}]"]
    if radix == 4:
        far = f.core("to the last number")
        f("add", far, step, step, "lsl #1")
        places += [f"[{x}, {step}, lsl #1]", f"[{x}, {far}]"]
    for rounds, there in inputs_there(radix, count, inputs):
        with f.repeated("transforms", rounds):
            for number, register in reversed(list(enumerate(numbers))):
                if number < there:
                    f("ldr", register, places[number])
                    at.divide(register)
                else:
                    f("mov", register, "#0")
            if not there:
                f("add", x, x, "#4")
            f("ldrh", at.spare, f"[{order}], #2")
            f("add", at.spare, at.spare, to)
            made = at.four(numbers, spare, inverse) if radix == 4 else at.two(numbers, spare)
            for number, register in enumerate(made):
                f("str", register, f"[{at.spare}, #{4 * number}]")
    return f.done()


@cache
def _stage(inverse: bool) -> Routine:
    # ``stage(x, turns, bytes, groups)``: groups of four transforms of so many bytes become one each.
    f = stage_function("uint32_t", keep=(1, 3))
    x, turn, step, left = f.arguments
    numbers = f.cores("numbers", 4)
    spare = f.core("a turn, a number")
    at = _Complex(f, 4)
    half, far = f.constant("half of 2^15", 1 << (_BITS - 1)), f.core("to the last transform")
    f("add", far, step, step, "lsl #1")
    places = (f"[{x}]", f"[{x}, {step}]", f"[{x}, {step}, lsl #1]", f"[{x}, {far}]")
    with f.loop("groups", "groups") as following:
        f("ldr", turn, f.kept[1])
        f("lsr", left, step, "#2")
        with f.loop("numbers", "numbers") as again:
            for number, place in zip(numbers, places, strict=True):
                f("ldr", number, place)
                at.divide(number)
                if number is not numbers[0]:
                    f("ldr", spare, f"[{turn}], #4")
                    at.turn(number, spare, half)
            made = at.four(numbers, spare, inverse)
            for number, place in zip(made[1:], places[1:], strict=True):
                f("str", number, place)
            f("str", made[0], f"[{x}], #4")
            f("subs", left, left, "#1")
            f("bne", again)
        f("add", x, x, far)
        next_group(f, left, following)
    return f.done()


@cache
def _apart(count: int, inverse: bool) -> Routine:
    # ``apart(x, y, halves)``: all but the ends of a transform of real numbers, or of what it comes from.
    f = apart_function("uint32_t", "together" if inverse else "apart")
    x, y, halves = f.arguments
    at = _Complex(f, 2)
    half = f.constant("half of 2^15", 1 << (_BITS - 1))
    x_far, y_far = f.core("inputs from the end"), f.core("outputs from the end")
    near, far, total, other = f.cores("numbers", 4)
    f.number(other, 4 * count)
    f("add", x_far, x, other)
    f("add", y_far, y, other)
    add, subtract = ("sadd16", "ssub16") if inverse else ("shadd16", "shsub16")
    with f.repeated("numbers", count // 2):
        f("ldr", near, f"[{x}, #4]!")
        f("ldr", far, f"[{x_far}, #-4]!")
        at.divide(near)
        f("mov", other, "#0")
        f("ssub16", total, other, far)
        f("pkhbt", far, far, total, note="its conjugate")
        at.divide(far)
        f("sadd16", total, near, far)
        f("ssub16", near, near, far)
        f("ldr", other, f"[{halves}], #4")
        at.turn(near, other, half)
        f(add, other, total, near)
        f("str", other, f"[{y}, #4]!")
        f(subtract, other, total, near)
        f(subtract, total, near, total)
        f("pkhbt", other, other, total, note="the conjugate of the difference")
        f("str", other, f"[{y_far}, #-4]!")
    return f.done()
