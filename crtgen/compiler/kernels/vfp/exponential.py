"""Exponentials of float32 on an FPU, four at a time.

The problem: a polynomial for ``e^r`` with ``|r| <= ln(2) / 2`` needs six terms, 24 instructions. The idea,
which is that of most C libraries: ``e^x = 2^(n / 64) e^r`` with ``n`` the integer nearest to ``64 x / ln 2``.
Then r is 64 times as small, and ``1 + r (a + b r)`` is exact to a ninth of the last bit.

Adding 1.5 * 2^23 rounds a float to an integer, which is then in its low bits. The table has, for each ``j``,
the bits of ``2^(j / 64)`` minus ``j << 17``. Adding ``n << 17`` to the entry of ``n mod 64`` leaves the
exponent ``n div 64`` above these bits, with no shift and no mask. For x = 1:

    64 / ln 2 = 92.33, so n = 92 = 64 + 28, and r = 1 - 92 ln(2) / 64 = 0.00360
    2^(28 / 64) = 1.354256, doubled 2.708511, times 1 + r (a + b r) = 1.003607, = 2.718282

This holds for exponents of normal numbers. Four inputs are checked at once: their upper halves without the
sign must be below that of 87. If one is not, the four run one by one, as do the last elements: limited to the
range -104 to 89 and multiplied by two powers of two, so that denormal numbers, 0 and infinity are right. NaN
becomes 0, as in ``crt_expf``. The result is within 1.5 ulp: all floats were compared with float64 once.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import log

import numpy as np

from crtgen.compiler.kernels.asm import LISTED, Function, Routine, listed
from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import bits_of
from crtgen.compiler.kernels.shared.powers import FEWEST, HIGHEST, LOWEST
from crtgen.compiler.kernels.vfp.unit import FloatUnit
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Exp

__all__ = ["AT_ONCE", "PowerWriter", "exponential"]

AT_ONCE = 4
_PARTS = 64
_BITS = 6  # of a part
_ABOVE = 23 - _BITS
_MAGIC = 1.5 * 2**23
_NEAR = 0x42AD  # the largest upper half of floats below 87
_STEP = log(2) / _PARTS
_HIGH = round(_STEP * 2**17) / 2**17  # products with n are exact
_LINE, _CURVE = 1.00000367, 0.50000019  # e^r - 1 is about r (_LINE + _CURVE r)


@design(Exp, types=(DType.FLOAT32,), needs="vfp")
def exponential(op: Exp, sig: Signature, target: Target) -> Kernel | None:
    if sig.x.elements < FEWEST:
        return None
    few = sig.x.elements % AT_ONCE
    routine = _exponential(sig.x.elements, FloatUnit.of(target).fused)
    return Kernel(
        design="vfp exp",
        template="",
        view=None,
        inplace=(InPlace(),),
        work=Work(routine.runs(beyond=0, ones=few, ends=int(few > 0))),
        routines=(routine,),
    )


def _entries() -> Sequence[int]:
    powers = (2 ** (np.arange(_PARTS) / _PARTS)).astype(np.float32).view(np.uint32)
    return [int(power) - (part << _ABOVE) for part, power in enumerate(powers)]


@lru_cache(maxsize=256)
def _exponential(elements: int, fused: bool) -> Routine:
    f = Function("exp", "const float *x", "float *y", purpose=f"The powers of {elements} numbers.")
    PowerWriter(f, fused).all(elements)
    return f.done()


class PowerWriter:
    def __init__(self, f: Function, fused: bool) -> None:
        self.f, self.fused = f, fused
        self.x, self.y = f.arguments
        self.words = f.cores("bits of elements; n; powers of two", AT_ONCE, LISTED)
        self.entries, self.near, self.end, self.left = f.cores("table; limit; end of fours; left", 4)
        self.spare = f.cores("parts of n, entries", 2)
        self.rest = f.singles("elements, then r", AT_ONCE)
        self.whole = f.singles("n, then sums", AT_ONCE)
        self.power = f.singles("products, then powers of two", AT_ONCE)
        high = float(np.float32(_HIGH))
        numbers = (_PARTS / log(2), _MAGIC, high, _STEP - high, _CURVE, _LINE)
        names = f.singles("numbers", len(numbers))
        self.factor, self.magic, *self.parts, self.curve, self.line = names
        for register, value in zip(names, numbers, strict=True):
            f.number(self.near, bits_of(value))
            f("vmov", register, self.near)
        f.number(self.near, _NEAR * 0x10001)
        f.table("powers", _entries())(self.entries)

    def all(self, elements: int) -> None:
        f, (rounds, few) = self.f, divmod(elements, AT_ONCE)
        begin, go_on, done = (f.label(name) for name in ("begin", "next", "done"))
        f.add(self.end, self.y, 4 * AT_ONCE * rounds)
        f("b", begin)
        with f.loop("beyond", "beyond") as beyond:
            f("sub", self.x, self.x, f"#{4 * AT_ONCE}")
            f.number(self.left, AT_ONCE)
        with f.loop("one by one", "ones") as ones:
            self._one()
            f("subs", self.left, self.left, "#1")
            f("bne", ones)
        with f.loop("after these", "ends"):
            f("cmp", self.y, self.end)
            f("bls", go_on)
            f("b", done)
        f.place(begin)
        with f.loop("fours", rounds) as fours:
            f("ldm", self.x, listed(self.words))
            f("vldmia", f"{self.x}!", listed(self.rest))
            self._check()
            f("bne", beyond)
            f("vstmia", f"{self.y}!", listed(self._powers()))
            f.place(go_on)
            f("cmp", self.y, self.end)
            f("bne", fours)
        if few:
            f.number(self.left, few)
            f("b", ones)
        f.place(done)

    def _check(self) -> None:
        # The upper halves of two floats in a word, their signs removed: is one above the limit?
        f, (first, second, third, fourth) = self.f, self.words
        f("pkhtb", first, second, first, "asr #16")
        f("pkhtb", third, fourth, third, "asr #16")
        for pair in (first, third):
            f("bic", pair, pair, "#0x80008000")
        for pair in (first, third):
            f("uqsub16", pair, pair, self.near)
        f("orrs", first, first, third)

    def split(self, count: int) -> None:
        # ``whole`` becomes n, also in ``words``, and ``rest`` becomes r.
        f, rest, whole = self.f, self.rest[:count], self.whole[:count]
        for n, x in zip(whole, rest, strict=True):
            f("vmul.f32", n, x, self.factor)
        for n in whole:
            f("vadd.f32", n, n, self.magic)
        for pair in range(0, count, 2):
            f("vmov", *self.words[:count][pair : pair + 2], *whole[pair : pair + 2])
        for n in whole:
            f("vsub.f32", n, n, self.magic)
        for part in self.parts:
            if self.fused:
                for x, n in zip(rest, whole, strict=True):
                    f("vfms.f32", x, n, part)
                continue
            for product, n in zip(self.power, whole, strict=False):
                f("vmul.f32", product, n, part)
            for x, product in zip(rest, self.power, strict=False):
                f("vsub.f32", x, x, product)

    def correct(self, count: int) -> Sequence[str]:
        # Powers of two times 1 + r (a + b r); returns the registers of the products.
        f, rest, whole, power = self.f, self.rest[:count], self.whole[:count], self.power[:count]
        for total, x in zip(whole, rest, strict=True):
            f("vmul.f32", total, x, self.curve)
        for total in whole:
            f("vadd.f32", total, total, self.line)
        for total, x in zip(whole, rest, strict=True):
            f("vmul.f32", x, total, x)
        if self.fused:
            for x, two in zip(rest, power, strict=True):
                f("vfma.f32", two, two, x)
            return power
        for x, two in zip(rest, power, strict=True):
            f("vmul.f32", x, two, x)
        for x, two in zip(rest, power, strict=True):
            f("vadd.f32", x, two, x)
        return rest

    def _powers(self) -> Sequence[str]:
        self.split(AT_ONCE)
        self.look_up(AT_ONCE)
        return self.correct(AT_ONCE)

    def look_up(self, count: int, vanish: bool = False) -> None:
        """Append the powers of two; with ``vanish``, those of exponents below -127 are 0."""
        f, words = self.f, self.words[:count]
        for pair in range(0, count, 2):
            some = tuple(zip(self.spare, words[pair : pair + 2], strict=False))
            for entry, n in some:
                f("and", entry, n, f"#{_PARTS - 1}")
            for entry, _ in some:
                f("ldr", entry, f"[{self.entries}, {entry}, lsl #2]")
            for entry, n in some:
                f("add", n, entry, n, f"lsl #{_ABOVE}")
            for _, n in some if vanish else ():
                f("bic", n, n, n, "asr #31")
            f("vmov", *self.power[:count][pair : pair + 2], *words[pair : pair + 2])

    def _one(self) -> None:
        # The exponent in two halves, the second one as a factor of its own.
        f, (n, half, *_), (part, entry) = self.f, self.words, self.spare
        x, two = self.rest[0], self.power[0]
        f("vldmia", f"{self.x}!", listed((x,)))
        for limit, beyond in ((LOWEST, "lt"), (HIGHEST, "gt")):
            f.number(n, bits_of(limit))
            f("vmov", two, n)
            f("vcmp.f32", x, two)
            f("vmrs", "APSR_nzcv", "fpscr")
            f("it", beyond)
            f(f"vmov{beyond}.f32", x, two)
        self.split(1)
        f("and", part, n, f"#{_PARTS - 1}")
        f("ldr", entry, f"[{self.entries}, {part}, lsl #2]")
        f("add", entry, entry, part, f"lsl #{_ABOVE}")
        f("sbfx", n, n, f"#{_BITS}", "#10")
        f("asr", half, n, "#1")
        f("add", entry, entry, half, "lsl #23")
        f("vmov", two, entry)
        (power,) = self.correct(1)
        f("sub", n, n, half)
        f("add", n, n, "#127")
        f("lsl", n, n, "#23")
        f("vmov", self.whole[0], n)
        f("vmul.f32", power, power, self.whole[0])
        f("vstmia", f"{self.y}!", listed((power,)))
