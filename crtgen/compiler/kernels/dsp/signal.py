"""Samples, energies and bands of the signal library with the DSP extension, with two samples per word."""

import numpy as np

from crtgen.compiler.kernels.asm import LISTED, Function, Routine, listed
from crtgen.compiler.kernels.engine.kernel import Const, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.shared.signal_asm import (
    Bank,
    BankWeights,
    auto_scale_function,
    bank_function,
    energy_function,
    store_shift,
    window_function,
)
from crtgen.compiler.kernels.shared.single_routine import single_routine
from crtgen.network.ir import Signature
from crtgen.network.ops.signal import FftAutoScale, FilterBank, SpectrumEnergy, Window

__all__ = ["auto_scale", "energy", "filter_bank", "window"]

_WORDS = 4


@design(Window, needs="dsp", weights=(1,))
def window(op: Window, sig: Signature, target: Target) -> Kernel | None:
    """Apply a window, two products per word; None for an odd number of weights."""
    period = sig.inputs[1].elements
    if period % 2:
        return None
    f = window_function(op, sig, keep=(2,) if sig.x.elements > period else ())
    x, y, weights = f.arguments
    samples, factors = f.cores("samples", _WORDS, LISTED), f.cores("weights", _WORDS, LISTED)
    low = f.core("a product")
    shift = (f"asr #{op.shift}",) if op.shift else ()

    def products(words: int) -> None:
        f("ldm", f"{x}!", listed(samples[:words]))
        f("ldm", f"{weights}!", listed(factors[:words]))
        for a, w in zip(samples[:words], factors[:words], strict=True):
            f("smulbb", low, a, w)
            f("smultt", a, a, w)
            f("ssat", low, "#16", low, *shift)
            f("ssat", a, "#16", a, *shift)
            f("pkhbt", a, low, a, "lsl #16")
        f("stm", f"{y}!", listed(samples[:words]))

    rows = sig.x.elements // period
    with f.repeated("rows", rows):
        if rows > 1:
            f("ldr", weights, f.kept[2])
        f.rounds("samples", period // 2, _WORDS, products)
    table = Const.of("weights", sig.inputs[1].array(), 4)
    return single_routine("dsp window", f.done(), [table], inplace=True)


@design(FftAutoScale, needs="dsp")
def auto_scale(op: FftAutoScale, sig: Signature, target: Target) -> Kernel | None:
    """Find the maximum and minimum of two values at a time, then shift both; None for an odd number of
    values.
    """
    if sig.x.elements % 2:
        return None
    f = auto_scale_function(sig)
    x, y, bits = f.arguments
    samples = f.cores("samples", _WORDS, LISTED)
    at, most, least, spare = f.cores("samples; the greatest; the least; a number", 4)
    f("mov", at, x)
    f("mov", most, "#0")
    f("mov", least, "#0")

    def extremes(words: int) -> None:
        f("ldm", f"{at}!", listed(samples[:words]))
        for a in samples[:words]:
            f("ssub16", spare, a, most)
            f("sel", most, a, most)
            f("ssub16", spare, least, a)
            f("sel", least, a, least)

    f.rounds("extremes", sig.x.elements // 2, _WORDS, extremes)
    _shift_of(f, (most, least, spare), bits)

    def shifted(words: int) -> None:
        f("ldm", f"{x}!", listed(samples[:words]))
        for a in samples[:words]:
            f("smulbb", spare, a, most)
            f("smultb", a, a, most)
            f("pkhbt", a, spare, a, "lsl #16")
        f("stm", f"{y}!", listed(samples[:words]))

    f.rounds("shifted", sig.x.elements // 2, _WORDS, shifted)
    return single_routine("dsp auto scale", f.done(), inplace=True)


def _shift_of(f: Function, numbers: tuple[str, str, str], bits: str) -> None:
    # Stores by how many bits samples are shifted; the first of ``numbers`` becomes the factor of that.
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
    store_shift(f, spare, most, bits)
    f("mov", most, "#1")
    f("lsl", most, most, spare)


@design(SpectrumEnergy, needs="dsp")
def energy(op: SpectrumEnergy, sig: Signature, target: Target) -> Kernel:
    """Compute energies: the product of a word with itself (SMUAD) is the sum of both squares."""
    f = energy_function(op, sig)
    x, y = f.arguments
    numbers = f.cores("numbers", _WORDS, LISTED)

    def squares(words: int) -> None:
        f("ldm", f"{x}!", listed(numbers[:words]))
        for number in numbers[:words]:
            f("smuad", number, number, number)
        f("stm", f"{y}!", listed(numbers[:words]))

    def zeros(count: int) -> None:
        if count:
            for number in numbers:
                f("mov", number, "#0")
            f.rounds("zeros", count, _WORDS, lambda words: f("stm", f"{y}!", listed(numbers[:words])))

    zeros(op.start)
    f.advance(x, 4 * op.start)
    f.rounds("squares", op.end - op.start, _WORDS, squares)
    zeros(sig.y.elements - op.end)
    return single_routine("dsp energy", f.done(), inplace=True)


@design(FilterBank, needs="dsp", weights=(1, 2, 3, 4, 5))
def filter_bank(op: FilterBank, sig: Signature, target: Target) -> Kernel | None:
    """Filter banks with two 64-bit sums, whose weights are interleaved; None for negative weights."""
    bank = BankWeights.of(sig)
    if bank is None:
        return None
    widths = bank.widths
    places = np.concatenate([np.arange(s, s + n) for s, n in zip(bank.starts, widths, strict=True)])
    both = np.stack([bank.weights[places], bank.unweights[places]], axis=1).astype(np.uint16)
    factors = Const.of("factors", both.ravel(), 2, "a weight, that of the next channel")
    return single_routine(
        "dsp filter bank",
        _filter_bank(op.channels),
        [bank.groups, factors],
        first=float(widths[0]),
        energies=float(np.mean(widths[1:])),
    )


def _filter_bank(channels: int) -> Routine:
    f = bank_function(channels)
    own = f.core("sum"), f.core("sum")
    following = f.core("sum of the next channel"), f.core("sum of the next channel")
    bank = Bank(f, own, following)
    energy, weight = f.cores("an energy, a weight", 2)

    def products(rounds: str) -> None:
        end = f.label(f"no_{rounds}")
        f("cmp", bank.count, "#0")
        f("beq", end)
        with f.loop(rounds, rounds) as again:
            f("ldr", energy, f"[{bank.at}], #4")
            for total in (own, following):
                f("ldrh", weight, f"[{bank.factors}], #2")
                f("umlal", *total, energy, weight)
            f("subs", bank.count, bank.count, "#1")
            f("bne", again)
        f.place(end)

    return bank.channels(channels, products, "energies")
