"""Samples, energies and bands of the signal library with Helium."""

import numpy as np

from crtgen.compiler.kernels.asm import EVEN, ODD, Routine
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

_VECTOR, _WORDS = 16, 4


@design(Window, needs="mve", weights=(1,))
def window(op: Window, sig: Signature, target: Target) -> Kernel:
    """Compute eight products at a time. VQSHRN would shift as it narrows, but GNU as 2.40 encodes it as
    VQRSHRN.
    """
    period = sig.inputs[1].elements
    f = window_function(op, sig, no_alias=True)
    x, y, weights = f.arguments
    a, w, low = f.vectors("samples, weights, products", 3)
    start = f.core("weights")
    rows = sig.x.elements // period
    if rows > 1:
        f("mov", start, weights)
    with f.repeated("rows", rows):
        with f.predicated_loop("samples", 16, period):
            f("vldrh.s16", a, f"[{x}], #{_VECTOR}")
            f("vldrh.s16", w, f"[{weights}], #{_VECTOR}")
            f("vmullb.s16", low, a, w)
            f("vmullt.s16", w, a, w)
            for products in (low, w):
                if op.shift:
                    f("vshr.s32", products, products, f"#{op.shift}")
            f("vqmovnb.s32", low, low)
            f("vqmovnt.s32", low, w)
            f("vstrh.16", low, f"[{y}], #{_VECTOR}")
        beyond = 2 * (-period % (_VECTOR // 2))
        if rows > 1:
            f("mov", weights, start)
            for pointer in (x, y):
                f.advance(pointer, -beyond)
    table = Const.of("weights", sig.inputs[1].array(), 4)
    return single_routine("mve window", f.done(), [table], inplace=True)


@design(FftAutoScale, needs="mve")
def auto_scale(op: FftAutoScale, sig: Signature, target: Target) -> Kernel:
    """Find the maximum of eight values at a time, then shift eight at a time."""
    f = auto_scale_function(sig, no_alias=True)
    x, y, bits = f.arguments
    most, at = f.core("the greatest", EVEN), f.core("samples")
    a = f.vector("samples")
    f("mov", at, x)
    f.number(most, 0)
    with f.predicated_loop("greatest", 16, sig.x.elements):
        f("vldrh.s16", a, f"[{at}], #{_VECTOR}")
        f("vmaxav.s16", most, a)
    store_shift(f, at, most, bits, note="32 of none")
    with f.predicated_loop("shifted", 16, sig.x.elements):
        f("vldrh.s16", a, f"[{x}], #{_VECTOR}")
        f("vshl.s16", a, at)
        f("vstrh.16", a, f"[{y}], #{_VECTOR}")
    return single_routine("mve auto scale", f.done(), inplace=True)


@design(SpectrumEnergy, needs="mve")
def energy(op: SpectrumEnergy, sig: Signature, target: Target) -> Kernel:
    """Compute four sums of two squares at a time, with zeros before and after them."""
    f = energy_function(op, sig, no_alias=True)
    x, y = f.arguments
    a, b = f.vectors("numbers, squares", 2)
    f.advance(x, 4 * op.start)
    for count, computed in ((op.start, False), (op.end - op.start, True), (sig.y.elements - op.end, False)):
        if count:
            with f.predicated_loop("squares" if computed else "zeros", 32, count):
                if computed:
                    f("vldrh.s16", a, f"[{x}], #{_VECTOR}")
                    f("vmullb.s16", b, a, a)
                    f("vmullt.s16", a, a, a)
                    f("vadd.i32", b, b, a)
                else:
                    f("vmov.i32", b, "#0")
                f("vstrw.32", b, f"[{y}], #{_VECTOR}")
            f.advance(y, -4 * (-count % _WORDS))
    return single_routine("mve energy", f.done(), inplace=True)


@design(FilterBank, needs="mve", weights=(1, 2, 3, 4, 5))
def filter_bank(op: FilterBank, sig: Signature, target: Target) -> Kernel | None:
    """Filter bank with four 64-bit products at a time, for two channels; None for negative weights."""
    bank = BankWeights.of(sig)
    if bank is None:
        return None
    stream = []
    for start, width in zip(bank.starts, bank.widths, strict=True):
        vectors = -(-int(width) // _WORDS)
        both = np.zeros((2, vectors * _WORDS), np.uint16)
        both[:, :width] = bank.weights[start : start + width], bank.unweights[start : start + width]
        stream.append(both.reshape(2, vectors, _WORDS).transpose(1, 0, 2).ravel())
    note = "four weights, then four of the next channel"
    each = [-(-int(width) // _WORDS) for width in bank.widths]
    return single_routine(
        "mve filter bank",
        _filter_bank(op.channels),
        [bank.groups, Const.of("factors", np.concatenate(stream), 2, note)],
        first=each[0],
        vectors=float(np.mean(each[1:])),
    )


def _filter_bank(channels: int) -> Routine:
    f = bank_function(channels)
    own, following = ((f.core("sum", EVEN), f.core("its upper half", ODD)) for _ in range(2))
    bank = Bank(f, own, following)
    energies, weights = f.vectors("energies, weights", 2)

    def products(rounds: str) -> None:
        with f.predicated_while("energies", 32, rounds, bank.count):
            f("vldrw.u32", energies, f"[{bank.at}], #{_VECTOR}")
            for total in (own, following):
                f("vldrh.u32", weights, f"[{bank.factors}], #8")
                f("vmlaldava.u32", *total, energies, weights)

    return bank.channels(channels, products, "vectors")
