"""Common part of the signal library in assembly: frames, and loops that need no extension."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crtgen.compiler.kernels.asm import Function, Routine
from crtgen.compiler.kernels.engine.kernel import Const
from crtgen.network.ir import Signature
from crtgen.network.ops.signal import SpectrumEnergy, Window

__all__ = [
    "Bank",
    "BankWeights",
    "auto_scale_function",
    "bank_function",
    "energy_function",
    "store_shift",
    "window_function",
]

Pair = tuple[str, str]
Whole = npt.NDArray[np.int64]


def window_function(op: Window, sig: Signature, keep: Sequence[int] = (), no_alias: bool = False) -> Function:
    """Begin ``window(x, y, weights)``: products of samples, shifted."""
    return Function(
        "window",
        "const int16_t *x",
        "int16_t *y",
        "const int16_t *weights",
        purpose=f"{sig.x.elements} products with {sig.inputs[1].elements} weights, shifted by {op.shift}.",
        keep=keep,
        no_alias=no_alias,
    )


def auto_scale_function(sig: Signature, no_alias: bool = False) -> Function:
    """Begin ``auto_scale(x, y, bits)``, which shifts samples so that the largest just fits."""
    return Function(
        "auto_scale",
        "const int16_t *x",
        "int16_t *y",
        "int32_t *bits",
        purpose=f"{sig.x.elements} samples.",
        no_alias=no_alias,
    )


def store_shift(f: Function, to: str, most: str, bits: str, note: str = "") -> None:
    """Write the left shift for samples with the largest magnitude ``most`` to the register ``to`` and to
    memory.
    """
    f("clz", to, most, note=note)
    f("cmp", most, "#0")
    f("it", "eq")
    f("moveq", to, "#17")
    f("subs", to, to, "#17")
    f("it", "mi")
    f("movmi", to, "#0")
    f("str", to, f"[{bits}]")


def energy_function(op: SpectrumEnergy, sig: Signature, no_alias: bool = False) -> Function:
    """Begin ``energy(x, y)``: sums of two squares, with zeros before and after them."""
    return Function(
        "energy",
        "const int16_t *x",
        "uint32_t *y",
        purpose=f"Energies of numbers {op.start} to {op.end}, of {sig.y.elements}.",
        no_alias=no_alias,
    )


@dataclass(frozen=True, slots=True)
class BankWeights:
    weights: Whole
    unweights: Whole
    starts: Whole
    widths: Whole
    groups: Const

    @classmethod
    def of(cls, sig: Signature) -> "BankWeights | None":
        """Return the weights of a filter bank; None if any is negative."""
        weights, unweights, first, starts, widths = (v.array().astype(np.int64) for v in sig.inputs[1:])
        if min(int(weights.min()), int(unweights.min())) < 0:
            return None
        table = np.stack([4 * first, widths], axis=1).astype(np.uint16)
        groups = Const.of("groups", table.ravel(), 2, "bytes to the first energy, how many")
        return cls(weights, unweights, starts, widths, groups)


def bank_function(channels: int) -> Function:
    """Begin ``filter_bank(x, y, groups, factors)``: energies times weights, summed in 64 bits."""
    return Function(
        "filter_bank",
        "const uint32_t *x",
        "uint64_t *y",
        "const uint16_t *groups",
        "const uint16_t *factors",
        purpose=f"Weighted sums of energies for {channels} channels.",
    )


class Bank:
    """Iteration over the channels of a filter bank.

    A group of energies is read once: for the sum of its ``own`` channel and for that of the ``following``
    one.
    """

    def __init__(self, f: Function, own: Pair, following: Pair) -> None:
        self.f, self.own, self.following = f, own, following
        self.x, self.y, self.groups, self.factors = f.arguments
        self.at, self.count, self.left = f.cores("energies; how many; channels left", 3)

    def channels(self, number: int, products: Callable[[str], None], rounds: str) -> Routine:
        """Write the routine. ``products`` appends a named loop over ``count`` energies from ``at`` on.

        The loop of the group before all channels is called ``first``, the others ``rounds``.
        """
        f = self.f
        for half in self.own:
            f("mov", half, "#0")
        self._group(products, "first")
        f.number(self.left, number)
        with f.loop("channels", number) as again:
            for to, half in zip(self.own, self.following, strict=True):
                f("mov", to, half)
            self._group(products, rounds)
            f("strd", *self.own, f"[{self.y}], #8")
            f("subs", self.left, self.left, "#1")
            f("bne", again)
        return f.done()

    def _group(self, products: Callable[[str], None], rounds: str) -> None:
        f = self.f
        f("ldrh", self.at, f"[{self.groups}], #2")
        f("ldrh", self.count, f"[{self.groups}], #2")
        f("add", self.at, self.at, self.x)
        for half in self.following:
            f("mov", half, "#0")
        products(rounds)
