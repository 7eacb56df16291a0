"""Softmax of float32 on an FPU: the greatest of a row, powers and their sum, products with its reciprocal.

Exponents are at most 0, so none is too large. Those below -104 count as -104, by a comparison of their bits,
which have the order of magnitudes; powers below the least normal number are 0, or as small as that.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from crtgen.compiler.kernels.asm import Function, Routine, listed
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import bits_of
from crtgen.compiler.kernels.shared.powers import FEWEST, LOWEST, reciprocal_of_sum
from crtgen.compiler.kernels.shared.single_routine import single_routine
from crtgen.compiler.kernels.vfp.exponential import AT_ONCE, PowerWriter
from crtgen.compiler.kernels.vfp.unit import FloatUnit
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Softmax

__all__ = ["float_softmax"]


@design(Softmax, types=(DType.FLOAT32,), needs="vfp")
def float_softmax(op: Softmax, sig: Signature, target: Target) -> Kernel | None:
    depth = sig.x.shape[-1]
    if sig.x.elements < FEWEST or depth < AT_ONCE:
        return None
    routine = _rows(sig.x.elements // depth, depth, op.beta, FloatUnit.of(target))
    return single_routine("vfp softmax float", routine, inplace=True)


@lru_cache(maxsize=256)
def _rows(rows: int, depth: int, beta: float, unit: FloatUnit) -> Routine:
    f = Function("softmax", "const float *x", "float *y", purpose=f"Softmax of {rows} rows of {depth}.")
    _SoftmaxWriter(f, depth, beta, unit).rows(rows)
    return f.done()


class _SoftmaxWriter:
    def __init__(self, f: Function, depth: int, beta: float, unit: FloatUnit) -> None:
        self.f, self.depth, self.unit = f, depth, unit
        self.powers = powers = PowerWriter(f, unit.fused)
        self.x, self.y, self.rest = powers.x, powers.y, powers.rest
        self.limit = powers.near
        self.greatest, self.beta = f.singles("the greatest; beta", 2)
        self.sums = f.singles("sums", AT_ONCE)
        self.scaled = beta != 1
        if self.scaled:
            f.number(self.limit, bits_of(beta))
            f("vmov", self.beta, self.limit)
        f.number(self.limit, bits_of(LOWEST))

    def rows(self, count: int) -> None:
        f, left = self.f, self.powers.left
        if count == 1:
            self._row()
            return
        with f.counted_loop("rows", left, count):
            self._row()

    def _row(self) -> None:
        f, spare = self.f, self.powers.spare[0]
        f("vldr", self.greatest, f"[{self.x}]")
        self._each("greatest", self._compare)
        f.advance(self.x, -4 * self.depth, spare)
        f.number(spare, 0)
        for total in self.sums:
            f("vmov", total, spare)
        self._each("sums", self._add)
        f.advance(self.y, -4 * self.depth, spare)
        reciprocal_of_sum(f, self.sums, spare)
        self._each("shares", self._share)

    def _each(self, meaning: str, some: Callable[[Sequence[str]], None]) -> None:
        # Four elements at a time, then one by one.
        f, counter = self.f, self.powers.end
        for count, at_once in ((self.depth // AT_ONCE, AT_ONCE), (self.depth % AT_ONCE, 1)):
            if count == 1:
                some(self.rest[:at_once])
            elif count:
                with f.counted_loop(meaning, counter, count):
                    some(self.rest[:at_once])

    def _compare(self, rest: Sequence[str]) -> None:
        f = self.f
        f("vldmia", f"{self.x}!", listed(rest))
        for x in rest:
            if self.unit.fpv5:
                f("vmaxnm.f32", self.greatest, self.greatest, x)
                continue
            f("vcmp.f32", self.greatest, x)
            f("vmrs", "APSR_nzcv", "fpscr")
            f("it", "mi")
            f("vmovmi.f32", self.greatest, x)

    def _add(self, rest: Sequence[str]) -> None:
        f, count, words = self.f, len(rest), self.powers.words[: len(rest)]
        f("vldmia", f"{self.x}!", listed(rest))
        for x in rest:
            f("vsub.f32", x, x, self.greatest)
        for x in rest if self.scaled else ():
            f("vmul.f32", x, x, self.beta)
        for pair in range(0, count, 2):
            f("vmov", *words[pair : pair + 2], *rest[pair : pair + 2])
        for word in words:
            f("cmp", word, self.limit)
            f("it", "hi")
            f("movhi", word, self.limit)
        for pair in range(0, count, 2):
            f("vmov", *rest[pair : pair + 2], *words[pair : pair + 2])
        self.powers.split(count)
        self.powers.look_up(count, vanish=True)
        results = self.powers.correct(count)
        f("vstmia", f"{self.y}!", listed(results))
        for total, power in zip(self.sums, results, strict=False):
            f("vadd.f32", total, total, power)

    def _share(self, rest: Sequence[str]) -> None:
        f = self.f
        f("vldmia", self.y, listed(rest))
        for y in rest:
            f("vmul.f32", y, y, self.sums[0])
        f("vstmia", f"{self.y}!", listed(rest))
