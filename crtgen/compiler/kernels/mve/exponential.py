"""Exponentials of float32 with Helium, four at a time.

``e^x = 2^n e^r`` with ``n`` the integer nearest to ``x / ln 2``; ``e^r`` is the polynomial of ``crt_expf``.
The exponent ``n`` is added to the bits of ``e^r`` as an integer. Since x is first limited to the range -104
to 89, the sum stays within 32 bits: below 0 it means a power that is too small for a normal number and
becomes 0, beyond infinity it becomes infinity. Helium replaces denormal numbers by 0, so nothing is lost. NaN
becomes 0, as in ``crt_expf``. The result is within 1 ulp, since each step of the polynomial is rounded once.
"""

from crtgen.compiler.kernels.asm import Function
from crtgen.compiler.kernels.engine.kernel import Kernel, Target
from crtgen.compiler.kernels.engine.registry import design
from crtgen.compiler.kernels.engine.words import bits_of
from crtgen.compiler.kernels.mve.elements import (
    ElementSteps,
    Operands,
    StoreForm,
    elementwise,
    spread,
    walk,
)
from crtgen.compiler.kernels.shared.powers import FEWEST, HIGHEST, LOWEST, TERMS
from crtgen.network.ir import DType, Signature
from crtgen.network.ops import Exp
from crtgen.network.ops.exponential import LN2_HIGH, LN2_LOW, LOG2_E

__all__ = ["PowerSteps", "exponential"]

_INFINITE = 0x7F800000


class PowerSteps:
    """Constants of ``e^x``, loaded at once; a call appends the code for one vector and returns the powers."""

    def __init__(self, f: Function) -> None:
        self.f = f
        self.power, self.whole = f.vectors("powers, exponents", 2)
        self.low, self.high, self.zero, self.infinite = f.vectors("limits; zero, infinity", 4)
        bits = (bits_of(LOWEST), bits_of(HIGHEST), 0, _INFINITE)
        for vector, value in zip((self.low, self.high, self.zero, self.infinite), bits, strict=True):
            spread(f, vector, value)
        self.log2_e = f.constant("1 / ln 2", bits_of(float(LOG2_E)))
        parts = (-float(LN2_HIGH), -float(LN2_LOW))
        self.parts = [f.constant("parts of -ln 2", bits_of(part)) for part in parts]
        self.terms = [f.constant("terms", bits_of(term)) for term in (*TERMS, 1.0)]

    def __call__(self, x: str) -> str:
        f, power, whole = self.f, self.power, self.whole
        first, second, *others = self.terms
        f("vmaxnm.f32", x, x, self.low)
        f("vminnm.f32", x, x, self.high)
        f("vmul.f32", whole, x, self.log2_e)
        f("vcvtn.s32.f32", whole, whole)
        f("vcvt.f32.s32", power, whole)
        for part in self.parts:
            f("vfma.f32", x, power, part)
        f("vshl.i32", whole, whole, "#23")
        f("vmul.f32", power, x, first)
        f("vadd.f32", power, power, second)
        for term in (*others, others[-1]):
            f("vfmas.f32", power, x, term)
        f("vadd.i32", power, power, whole)
        f("vmax.s32", power, power, self.zero)
        f("vmin.s32", power, power, self.infinite)
        return power


@design(Exp, types=(DType.FLOAT32,), needs="mve")
def exponential(op: Exp, sig: Signature, target: Target) -> Kernel | None:
    if sig.x.elements < FEWEST:
        return None

    def steps(o: Operands) -> ElementSteps:
        x, powers = o.f.vector("elements"), PowerSteps(o.f)

        def vector() -> str:
            o.f("vldrw.u32", x, f"[{o.inputs[0]}], #16")
            return powers(x)

        return ElementSteps(vector)

    return elementwise("mve exp", sig, target, walk(sig), steps, StoreForm(store="vstrw.32", step=16))
