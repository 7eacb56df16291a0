"""The FPU's features, and the final steps of sums: clamp and store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from crtgen.compiler.kernels.asm import LISTED, Function, listed
from crtgen.compiler.kernels.engine.kernel import Target
from crtgen.compiler.kernels.engine.words import bits_of
from crtgen.network.ops import Activation

__all__ = ["Clamp", "FloatLimits", "FloatUnit", "add_products", "cut", "listed"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FloatUnit:
    """Features of an FPU. ``fused``: VFMA multiplies and adds in one instruction. ``fpv5``: it has VMAXNM and
    VMINNM.
    """

    fused: bool
    fpv5: bool

    @classmethod
    def of(cls, target: Target) -> "FloatUnit":
        """Return the FPU of the target. Fused instructions halve the code, but on M4 and M33 they are slower
        than two separate ones.
        """
        return cls(target.core.fast_fma or target.flag == "-Os", target.core.fpv5)


@dataclass(frozen=True, slots=True)
class FloatLimits:
    low: float
    high: float

    @classmethod
    def of(cls, activation: Activation) -> "FloatLimits":
        return cls(*activation.float_range())


def cut(items: Sequence[_T], count: int) -> list[Sequence[_T]]:
    return [items[start : start + count] for start in range(0, len(items), count)]


def add_products(
    f: Function,
    unit: FloatUnit,
    sums: Sequence[str],
    inputs: Sequence[str],
    weights: Sequence[str],
    products: Sequence[str],
) -> None:
    """Append ``sums += inputs * weights``; ``products`` are registers for products that are not fused."""
    if unit.fused:
        for total, x, weight in zip(sums, inputs, weights, strict=True):
            f("vfma.f32", total, x, weight)
        return
    for product, x, weight in zip(products, inputs, weights, strict=True):
        f("vmul.f32", product, x, weight)
    for total, product in zip(sums, products, strict=True):
        f("vadd.f32", total, total, product)


class Clamp:
    """Clamps sums and stores them. ``spare`` are two FPU registers for the limits.

    An FPU without VMAXNM clamps at 0 in general registers: it uses ``at_once`` of them for sums, and one for
    an upper limit.
    """

    def __init__(
        self, f: Function, unit: FloatUnit, limits: FloatLimits, spare: Sequence[str], at_once: int = 8
    ) -> None:
        self.f = f
        self.at_once = at_once
        self.unit = unit
        self.finite = [(n, x) for n, x in enumerate((limits.low, limits.high)) if np.isfinite(x)]
        self.limits = dict(zip((n for n, _ in self.finite), spare, strict=False))
        self.of_bits = not unit.fpv5 and limits.low == 0

    def begin(self) -> None:
        if self.of_bits:
            return
        for number, limit in self.finite:
            bits = self.f.constant("a limit", bits_of(limit))
            self.f("vmov", self.limits[number], bits)
            self.f.free(bits)

    def store(self, sums: Sequence[str], y: str) -> None:
        if self.of_bits:
            for some in cut(sums, self.at_once):
                self._bits(some, y)
            return
        for number, limit in self.limits.items():
            for total in sums:
                if self.unit.fpv5:
                    self.f(("vmaxnm.f32", "vminnm.f32")[number], total, total, limit)
                else:
                    self._compare(total, limit, ("mi", "gt")[number])
        self.f("vstmia", f"{y}!", listed(sums))

    def _compare(self, total: str, limit: str, beyond: str) -> None:
        self.f("vcmp.f32", total, limit)
        self.f("vmrs", "APSR_nzcv", "fpscr")
        self.f("it", beyond)
        self.f(f"vmov{beyond}.f32", total, limit)

    def _bits(self, sums: Sequence[str], y: str) -> None:
        # Compared as integers, which have the same order as floats that are not negative.
        f, outputs = self.f, self.f.cores("outputs", len(sums), LISTED)
        pairs = list(zip(outputs[::2], outputs[1::2], sums[::2], sums[1::2], strict=False))
        for pair in pairs:
            f("vmov", *pair)
        if len(sums) % 2:
            f("vmov", outputs[-1], sums[-1])
        for output in outputs:
            f("bic", output, output, output, "asr #31")
        if len(self.finite) > 1:
            limit = f.constant("the limit", bits_of(self.finite[1][1]))
            for output in outputs:
                f("cmp", output, limit)
                f("it", "gt")
                f("movgt", output, limit)
            f.free(limit)
        if len(outputs) > 1:
            f("stm", f"{y}!", listed(outputs))
        else:
            f("str", outputs[0], f"[{y}], #4")
        f.free(*outputs)
