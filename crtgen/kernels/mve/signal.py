"""Samples, energies and bands of the signal library with Helium."""

import numpy as np

from crtgen.ir import Signature
from crtgen.kernels.asm import EVEN, ODD, Function, Routine
from crtgen.kernels.cost import Work
from crtgen.kernels.kernel import Const, InPlace, Kernel, Target
from crtgen.kernels.registry import design
from crtgen.ops.signal import FftAutoScale, FilterBank, SpectrumEnergy, Window

__all__ = ["auto_scale", "energy", "filter_bank", "window"]

_VECTOR, _WORDS = 16, 4


def _alone(name: str, routine: Routine, *consts: Const, inplace: bool = True, **rounds: float) -> Kernel:
    """A kernel that is one function in assembly."""
    return Kernel(
        design=f"mve {name}",
        template="",
        view=routine,
        consts=consts,
        inplace=(InPlace(),) if inplace else (),
        work=Work(routine.runs(**rounds)),
        routines=(routine,),
    )


@design(Window, needs="mve", weights=(1,))
def window(op: Window, sig: Signature, target: Target) -> Kernel:
    """Eight products at a time. VQSHRN would shift as it narrows, but GNU as 2.40 makes VQRSHRN of it."""
    period = sig.inputs[1].elements
    f = Function(
        "window",
        "const int16_t *x",
        "int16_t *y",
        "const int16_t *weights",
        apart=True,
        purpose=f"{sig.x.elements} products with {period} weights, shifted by {op.shift}.",
    )
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
    return _alone("window", f.done(), Const.of("weights", sig.inputs[1].array(), 4))


@design(FftAutoScale, needs="mve")
def auto_scale(op: FftAutoScale, sig: Signature, target: Target) -> Kernel:
    """The greatest of eight at a time, then eight are shifted."""
    f = Function(
        "auto_scale",
        "const int16_t *x",
        "int16_t *y",
        "int32_t *bits",
        apart=True,
        purpose=f"{sig.x.elements} samples.",
    )
    x, y, bits = f.arguments
    most, at = f.core("the greatest", EVEN), f.core("samples")
    a = f.vector("samples")
    f("mov", at, x)
    f.number(most, 0)
    with f.predicated_loop("greatest", 16, sig.x.elements):
        f("vldrh.s16", a, f"[{at}], #{_VECTOR}")
        f("vmaxav.s16", most, a)
    f("clz", at, most, note="32 of none")
    f("cmp", most, "#0")
    f("it", "eq")
    f("moveq", at, "#17")
    f("subs", at, at, "#17")
    f("it", "mi")
    f("movmi", at, "#0")
    f("str", at, f"[{bits}]")
    with f.predicated_loop("shifted", 16, sig.x.elements):
        f("vldrh.s16", a, f"[{x}], #{_VECTOR}")
        f("vshl.s16", a, at)
        f("vstrh.16", a, f"[{y}], #{_VECTOR}")
    return _alone("auto scale", f.done())


@design(SpectrumEnergy, needs="mve")
def energy(op: SpectrumEnergy, sig: Signature, target: Target) -> Kernel:
    """Four sums of two squares at a time, zeros around them."""
    f = Function(
        "energy",
        "const int16_t *x",
        "uint32_t *y",
        apart=True,
        purpose=f"Energies of numbers {op.start} to {op.end}, of {sig.y.elements}.",
    )
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
    return _alone("energy", f.done())


@design(FilterBank, needs="mve", weights=(1, 2, 3, 4, 5))
def filter_bank(op: FilterBank, sig: Signature, target: Target) -> Kernel | None:
    """Four products of 64 bits at a time, for two channels; None for weights below zero."""
    weights, unweights, first, starts, widths = (v.array().astype(np.int64) for v in sig.inputs[1:])
    if min(int(weights.min()), int(unweights.min())) < 0:
        return None
    stream = []
    for start, width in zip(starts, widths, strict=True):
        vectors = -(-int(width) // _WORDS)
        both = np.zeros((2, vectors * _WORDS), np.uint16)
        both[:, :width] = weights[start : start + width], unweights[start : start + width]
        stream.append(both.reshape(2, vectors, _WORDS).transpose(1, 0, 2).ravel())
    groups = np.stack([4 * first, widths], axis=1).astype(np.uint16)
    each = [-(-int(width) // _WORDS) for width in widths]
    routine = _filter_bank(op.channels)
    return _alone(
        "filter bank",
        routine,
        Const.of("groups", groups.ravel(), 2, "bytes to the first energy, how many"),
        Const.of("factors", np.concatenate(stream), 2, "four weights, then four of the next channel"),
        inplace=False,
        first=each[0],
        vectors=float(np.mean(each[1:])),
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
    own, following = ((f.core("sum", EVEN), f.core("its upper half", ODD)) for _ in range(2))
    at, count, left = f.cores("energies; how many; channels left", 3)
    energies, weights = f.vectors("energies, weights", 2)

    def group(rounds: str) -> None:
        f("ldrh", at, f"[{groups}], #2")
        f("ldrh", count, f"[{groups}], #2")
        f("add", at, at, x)
        for half in following:
            f("mov", half, "#0")
        with f.predicated_while("energies", 32, rounds, count):
            f("vldrw.u32", energies, f"[{at}], #{_VECTOR}")
            for total in (own, following):
                f("vldrh.u32", weights, f"[{factors}], #8")
                f("vmlaldava.u32", *total, energies, weights)

    for half in own:
        f("mov", half, "#0")
    group("first")
    f.number(left, channels)
    with f.loop("channels", channels) as again:
        for to, half in zip(own, following, strict=True):
            f("mov", to, half)
        group("vectors")
        f("strd", *own, f"[{y}], #8")
        f("subs", left, left, "#1")
        f("bne", again)
    return f.done()
