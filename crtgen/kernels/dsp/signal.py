"""Samples, energies and bands of the signal library with the DSP extension: two samples are a word."""

from collections.abc import Callable

import numpy as np

from crtgen.ir import Signature
from crtgen.kernels.asm import LISTED, Function, Routine
from crtgen.kernels.cost import Work
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.ops.signal import FftAutoScale, FilterBank, SpectrumEnergy, Window

__all__ = ["auto_scale", "energy", "filter_bank", "window"]

_WORDS = 4


def _alone(name: str, routine: Routine, *consts: Const, inplace: bool = True, **rounds: float) -> Kernel:
    """A kernel that is one function in assembly."""
    return Kernel(
        design=f"dsp {name}",
        template="",
        view=routine,
        consts=consts,
        inplace=(InPlace(),) if inplace else (),
        work=Work(routine.runs(**rounds)),
        routines=(routine,),
    )


def _list(registers: tuple[str, ...]) -> str:
    return f"{{{', '.join(registers)}}}"


def _by_fours(f: Function, meaning: str, words: int, step: Callable[[int], None]) -> None:
    """``step`` for four words at a time, then for those that are left."""
    rounds, rest = divmod(words, _WORDS)
    if rounds:
        with f.repeated(meaning, rounds):
            step(_WORDS)
    if rest:
        step(rest)


