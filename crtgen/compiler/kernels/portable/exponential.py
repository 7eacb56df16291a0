"""Exponential functions."""

from dataclasses import dataclass

from crtgen.compiler.kernels.engine.cost import Work
from crtgen.compiler.kernels.engine.kernel import InPlace, Kernel, Target
from crtgen.compiler.kernels.engine.literal import c_float
from crtgen.compiler.kernels.engine.registry import design
from crtgen.network.ir import Signature
from crtgen.network.ops.exponential import EXP_TERMS, LEAST, LN2_HIGH, LN2_LOW, LOG2_E, MOST, ScaledExp

__all__ = ["ExpView"]


@dataclass(frozen=True, slots=True)
class ExpView:
    op: ScaledExp
    outputs: int
    scale: str
    offset: str
    least: str
    most: str
    log2_e: str
    high: str
    low: str
    terms: tuple[str, ...]


@design(ScaledExp)
def scaled_exp(op: ScaledExp, sig: Signature, target: Target) -> Kernel:
    view = ExpView(
        op,
        sig.y.elements,
        scale=c_float(op.scale),
        offset=c_float(op.offset),
        least=c_float(float(LEAST)),
        most=c_float(float(MOST)),
        log2_e=c_float(float(LOG2_E)),
        high=c_float(float(LN2_HIGH)),
        low=c_float(float(LN2_LOW)),
        terms=tuple(c_float(float(term)) for term in EXP_TERMS),
    )
    work = Work().block("number", sig.y.elements)
    return Kernel("scaled_exp", "exponential.c.j2", view, inplace=(InPlace(),), work=work)