@design(Window, needs="dsp", weights=(1,))
def window(op: Window, sig: Signature, target: Target) -> Kernel | None:
    """Two products for a word; None for an odd number of weights."""
    period = sig.inputs[1].elements
    if period % 2:
        return None
    f = Function(
        "window",
        "const int16_t *x",
        "int16_t *y",
        "const int16_t *weights",
        purpose=f"{sig.x.elements} products with {period} weights, shifted by {op.shift}.",
        keep=(2,) if sig.x.elements > period else (),
    )
    x, y, weights = f.arguments
    samples, factors = f.cores("samples", _WORDS, LISTED), f.cores("weights", _WORDS, LISTED)
    low = f.core("a product")
    shift = (f"asr #{op.shift}",) if op.shift else ()

    def products(words: int) -> None:
        f("ldm", f"{x}!", _list(samples[:words]))
        f("ldm", f"{weights}!", _list(factors[:words]))
        for a, w in zip(samples[:words], factors[:words], strict=True):
            f("smulbb", low, a, w)
            f("smultt", a, a, w)
            f("ssat", low, "#16", low, *shift)
            f("ssat", a, "#16", a, *shift)
            f("pkhbt", a, low, a, "lsl #16")
        f("stm", f"{y}!", _list(samples[:words]))

    rows = sig.x.elements // period
    with f.repeated("rows", rows):
        if rows > 1:
            f("ldr", weights, f.kept[2])
        _by_fours(f, "samples", period // 2, products)
    return _alone("window", f.done(), Const.of("weights", sig.inputs[1].array(), 4))


@design(FftAutoScale, needs="dsp")
def auto_scale(op: FftAutoScale, sig: Signature, target: Target) -> Kernel | None:
    """The greatest and the least of two at a time, then both are shifted; None for an odd number."""
    if sig.x.elements % 2:
        return None
    f = Function(
        "auto_scale", "const int16_t *x", "int16_t *y", "int32_t *bits", purpose=f"{sig.x.elements} samples."
    )
    x, y, bits = f.arguments
    samples = f.cores("samples", _WORDS, LISTED)
    at, most, least, spare = f.cores("samples; the greatest; the least; a number", 4)
    f("mov", at, x)
    f("mov", most, "#0")
    f("mov", least, "#0")

    def extremes(words: int) -> None:
        f("ldm", f"{at}!", _list(samples[:words]))
        for a in samples[:words]:
            f("ssub16", spare, a, most)
            f("sel", most, a, most)
            f("ssub16", spare, least, a)
            f("sel", least, a, least)

    _by_fours(f, "extremes", sig.x.elements // 2, extremes)
    _shift_of(f, (most, least, spare), bits)

    def shifted(words: int) -> None:
        f("ldm", f"{x}!", _list(samples[:words]))
        for a in samples[:words]:
            f("smulbb", spare, a, most)
            f("smultb", a, a, most)
            f("pkhbt", a, spare, a, "lsl #16")
        f("stm", f"{y}!", _list(samples[:words]))

    _by_fours(f, "shifted", sig.x.elements // 2, shifted)
    return _alone("auto scale", f.done())


def _shift_of(f: Function, numbers: tuple[str, str, str], bits: str) -> None:
    """Stores by how many bits samples are shifted; the first of ``numbers`` becomes the factor of that."""
    most, least, spare = numbers
    f("sxth", spare, most)
    f("asr", most, most, "#16")
    f("cmp", spare, most)
    f("it", "gt")
    f("movgt", most, spare)
    f("sxth", spare, least)
    f("asr", least, least, "#16")
    f("cmp", spare, least)
    f("it", "lt")
    f("movlt", least, spare)
    f("rsb", least, least, "#0")
    f("cmp", least, most)
    f("it", "gt")
    f("movgt", most, least)
    f("clz", spare, most)
    f("cmp", most, "#0")
    f("it", "eq")
    f("moveq", spare, "#17")
    f("subs", spare, spare, "#17")
    f("it", "mi")
    f("movmi", spare, "#0")
    f("str", spare, f"[{bits}]")
    f("mov", most, "#1")
    f("lsl", most, most, spare)


@design(SpectrumEnergy, needs="dsp")
def energy(op: SpectrumEnergy, sig: Signature, target: Target) -> Kernel:
    """A product of a word with itself is both squares."""
    f = Function(
        "energy",
        "const int16_t *x",
        "uint32_t *y",
        purpose=f"Energies of numbers {op.start} to {op.end}, of {sig.y.elements}.",
    )
    x, y = f.arguments
    numbers = f.cores("numbers", _WORDS, LISTED)

    def squares(words: int) -> None:
        f("ldm", f"{x}!", _list(numbers[:words]))
        for number in numbers[:words]:
            f("smuad", number, number, number)
        f("stm", f"{y}!", _list(numbers[:words]))

    def zeros(count: int) -> None:
        if count:
            for number in numbers:
                f("mov", number, "#0")
            _by_fours(f, "zeros", count, lambda words: f("stm", f"{y}!", _list(numbers[:words])))

    zeros(op.start)
    f.advance(x, 4 * op.start)
    _by_fours(f, "squares", op.end - op.start, squares)
    zeros(sig.y.elements - op.end)
    return _alone("energy", f.done())


@design(FilterBank, needs="dsp", weights=(1, 2, 3, 4, 5))
def filter_bank(op: FilterBank, sig: Signature, target: Target) -> Kernel | None:
    """Two sums of 64 bits, weights of both side by side; None for weights below zero."""
    weights, unweights, first, starts, widths = (v.array().astype(np.int64) for v in sig.inputs[1:])
    if min(int(weights.min()), int(unweights.min())) < 0:
        return None
    places = np.concatenate([np.arange(s, s + n) for s, n in zip(starts, widths, strict=True)])
    factors = np.stack([weights[places], unweights[places]], axis=1).astype(np.uint16)
    groups = np.stack([4 * first, widths], axis=1).astype(np.uint16)
    return _alone(
        "filter bank",
        _filter_bank(op.channels),
        Const.of("groups", groups.ravel(), 2, "bytes to the first energy, how many"),
        Const.of("factors", factors.ravel(), 2, "a weight, that of the next channel"),
        inplace=False,
        first=float(widths[0]),
        energies=float(np.mean(widths[1:])),
    )


def _filter_bank(channels: int) -> Routine:
    f = Function(
        "filter_bank",
        "const uint32_t *x",
        "uint64_t *y",
        "const uint16_t *groups",
        "const uint16_t *factors",
        purpose=f"Weighted sums of energies for {channels} channels.",
    )
    x, y, groups, factors = f.arguments
    own, following = f.cores("sum", 2), f.cores("sum of the next channel", 2)
    at, count, left = f.cores("energies; how many; channels left", 3)
    energy, weight = f.cores("an energy, a weight", 2)

    def group(rounds: str) -> None:
        f("ldrh", at, f"[{groups}], #2")
        f("ldrh", count, f"[{groups}], #2")
        f("add", at, at, x)
        for half in following:
            f("mov", half, "#0")
        end = f.label(f"no_{rounds}")
        f("cmp", count, "#0")
        f("beq", end)
        with f.loop(rounds, rounds) as again:
            f("ldr", energy, f"[{at}], #4")
            for total in (own, following):
                f("ldrh", weight, f"[{factors}], #2")
                f("umlal", *total, energy, weight)
            f("subs", count, count, "#1")
            f("bne", again)
        f.place(end)

    for half in own:
        f("mov", half, "#0")
    group("first")
    f.number(left, channels)
    with f.loop("channels", channels) as next_channel:
        for to, half in zip(own, following, strict=True):
            f("mov", to, half)
        group("energies")
        f("strd", *own, f"[{y}], #8")
        f("subs", left, left, "#1")
        f("bne", next_channel)
    return f.done()
